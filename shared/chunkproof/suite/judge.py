"""Compare the results of a search with what its case expects, and measure their ranking.

Metrics are defined as in trec_eval, which the tests compare them with. A ranking is the gain at each rank, first to
last, as the search returned it: the grade of a relevant document (1 and more), 0 for one that is judged not relevant
or not judged at all. `ideal` has the gain of every relevant document, found or not, largest first. A query without a
relevant document scores 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum, log2
from typing import TypeVar

from chunkproof.collection.lookup import ids_of
from chunkproof.contract import SearchResult
from chunkproof.suite.cases import TestCase, contains
from chunkproof.suite.outcome import RetrievedChunk

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


class IntegrityError(ExpectationError):
    """A result's text does not match its hash, or has no hash."""


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
    for keyword in case.expected_keywords:
        if not any(contains(result.text, keyword, ignore_accents=case.ignore_accents) for result in results):
            yield RelevanceError(f"Keyword {keyword!r} is in none of the {len(results)} results", keyword)
    yield from _check_scores(case, [best_of[key] for key in found], results)
    yield from _check_integrity(case, results)


def _check_ids(case: TestCase, found: Sequence[str]) -> Iterator[ExpectationError]:
    missing = [key for key in case.expected_doc_ids if key not in found]
    if not missing or (case.expect == "any" and found):
        return
    listed = ", ".join(missing[:SHOWN_IDS]) + (f" and {more} more" if (more := len(missing) - SHOWN_IDS) > 0 else "")
    if case.expect == "any" and len(missing) > 1:
        yield MissingDocumentError(f"None of {listed} is in the top {case.top_k}")
    else:
        yield MissingDocumentError(f"Not in the top {case.top_k}: {listed}")


def _check_integrity(case: TestCase, results: Sequence[SearchResult]) -> Iterator[ExpectationError]:
    allowed = {"verified": ("verified",), "unchanged": ("verified", "unknown")}.get(case.expect_integrity or "")
    for result in results if allowed else ():
        if result.integrity == "changed":
            yield IntegrityError(
                f"{result.metadata.chunk_id} at rank {result.rank} was changed: its text does not match its hash"
            )
        elif allowed and result.integrity not in allowed:
            yield IntegrityError(f"{result.metadata.chunk_id} at rank {result.rank} has no hash to verify its text by")


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


Gains = Sequence[int]
CUTOFFS = (1, 3, 5, 10, 20, 50, 100)


def precision(gains: Gains, _ideal: Gains, k: int) -> float:
    """Share of the first k ranks that hold a relevant document; a rank without a result counts as a miss."""
    return _hits(gains, k) / k


def recall(gains: Gains, ideal: Gains, k: int) -> float:
    """Share of the relevant documents that are in the first k ranks."""
    return _hits(gains, k) / len(ideal) if ideal else 0.0


def hit_rate(gains: Gains, _ideal: Gains, k: int) -> float:
    """1 when the first k ranks hold a relevant document (trec_eval's success)."""
    return float(_hits(gains, k) > 0)


def mrr(gains: Gains, _ideal: Gains, k: int) -> float:
    """1 / rank of the first relevant document, 0 when it is not in the first k ranks."""
    return next((1 / rank for rank, gain in _ranked(gains, k) if gain > 0), 0.0)


def average_precision(gains: Gains, ideal: Gains, k: int) -> float:
    """Precision at each relevant document's rank up to k, over all relevant documents (map_cut)."""
    at_hits = [_hits(gains, rank) / rank for rank, gain in _ranked(gains, k) if gain > 0]
    return fsum(at_hits) / len(ideal) if ideal else 0.0


def ndcg(gains: Gains, ideal: Gains, k: int) -> float:
    """Sum of gain / log2(rank + 1), relative to the best that k ranks could hold; the gain is the grade."""
    best = _dcg(ideal, k)
    return _dcg(gains, k) / best if best else 0.0


METRICS: Mapping[str, Callable[[Gains, Gains, int], float]] = {
    "recall": recall,
    "precision": precision,
    "hit_rate": hit_rate,
    "mrr": mrr,
    "map": average_precision,
    "ndcg": ndcg,
}


def evaluate(gains: Gains, ideal: Gains, depth: int) -> dict[str, float]:
    """Compute every metric of one query at each cut-off that the search was deep enough for."""
    return {f"{name}@{k}": metric(gains, ideal, k) for name, metric in METRICS.items() for k in CUTOFFS if k <= depth}


def average(queries: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, int]]:
    """Return the mean of each metric over the queries that have it, and how many these are."""
    names = [f"{name}@{k}" for name in METRICS for k in CUTOFFS]
    values = {name: [query[name] for query in queries if name in query] for name in names}
    measured = {name: found for name, found in values.items() if found}
    means = {name: fsum(found) / len(found) for name, found in measured.items()}
    return means, {name: len(found) for name, found in measured.items()}


def _hits(gains: Gains, k: int) -> int:
    return sum(gain > 0 for gain in gains[:k])


def _dcg(gains: Gains, k: int) -> float:
    return fsum(gain / log2(rank + 1) for rank, gain in _ranked(gains, k) if gain > 0)


def _ranked(gains: Gains, k: int) -> list[tuple[int, int]]:
    return list(enumerate(gains[:k], start=1))
