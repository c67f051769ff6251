"""`.html`: the table, and a chart of quality against latency."""

from collections.abc import Iterator

from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.configurations import figures
from chunkproof_cli.reports.suite.charts import Chart, draw
from chunkproof_cli.reports.suite.page import figure
from chunkproof_cli.suites.configuration_report import ConfigurationReport


def render_configurations_page(report: ConfigurationReport) -> str:
    """Render the comparison as one file."""
    return kit.render_page(
        f"Configurations for {report.suite}",
        (kit.verdict(figures.verdict(report), "passed" if report.choice.name else "failed"),),
        _sections(report),
        footer=f"Chunkproof {report.chunkproof_version}, from {report.source}",
    )


def _sections(report: ConfigurationReport) -> Iterator[kit.Html]:
    if any(one.latency and report.metric in one.metrics for one in report.results):
        chart = figure(_quality_against_latency(report))
        yield kit.section("Quality against latency", kit.element("div", chart, class_="charts"))
    shown = kit.table(figures.head(report), figures.rows(report))
    notes = (kit.element("li", note) for note in figures.notes(report))
    yield kit.section("Side by side", kit.scrolling("Side by side", shown), kit.element("ul", *notes))


def _quality_against_latency(report: ConfigurationReport) -> Chart:
    values = [
        {
            "name": one.name,
            "quality": one.metrics[report.metric],
            "p95": one.latency.p95_ms,
            "state": "chosen" if one.name == report.choice.name else "other",
        }
        for one in report.results
        if one.latency and report.metric in one.metrics
    ]
    x = {"field": "p95", "type": "quantitative", "title": "p95 ms", "scale": {"zero": True, "nice": True}}
    y = {"field": "quality", "type": "quantitative", "title": report.metric, "scale": {"zero": False, "padding": 12}}
    colour = {
        "field": "state",
        "type": "nominal",
        "scale": {"domain": ["chosen", "other"], "range": ["var(--good)", "var(--accent)"]},
        "legend": None,
    }
    # Names beside the points would overlap where configurations are alike.
    names = {"field": "name", "type": "nominal", "sort": None, "legend": {"orient": "right", "labelLimit": 300}}
    layers: list[dict[str, object]] = [
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "shape": names},
        }
    ]
    if report.max_latency_ms is not None:
        rule = {"mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--bad)"}}
        layers.append({**rule, "encoding": {"x": {"datum": report.max_latency_ms, "type": "quantitative"}}})
    spec = {"width": 560, "height": 300, "data": {"values": values}, "layer": layers}
    best = max(values, key=lambda value: value["quality"])
    fastest = min(values, key=lambda value: value["p95"])
    return Chart(
        "Quality against latency",
        f"{best['name']} has the highest {report.metric} ({best['quality']:.3f}); "
        f"{fastest['name']} is the fastest ({fastest['p95']:.1f} ms).",
        draw(spec),
        ("configuration", report.metric, "p95 ms"),
        [(value["name"], f"{value['quality']:.3f}", f"{value['p95']:.1f}") for value in values],
    )
