"""A report's figures in words, the same in a terminal and on a page."""

from collections.abc import Iterator
from datetime import datetime

from chunkproof_cli.latency.report import DAY, HOUR, MINUTE, Group, Report, Spread

HEADS = ("count", "p50", "p95", "p99", "max")
_UNITS = ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (1, "second"))


def summary(report: Report) -> Iterator[str]:
    """What was read."""
    source = report.source
    of = "stack " if source.kind == "stack" else ""
    yield (
        f"{plural(report.requests, 'request')} of {of}{source.name}, "
        f"{source.start:%Y-%m-%d %H:%M:%S} to {source.end:%Y-%m-%d %H:%M:%S} UTC"
    )
    if source.lines is not None:
        unreadable = f"; {source.unreadable} more could not be read" if source.unreadable else ""
        yield f"{plural(source.lines, 'line')} read, {report.requests:,} of them requests{unreadable}"


def verdict(report: Report) -> str:
    """The share within the target, and whether it is enough."""
    within = report.requests - report.missed
    said = (
        f"{percent(report)} within the target of {report.target_ms:,} ms ({within:,} of {report.requests:,})"
    )
    if report.slo is None:
        return said
    return f"{said}: {'meets' if report.slo.met else 'BELOW'} the SLO of {report.slo.percent:g} %"


def percent(report: Report) -> str:
    """Rounded down: 100 % is said of all requests only."""
    return f"{int(report.within_target_percent * 100) / 100:.2f} %"


def plural(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def milliseconds(time: float) -> str:
    """Three digits or more where they matter."""
    return f"{time:,.1f}" if time < 100 else f"{time:,.0f}"


def times(spread: Spread) -> tuple[str, ...]:
    """A spread as cells, in the order of `HEADS`."""
    return (f"{spread.count:,}", *map(milliseconds, (spread.p50, spread.p95, spread.p99, spread.max)))


def interval(seconds: int) -> str:
    """`15 minutes`."""
    length, unit = next((length, unit) for length, unit in _UNITS if seconds % length == 0)
    return plural(seconds // length, unit)


def moment(time: datetime, bucket_seconds: int) -> str:
    """As exact as the buckets are long."""
    if bucket_seconds >= DAY:
        return f"{time:%Y-%m-%d}"
    return f"{time:%m-%d %H:%M}" if bucket_seconds >= MINUTE else f"{time:%H:%M:%S}"


def heading(group: Group) -> str:
    """What stands over a group."""
    requests, cold = plural(group.requests, "request"), plural(group.cold_starts, "cold start")
    return f"{group.name[:1].upper()}{group.name[1:]}: {requests}, {cold}"


def chart_heading(group: Group, target_ms: int) -> str:
    """What stands over its chart."""
    return f"p95 by {interval(group.bucket_seconds)}, against the target of {target_ms:,} ms"
