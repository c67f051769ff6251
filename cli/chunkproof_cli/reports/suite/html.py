"""`.html`: one file that opens anywhere, offline: charts, and a table of cases to search, sort and unfold.

Nothing is loaded, and no script runs but the page's own: its policy names that script by hash.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files

from chunkproof.suite.comparison import Comparison
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.case_table import case_section
from chunkproof_cli.reports.suite.charts import Chart, charts
from chunkproof_cli.reports.suite.elements import Html, element, joined
from chunkproof_cli.reports.suite.figures import CHANGE_HEAD, change_rows, comparison_lines, metric_table

_TILES = ("recall@5", "mrr@10", "ndcg@10")
# No longer than an interval, "-0.571 to -0.143".
_SHORT = 20


def page(report: SuiteReport, earlier: Sequence[SuiteReport] = ()) -> str:
    """The report; with earlier ones of the same suite, how it came there."""
    style, script = _own("page.css"), _own("page.js")
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; base-uri 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element(
            "title",
            f"{report.suite.name}: {report.result.passed} of {report.result.total_tests} cases passed",
        ),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("a", "To the cases", href="#cases-title", class_="skip"),
        _header(report),
        element("main", *_sections(report, earlier)),
        element("footer", f"Chunkproof {report.chunkproof_version}, from {report.suite.source}"),
        element("script", Html(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _own(name: str) -> str:
    return files("chunkproof_cli.reports.suite").joinpath(name).read_text("utf-8")


def _header(report: SuiteReport) -> Html:
    result, stats = report.result, report.validation.collection_stats
    where = f" on {stats.collection_name} ({stats.vector_count:,} vectors)" if stats.collection_exists else ""
    undecided = result.total_tests - result.passed - result.failed
    told = f"{result.passed} of {result.total_tests} cases passed, {result.failed} failed"
    told += f", {undecided} could not be judged" if undecided else ""
    state = "failed" if result.failed else "error" if undecided else "passed"
    return element(
        "header",
        element("h1", report.suite.name),
        _gate(report.comparison) if report.comparison else None,
        element("p", f"{told}{where}.", class_=f"verdict {state}"),
        element(
            "p",
            f"{report.validation.started_at:%Y-%m-%d %H:%M} UTC, {result.execution_time_ms / 1000:.1f} s",
            class_="dim",
        ),
    )


def _gate(found: Comparison) -> Html:
    return element("p", found.verdict, class_=f"verdict {found.gate.value.replace(' ', '-')}")


def _sections(report: SuiteReport, earlier: Sequence[SuiteReport]) -> Iterator[Html]:
    yield _tiles(report)
    if drawn := [_figure(chart) for chart in charts(report, earlier)]:
        yield _section("Charts", element("div", *drawn, class_="charts"))
    if report.comparison:
        lines = (element("li", line) for line in comparison_lines(report.comparison))
        yield _section(
            "Baseline", _table("Baseline", CHANGE_HEAD, change_rows(report.comparison)), element("ul", *lines)
        )
    yield case_section(report)
    yield _section("Criteria", _criteria(report))
    if report.result.metrics:
        yield _section("Metrics", _table("Metrics", *metric_table(report)))


def _tiles(report: SuiteReport) -> Html:
    result = report.result
    figures = [("passed", f"{result.pass_rate:.1f} %")]
    figures += [(name, f"{result.metrics[name]:.3f}") for name in _TILES if name in result.metrics]
    figures.append(("95th percentile", f"{result.performance_metrics.p95_retrieval_time_ms:.0f} ms"))
    return element(
        "ul", *(element("li", element("strong", figure), name) for name, figure in figures), class_="tiles"
    )


def _figure(chart: Chart) -> Html:
    return element(
        "figure",
        element("h3", chart.title),
        element("div", chart.svg, role="img", aria_label=f"{chart.title}. {chart.summary}"),
        element("figcaption", chart.summary),
        element("details", element("summary", "As a table"), _table(chart.title, chart.head, chart.rows)),
    )


def _criteria(report: SuiteReport) -> Html:
    rows = [
        element(
            "tr",
            element("th", one.id, scope="row"),
            element("td", one.title),
            element("td", one.limit),
            element("td", one.shown_figure),
            element("td", one.verdict.value, class_=one.verdict.value.replace(" ", "-")),
            element("td", one.details or "", class_="wide"),
        )
        for one in report.criteria
    ]
    names = ("criterion", "asks", "limit", "figure", "verdict", "details")
    heads = (element("th", name, scope="col", class_="wide" if name == "details" else None) for name in names)
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label="Criteria")


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content)


def _table(label: str, head: Iterable[object], rows: Iterable[Iterable[object]]) -> Html:
    """A table that can be scrolled sideways, by keyboard too."""
    heads = element("tr", *(element("th", name, scope="col") for name in head))
    lines = (element("tr", *map(_cell, row)) for row in rows)
    table = element("table", element("thead", heads), element("tbody", joined(*lines)))
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=label)


def _cell(value: object) -> Html:
    """A figure, or a range of them, stays on one line."""
    return element("td", value, class_="short" if len(str(value)) <= _SHORT else None)
