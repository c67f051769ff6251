"""The latency report as one HTML file: the verdict, then tables and a chart for each group."""

from collections.abc import Iterator

from chunkproof_cli.latency.report import Group, LatencyReport
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.latency import wording


def render_latency_page(report: LatencyReport) -> str:
    """Render the whole file."""
    missed = report.slo is not None and not report.slo.met
    header = (
        kit.verdict(wording.verdict_line(report), "failed" if missed else "passed" if report.slo else ""),
        *(kit.element("p", line, class_="dim") for line in wording.summary_lines(report)),
    )
    return kit.render_page(
        f"Latency of {report.source.name}",
        header,
        _sections(report),
        footer=f"Percentiles: {report.source.percentiles}.",
    )


def _sections(report: LatencyReport) -> Iterator[kit.Html]:
    yield kit.tiles(
        (
            ("within the target", wording.format_percent(report)),
            ("requests", f"{report.requests:,}"),
            ("target", f"{report.target_ms:,} ms"),
        )
    )
    for group in report.groups:
        yield kit.section(wording.group_heading(group), *(_group(group, report.target_ms) if group.requests else ()))


def _group(group: Group, target_ms: int) -> Iterator[kit.Html]:
    stages = [(item.starts, item.stage, *wording.time_cells(item)) for item in group.stages]
    yield _table("Time of each stage, in milliseconds", ("starts", "stage", *wording.HEADS), stages)
    if len(group.routes) > 1:
        routes = [(item.route, *wording.time_cells(item)) for item in group.routes]
        yield _table("Total by route, in milliseconds", ("route", *wording.HEADS), routes)
    if group.errors:
        codes = [(code, f"{count:,}") for code, count in group.errors.items()]
        yield kit.table(("code", "count"), codes, caption="Errors")
    longest = max(target_ms, *(bucket.p95 or 0 for bucket in group.buckets))
    rows = (
        (
            wording.format_time(bucket.start, group.bucket_seconds),
            kit.bar(p95 / longest, "failed" if p95 > target_ms else "", mark=target_ms / longest),
            "–" if bucket.p95 is None else wording.format_ms(p95),
            f"{bucket.requests:,}",
        )
        for bucket in group.buckets
        for p95 in (bucket.p95 or 0.0,)
    )
    heads = ("from (UTC)", "p95", "ms", "requests")
    yield kit.table(heads, rows, caption=wording.chart_heading(group, target_ms), classes="chart")


def _table(caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> kit.Html:
    return kit.scrolling(caption, kit.table(head, rows, caption=caption))
