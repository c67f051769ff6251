"""Metrics: by hand, and against trec_eval on random runs."""

from collections.abc import Mapping, Sequence
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.suite import judge as metrics

from support import oracle

PRECISION = 1e-9

# Few ids, few scores and few grades: ties, unjudged documents and judged non-relevant ones are common.
IDS = st.sampled_from([f"d{n}" for n in range(12)])
JUDGED = st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=10)
SCORED = st.dictionaries(IDS, st.sampled_from([0.25, 0.5, 0.75]), max_size=12)
QUERIES = st.lists(st.tuples(JUDGED, SCORED), min_size=1, max_size=4)


def ours(ranking: Sequence[str], judged: Mapping[str, int], k: int) -> dict[str, float]:
    gains = [judged.get(document, 0) for document in ranking]
    ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)
    return {f"{name}@{k}": metric(gains, ideal, k) for name, metric in metrics.METRICS.items()}


def in_our_order(scored: Mapping[str, float]) -> list[str]:
    """As a search returns them: equal scores by id."""
    return sorted(scored, key=lambda document: (-scored[document], document))


def in_trec_evals_order(scored: Mapping[str, float]) -> list[str]:
    """trec_eval ignores the ranks of a run: it sorts by score, and equal scores by id backwards."""
    return sorted(scored, key=lambda document: (scored[document], document), reverse=True)


@given(QUERIES, st.sampled_from([1, 2, 3, 5, 10]))
def test_metrics_equal_trec_evals_for_the_order_that_was_returned(
    queries: list[tuple[dict[str, int], dict[str, float]]], k: int
) -> None:
    qrels = {f"q{n}": judged for n, (judged, _) in enumerate(queries)}
    rankings = {f"q{n}": in_our_order(scored) for n, (_, scored) in enumerate(queries)}
    by_rank = {q: {d: float(-rank) for rank, d in enumerate(ids)} for q, ids in rankings.items()}
    expected = oracle.by_query(by_rank, qrels, k)
    for query, judged in qrels.items():
        assert ours(rankings[query], judged, k) == pytest.approx(expected[query], abs=PRECISION)


@given(QUERIES, st.sampled_from([1, 2, 3, 5, 10]))
def test_with_trec_evals_order_of_ties_metrics_equal_it_on_the_scores_themselves(
    queries: list[tuple[dict[str, int], dict[str, float]]], k: int
) -> None:
    qrels = {f"q{n}": judged for n, (judged, _) in enumerate(queries)}
    run = {f"q{n}": scored for n, (_, scored) in enumerate(queries)}
    expected = oracle.by_query(run, qrels, k)
    for query, judged in qrels.items():
        found = ours(in_trec_evals_order(run[query]), judged, k)
        assert found == pytest.approx(expected[query], abs=PRECISION)


def test_means_are_over_all_judged_queries_also_those_without_a_result() -> None:
    qrels = {"found": {"a": 1}, "missed": {"b": 1}, "empty": {"c": 2}}
    rankings = {"found": ["x", "a"], "missed": ["x"], "empty": []}
    mean, counts = metrics.average([ours(rankings[q], qrels[q], 5) for q in qrels])
    run = {q: {d: float(-rank) for rank, d in enumerate(ids)} for q, ids in rankings.items()}
    assert mean == pytest.approx(oracle.means(run, qrels, 5), abs=PRECISION)
    assert mean["mrr@5"] == pytest.approx(1 / 6)
    assert set(counts.values()) == {3}


def test_metrics_of_one_query_by_hand() -> None:
    gains, ideal = [0, 2, 0, 1], [3, 2, 1]
    found = {name: metric(gains, ideal, 3) for name, metric in metrics.METRICS.items()}
    assert found == {
        "recall": pytest.approx(1 / 3),
        "precision": pytest.approx(1 / 3),
        "hit_rate": 1.0,
        "mrr": 0.5,
        "map": pytest.approx((1 / 2) / 3),
        "ndcg": pytest.approx((2 / log2(3)) / (3 + 2 / log2(3) + 1 / 2)),
    }


def test_a_cut_off_deeper_than_the_search_is_not_reported() -> None:
    assert set(metrics.evaluate([1], [1], 4)) == {f"{m}@{k}" for m in metrics.METRICS for k in (1, 3)}


def test_a_query_counts_in_the_cut_offs_it_has() -> None:
    shallow, deep = metrics.evaluate([1], [1], 1), metrics.evaluate([0, 1], [1], 3)
    mean, counts = metrics.average([shallow, deep])
    assert (mean["hit_rate@1"], counts["hit_rate@1"]) == (0.5, 2)
    assert (mean["hit_rate@3"], counts["hit_rate@3"]) == (1.0, 1)
