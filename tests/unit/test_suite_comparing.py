"""`--baseline`: a newly failing case fails the gate, tolerance is asked for, and every format says the same."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.suite.criteria import Comparison, Gate
from chunkproof.suite.outcome import Diagnosis
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport, read_report
from chunkproof.why.causes import Cause
from chunkproof_cli.reports.outputs import SUITE
from chunkproof_cli.suites.baseline import CHANCE, LEAST_CHANGES, Tolerance, chance_margin, compare

from support.suites import Answer, Backend, answer, chunk, suite

FILE = Path("main.json")
FOUND, LOST = answer(chunk("a", 0.8)), answer(chunk("x", 0.6))
DOWN = VectorStoreUnavailableError("db", "gone")


def report(answers: list[Answer], limits: dict[str, float] | None = None, **fields: Any) -> SuiteReport:
    """Cases c0, c1 …, each of which expects chunk `a`."""
    made = suite(
        *({"name": f"c{n}", "query_text": f"{n}", "expected_doc_ids": ["a"], **fields} for n in range(len(answers))),
        limits=limits or {},
    )
    return run_suite(RunPlan(made, "suite.yaml", made.cases), Backend(lambda query: answers[int(query)]))


def comparison(before: list[Answer], after: list[Answer], tolerate: Tolerance = 0) -> tuple[Comparison, int]:
    """Return the comparison and the exit code, which the verdict line must explain."""
    found = compare(report(after), report(before), FILE, tolerate)
    assert found.comparison is not None
    assert found.verdict.line == found.comparison.verdict
    for extension in (".md", ".txt", ".xml", ".html"):
        plain = SUITE.render(found, extension).replace("\\", "").replace("\u200b", "")  # as Markdown shows it
        assert found.comparison.verdict in plain
    stored = json.loads(found.canonical_json())["verdict"]
    assert (stored["exit_code"], stored["line"]) == (found.verdict.exit_code, found.comparison.verdict)
    assert read_report(found.canonical_json().encode(), "r") == found
    return found.comparison, found.verdict.exit_code


def test_an_equal_run_passes_and_says_that_the_baseline_was_failing() -> None:
    found, code = comparison([FOUND] * 20 + [LOST] * 10, [FOUND] * 20 + [LOST] * 10)
    assert (found.gate, code, found.tolerance) == (Gate.PASSED, 0, "none")
    assert (found.newly_failing, found.newly_passing) == ((), ())
    assert found.smallest_detectable == pytest.approx(6 / 30)
    assert found.verdict == (
        "Gate passed: no case newly fails (30 compared); "
        "the baseline itself failed 10 of 30 cases, 10 of them still fail"
    )


def test_one_newly_failing_case_fails_the_gate_and_is_named_with_its_cause() -> None:
    found, code = comparison([FOUND] * 42, [FOUND] * 41 + [LOST])
    assert (found.gate, code) == (Gate.FAILED, 1)
    assert found.verdict == "Gate FAILED: 1 newly failing: c41 (Not in the top 10: a)"


def test_the_cause_is_that_of_the_diagnosis_where_there_is_one() -> None:
    after = report([LOST] + [FOUND] * 5)
    cause = Diagnosis(cause=Cause.TEXT_CHANGED, message="…")
    results = (after.result.test_results[0].model_copy(update={"diagnosis": (cause,)}), *after.result.test_results[1:])
    after = after.model_copy(update={"result": after.result.model_copy(update={"test_results": results})})
    found = compare(after, report([FOUND] * 6), FILE)
    assert found.verdict.line == "Gate FAILED: 1 newly failing: c0 (text changed)"


def test_what_got_better_does_not_make_up_for_what_got_worse() -> None:
    found, code = comparison([FOUND] * 6 + [LOST] * 6, [LOST] * 6 + [FOUND] * 6)
    assert (found.gate, code) == (Gate.FAILED, 1)
    assert (len(found.newly_failing), len(found.newly_passing)) == (6, 6)
    assert " and 1 more; the baseline itself failed 6 of 12 cases, 0 of them still fail" in found.verdict
    assert comparison([FOUND] * 6 + [LOST] * 6, [LOST] * 6 + [FOUND] * 6, "chance")[1] == 0


def test_chance_is_tolerated_on_request_and_the_newly_failing_are_named() -> None:
    found, code = comparison([FOUND] * 30, [LOST] * 5 + [FOUND] * 25, "chance")
    assert (found.gate, code, found.tolerance) == (Gate.PASSED, 0, "chance")
    assert found.verdict.startswith(
        "Gate passed: no fall beyond chance (5 newly failing: c0 (Not in the top 10: a), c1"
    )
    assert found.verdict.endswith("the smallest fall it can detect is 6 of 30 cases (20.0%), all for the worse")


def test_a_fall_beyond_chance_fails_even_a_tolerant_gate_and_says_by_how_much() -> None:
    found, code = comparison([FOUND] * 30, [LOST] * 6 + [FOUND] * 24, "chance")
    assert (found.gate, code) == (Gate.FAILED, 1)
    assert found.newly_failing == tuple(f"c{n}" for n in range(6))
    share = found.changes[0]
    assert (share.name, share.before, share.after, share.difference) == (
        "pass rate",
        1.0,
        0.8,
        pytest.approx(-0.2),
    )
    # Of 64 sign choices 1 sums to 6 and 6 sum to 4: chance reaches 4 of 30.
    assert (share.low, share.high) == (pytest.approx(-0.2 - 4 / 30), pytest.approx(-0.2 + 4 / 30))
    assert found.verdict.startswith("Gate FAILED: pass rate fell from 1.000 to 0.800 (-0.200, by 0.067 at least,")


def test_a_number_of_cases_is_tolerated_on_request() -> None:
    before, after = [FOUND] * 30, [LOST] * 2 + [FOUND] * 28
    passed, code = comparison(before, after, 2)
    assert (passed.gate, code, passed.tolerance) == (Gate.PASSED, 0, "2")
    assert ", within --tolerate 2 (30 compared)" in passed.verdict
    assert comparison(before, after, 1)[1] == 1


@pytest.mark.parametrize("tolerate", ["chance", 5, 50])
def test_no_tolerance_lets_a_suite_pass_that_lost_every_case(tolerate: Tolerance) -> None:
    for cases in (1, 3, 5, 30):
        found, code = comparison([FOUND] * cases, [LOST] * cases, tolerate)
        assert (found.gate, code) == (Gate.FAILED, 1)
        assert found.verdict.startswith(f"Gate FAILED: no case passes: {cases} of {cases} fail")


def test_a_suite_too_small_for_chance_says_so_and_names_what_fails() -> None:
    found, code = comparison([FOUND] * 3, [LOST, FOUND, FOUND], "chance")
    assert (found.gate, code) == (Gate.CANNOT_TELL, 0)
    assert found.smallest_detectable is None
    assert found.verdict == (
        "Gate cannot tell: 3 comparable cases are too few to tell a regression from chance, "
        "which takes 6 (1 newly failing: c0 (Not in the top 10: a)); not failed"
    )
    assert comparison([FOUND] * 3, [FOUND] * 3, "chance")[0].gate is Gate.PASSED


def test_a_baseline_that_is_worse_than_its_own_is_said() -> None:
    monday, tuesday = report([FOUND] * 8), report([LOST] + [FOUND] * 7)
    baseline = compare(tuesday, monday, FILE)
    for tolerate in (0, 3, "chance"):
        found = compare(tuesday, baseline, FILE, tolerate)  # type: ignore[arg-type]
        assert (found.verdict.exit_code, found.verdict.outcome) == (0, "warning")
        assert found.verdict.line.endswith("the baseline is worse than its own baseline: newly failing there were c0")


def test_a_failing_case_that_the_baseline_does_not_know_fails_the_gate() -> None:
    found = compare(report([FOUND] * 8 + [LOST]), report([FOUND] * 8), FILE)
    assert found.verdict.exit_code == 1
    assert found.verdict.line == (
        "Gate FAILED: 1 failing and new, or changed since the baseline: c8 (Not in the top 10: a)"
    )
    assert compare(report([FOUND] * 8 + [LOST]), report([FOUND] * 8), FILE, 1).verdict.exit_code == 0


def test_a_criterion_that_was_met_before_fails_the_gate_when_it_no_longer_is() -> None:
    before, slow = report([FOUND] * 8), report([FOUND] * 8, limits={"SC-001": 5})
    found = compare(slow, before, FILE)
    assert found.verdict.exit_code == 1
    assert found.verdict.line == "Gate FAILED: SC-001 not met: 7 ms, limit 5 ms (met in the baseline)"
    assert compare(slow.without_latency(), before, FILE).verdict.exit_code == 0
    again = compare(slow, slow, FILE)
    assert again.verdict.exit_code == 0
    assert again.verdict.line.endswith("the baseline itself did not meet SC-001")


def test_what_could_not_be_judged_is_said_and_ends_with_3_unless_a_regression_is_proven() -> None:
    found, code = comparison([FOUND] * 8, [FOUND] * 7 + [DOWN])
    assert (found.gate, code) == (Gate.NOT_JUDGED, 3)
    assert found.verdict == "Gate not judged: 1 of 8 cases could not be judged (QDRANT_UNAVAILABLE)"
    assert found.not_compared == {"c7": "not judged this time"}
    proven, worse = comparison([FOUND] * 8, [LOST] + [FOUND] * 6 + [DOWN])
    assert (proven.gate, worse) == (Gate.FAILED, 1)


def test_a_ranking_that_fell_is_a_regression_though_every_case_passes() -> None:
    second = answer(chunk("x", 0.9), chunk("a", 0.8))
    found, code = comparison([FOUND] * 10, [second] * 10)
    assert (found.gate, code) == (Gate.FAILED, 1)
    assert found.reason.startswith("mrr@10 fell from 1.000 to 0.500")
    assert comparison([FOUND] * 10, [second] * 10, 1)[1] == 0


def test_cases_are_paired_by_name_and_only_while_they_are_the_same() -> None:
    before, after = report([FOUND] * 9), report([FOUND] * 10, top_k=5)
    found = compare(after, before, FILE).comparison
    assert found is not None
    assert found.cases == 0
    assert (found.not_compared["c0"], found.not_compared["c9"]) == ("changed since", "new")
    assert found.gate is Gate.FAILED  # every case passes, but nothing was compared
    fewer = compare(report([FOUND] * 7), before, FILE).comparison
    assert fewer is not None
    assert (fewer.cases, fewer.not_compared["c8"]) == (7, "not run this time")
    assert fewer.verdict.endswith("2 of 9 cases of the baseline were not run (c7, c8)")


def test_metrics_that_the_baseline_lacks_are_said_because_their_fall_is_not_seen() -> None:
    second, before = answer(chunk("x", 0.9), chunk("a", 0.8)), report([FOUND] * 10)
    bare = [case.model_copy(update={"metrics": {}}) for case in before.result.test_results[:6]]
    results = (*bare, *before.result.test_results[6:])
    before = before.model_copy(update={"result": before.result.model_copy(update={"test_results": results})})
    found = compare(report([second] * 10), before, FILE)
    assert (found.verdict.exit_code, found.verdict.outcome) == (0, "warning")
    assert found.verdict.line == (
        "Gate passed: no case newly fails (10 compared); "
        "recall@5 could not be compared in 6 of 10 cases: the baseline lacks it there; "
        "mrr@10 could not be compared in 6 of 10 cases: the baseline lacks it there"
    )


@pytest.mark.parametrize("tolerate", [0, 5, "chance"])
@pytest.mark.parametrize("before", [[DOWN] * 3, []], ids=["in error", "empty"])
def test_a_gate_that_compares_nothing_never_passes(before: list[Answer], tolerate: Tolerance) -> None:
    if before:
        found = compare(report([FOUND] * 3), report(before), FILE, tolerate)
        assert found.verdict.exit_code == 1
        assert "no case could be compared with the baseline (not judged in the baseline)" in found.verdict.line
    else:
        whole = report([FOUND])
        empty = whole.model_copy(update={"result": whole.result.model_copy(update={"test_results": ()})})
        with pytest.raises(InvalidParameterError, match="has no case in common"):
            compare(report([FOUND] * 3), empty, FILE, tolerate)


def test_a_baseline_of_another_suite_is_rejected() -> None:
    made = suite({"name": "another", "query_text": "0", "expected_doc_ids": ["a"]})
    other = run_suite(RunPlan(made, "s", made.cases), Backend(lambda _: FOUND))
    with pytest.raises(InvalidParameterError, match=r"main\.json has no case in common with suite sample"):
        compare(report([FOUND]), other, FILE)


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.5, 1.0]), min_size=1, max_size=8))
def test_the_interval_leaves_out_0_exactly_when_all_sign_choices_say_so(differences: list[float]) -> None:
    total = abs(sum(differences))
    signs = product((-1, 1), repeat=len(differences))
    choices = [sum(s * d for s, d in zip(chosen, differences, strict=True)) for chosen in signs]
    p_value = sum(choice >= total for choice in choices) / len(choices)
    assert (total / len(differences) > chance_margin(differences)) is (p_value <= CHANCE)


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.37, 0.25, 0.5, 1.0]), min_size=15, max_size=40))
def test_a_change_and_its_reverse_have_one_margin(differences: list[float]) -> None:
    assert chance_margin(differences) == chance_margin([-one for one in differences])


def test_the_margin_of_drawn_signs_agrees_with_the_normal_distribution() -> None:
    # 400 differences of 1: their sum has a standard deviation of 20; 1 in 60 is beyond 2.128 of them.
    assert chance_margin([1.0, -1.0] * 200) * 400 == pytest.approx(2.128 * 20, abs=2.0)
    assert chance_margin([1.0, -1.0] * 200) == chance_margin([1.0, -1.0] * 200)


def test_chance_alone_rarely_fails_the_gate() -> None:
    assert 2.0**-LEAST_CHANGES <= CHANCE < 2.0 ** -(LEAST_CHANGES - 1)
