"""Suite reports in the terminal."""

from rich.text import Text

from chunkproof.models.json import cut_middle
from chunkproof.suite.blame import Blame
from chunkproof.suite.comparison import Comparison
from chunkproof.suite.criteria import Verdict
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.verdict import Outcome
from chunkproof_cli.output import cut_words, print_line, print_table, print_title, safe_line, shorten, verdict_text
from chunkproof_cli.reports.suite import figures
from chunkproof_cli.reports.wording import and_more

SHOWN_CASES = 50
_STYLES = {
    Outcome.PASSED: "green",
    Outcome.WARNING: "yellow",
    Outcome.FAILED: "bold red",
    Outcome.NOT_JUDGED: "bold red",
}


def print_report(report: SuiteReport) -> None:
    """Print what did not pass, the figures and the criteria; the verdict comes last, next to the prompt."""
    not_passed = [r for r in report.result.test_results if r.status is not TestStatus.PASSED]
    if not_passed:
        print_title("Not passed")
        lines = (
            (cut_middle(case.name), _state(case), shorten(cut_words(figures.explain_result(case))))
            for case in not_passed[:SHOWN_CASES]
        )
        print_table(("case", "state", "why"), lines)
        if more := and_more(len(not_passed), SHOWN_CASES):
            print_line(more)
    _print_diagnosis(report)
    _print_figures(report)
    print_title("Success criteria and stage limits")
    print_table(
        ("criterion", "limit", "figure", "verdict", "details"),
        (
            (f"{one.id} {one.title}", one.limit, one.shown_figure, _verdict(one.verdict), one.details or "")
            for one in report.criteria
        ),
    )
    if report.comparison:
        _print_comparison(report.comparison)
    if report.blame:
        _print_blame(report.blame)
    verdict, seconds = report.verdict, report.result.execution_time_ms / 1000
    by = f" by {report.suite.retriever}" if report.suite.retriever else ""
    counts = f"{report.suite.name}{by}: {verdict.counts}, in {seconds:.1f} s"
    if line := figures.versions_line(report):
        print_line(f"Searched {line}.")
    if report.comparison:
        print_line(counts)  # without a colour: the gate decides
        print_line(verdict.line, _STYLES[verdict.outcome])
    else:
        print_line(f"{counts}{verdict.details}", _STYLES[verdict.outcome])


def _print_comparison(found: Comparison) -> None:
    print_title("Compared with the baseline")
    print_table(figures.CHANGE_HEAD, figures.change_rows(found))
    for line in figures.comparison_lines(found):
        print_line(f"  {line}")
    print_line()


def _print_blame(blame: Blame) -> None:
    """Print lines instead of a table, so that a command can be copied whole."""
    print_title("Blame")
    rows = list(figures.blame_rows(blame))
    for name, _, cause, line, cost, command in rows[:SHOWN_CASES]:
        print_line(Text.assemble(safe_line(f"  {name}: "), safe_line(cause, "bold"), safe_line(f". {line}")))
        if cost:
            print_line(f"    Cost: {cost}")
        if command:
            print_line(f"    {command}", "cyan")
    if more := and_more(len(rows), SHOWN_CASES):
        print_line(f"  {more}")
    print_line(figures.blame_summary(blame), "bold")
    print_line()


def _print_diagnosis(report: SuiteReport) -> None:
    """Print lines instead of a table, so that a command can be copied whole."""
    causes = list(figures.diagnosis_rows(report))
    if not causes:
        return
    print_title("Why")
    for name, cause, message, command in causes[:SHOWN_CASES]:
        print_line(Text.assemble(safe_line(f"  {name}: "), safe_line(cause, "bold"), safe_line(f". {message}")))
        if command:
            print_line(f"    {command}", "cyan")
    if more := and_more(len(causes), SHOWN_CASES):
        print_line(f"  {more}")
    print_line()


def _print_figures(report: SuiteReport) -> None:
    if report.result.metrics:
        print_title("Metrics, mean over the cases that name relevant documents")
        head, lines = figures.metric_table(report)
        print_table(head, lines)
    if report.approximation:
        print_line(figures.approximation_line(report.approximation))
    if line := figures.repeated_line(report):
        print_line(line)
    if found := list(figures.latency_rows(report)):
        print_title("Latency in milliseconds")
        print_table(figures.LATENCY_HEAD, found)


def _state(case: TestCaseResult) -> Text:
    style = {TestStatus.FAILED: "bold red", TestStatus.ERROR: "yellow"}.get(case.status, "dim")
    return Text(case.status.value, style=style)


def _verdict(judged: Verdict) -> Text:
    return Text("not judged", style="dim") if judged is Verdict.NOT_JUDGED else verdict_text(judged is Verdict.MET)
