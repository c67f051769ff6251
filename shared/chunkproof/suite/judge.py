"""Compare the results of a search with what its case expects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from chunkproof.models import SearchResult
from chunkproof.suite.cases import TestCase
from chunkproof.suite.keywords import contains
from chunkproof.suite.metrics import evaluate
from chunkproof.suite.outcome import RetrievedChunk
from chunkproof.why.ids import ids_of

SHOWN_IDS = 5

Result = TypeVar("Result", SearchResult, RetrievedChunk)


class ExpectationError(Exception):
    """Base of the expectations that results can break; `keyword` is the missing one, where that is the reason."""

    def __init__(self, message: str, keyword: str | None = None) -> None:
        super().__init__(message)
        self.keyword = keyword


class MissingDocumentError(ExpectationError):
    """An expected document is not among the results."""


class RelevanceError(ExpectationError):
    """A score is too low, a keyword is missing, or there is a result where none was expected."""


class PerformanceError(ExpectationError):
    """The search took longer than the case allows."""


def match_judged_ids(results: Sequence[SearchResult], judged: Mapping[str, int]) -> list[str | None]:
    """Return the judged id that each result counts as: by its chunk id, else its document's, else its URL.

    An id counts once. Another result of the same document keeps its rank and counts as nothing.
    """
    counted: set[str] = set()
    labels: list[str | None] = []
    for result in results:
        label = next((key for key in ids_of(result.metadata) if key in judged and key not in counted), None)
        if label is not None:
            counted.add(label)
        labels.append(label)
    return labels


def measure_case(case: TestCase, labels: Sequence[str | None]) -> dict[str, float]:
    """Compute the case's metrics; a case without relevant documents has none."""
    grades = case.grades
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not ideal:
        return {}
    gains = [max(0, grades[label]) if label is not None else 0 for label in labels]
    return evaluate(gains, ideal, case.top_k)


def find_unmet(case: TestCase, results: Sequence[SearchResult], latency_ms: float) -> list[ExpectationError]:
    """Return every expectation of the case that these results do not meet."""
    found = list(_check_results(case, results))
    if case.max_latency_ms is not None and latency_ms > case.max_latency_ms:
        found.append(
            PerformanceError(f"The search took {latency_ms:.0f} ms, at most {case.max_latency_ms:g} are allowed")
        )
    return found


def _check_results(case: TestCase, results: Sequence[SearchResult]) -> Iterator[ExpectationError]:
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
        for key in ids_of(result.metadata):
            best_of.setdefault(key, result)
    found = [key for key in case.expected_doc_ids if key in best_of]
    yield from _check_ids(case, found)
    yield from _check_keywords(case, results)
    yield from _check_scores(case, [best_of[key] for key in found], results)


def _check_ids(case: TestCase, found: Sequence[str]) -> Iterator[ExpectationError]:
    missing = [key for key in case.expected_doc_ids if key not in found]
    if not missing or (case.expect == "any" and found):
        return
    listed = ", ".join(missing[:SHOWN_IDS]) + (f" and {more} more" if (more := len(missing) - SHOWN_IDS) > 0 else "")
    if case.expect == "any" and len(missing) > 1:
        yield MissingDocumentError(f"None of {listed} is in the top {case.top_k}")
    else:
        yield MissingDocumentError(f"Not in the top {case.top_k}: {listed}")


def _check_keywords(case: TestCase, results: Sequence[SearchResult]) -> Iterator[ExpectationError]:
    for keyword in case.expected_keywords:
        if not any(contains(result.text, keyword, ignore_accents=case.ignore_accents) for result in results):
            yield RelevanceError(f"Keyword {keyword!r} is in none of the {len(results)} results", keyword)


def _check_scores(
    case: TestCase, expected: Sequence[SearchResult], results: Sequence[SearchResult]
) -> Iterator[ExpectationError]:
    least = case.relevance_threshold
    if not case.expected_doc_ids and not results and least > 0:
        yield RelevanceError(f"No result, and one of at least {least:g} was expected")
    for low in find_low_scores(case, expected, results):
        yield RelevanceError(
            f"{low.metadata.chunk_id} at rank {low.rank} scores {low.similarity_score:.3f}, "
            f"at least {least:g} was expected"
        )


def find_low_scores(case: TestCase, expected: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return the results that must reach the case's threshold and do not, each once.

    These are the expected ones that were found; with `expect: any`, the best of them; without expected ids, the first
    of all results.
    """
    if not case.expected_doc_ids:
        expected = results[:1]
    elif case.expect == "any":
        expected = sorted(expected, key=lambda result: -result.similarity_score)[:1]
    low = {r.rank: r for r in expected if r.similarity_score < case.relevance_threshold}
    return list(low.values())
