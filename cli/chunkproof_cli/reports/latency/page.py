"""The latency report as one HTML file: the verdict, then tables and a chart for each group."""

from collections.abc import Iterator

from chunkproof_cli.latency.report import Bucket, Group, LatencyReport
from chunkproof_cli.reports.html_kit import (
    Bar,
    Html,
    bar_chart,
    element,
    render_page,
    scrolling,
    section,
    table,
    tiles,
    verdict,
)
from chunkproof_cli.reports.latency.wording import (
    HEADS,
    chart_heading,
    format_ms,
    format_percent,
    format_time,
    group_heading,
    summary_lines,
    time_cells,
    verdict_line,
)


def render_latency_page(report: LatencyReport) -> str:
    """Render the whole file."""
    missed = report.slo is not None and not report.slo.met
    header = (
        verdict(verdict_line(report), "failed" if missed else "passed" if report.slo else ""),
        *(element("p", line, class_="dim") for line in summary_lines(report)),
    )
    return render_page(
        f"Latency of {report.source.name}",
        header,
        _sections(report),
        footer=f"Percentiles: {report.source.percentiles}.",
    )


def _sections(report: LatencyReport) -> Iterator[Html]:
    yield tiles(
        (
            ("within the target", format_percent(report)),
            ("requests", f"{report.requests:,}"),
            ("target", f"{report.target_ms:,} ms"),
        )
    )
    for group in report.groups:
        yield section(group_heading(group), *(_group(group, report.target_ms) if group.requests else ()))


def _group(group: Group, target_ms: int) -> Iterator[Html]:
    stages = [(item.starts, item.stage, *time_cells(item)) for item in group.stages]
    yield _table("Time of each stage, in milliseconds", ("starts", "stage", *HEADS), stages)
    if len(group.routes) > 1:
        routes = [(item.route, *time_cells(item)) for item in group.routes]
        yield _table("Total by route, in milliseconds", ("route", *HEADS), routes)
    if group.errors:
        codes = [(code, f"{count:,}") for code, count in group.errors.items()]
        yield table(("code", "count"), codes, caption="Errors")
    longest = max(target_ms, *(bucket.p95 or 0 for bucket in group.buckets))
    yield bar_chart(
        chart_heading(group, target_ms),
        ("from (UTC)", "p95", "ms", "requests"),
        (_bar(bucket, group, target_ms, longest) for bucket in group.buckets),
        mark=target_ms / longest,
    )


def _bar(bucket: Bucket, group: Group, target_ms: int, longest: float) -> Bar:
    p95 = bucket.p95 or 0.0
    return Bar(
        format_time(bucket.start, group.bucket_seconds),
        p95 / longest,
        "–" if bucket.p95 is None else format_ms(p95),
        "failed" if p95 > target_ms else "",
        note=f"{bucket.requests:,}",
    )


def _table(caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Html:
    return scrolling(caption, table(head, rows, caption=caption))
