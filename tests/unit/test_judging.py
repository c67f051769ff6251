"""When a case passes, and what is said when it does not."""

from typing import Any

import pytest

from chunkproof.suite.judge import find_unmet, match_judged_ids, measure_case

from support.suites import answer, case, chunk

DOC = {"document_id": "manual", "url": "https://docs.example.com/a#1", "document_title": "Manual"}
RESULTS = answer(
    chunk("a", 0.9, "The gripper holds", **DOC),
    chunk("b", 0.7, "Torque of a motor", **DOC),
    chunk("c", 0.4, "Nothing", document_id=7),
).results


def problems(latency_ms: float = 10.0, **fields: Any) -> list[tuple[str, str]]:
    found = find_unmet(case(**fields), RESULTS, latency_ms)
    return [(type(problem).__name__, str(problem)) for problem in found]


@pytest.mark.parametrize("expected", ["a", "manual", "https://docs.example.com/a#1", "7"])
def test_an_expected_id_is_a_chunk_id_a_document_id_or_a_url(expected: str) -> None:
    assert problems(expected_doc_ids=[expected]) == []


def test_all_expected_ids_must_be_found_unless_any_is_enough() -> None:
    assert problems(expected_doc_ids=["a", "x", "y"]) == [("MissingDocumentError", "Not in the top 10: x, y")]
    assert problems(expected_doc_ids=["a", "x", "y"], expect="any") == []
    assert problems(expected_doc_ids=["x", "y"], expect="any") == [
        ("MissingDocumentError", "None of x, y is in the top 10")
    ]


def test_each_keyword_must_be_in_some_result() -> None:
    assert problems(expected_keywords=["torque", "GRIPPER holds"]) == []
    assert problems(expected_keywords=["grip"]) == [("RelevanceError", "Keyword 'grip' is in none of the 3 results")]


def test_every_expected_result_must_score_enough_and_the_threshold_is_inclusive() -> None:
    assert problems(expected_doc_ids=["a", "b"], relevance_threshold=0.7) == []
    assert problems(expected_doc_ids=["a", "b"], relevance_threshold=0.71) == [
        ("RelevanceError", "b at rank 2 scores 0.700, at least 0.71 was expected")
    ]
    assert problems(expected_doc_ids=["a", "b"], relevance_threshold=0.71, expect="any") == []


def test_without_expected_ids_the_first_result_must_score_enough() -> None:
    assert problems(judgments={}, relevance_threshold=0.9) == []
    assert problems(judgments={}, relevance_threshold=0.91) == [
        ("RelevanceError", "a at rank 1 scores 0.900, at least 0.91 was expected")
    ]
    nothing = find_unmet(case(judgments={}, relevance_threshold=0.5), (), 1.0)
    assert [str(problem) for problem in nothing] == ["No result, and one of at least 0.5 was expected"]


def test_a_document_scores_as_its_best_chunk() -> None:
    assert problems(expected_doc_ids=["manual"], relevance_threshold=0.9) == []


def test_a_negative_case_fails_with_any_result_and_asks_for_those_above_its_threshold() -> None:
    negative = case(expect_no_results=True, relevance_threshold=0.35)
    assert negative.request()["similarity_threshold"] == 0.35
    assert find_unmet(negative, (), 1.0) == []
    assert [str(p) for p in find_unmet(negative, RESULTS, 1.0)] == [
        "No result was expected, 3 came back; the best is a with 0.900"
    ]


def test_a_slow_search_fails_a_case_that_limits_it() -> None:
    assert problems(latency_ms=100.0, max_latency_ms=100) == []
    assert problems(latency_ms=101.0, max_latency_ms=100) == [
        ("PerformanceError", "The search took 101 ms, at most 100 are allowed")
    ]


def test_all_unmet_expectations_are_reported_at_once() -> None:
    found = problems(
        latency_ms=9.0,
        expected_doc_ids=["c", "x"],
        expected_keywords=["none"],
        relevance_threshold=0.5,
        max_latency_ms=1,
    )
    assert [kind for kind, _ in found] == [
        "MissingDocumentError",
        "RelevanceError",
        "RelevanceError",
        "PerformanceError",
    ]


def test_a_second_chunk_of_a_document_keeps_its_rank_and_counts_as_nothing() -> None:
    both = case(expected_doc_ids=["manual", "7"])
    assert match_judged_ids(RESULTS, both.grades) == ["manual", None, "7"]
    found = measure_case(both, match_judged_ids(RESULTS, both.grades))
    assert (found["recall@1"], found["recall@3"], found["precision@3"]) == (0.5, 1.0, pytest.approx(2 / 3))
    assert found["map@3"] == pytest.approx((1 + 2 / 3) / 2)


def test_the_most_specific_id_of_a_result_counts() -> None:
    assert match_judged_ids(RESULTS, {"manual": 1, "b": 2, "a": 1}) == ["a", "b", None]


def test_judged_irrelevant_and_unjudged_results_gain_nothing() -> None:
    graded = case(judgments={"a": 0, "b": 3, "x": 1})
    found = measure_case(graded, match_judged_ids(RESULTS, graded.grades))
    assert (found["mrr@3"], found["recall@3"]) == (0.5, 0.5)


def test_a_case_without_relevant_documents_has_no_metrics() -> None:
    assert measure_case(case(expected_keywords=["x"]), [None]) == {}
