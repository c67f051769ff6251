"""`.html`: charts, and a table of cases to search, sort and unfold."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from chunkproof.suite.report import SuiteReport
from chunkproof.suite.verdict import Outcome
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.suite import figures
from chunkproof_cli.reports.suite.case_table import case_section
from chunkproof_cli.reports.suite.charts import Chart, charts

_TILES = ("recall@5", "mrr@10", "ndcg@10")
_CLASSES = {Outcome.PASSED: "passed", Outcome.WARNING: "error", Outcome.FAILED: "failed", Outcome.NOT_JUDGED: "error"}


def render_suite_page(report: SuiteReport, earlier: Sequence[SuiteReport] = ()) -> str:
    """Render the report as one file; with earlier reports of the suite, it shows the trend."""
    result = report.result
    return kit.render_page(
        report.suite.name,
        _header(report),
        _sections(report, earlier),
        footer=f"Chunkproof {report.chunkproof_version}, from {report.suite.source}",
        title=f"{report.suite.name}: {result.passed} of {result.total_tests} cases passed",
        script=files(__package__).joinpath("page.js").read_text("utf-8"),
    )


def _header(report: SuiteReport) -> Iterator[kit.Html]:
    verdict, stats = report.verdict, report.validation.collection_stats
    where = f" by {report.suite.retriever}" if report.suite.retriever else ""
    where += f" on {stats.collection_name} ({stats.vector_count:,} vectors)" if stats.collection_exists else ""
    yield kit.element("a", "To the cases", href="#cases", class_="skip")
    if report.comparison:
        yield kit.verdict(verdict.line, _CLASSES[verdict.outcome])
        yield kit.element("p", f"{verdict.counts}{where}.")
    else:
        yield kit.verdict(f"{verdict.counts}{where}.", _CLASSES[verdict.outcome])
        if verdict.details:
            yield kit.verdict(verdict.line, _CLASSES[verdict.outcome])
    if line := figures.versions_line(report):
        yield kit.element("p", f"Searched {line}.")
    started = f"{report.validation.started_at:%Y-%m-%d %H:%M} UTC"
    yield kit.element("p", f"{started}, {report.result.execution_time_ms / 1000:.1f} s", class_="dim")


def _sections(report: SuiteReport, earlier: Sequence[SuiteReport]) -> Iterator[kit.Html]:
    yield kit.tiles(_tile_figures(report))
    if drawn := [figure(chart) for chart in charts(report, earlier)]:
        yield kit.section("Charts", kit.element("div", *drawn, class_="charts"))
    if report.comparison:
        lines = (kit.element("li", line) for line in figures.comparison_lines(report.comparison))
        changes = kit.table(figures.CHANGE_HEAD, figures.change_rows(report.comparison))
        yield kit.section("Baseline", kit.scrolling("Baseline", changes), kit.element("ul", *lines))
    if report.blame:
        rows = list(figures.blame_rows(report.blame))
        shown = kit.scrolling("Blame", kit.table(figures.BLAME_HEAD, rows)) if rows else None
        yield kit.section("Blame", kit.element("p", figures.blame_summary(report.blame)), shown)
    yield case_section(report)
    yield kit.section("Criteria", kit.scrolling("Criteria", _criteria(report)))
    if line := figures.repeated_line(report):
        yield kit.section("Repeated texts", kit.element("p", f"{line}."))
    if report.result.metrics:
        yield kit.section("Metrics", kit.scrolling("Metrics", kit.table(*figures.metric_table(report))))


def _tile_figures(report: SuiteReport) -> Iterator[tuple[str, str]]:
    result = report.result
    yield "passed", f"{result.pass_rate:.1f} %"
    yield from ((name, f"{result.metrics[name]:.3f}") for name in _TILES if name in result.metrics)
    yield "95th percentile", f"{result.performance_metrics.p95_retrieval_time_ms:.0f} ms"


def figure(chart: Chart) -> kit.Html:
    """Show a chart with its summary, and its figures as a table to unfold."""
    as_table = kit.scrolling(chart.title, kit.table(chart.head, chart.rows))
    return kit.element(
        "figure",
        kit.element("h3", chart.title),
        kit.element("div", chart.svg, role="img", aria_label=f"{chart.title}. {chart.summary}"),
        kit.element("figcaption", chart.summary),
        kit.element("details", kit.element("summary", "As a table"), as_table),
    )


def _criteria(report: SuiteReport) -> kit.Html:
    rows = (
        (
            one.id,
            one.title,
            one.limit,
            one.shown_figure,
            kit.Cell(one.verdict.value, f"short {one.verdict.value.replace(' ', '-')}"),
            one.details or "",
        )
        for one in report.criteria
    )
    return kit.table(("id", "criterion", "limit", "figure", "verdict", "details"), rows)
