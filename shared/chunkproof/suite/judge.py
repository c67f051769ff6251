"""Results against expectations."""

from collections.abc import Iterator, Mapping, Sequence

from chunkproof.models import SearchResult
from chunkproof.suite.cases import TestCase
from chunkproof.suite.keywords import contains
from chunkproof.suite.metrics import evaluate

SHOWN_IDS = 5


class ExpectationError(Exception):
    """An expectation that was not met; what is found is one of its kinds. `keyword` is the one that is missing."""

    def __init__(self, message: str, keyword: str | None = None) -> None:
        super().__init__(message)
        self.keyword = keyword


class MissingDocumentError(ExpectationError):
    """An expected document is not among the results."""


class RelevanceError(ExpectationError):
    """The results are not relevant enough: a score too low, a keyword missing, a match where none should be."""


class PerformanceError(ExpectationError):
    """The search took longer than the case allows."""


def match_judged_ids(results: Sequence[SearchResult], judged: Mapping[str, int]) -> list[str | None]:
    """The judged id that each result is counted as: by its chunk id, else its document's, else its URL.

    An id counts once. Another result of the same document keeps its rank and counts as nothing.
    """
    counted: set[str] = set()
    labels: list[str | None] = []
    for result in results:
        label = next((key for key in ids_of(result) if key in judged and key not in counted), None)
        if label is not None:
            counted.add(label)
        labels.append(label)
    return labels


def ids_of(result: SearchResult) -> tuple[str, ...]:
    """Every id that a result answers to, the most specific first."""
    named = (result.metadata.chunk_id, getattr(result.metadata, "document_id", None), result.metadata.url)
    return tuple(dict.fromkeys(str(key) for key in named if key is not None))


def measure_case(case: TestCase, labels: Sequence[str | None]) -> dict[str, float]:
    """The case's metrics; none for a case without relevant documents."""
    grades = case.grades
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not ideal:
        return {}
    gains = [max(0, grades[label]) if label is not None else 0 for label in labels]
    return evaluate(gains, ideal, case.top_k)


def find_unmet(case: TestCase, results: Sequence[SearchResult], latency_ms: float) -> list[ExpectationError]:
    """Every expectation of the case that these results do not meet."""
    found = list(_unmet_by_results(case, results))
    if case.max_latency_ms is not None and latency_ms > case.max_latency_ms:
        found.append(
            PerformanceError(
                f"The search took {latency_ms:.0f} ms, at most {case.max_latency_ms:g} are allowed"
            )
        )
    return found


def _unmet_by_results(case: TestCase, results: Sequence[SearchResult]) -> Iterator[ExpectationError]:
    if case.expect_no_results:
        if results:
            best = results[0]
            yield RelevanceError(
                f"No result was expected, {len(results)} came back; "
                f"the best is {best.metadata.chunk_id} with {best.similarity_score:.3f}"
            )
        return
    best_of: dict[str, SearchResult] = {}
    for result in results:
        for key in ids_of(result):
            best_of.setdefault(key, result)
    found = [key for key in case.expected_doc_ids if key in best_of]
    yield from _missing(case, found)
    yield from _without_keywords(case, results)
    yield from _below_threshold(case, [best_of[key] for key in found], results)


def _missing(case: TestCase, found: Sequence[str]) -> Iterator[ExpectationError]:
    missing = [key for key in case.expected_doc_ids if key not in found]
    if not missing or (case.expect == "any" and found):
        return
    listed = ", ".join(missing[:SHOWN_IDS]) + (
        f" and {more} more" if (more := len(missing) - SHOWN_IDS) > 0 else ""
    )
    if case.expect == "any" and len(missing) > 1:
        yield MissingDocumentError(f"None of {listed} is in the top {case.top_k}")
    else:
        yield MissingDocumentError(f"Not in the top {case.top_k}: {listed}")


def _without_keywords(case: TestCase, results: Sequence[SearchResult]) -> Iterator[ExpectationError]:
    for keyword in case.expected_keywords:
        if not any(contains(result.text, keyword, ignore_accents=case.ignore_accents) for result in results):
            yield RelevanceError(f"Keyword {keyword!r} is in none of the {len(results)} results", keyword)


def _below_threshold(
    case: TestCase, expected: Sequence[SearchResult], results: Sequence[SearchResult]
) -> Iterator[ExpectationError]:
    """Each expected result that was found must score enough; with `any`, the best of them; without ids, the first."""
    least = case.relevance_threshold
    if not case.expected_doc_ids:
        expected = results[:1]
        if not results and least > 0:
            yield RelevanceError(f"No result, and one of at least {least:g} was expected")
    elif case.expect == "any":
        expected = expected[:1] and [max(expected, key=lambda result: result.similarity_score)]
    for rank in dict.fromkeys(result.rank for result in expected if result.similarity_score < least):
        low = results[rank - 1]
        yield RelevanceError(
            f"{low.metadata.chunk_id} at rank {low.rank} scores {low.similarity_score:.3f}, "
            f"at least {least:g} was expected"
        )
