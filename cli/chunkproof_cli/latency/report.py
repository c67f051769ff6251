"""The latency report, the same for log lines and CloudWatch."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal, Self

from chunkproof.models import Model

# In the order of a request; the last two are totals: in the function, and since API Gateway received the request.
STAGES = ("validate", "embed", "search", "rerank", "format", "total", "gateway")
NO_CODE = "(no code)"
MOST_BUCKETS = 12
MINUTE, HOUR, DAY = 60, 3_600, 86_400
_STEPS = (1, 5, 15, 30, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY)

Starts = Literal["all", "warm", "cold"]


class Spread(Model):
    """Percentiles of a time in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float


class StageTimes(Spread):
    """The times of a stage, for all requests or for those after a cold or a warm start."""

    stage: str
    starts: Starts = "all"


class RouteTimes(Spread):
    """The total times of the requests to one route."""

    route: str


class Bucket(Model):
    """The requests of an interval; `p95` is of the time that callers waited."""

    start: datetime
    requests: int
    p95: float | None


class Group(Model):
    """Requests that are reported together: those of a log, or of one function."""

    name: str
    requests: int
    missed: int
    left_out: int = 0
    cold_starts: int
    errors: dict[str, int]
    stages: tuple[StageTimes, ...]
    routes: tuple[RouteTimes, ...] = ()
    bucket_seconds: int
    buckets: tuple[Bucket, ...]


class Slo(Model):
    """The share of requests that should be within the target."""

    percent: float
    met: bool


class Source(Model):
    """Where the requests were read, and the time that they span."""

    kind: Literal["logs", "stack"]
    name: str
    start: datetime
    end: datetime
    percentiles: str
    lines: int | None = None
    unreadable: int = 0


class LatencyReport(Model):
    """The report as `--json` prints it. A request is within the target if it succeeded and its caller waited no longer.

    `left_out` counts the requests that failed in time: they are neither within the target nor beyond it.
    """

    source: Source
    target_ms: int
    requests: int
    missed: int
    left_out: int
    within_target_percent: float
    slo: Slo | None
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, groups: Sequence[Group], source: Source, target_ms: int, slo: float | None) -> Self:
        """Sum up groups that have at least one request between them."""
        requests, missed = sum(g.requests for g in groups), sum(g.missed for g in groups)
        left_out = sum(g.left_out for g in groups)
        # Without a request that counts, no share is within the target.
        share = Decimal(100 * (requests - left_out - missed)) / max(1, requests - left_out)
        # As decimals: 999 of 1000 are exactly 99.9 percent, which a float is not.
        met = None if slo is None else Slo(percent=slo, met=share >= Decimal(str(slo)))
        return cls(
            source=source,
            target_ms=target_ms,
            requests=requests,
            missed=missed,
            left_out=left_out,
            within_target_percent=float(share),
            slo=met,
            groups=tuple(groups),
        )


def choose_bucket_seconds(seconds: float) -> int:
    """Choose the length of a bucket, so that a chart of this time has a dozen at most."""
    return next((step for step in _STEPS if seconds / step <= MOST_BUCKETS), 364 * DAY)
