"""`--baseline`: only a fall that chance does not explain fails the gate, and every line says the same."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.suite.comparison import Comparison, Gate
from chunkproof.suite.report import SuiteReport, read_report
from chunkproof.suite.run import RunPlan, run_suite
from chunkproof_cli.commands.suite_run import suite_exit_code
from chunkproof_cli.reports.suite import FORMATS
from chunkproof_cli.suites.compare import CHANCE, LEAST_CHANGES, chance_margin, compare

from support.suites import Answer, Backend, answer, chunk, suite

FILE = Path("main.json")
FOUND, LOST = answer(chunk("a", 0.8)), answer(chunk("x", 0.6))
DOWN = VectorStoreUnavailableError("db", "gone")


def report(answers: list[Answer], **fields: Any) -> SuiteReport:
    """Cases c0, c1 …, each of which expects chunk `a`."""
    made = suite(
        *({"name": f"c{n}", "query_text": f"{n}", "expected_doc_ids": ["a"], **fields} for n in range(len(answers)))
    )
    return run_suite(RunPlan(made, "suite.yaml", made.cases), Backend(lambda query: answers[int(query)]))


def comparison(before: list[Answer], after: list[Answer]) -> tuple[Comparison, int]:
    """Return the comparison and the exit code, which the verdict line must explain."""
    found = compare(report(after), report(before), FILE)
    assert found.comparison is not None
    for extension in (".md", ".txt", ".xml"):
        plain = FORMATS[extension](found).replace("\\", "").replace("\u200b", "")  # as Markdown shows it
        assert found.comparison.verdict in plain
    assert read_report(found.canonical_json().encode(), "r") == found
    return found.comparison, suite_exit_code(found)


def test_an_equal_run_passes_though_cases_fail_in_both() -> None:
    found, code = comparison([FOUND] * 20 + [LOST] * 10, [FOUND] * 20 + [LOST] * 10)
    assert (found.gate, code) == (Gate.PASSED, 0)
    assert (found.newly_failing, found.newly_passing) == ((), ())
    assert found.smallest_detectable == pytest.approx(6 / 30)
    assert found.verdict == (
        "Gate passed: no fall beyond chance (0 newly failing); "
        "the smallest fall it can detect is 6 of 30 cases (20.0%), all for the worse"
    )


def test_a_worsened_run_fails_and_says_by_how_much() -> None:
    found, code = comparison([FOUND] * 30, [LOST] * 6 + [FOUND] * 24)
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


def test_five_cases_for_the_worse_could_be_chance_and_are_listed_all_the_same() -> None:
    found, code = comparison([FOUND] * 30, [LOST] * 5 + [FOUND] * 25)
    assert (found.gate, code) == (Gate.PASSED, 0)
    assert len(found.newly_failing) == 5
    assert found.verdict.startswith("Gate passed: no fall beyond chance (5 newly failing)")


def test_what_got_better_makes_up_for_what_got_worse() -> None:
    found, code = comparison([FOUND] * 6 + [LOST] * 6, [LOST] * 6 + [FOUND] * 6)
    assert (found.gate, code) == (Gate.PASSED, 0)
    assert (len(found.newly_failing), len(found.newly_passing)) == (6, 6)


def test_three_cases_are_too_few_for_a_verdict_and_do_not_fail() -> None:
    found, code = comparison([FOUND] * 3, [LOST] * 3)
    assert (found.gate, code) == (Gate.CANNOT_TELL, 0)
    assert found.smallest_detectable is None
    assert found.verdict == (
        "Gate cannot tell: 3 comparable cases are too few to tell a regression from chance, "
        "which takes 6 (3 newly failing); not failed"
    )


def test_what_could_not_be_judged_is_said_and_ends_with_3_unless_a_regression_is_proven() -> None:
    found, code = comparison([FOUND] * 8, [FOUND] * 7 + [DOWN])
    assert (found.gate, code) == (Gate.NOT_JUDGED, 3)
    assert found.verdict == "Gate not judged: 1 of 8 cases could not be judged"
    assert found.not_compared == {"c7": "not judged this time"}
    proven, worse = comparison([FOUND] * 8, [LOST] * 7 + [DOWN])
    assert (proven.gate, worse) == (Gate.FAILED, 1)


def test_a_ranking_that_fell_is_a_regression_though_every_case_passes() -> None:
    second = answer(chunk("x", 0.9), chunk("a", 0.8))
    found, code = comparison([FOUND] * 10, [second] * 10)
    assert (found.gate, code) == (Gate.FAILED, 1)
    assert found.reason.startswith("mrr@10 fell from 1.000 to 0.500")


def test_cases_are_paired_by_name_and_only_while_they_are_the_same() -> None:
    before, after = report([FOUND] * 9), report([FOUND] * 10, top_k=5)
    found = compare(after, before, FILE).comparison
    assert found is not None
    assert found.cases == 0
    assert (found.not_compared["c0"], found.not_compared["c9"]) == ("changed since", "new")
    assert found.gate is Gate.CANNOT_TELL
    fewer = compare(report([FOUND] * 7), before, FILE).comparison
    assert fewer is not None
    assert (fewer.cases, fewer.not_compared["c8"]) == (7, "not run this time")


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


def test_the_margin_of_drawn_signs_agrees_with_the_normal_distribution() -> None:
    # 400 differences of 1: their sum has a standard deviation of 20; 1 in 60 is beyond 2.128 of them.
    assert chance_margin([1.0, -1.0] * 200) * 400 == pytest.approx(2.128 * 20, abs=2.0)
    assert chance_margin([1.0, -1.0] * 200) == chance_margin([1.0, -1.0] * 200)


def test_chance_alone_rarely_fails_the_gate() -> None:
    assert 2.0**-LEAST_CHANGES <= CHANCE < 2.0 ** -(LEAST_CHANGES - 1)
