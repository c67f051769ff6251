"""`.txt`: the text summary of docs/contract.md, with further sections in its layout."""

from chunkproof.suite.report import SuiteReport
from chunkproof.suite.validation_report import format_section
from chunkproof_cli.output import escape_controls, escape_line
from chunkproof_cli.reports.suite import figures
from chunkproof_cli.reports.suite.figures import Row


def render_suite_text(report: SuiteReport) -> str:
    """Render the summary first, then the sections that have figures."""
    result = report.result
    counts = [
        f"Suite: {report.suite.name}",
        *([f"Retriever: {report.suite.retriever}"] if report.suite.retriever else []),
        *([f"Searched: {line}"] if (line := figures.versions_line(report)) else []),
        f"Passed: {result.passed} of {result.total_tests} ({result.pass_rate:.1f}%)",
        f"Failed: {result.failed}",
        f"Not judged: {figures.count_not_judged(report)}",
    ]
    sections = [_section("TEST SUITE", *counts)]
    if causes := [
        line
        for name, cause, message, command in figures.diagnosis_rows(report)
        for line in (f"{name}: {cause}. {message}", *([f"  {command}"] if command else []))
    ]:
        sections.append(_section("DIAGNOSIS", *causes))
    if result.metrics:
        head, rows = figures.metric_table(report)
        sections.append(_section("METRICS", *(_align(row) for row in (head, *rows))))
    if report.approximation:
        sections.append(_section("APPROXIMATION", figures.approximation_line(report.approximation)))
    if line := figures.repeated_line(report):
        sections.append(_section("REPEATED TEXTS", line))
    if latency := list(figures.latency_rows(report)):
        sections.append(_section("LATENCY (ms)", *(_align(row) for row in (figures.LATENCY_HEAD, *latency))))
    criteria = [
        f"{one.id} {one.title}: {one.shown_figure} ({one.limit}) – {one.verdict}"
        + (f": {one.details}" if one.details else "")
        for one in report.criteria
    ]
    sections.append(_section("SUCCESS CRITERIA", *criteria))
    if found := report.comparison:
        changes = [_align(row) for row in (figures.CHANGE_HEAD[:4], *(row[:4] for row in figures.change_rows(found)))]
        sections.append(_section("BASELINE", *changes, *figures.comparison_lines(found)))
    if report.blame:
        lines = (f"{name}: {cause}. {line}" for name, _, cause, line, _, _ in figures.blame_rows(report.blame))
        sections.append(_section("BLAME", figures.blame_summary(report.blame), *lines))
    sections.append(_section("VERDICT", report.verdict.line, f"Exit code: {report.verdict.exit_code}"))
    return escape_controls("\n\n".join([report.validation.to_summary(), *sections])) + "\n"


def _section(title: str, *lines: str) -> str:
    return format_section(title, *map(escape_line, lines))


def _align(row: Row) -> str:
    return f"{row[0]:<18}" + "".join(f"{value:>10}" for value in row[1:])
