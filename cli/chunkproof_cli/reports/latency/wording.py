"""Figures of a latency report in words, for the terminal and the page."""

from collections.abc import Iterator
from datetime import datetime

from chunkproof_cli.latency.report import DAY, HOUR, MINUTE, Group, LatencyReport, Spread
from chunkproof_cli.reports.wording import plural

HEADS = ("count", "p50", "p95", "p99", "max")
_UNITS = ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (1, "second"))


def summary_lines(report: LatencyReport) -> Iterator[str]:
    """Say what was read."""
    source = report.source
    of = "stack " if source.kind == "stack" else ""
    yield (
        f"{plural(report.requests, 'request')} of {of}{source.name}, "
        f"{source.start:%Y-%m-%d %H:%M:%S} to {source.end:%Y-%m-%d %H:%M:%S} UTC"
    )
    if source.lines is not None:
        unreadable = f"; {source.unreadable} more could not be read" if source.unreadable else ""
        yield f"{plural(source.lines, 'line')} read, {report.requests:,} of them requests{unreadable}"


def verdict_line(report: LatencyReport) -> str:
    """Say which share is within the target, and whether that meets the SLO."""
    counted = report.requests - report.left_out
    share = f"{format_percent(report)} within the target of {report.target_ms:,} ms"
    share += f" ({counted - report.missed:,} of {counted:,})"
    if report.left_out:
        share += f", {plural(report.left_out, 'failed request')} left out"
    if report.slo is None:
        return share
    return f"{share}: {'meets' if report.slo.met else 'BELOW'} the SLO of {report.slo.percent:g} %"


def format_percent(report: LatencyReport) -> str:
    """Round the share down: only all requests are 100 %."""
    return f"{int(report.within_target_percent * 100) / 100:.2f} %"


def format_ms(time: float) -> str:
    """Write a time with one decimal below 100 ms, and without above."""
    return f"{time:,.1f}" if time < 100 else f"{time:,.0f}"


def time_cells(spread: Spread) -> tuple[str, ...]:
    """Write a spread as cells, in the order of `HEADS`."""
    return (f"{spread.count:,}", *map(format_ms, (spread.p50, spread.p95, spread.p99, spread.max)))


def format_interval(seconds: int) -> str:
    """Write a length of time, such as `15 minutes`."""
    length, unit = next((length, unit) for length, unit in _UNITS if seconds % length == 0)
    return plural(seconds // length, unit)


def format_time(time: datetime, bucket_seconds: int) -> str:
    """Write the start of a bucket, as precisely as its length needs."""
    if bucket_seconds >= DAY:
        return f"{time:%Y-%m-%d}"
    return f"{time:%m-%d %H:%M}" if bucket_seconds >= MINUTE else f"{time:%H:%M:%S}"


def group_heading(group: Group) -> str:
    """Write the heading of a group."""
    requests, cold = plural(group.requests, "request"), plural(group.cold_starts, "cold start")
    return f"{group.name[:1].upper()}{group.name[1:]}: {requests}, {cold}"


def chart_heading(group: Group, target_ms: int) -> str:
    """Write the heading of its chart."""
    return f"p95 by {format_interval(group.bucket_seconds)}, against the target of {target_ms:,} ms"
