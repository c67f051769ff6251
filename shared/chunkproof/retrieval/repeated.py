"""What repeated texts take of search results: a text that stands twice leaves less room for others."""

from collections.abc import Iterable, Sequence

from pydantic import Field

from chunkproof.models import Model


class RepeatedResults(Model):
    """Results whose text a higher-ranked result of the same query has already."""

    queries: int
    results: int = Field(description="Results of all queries")
    repeated: int = Field(description="Results with the text of a higher-ranked one")
    share: float = Field(description="Repeated results among all; between 0 and 1")
    queries_affected: int
    worst: float = Field(description="The largest share among the results of one query")


def count_repeated(results: Iterable[Sequence[str]]) -> RepeatedResults:
    """Count repeated texts; each item has the texts (or their hashes) of one query's results."""
    queries = total = repeated = affected = 0
    worst = 0.0
    for texts in results:
        extra = len(texts) - len(set(texts))
        queries += 1
        total += len(texts)
        repeated += extra
        affected += extra > 0
        worst = max(worst, extra / len(texts) if texts else 0.0)
    return RepeatedResults(
        queries=queries,
        results=total,
        repeated=repeated,
        share=repeated / total if total else 0.0,
        queries_affected=affected,
        worst=worst,
    )
