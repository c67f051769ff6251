"""Diff reports as Markdown, text, HTML and JUnit XML."""

from collections.abc import Iterator

from chunkproof_cli.diffs.report import DiffReport
from chunkproof_cli.output import escape_line
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.diff import figures
from chunkproof_cli.reports.junit import Case, render_junit
from chunkproof_cli.reports.markdown import escape_text, join_parts, table

SHOWN = 50
CHECKS = {
    "texts are the same": "texts differ",
    "metadata is the same": "metadata differs",
    "vectors are the same": "vectors",
    "no query newly fails": "newly failing",
    "results overlap enough": "overlap",
}


def _title(report: DiffReport) -> str:
    return f"Diff of {report.a.collection} and {report.b.collection}"


def render_markdown(report: DiffReport) -> str:
    """Render the verdict, then the figures, then the differences."""
    parts = [
        f"## {'❌' if report.exit_code else '✅'} {escape_text(_title(report))}",
        f"**{escape_text(report.verdict, 2_000)}**",
        table(figures.SIDE_HEAD, figures.side_rows(report)),
        table(("chunks", "count"), figures.kind_rows(report)),
        table(("diff", ""), figures.facts(report)),
    ]
    if report.queries:
        parts += ["### Results", table(figures.CHANGE_HEAD, figures.change_rows(report))]
        parts.append(table(figures.ROW_HEAD, figures.query_rows(report, SHOWN)))
    if rows := list(figures.finding_rows(report, SHOWN)):
        parts += ["### Differences", table(figures.FINDING_HEAD, rows)]
    return join_parts(parts)


def render_text(report: DiffReport) -> str:
    """Render the same as lines."""
    return "".join(escape_line(line) + "\n" for line in _lines(report))


def _lines(report: DiffReport) -> Iterator[str]:
    yield report.verdict
    yield ""
    yield from (f"{name:<18} {a}  |  {b}" for name, a, b in figures.side_rows(report))
    yield ""
    yield from (f"{count:>12} {name}" for name, count in figures.kind_rows(report))
    yield ""
    yield from (f"{name:<14} {value}" for name, value in figures.facts(report))
    yield from ("  " + "  ".join(row) for row in figures.change_rows(report))
    yield from ("  " + "  ".join(row) for row in figures.query_rows(report, SHOWN))
    yield from ("  " + "  ".join(row) for row in figures.finding_rows(report, SHOWN))


def render_page(report: DiffReport) -> str:
    """Render the report as one file."""
    state = {0: "passed", 1: "failed"}.get(report.exit_code, "error")
    header = (
        kit.verdict(report.verdict, state),
        kit.element("p", f"{report.started_at:%Y-%m-%d %H:%M} UTC", class_="dim"),
    )
    footer = f"A: {report.a.collection} at {report.a.host}; B: {report.b.collection} at {report.b.host}"
    return kit.render_page(_title(report), header, _sections(report), footer=footer)


def _sections(report: DiffReport) -> Iterator[kit.Html]:
    yield kit.section(
        "Collections", kit.scrolling("Collections", kit.table(figures.SIDE_HEAD, figures.side_rows(report)))
    )
    yield kit.section("Chunks", kit.table(("chunks", "count"), figures.kind_rows(report), classes="facts"))
    yield kit.section("Figures", kit.table(("figure", "value"), figures.facts(report), classes="facts"))
    if report.queries:
        changes = kit.table(figures.CHANGE_HEAD, figures.change_rows(report))
        rows = kit.table(figures.ROW_HEAD, figures.query_rows(report, len(report.queries.rows)))
        yield kit.section("Results", kit.scrolling("Metrics", changes), kit.scrolling("Queries", rows))
    if found := list(figures.finding_rows(report, len(report.texts.findings))):
        yield kit.section("Differences", kit.table(figures.FINDING_HEAD, found, classes="stacked"))


def render_junit_xml(report: DiffReport) -> str:
    """Render a case for each thing that must not differ."""
    cases = []
    for name, word in CHECKS.items():
        failed = [failure for failure in report.failures if word in failure]
        cases.append(Case(name, 0.0, "failure", "diff", failed[0], report.verdict) if failed else Case(name))
    if report.unjudged:
        cases.append(Case("everything could be judged", 0.0, "error", "diff", ", ".join(report.unjudged)))
    return render_junit(
        _title(report),
        cases,
        figures.facts(report),
        class_name="diff",
        started_at=report.started_at,
        seconds=report.seconds,
    )
