"""The blocks of latency reports."""

from collections.abc import Iterator
from datetime import datetime

from chunkproof_cli.latency_report import DAY, HOUR, MINUTE, LatencyReport, Percentiles, RequestGroup
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import Medium, Tone

PERCENTILE_HEAD = ("count", "p50", "p95", "p99", "max")
_UNITS = ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (1, "second"))


def describe_latency(report: LatencyReport) -> blocks.ReportBody:
    """Describe the report: the share within the target, then tables and a chart for each group."""
    is_good = report.slo.met if report.slo else not report.missed
    bad = Tone.BAD if report.slo else Tone.UNSURE
    tiles = (
        ("within the target", format_percent(report)),
        ("requests", f"{report.requests:,}"),
        ("target", f"{report.target_ms:,} ms"),
    )
    percentiles = f"Percentiles: {report.source.percentiles}"
    return blocks.ReportBody(
        f"Latency of {report.source.name}",
        [blocks.VerdictLine(say_verdict(report), Tone.GOOD if is_good else bad)],
        [
            blocks.Section("", [blocks.Tiles(tiles)], media=Medium.PAGE),
            *(_describe_group(group, report.target_ms) for group in report.groups),
        ],
        summary=[
            *(blocks.Paragraph(line, Tone.DIM) for line in summary_lines(report)),
            blocks.Paragraph(percentiles, Tone.DIM, media=Medium.TERMINAL),
        ],
        footer=f"{percentiles}.",
    )


def summary_lines(report: LatencyReport) -> Iterator[str]:
    """Say what was read."""
    source = report.source
    of = "stack " if source.kind == "stack" else ""
    yield (
        f"{blocks.plural(report.requests, 'request')} of {of}{source.name}, "
        f"{source.start:%Y-%m-%d %H:%M:%S} to {source.end:%Y-%m-%d %H:%M:%S} UTC"
    )
    if source.lines is not None:
        unreadable = f"; {source.unreadable} more could not be read" if source.unreadable else ""
        yield f"{blocks.plural(source.lines, 'line')} read, {report.requests:,} of them requests{unreadable}"


def say_verdict(report: LatencyReport) -> str:
    """Say which share is within the target, and whether that meets the SLO."""
    counted = report.requests - report.left_out
    share = f"{format_percent(report)} within the target of {report.target_ms:,} ms"
    share += f" ({counted - report.missed:,} of {counted:,})"
    if report.left_out:
        share += f", {blocks.plural(report.left_out, 'failed request')} left out"
    if report.slo is None:
        return share
    return f"{share}: {'meets' if report.slo.met else 'BELOW'} the SLO of {report.slo.percent:g} %"


def _describe_group(group: RequestGroup, target_ms: int) -> blocks.Section:
    requests, cold = blocks.plural(group.requests, "request"), blocks.plural(group.cold_starts, "cold start")
    title = f"{group.name[:1].upper()}{group.name[1:]}: {requests}, {cold}"
    if not group.requests:
        return blocks.Section(title, [blocks.Paragraph("No request.", Tone.DIM)])
    stages = [(times.starts, times.stage, *_cells(times)) for times in group.stages]
    routes = [(times.route, *_cells(times)) for times in group.routes] if len(group.routes) > 1 else []
    errors = [(code, f"{count:,}") for code, count in group.errors.items()]
    tables = (
        blocks.Table(("starts", "stage", *PERCENTILE_HEAD), stages, "Time of each stage, in milliseconds"),
        blocks.Table(("route", *PERCENTILE_HEAD), routes, "Total by route, in milliseconds"),
        blocks.Table(("code", "count"), errors, "Errors"),
    )
    return blocks.Section(title, [*(table for table in tables if table.rows), chart_buckets(group, target_ms)])


def _cells(times: Percentiles) -> tuple[str, ...]:
    return (f"{times.count:,}", *map(format_ms, (times.p50, times.p95, times.p99, times.max)))


def chart_buckets(group: RequestGroup, target_ms: int) -> blocks.BarChart:
    """Draw the 95th percentile of each interval against the target."""
    bars = [
        blocks.Bar(
            format_time(bucket.start, group.bucket_seconds),
            bucket.p95,
            ("–" if bucket.p95 is None else f"{format_ms(bucket.p95)} ms", blocks.plural(bucket.requests, "request")),
            Tone.BAD if bucket.p95 is not None and bucket.p95 > target_ms else Tone.PLAIN,
        )
        for bucket in group.buckets
    ]
    caption = f"p95 by {format_interval(group.bucket_seconds)}, against the target of {target_ms:,} ms"
    return blocks.BarChart(("from (UTC)", "p95", "time", "requests"), bars, caption, mark=target_ms)


def format_percent(report: LatencyReport) -> str:
    """Round the share down: only all requests are 100 %."""
    return f"{int(report.within_target_percent * 100) / 100:.2f} %"


def format_ms(time: float) -> str:
    """Write a time with one decimal below 100 ms, and without above."""
    return f"{time:,.1f}" if time < 100 else f"{time:,.0f}"


def format_interval(seconds: int) -> str:
    """Write a length of time, such as `15 minutes`."""
    length, unit = next((length, unit) for length, unit in _UNITS if seconds % length == 0)
    return blocks.plural(seconds // length, unit)


def format_time(time: datetime, bucket_seconds: int) -> str:
    """Write the start of a bucket, as precisely as its length needs."""
    if bucket_seconds >= DAY:
        return f"{time:%Y-%m-%d}"
    return f"{time:%m-%d %H:%M}" if bucket_seconds >= MINUTE else f"{time:%H:%M:%S}"
