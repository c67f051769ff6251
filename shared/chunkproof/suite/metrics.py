"""Retrieval metrics, defined as in trec_eval, which the tests compare them with.

A ranking is the gain at each rank, first to last, as the search returned it: the grade of a relevant
document (1 and more), 0 for one that is judged not relevant or not judged at all. `ideal` has the gain of
every relevant document, found or not, largest first. A query without a relevant document scores 0.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum, log2

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
