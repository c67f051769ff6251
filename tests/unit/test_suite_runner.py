"""The runner: order, errors apart from failures, interruption, exact searches."""

from threading import Event
from typing import Any

import pytest

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    EmbeddingTimeoutError,
    RateLimitedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
    error_classes,
)
from chunkproof.contract import RetrievalResponse
from chunkproof.suite import runner as case_runner
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import GIVE_UP_AFTER, CaseRunner, InterruptedRun, RunPlan, run_case, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.causes import Cause
from chunkproof_cli.exits import rebuild_error

from support.suites import Answer, Backend, answer, case, chunk, suite

FOUND = answer(chunk("a"))


def plan(count: int, **options: Any) -> RunPlan:
    made = suite(
        *({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["a"]} for n in range(count)),
        defaults={"collection_name": "docs"},
    )
    return RunPlan(made, "suite.yaml", made.cases, **options)


def states(results: Any) -> list[str]:
    return [result.status.value for result in results]


def test_results_are_in_the_suites_order_whichever_finishes_first() -> None:
    second_is_done = Event()

    def answers(query: str) -> Answer:
        if query == "q1":
            assert second_is_done.wait(10)
        if query == "q2":
            second_is_done.set()
        return FOUND

    finished: list[str] = []
    run = CaseRunner(plan(3).cases, Backend(answers).search, jobs=2, on_result=lambda r: finished.append(r.name))
    run.execute()
    assert finished == ["c0", "c2", "c1"]
    assert [result.name for result in run.results] == ["c0", "c1", "c2"]


@pytest.mark.parametrize(
    "error",
    [
        VectorStoreUnavailableError("host", "gone"),
        EmbeddingTimeoutError("slow"),
        RateLimitedError("slower, please"),
    ],
)
def test_a_service_that_fails_leaves_an_error_and_never_a_failed_case(error: Exception) -> None:
    def failing(_: dict[str, Any]) -> RetrievalResponse:
        raise error

    result = run_case(case(), failing)
    assert (result.status, result.error_message) == (TestStatus.ERROR, str(error))
    assert result.actual_results is None
    assert result.unmet == ()


def test_each_case_is_searched_once_even_after_an_error() -> None:
    backend = Backend(lambda q: RateLimitedError("slow down", retry_after=0.01) if q == "q1" else FOUND)
    report = run_suite(plan(3), backend)
    assert [request["query_text"] for request in backend.requests] == ["q0", "q1", "q2"]
    assert states(report.result.test_results) == ["passed", "error", "passed"]


def test_a_rate_limit_pauses_the_run_as_long_as_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(case_runner, "monotonic", lambda: 100.0 + sum(pauses))
    monkeypatch.setattr(case_runner, "sleep", pauses.append)
    backend = Backend(lambda q: RateLimitedError("slow down", retry_after=7.0) if q == "q1" else FOUND)
    report = run_suite(plan(4), backend)
    assert pauses == [7.0]
    assert states(report.result.test_results) == ["passed", "error", "passed", "passed"]


def test_later_cases_do_not_wait_for_a_service_that_is_down() -> None:
    backend = Backend(lambda _: VectorStoreUnavailableError("host", "gone"))
    report = run_suite(plan(20), backend)
    assert len(backend.requests) == GIVE_UP_AFTER
    assert states(report.result.test_results) == ["error"] * 20
    last = report.result.test_results[-1]
    assert last.error_message == "Not tried, as the service is down: Qdrant service unavailable at host; gone"


@pytest.mark.parametrize(
    ("error", "status"),
    [(VectorStoreUnavailableError("h", "gone"), "failed"), (VectorStoreTimeoutError("h", "slow"), "timeout")],
)
def test_a_store_that_is_down_at_the_start_leaves_every_case_in_error(error: Exception, status: str) -> None:
    backend = Backend(lambda _: FOUND, info=error)  # type: ignore[arg-type]
    report = run_suite(plan(2), backend)
    assert backend.requests == []
    assert states(report.result.test_results) == ["error", "error"]
    assert report.validation.connection_status == status
    assert not report.unmet_criteria


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (VectorStoreUnavailableError("h", "gone"), "failed"),
        (VectorStoreTimeoutError("h", "slow"), "timeout"),
        (EmbeddingTimeoutError("slow"), "connected"),
    ],
)
def test_the_connection_is_as_the_searches_found_it(error: Answer, status: str) -> None:
    assert run_suite(plan(2), Backend(lambda _: error)).validation.connection_status == status
    some = Backend(lambda query: FOUND if query == "q0" else error)
    assert run_suite(plan(2), some).validation.connection_status == "connected"


def test_an_unknown_collection_is_wrong_input_and_nothing_is_run() -> None:
    with pytest.raises(CollectionNotFoundError):
        run_suite(plan(1), Backend(lambda _: FOUND, info=CollectionNotFoundError("docs")))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interruption_leaves_the_verdicts_so_far_and_the_rest_pending(jobs: int) -> None:
    def answers(query: str) -> Answer:
        if query == "q1":
            raise KeyboardInterrupt
        return FOUND

    with pytest.raises(InterruptedRun) as stopped:
        run_suite(plan(40, jobs=jobs), Backend(answers))
    report = stopped.value.report
    assert not report.complete
    assert states(report.result.test_results)[:2] == ["passed", "pending"]
    assert set(states(report.result.test_results)) == {"passed", "pending"}


def test_a_resumed_run_keeps_what_is_judged_and_runs_the_rest() -> None:
    whole = plan(3)
    kept = TestCaseResult.pending(whole.cases[1]).model_copy(update={"status": TestStatus.FAILED})
    backend = Backend(lambda _: FOUND)
    report = run_suite(RunPlan(whole.suite, "s", (whole.cases[0], kept, whole.cases[2])), backend)
    assert [request["query_text"] for request in backend.requests] == ["q0", "q2"]
    assert states(report.result.test_results) == ["passed", "failed", "passed"]


def test_verdicts_that_change_between_runs_are_reported() -> None:
    times = {"q1": 0}

    def answers(query: str) -> Answer:
        if query != "q1":
            return FOUND
        times["q1"] += 1
        return FOUND if times["q1"] == 1 else answer(chunk("other"))

    report = run_suite(plan(4, repeat=3), Backend(answers))
    found = {one.id: one for one in report.criteria}["SC-006"]
    assert (found.figure, found.verdict, found.details) == (75.0, "not met", "3 runs; verdicts differ for c1")


def test_the_first_search_of_each_collection_is_the_cold_one() -> None:
    made = suite(
        *(
            {"name": f"{place}{n}", "query_text": "q", "expected_doc_ids": ["a"], "collection_name": place}
            for place in ("x", "y")
            for n in range(2)
        )
    )
    report = run_suite(RunPlan(made, "s", made.cases), Backend(lambda _: FOUND))
    cold = [result.timing.cold for result in report.result.test_results if result.timing]
    assert cold == [True, False, True, False]
    total = report.latency[0]
    assert (total.stage, total.warm and total.warm.count, total.cold and total.cold.count) == ("total", 2, 2)


def test_ids_missed_by_the_index_are_distinguished_from_ids_that_no_search_finds() -> None:
    exact = answer(chunk("a", 0.9), chunk("b", 0.8), chunk("c", 0.7), chunk("d", 0.6))
    found = answer(chunk("b", 0.8), chunk("d", 0.6), chunk("e", 0.5), chunk("f", 0.4))
    result = run_case(case(expected_doc_ids=["a", "z"]), lambda _: found, exact_search=lambda _: exact)
    assert result.approximation is not None
    assert result.approximation.ann_recall == 0.5
    assert result.approximation.missed_by_index == ("a",)


def test_an_equally_near_result_is_not_a_miss_of_the_index() -> None:
    exact = answer(chunk("a", 0.9), chunk("b", 0.8))
    found = answer(chunk("a", 0.9), chunk("c", 0.8))
    result = run_case(case(), lambda _: found, exact_search=lambda _: exact)
    assert result.approximation is not None
    assert result.approximation.ann_recall == 1.0


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_a_typed_error_leaves_its_code_and_message(kind: type[ChunkproofError]) -> None:
    def failing(_: dict[str, Any]) -> RetrievalResponse:
        raise rebuild_error(kind.code, ["the reason"])

    result = run_case(case(), failing)
    assert (result.status, result.error_code, result.error_message) == (
        TestStatus.ERROR,
        kind.code,
        "the reason",
    )


def sc_005(report: SuiteReport) -> tuple[float | None, str, str | None]:
    found = {one.id: one for one in report.criteria}["SC-005"]
    return found.figure, found.verdict.value, found.details


def test_errors_are_not_judged_in_a_run_without_any() -> None:
    report = run_suite(plan(2), Backend(lambda _: FOUND))
    assert sc_005(report) == (None, "not judged", "no error occurred")


def test_typed_errors_of_cases_and_of_repeated_runs_meet_the_criterion() -> None:
    backend = Backend(lambda q: EmbeddingTimeoutError("slow") if q == "q1" else FOUND)
    report = run_suite(plan(3, repeat=2), backend)
    assert sc_005(report) == (100.0, "met", "2 of 2 errors")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_unexpected_exception_is_an_error_of_its_case_and_breaks_the_criterion(jobs: int) -> None:
    def answers(query: str) -> Answer:
        if query == "q1":
            raise ZeroDivisionError("key sk-123")
        return EmbeddingTimeoutError("slow") if query == "q2" else FOUND

    report = run_suite(plan(4, jobs=jobs), Backend(answers))
    assert states(report.result.test_results) == ["passed", "error", "error", "passed"]
    result = report.result.test_results[1]
    assert result.error_code == "INTERNAL"
    assert str(result.error_message).startswith("Unexpected ZeroDivisionError (test_suite_runner.py, line ")
    assert "sk-123" not in report.canonical_json()
    assert sc_005(report) == (50.0, "not met", "1 of 2 errors")


def test_an_unexpected_exception_of_an_exact_search_is_an_error_of_its_case() -> None:
    exact: list[RetrievalResponse] = []
    result = run_case(case(), lambda _: FOUND, exact_search=lambda _: exact[0])
    assert (result.status, result.error_code) == (TestStatus.ERROR, "INTERNAL")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("boom"), (0.0, "not met", "0 of 1 errors")),
        (VectorStoreTimeoutError("host", "slow"), (100.0, "met", "1 of 1 errors")),
    ],
)
def test_an_error_of_a_lookup_by_id_counts_as_well(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: object
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Backend, "validate", fail)
    report = run_suite(plan(1), Backend(lambda _: FOUND))
    assert {one.id: one.verdict.value for one in report.criteria}["SC-001"] == "not judged"
    assert sc_005(report) == expected


def test_an_unexpected_exception_at_the_start_leaves_every_case_in_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Backend, "collection", fail)
    report = run_suite(plan(2), Backend(lambda _: FOUND))
    assert states(report.result.test_results) == ["error", "error"]
    assert sc_005(report) == (0.0, "not met", "0 of 3 errors")


def test_an_unexpected_exception_of_a_diagnosis_does_not_end_the_run() -> None:
    broken: Any = object()
    report = run_suite(plan(1), Backend(lambda _: answer(chunk("b"))), diagnoser=Diagnoser(broken))
    [found] = report.result.test_results[0].diagnosis
    assert found.cause is Cause.NOT_LOOKED_INTO
    assert found.message.startswith("Not looked into: Unexpected AttributeError (")
    assert sc_005(report) == (0.0, "not met", "0 of 1 errors")
