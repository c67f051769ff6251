"""The gate's table of situations in docs/guides/suites.md: verdict, exit code and last line of each, as they are.

`pytest -s tests/unit/test_gate_situations.py` prints the table.
"""

from pathlib import Path

import pytest

from chunkproof.base.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof_cli.reports.outputs import SUITE
from chunkproof_cli.suites.baseline import Tolerance, compare

from support.suites import Answer, Backend, answer, chunk, suite

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "suites.md"
FILE = Path("main.json")
OK, LOST = answer(chunk("a", 0.8)), answer(chunk("x", 0.6))
DOWN = VectorStoreUnavailableError("db", "gone")
LATER = answer(chunk("x", 0.9), chunk("a", 0.8))


def report(answers: list[Answer], prefix: str = "c", limits: dict[str, float] | None = None) -> SuiteReport:
    """Run a suite of cases that each expect chunk `a`."""
    names = [f"{prefix}{n}" for n in range(1, len(answers) + 1)]
    made = suite(
        *({"name": name, "query_text": name, "expected_doc_ids": ["a"]} for name in names), limits=limits or {}
    )
    by_name = dict(zip(names, answers, strict=True))
    return run_suite(RunPlan(made, "suite.yaml", made.cases), Backend(lambda query: by_name[query]))


WORSE_THAN_ITS_OWN = compare(report([LOST] + [OK] * 9), report([OK] * 10), FILE)
SITUATIONS: list[tuple[str, SuiteReport, SuiteReport, Tolerance]] = [
    ("better", report([OK] * 8 + [LOST] * 2), report([OK] * 10), 0),
    ("equal", report([OK] * 10), report([OK] * 10), 0),
    ("one lost", report([OK] * 10), report([LOST] + [OK] * 9), 0),
    ("one lost, one tolerated", report([OK] * 10), report([LOST] + [OK] * 9), 1),
    ("one lost, chance tolerated", report([OK] * 10), report([LOST] + [OK] * 9), "chance"),
    ("six of ten lost, chance tolerated", report([OK] * 10), report([LOST] * 6 + [OK] * 4), "chance"),
    ("all lost", report([OK] * 10), report([LOST] * 10), 0),
    ("all lost, all tolerated", report([OK] * 10), report([LOST] * 10), 10),
    ("all lost, then and now", report([LOST] * 10), report([LOST] * 10), 0),
    ("errors", report([OK] * 10), report([OK] * 9 + [DOWN]), 0),
    ("one lost and errors", report([OK] * 10), report([LOST] + [OK] * 8 + [DOWN]), 0),
    ("nothing but errors", report([OK] * 10), report([DOWN] * 10), "chance"),
    ("tiny suite, equal", report([OK] * 3), report([OK] * 3), 0),
    ("tiny suite, one lost", report([OK] * 3), report([LOST, OK, OK]), 0),
    ("tiny suite, one lost, chance tolerated", report([OK] * 3), report([LOST, OK, OK]), "chance"),
    ("tiny suite, all lost, chance tolerated", report([OK] * 3), report([LOST] * 3), "chance"),
    ("other suite", report([OK] * 3, prefix="other-"), report([OK] * 3), 0),
    ("new case that fails", report([OK] * 9), report([OK] * 9 + [LOST]), 0),
    ("case not run", report([OK] * 10), report([OK] * 9), 0),
    ("failing baseline, equal", report([OK] * 7 + [LOST] * 3), report([OK] * 7 + [LOST] * 3), 0),
    ("failing baseline, one more lost", report([OK] * 7 + [LOST] * 3), report([OK] * 6 + [LOST] * 4), 0),
    ("baseline in error", report([DOWN] * 2 + [OK] * 8), report([OK] * 10), 0),
    ("baseline worse than its own", WORSE_THAN_ITS_OWN, report([LOST] + [OK] * 9), "chance"),
    ("ranks fell, no case lost", report([OK] * 10), report([LATER] * 10), 0),
    ("criterion newly not met", report([OK] * 10), report([OK] * 10, limits={"SC-001": 5}), 0),
    ("criterion not met, then and now", *[report([OK] * 10, limits={"SC-001": 5})] * 2, 0),
]


def row(name: str, before: SuiteReport, after: SuiteReport, tolerate: Tolerance, capture: pytest.CaptureFixture) -> str:
    """Judge a situation and write it as a row of the table, with the last line as the terminal shows it."""
    options = f"`--tolerate {tolerate}`" if tolerate else "–"
    try:
        found = compare(after, before, FILE, tolerate)
    except InvalidParameterError as error:  # before anything is run
        return f"| {name} | {options} | refused | 2 | {error} |"
    assert found.comparison is not None
    capture.readouterr()
    SUITE.print(found)
    last = capture.readouterr().out.strip().splitlines()[-1]
    assert last == found.verdict.line
    return f"| {name} | {options} | {found.comparison.gate} | {found.verdict.exit_code} | {last} |"


def test_the_table_in_the_guide_is_what_the_gate_says(capsys: pytest.CaptureFixture) -> None:
    head = ["| situation | option | gate | exit | last line |", "|---|---|---|---|---|"]
    table = "\n".join([*head, *(row(*situation, capsys) for situation in SITUATIONS)])
    with capsys.disabled():
        print(f"\n{table}")
    assert table in GUIDE.read_text("utf-8")
