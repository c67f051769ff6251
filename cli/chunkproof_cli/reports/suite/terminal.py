"""A report as a terminal shows it."""

from rich.text import Text

from chunkproof.suite.comparison import Comparison, Gate
from chunkproof.suite.criteria import Verdict
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.output import excerpt, out, rows, shown, table, title, verdict
from chunkproof_cli.reports.suite.figures import (
    CHANGE_HEAD,
    LATENCY_HEAD,
    approximation_line,
    change_rows,
    comparison_lines,
    diagnosis_rows,
    latency_rows,
    metric_table,
    why,
)

SHOWN_CASES = 50


def print_report(report: SuiteReport) -> None:
    """What did not pass, the figures, the criteria; the verdict last, where the eye is."""
    undecided = [r for r in report.result.test_results if r.status is not TestStatus.PASSED]
    if undecided:
        title("Not passed")
        lines = ((case.name, _state(case), excerpt(why(case))) for case in undecided[:SHOWN_CASES])
        out().print(rows(table("case", "state", "why"), lines))
        if (more := len(undecided) - SHOWN_CASES) > 0:
            out().print(shown(f"… and {more} more"))
    _print_diagnosis(report)
    _print_figures(report)
    title("Success criteria and stage limits")
    out().print(
        rows(
            table("criterion", "limit", "figure", "verdict", "details"),
            (
                (
                    f"{one.id} {one.title}",
                    one.limit,
                    one.shown_figure,
                    _judged(one.verdict),
                    one.details or "",
                )
                for one in report.criteria
            ),
        )
    )
    if report.comparison:
        _print_comparison(report.comparison)
    result = report.result
    errors = f", {result.errors} could not be judged" if result.errors else ""
    style = "green" if result.passed == result.total_tests else "bold red"
    out().print(
        shown(
            f"{report.suite.name}: {result.passed} of {result.total_tests} cases passed, {result.failed} failed"
            f"{errors}, in {result.execution_time_ms / 1000:.1f} s",
            style,
        )
    )
    if report.comparison:
        good = report.comparison.gate in (Gate.PASSED, Gate.CANNOT_TELL)
        out().print(shown(report.comparison.verdict, "green" if good else "bold red"), soft_wrap=True)


def _print_comparison(found: Comparison) -> None:
    title("Compared with the baseline")
    out().print(rows(table(*CHANGE_HEAD), change_rows(found)))
    for line in comparison_lines(found):
        out().print(shown(f"  {line}"), soft_wrap=True)
    out().print()


def _print_diagnosis(report: SuiteReport) -> None:
    """Lines and no table, so that a command can be copied whole."""
    causes = list(diagnosis_rows(report))
    if not causes:
        return
    title("Why")
    for name, cause, message, command in causes[:SHOWN_CASES]:
        out().print(
            Text.assemble(shown(f"  {name}: "), shown(cause, "bold"), shown(f". {message}")), soft_wrap=True
        )
        if command:
            out().print(shown(f"    {command}", "cyan"), soft_wrap=True)
    if (more := len(causes) - SHOWN_CASES) > 0:
        out().print(shown(f"  … and {more} more"))
    out().print()


def _print_figures(report: SuiteReport) -> None:
    if report.result.metrics:
        title("Metrics, mean over the cases that name relevant documents")
        head, lines = metric_table(report)
        out().print(rows(table(*head), lines))
    if report.approximation:
        out().print(shown(approximation_line(report.approximation)), soft_wrap=True)
    if found := list(latency_rows(report)):
        title("Latency in milliseconds")
        out().print(rows(table(*LATENCY_HEAD), found))


def _state(case: TestCaseResult) -> Text:
    style = {TestStatus.FAILED: "bold red", TestStatus.ERROR: "yellow"}.get(case.status, "dim")
    return Text(case.status.value, style=style)


def _judged(judged: Verdict) -> Text:
    return Text("not judged", style="dim") if judged is Verdict.NOT_JUDGED else verdict(judged is Verdict.MET)
