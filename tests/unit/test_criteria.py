"""Success criteria and stage limits: figure, verdict, and when there is none."""

from typing import Any

import pytest

from chunkproof.suite.cases import CriteriaLimits
from chunkproof.suite.criteria import (
    CriteriaInput,
    Criterion,
    Spread,
    StageLatency,
    judge_criteria,
    percentile,
    summarize_times,
)
from chunkproof.suite.outcome import RetrievedChunk, TestCaseResult, TestStatus

from support.suites import answer, case, chunk


def result(status: TestStatus, *ids: str) -> TestCaseResult:
    results = answer(*(chunk(i) for i in ids)).results
    found = tuple(RetrievedChunk.of(r, "a" if r.metadata.chunk_id == "a" else None) for r in results)
    return TestCaseResult.pending(case()).model_copy(update={"status": status, "actual_results": found})


def criteria(**measured: Any) -> dict[str, Criterion]:
    given: dict[str, Any] = {
        "results": [result(TestStatus.PASSED, "a")],
        "latency": [],
        "lookups_ms": [10.0],
        "lookups_reason": "",
        "error_codes": [],
        "runs": 1,
        "differing": [],
    }
    return {one.id: one for one in judge_criteria(CriteriaInput(**(given | measured)))}


def stage(name: str, **values: float) -> StageLatency:
    made = Spread(count=3, **{"avg_ms": 1.0, "p50_ms": 1.0, "p95_ms": 1.0, "max_ms": 1.0} | values)
    return StageLatency(stage=name, warm=made, cold=None)


@pytest.mark.parametrize(
    ("measured", "key", "figure", "verdict"),
    [
        ({"lookups_ms": [50.0, 149.0]}, "SC-001", 99.5, "met"),
        ({"lookups_ms": [50.0, 150.0]}, "SC-001", 100.0, "not met"),
        ({"latency": [stage("total", avg_ms=499.9, max_ms=9000)]}, "SC-002", 499.9, "met"),
        ({"latency": [stage("total", avg_ms=500)]}, "SC-002", 500.0, "not met"),
        ({"error_codes": ["RATE_LIMITED", "QDRANT_TIMEOUT"]}, "SC-005", 100.0, "met"),
        ({"error_codes": ["RATE_LIMITED", "INTERNAL"]}, "SC-005", 50.0, "not met"),
        ({"runs": 2}, "SC-006", 100.0, "met"),
        ({"latency": [stage("embedding", max_ms=1999)]}, "stage-embedding", 1999.0, "met"),
        ({"latency": [stage("embedding", max_ms=2000)]}, "stage-embedding", 2000.0, "not met"),
        ({"latency": [stage("search", p95_ms=1000)]}, "stage-search", 1000.0, "not met"),
        ({"latency": [stage("format", p95_ms=49.9)]}, "stage-format", 49.9, "met"),
        (
            {"latency": [stage("total", p95_ms=300)], "latency_target_ms": 250.0},
            "stage-total",
            300.0,
            "not met",
        ),
    ],
)
def test_a_criterion_has_its_figure_and_verdict(
    measured: dict[str, Any], key: str, figure: float, verdict: str
) -> None:
    found = criteria(**measured)[key]
    assert (found.figure, found.verdict) == (figure, verdict)


@pytest.mark.parametrize(
    ("key", "measured"),
    [
        ("SC-001", {"lookups_ms": [300.0]}),
        ("SC-002", {"latency": [stage("total", avg_ms=300)]}),
        ("SC-003", {"results": [result(TestStatus.PASSED, "a"), result(TestStatus.PASSED, "b")]}),
        ("SC-004", {"results": [result(TestStatus.PASSED, "a"), result(TestStatus.FAILED)]}),
        ("SC-005", {"error_codes": ["RATE_LIMITED", "INTERNAL"]}),
        ("SC-006", {"runs": 2, "results": [result(TestStatus.PASSED, "a")] * 2, "differing": ["case"]}),
        ("stage-embedding", {"latency": [stage("embedding", max_ms=300)]}),
        ("stage-search", {"latency": [stage("search", p95_ms=300)]}),
        ("stage-format", {"latency": [stage("format", p95_ms=300)]}),
        ("stage-total", {"latency": [stage("total", p95_ms=300)]}),
    ],
)
def test_every_limit_can_be_set(key: str, measured: dict[str, Any]) -> None:
    strict, loose = (40.0, 60.0) if criteria()[key].unit == "%" else (301.0, 300.0)
    verdicts = [
        criteria(**measured, limits=CriteriaLimits.model_validate({key: limit}))[key].verdict
        for limit in (strict, loose)
    ]
    assert verdicts == ["met", "not met"]


def test_latency_is_not_judged_on_an_embedded_store() -> None:
    found = criteria(lookups_ms=[500.0], latency=[stage("total", avg_ms=9000)], judge_latency=False)
    assert {one.verdict for one in found.values() if one.is_latency} == {"not judged"}
    assert found["SC-001"].details == ("embedded store: --judge-latency judges it")
    assert found["SC-003"].verdict == "met"


def test_a_pass_rate_stays_open_only_where_unjudged_cases_could_decide_it() -> None:
    states = [TestStatus.PASSED] * 8 + [TestStatus.FAILED, TestStatus.ERROR]
    results = [result(state, "a") for state in states]
    verdicts = {
        limit: criteria(results=results, limits=CriteriaLimits.model_validate({"SC-004": limit}))["SC-004"].verdict
        for limit in (80.0, 90.0, 95.0)
    }
    assert verdicts == {80.0: "met", 90.0: "not judged", 95.0: "not met"}


def test_ninety_five_per_cent_need_an_expected_document_in_the_top_five() -> None:
    sixth = result(TestStatus.PASSED, "b", "c", "d", "e", "f", "a")
    fifth = result(TestStatus.PASSED, "b", "c", "d", "e", "a")
    enough = criteria(results=[fifth] * 19 + [sixth])["SC-003"]
    too_few = criteria(results=[fifth] * 18 + [sixth])["SC-003"]
    assert (enough.figure, enough.verdict) == (95.0, "met")
    assert too_few.verdict == "not met"


def test_cases_that_could_not_be_judged_are_in_no_share_and_make_the_pass_rate_unknown() -> None:
    found = criteria(results=[result(TestStatus.PASSED, "a"), result(TestStatus.ERROR)])
    assert (found["SC-003"].figure, found["SC-003"].verdict) == (100.0, "met")
    assert (found["SC-004"].verdict, found["SC-004"].details) == ("not judged", "1 cases could not be judged")
    failed = criteria(results=[result(TestStatus.FAILED, "a"), result(TestStatus.ERROR)])["SC-004"]
    assert (failed.figure, failed.verdict) == (0.0, "not met")


@pytest.mark.parametrize(
    ("measured", "key", "reason"),
    [
        ({"lookups_ms": [], "lookups_reason": "nothing to look up"}, "SC-001", "nothing to look up"),
        ({}, "SC-002", "no search was measured"),
        ({"results": []}, "SC-003", "no case that could be judged expects documents"),
        ({}, "SC-005", "no error occurred"),
        ({}, "SC-006", "one run; --repeat 2 judges it"),
        ({"runs": 2, "results": [result(TestStatus.ERROR)]}, "SC-006", "some cases could not be judged"),
        ({}, "stage-search", "no search was measured"),
    ],
)
def test_a_criterion_that_could_not_be_measured_is_not_judged_with_a_reason(
    measured: dict[str, Any], key: str, reason: str
) -> None:
    found = criteria(**measured)[key]
    assert (found.figure, found.verdict, found.details) == (None, "not judged", reason)


def test_a_slow_embedding_gets_a_warning() -> None:
    found = criteria(latency=[stage("embedding", max_ms=1001)])["stage-embedding"]
    assert found.verdict == "met"
    assert found.details == "3 warm searches; over 1000 ms is slow"


def test_percentiles_are_by_nearest_rank() -> None:
    twenty = [float(n) for n in range(1, 21)]
    assert (percentile(twenty, 50), percentile(twenty, 95)) == (10.0, 19.0)
    assert summarize_times([5.0]) == Spread(count=1, avg_ms=5.0, p50_ms=5.0, p95_ms=5.0, max_ms=5.0)
    assert summarize_times([]) is None
