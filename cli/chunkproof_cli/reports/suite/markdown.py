"""`.md`: fits a comment on a pull request, however large the suite."""

from collections.abc import Iterator

from chunkproof.suite.criteria import Verdict
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof.suite.verdict import Outcome
from chunkproof_cli.reports.markdown import escape_text, join_parts, table, table_of_first
from chunkproof_cli.reports.suite import figures

SHOWN_CASES = 50
_MARKS = {Verdict.MET: "✅", Verdict.NOT_MET: "❌", Verdict.NOT_JUDGED: "➖"}
_MARK_OF = {Outcome.PASSED: "✅", Outcome.WARNING: "⚠️", Outcome.FAILED: "❌", Outcome.NOT_JUDGED: "⚠️"}
LONGEST_VERDICT = 5_000


def render_suite_markdown(report: SuiteReport) -> str:
    """Render the verdict, then the cases that did not pass, then the figures."""
    parts = [_head(report), *_comparison(report), *_blame(report), *_cases(report), *_diagnosis(report)]
    parts += [_criteria(report), *_metrics(report)]
    parts.append("### Latency (ms)\n\n" + table(figures.LATENCY_HEAD, figures.latency_rows(report)))
    return join_parts(parts)


def _head(report: SuiteReport) -> str:
    verdict, stats = report.verdict, report.validation.collection_stats
    name, passed, rest = escape_text(stats.collection_name), *verdict.counts.split(", ", 1)
    where = f" by {escape_text(report.suite.retriever)}" if report.suite.retriever else ""
    where += f" on {name} ({stats.vector_count:,} vectors)" if stats.collection_exists else ""
    parts = [f"## {_MARK_OF[verdict.outcome]} {escape_text(report.suite.name)}"]
    parts.append(f"**{passed}**, {rest}{where}.")
    if report.comparison or verdict.details:
        parts.insert(1 if report.comparison else 2, f"**{escape_text(verdict.line, LONGEST_VERDICT)}**")
    if line := figures.versions_line(report):
        parts.append(f"Searched {escape_text(line)}.")
    return "\n\n".join(parts)


def _comparison(report: SuiteReport) -> Iterator[str]:
    if report.comparison:
        changes = table(figures.CHANGE_HEAD, figures.change_rows(report.comparison))
        lines = "\n".join(f"- {escape_text(line)}" for line in figures.comparison_lines(report.comparison))
        yield f"### Compared with the baseline\n\n{changes}\n\n{lines}"


def _blame(report: SuiteReport) -> Iterator[str]:
    if report.blame:
        summary = escape_text(figures.blame_summary(report.blame), LONGEST_VERDICT)
        rows = list(figures.blame_rows(report.blame))
        shown = f"\n\n{table_of_first(SHOWN_CASES, figures.BLAME_HEAD, rows)}" if rows else ""
        yield f"### Blame\n\n**{summary}**{shown}"


def _cases(report: SuiteReport) -> Iterator[str]:
    for title, status in (("Failed", TestStatus.FAILED), ("Could not be judged", TestStatus.ERROR)):
        results = [result for result in report.result.test_results if result.status is status]
        if rows := [(one.name, one.query_text, figures.explain_result(one)) for one in results]:
            yield f"### {title}\n\n{table_of_first(SHOWN_CASES, ('case', 'query', 'why'), rows)}"


def _diagnosis(report: SuiteReport) -> Iterator[str]:
    if causes := list(figures.diagnosis_rows(report)):
        shown = table_of_first(SHOWN_CASES, ("case", "cause", "found", "see more"), causes)
        yield f"### Why\n\n{shown}"


def _criteria(report: SuiteReport) -> str:
    rows = [
        (
            f"{_MARKS[one.verdict]} {one.id}",
            one.title,
            one.limit,
            one.shown_figure,
            one.verdict,
            one.details or "",
        )
        for one in report.criteria
    ]
    return "### Criteria\n\n" + table(("", "criterion", "limit", "figure", "verdict", "details"), rows)


def _metrics(report: SuiteReport) -> Iterator[str]:
    if report.result.metrics:
        yield "### Metrics\n\n" + table(*figures.metric_table(report))
    if report.approximation:
        yield figures.approximation_line(report.approximation) + "."
    if line := figures.repeated_line(report):
        yield f"{line}."
