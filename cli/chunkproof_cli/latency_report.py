"""The latency report, the same for log lines and CloudWatch; and request lines, which are found in text of any kind.

docs/reference/logs.md describes the lines.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import Model

# In the order of a request; the last two are totals: in the function, and since API Gateway received the request.
STAGES = ("validate", "embed", "search", "rerank", "format", "total", "gateway")
NO_CODE = "(no code)"
MAX_VAIN, TOO_DEEP = 100_000_000, 10_000  # characters that are read in vain, and those of a document nested too deeply
MOST_BUCKETS = 12
MINUTE, HOUR, DAY = 60, 3_600, 86_400
_STEPS = (1, 5, 15, 30, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY)

Starts = Literal["all", "warm", "cold"]
_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A document over several lines is indented inside, and closed at the start of a line.
_CONTINUATIONS = (" ", "\t", "}", "]")
# Only request lines have this field.
_MARK = "stages_ms"
# Where CloudWatch wraps a line: in `filter-log-events` and in results of Logs Insights.
_WRAPPERS = ("message", "@message", "value")
_YEARS = range(2000, 3000)
_DECODER = json.JSONDecoder()
NEAREST_RANK = "nearest rank, so that each is a measured time"


class Percentiles(Model):
    """Percentiles of a time in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float


class StageTimes(Percentiles):
    """The times of a stage, for all requests or for those after a cold or a warm start."""

    stage: str
    starts: Starts = "all"


class RouteTimes(Percentiles):
    """The total times of the requests to one route."""

    route: str


class TimeBucket(Model):
    """The requests of an interval; `p95` is of the time that callers waited."""

    start: datetime
    requests: int
    p95: float | None


class RequestGroup(Model):
    """The requests of a log, or of one function of a stack."""

    name: str
    requests: int
    missed: int
    left_out: int = 0
    cold_starts: int
    errors: dict[str, int]
    stages: tuple[StageTimes, ...]
    routes: tuple[RouteTimes, ...] = ()
    bucket_seconds: int
    buckets: tuple[TimeBucket, ...]


class Slo(Model):
    """The share of requests that should be within the target."""

    percent: float
    met: bool


class LatencySource(Model):
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

    source: LatencySource
    target_ms: int
    requests: int
    missed: int
    left_out: int
    within_target_percent: float
    slo: Slo | None
    groups: tuple[RequestGroup, ...]

    @classmethod
    def of(cls, groups: Sequence[RequestGroup], source: LatencySource, target_ms: int, slo: float | None) -> Self:
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


def _parse_time(value: Any) -> datetime:
    read = datetime.fromisoformat(value) if isinstance(value, str) else None
    if read is None or read.year not in _YEARS:
        raise ValueError("not a time")
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)


def _require_total(stages: dict[str, float]) -> dict[str, float]:
    if "total" not in stages:
        raise ValueError("no total")
    return stages


Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LoggedRequest(BaseModel):
    """The fields of a request line that latency needs."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    at: Annotated[datetime, BeforeValidator(_parse_time), Field(alias="timestamp")]
    route: str | None = None
    status: int
    code: str | None = None
    cold_start: bool
    gateway_ms: Milliseconds | None = None
    stages_ms: Annotated[dict[str, Milliseconds], AfterValidator(_require_total)]

    @property
    def waited_ms(self) -> float:
        """Time that the caller waited: since API Gateway received the request, if it did."""
        return self.stages_ms["total"] if self.gateway_ms is None else self.gateway_ms


@dataclass
class LogReader:
    """Reads lines, keeps the requests among them, and counts both."""

    lines: int = 0
    interrupted: bool = False
    unreadable: int = 0
    requests: list[LoggedRequest] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> None:
        """Read to the end, or until Ctrl-C, which is the only end when a running server is piped in."""
        for block in self._blocks(lines):
            if _MARK not in block:
                continue
            # In a CSV file from CloudWatch, quotes inside a field are doubled.
            text = block.replace('""', '"') if f'""{_MARK}""' in block else block
            for found in _objects(text):
                for line in _request_lines(found):
                    try:
                        self.requests.append(LoggedRequest.model_validate(line))
                    except ValidationError:
                        self.unreadable += 1

    def _blocks(self, lines: Iterable[str]) -> Iterator[str]:
        """Join each line with its continuations."""
        block: list[str] = []
        try:
            for line in lines:
                self.lines += 1
                plain = _COLOUR_CODES.sub("", line) if "\x1b" in line else line
                if block and not plain.startswith(_CONTINUATIONS):
                    yield "".join(block)
                    block = []
                block.append(plain)
        except KeyboardInterrupt:
            self.interrupted = True
        yield "".join(block)


def _objects(text: str) -> Iterator[Any]:
    """Find the outermost JSON objects in a text; a request line that a caller wrote into a field is not one."""
    at, room = text.find("{"), MAX_VAIN
    while at >= 0 and room > 0:
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            room -= getattr(error, "pos", at + TOO_DEEP) - at
            at += 1
        else:
            yield found
        at = text.find("{", at)


def _request_lines(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        for item in found:
            yield from _request_lines(item)
    elif isinstance(found, dict) and found.get("message") == "request" and _MARK in found:
        yield found
    elif isinstance(found, dict):
        for name, value in found.items():
            if isinstance(value, list | dict):
                yield from _request_lines(value)
            elif name in _WRAPPERS and isinstance(value, str) and _MARK in value:
                with suppress(ValueError, RecursionError):
                    yield from _request_lines(json.loads(value))


def report_from_log(
    read: LogReader, name: str, *, target_ms: int, slo: float | None, since: timedelta | None
) -> LatencyReport:
    """Report the requests of a log, or of its last `since`; without any, raise `InvalidParameterError`."""
    if not read.requests:
        broken = f", and {read.unreadable} that look like one cannot be read" if read.unreadable else ""
        raise InvalidParameterError(
            f"{name}: none of its {read.lines} lines is a request{broken}. A request is a line of JSON with "
            '"message":"request" and "stages_ms", which the functions write to standard output: '
            "chunkproof serve > FILE, sam local … 2> FILE, aws logs tail GROUP > FILE"
        )
    start = datetime.now(UTC) - since if since else None
    requests = [request for request in read.requests if start is None or request.at >= start]
    if not requests:
        last = max(request.at for request in read.requests)
        raise InvalidParameterError(
            f"{name}: none of its {len(read.requests)} requests is within --since; "
            f"the last is of {last:%Y-%m-%d %H:%M} UTC"
        )
    times = [request.at for request in requests]
    source = LatencySource(
        kind="logs",
        name=name,
        start=min(times),
        end=max(times),
        percentiles=NEAREST_RANK,
        lines=read.lines,
        unreadable=read.unreadable,
    )
    return LatencyReport.of([_group(requests, target_ms)], source, target_ms, slo)


def compute_spread(values: Sequence[float]) -> Percentiles:
    """Compute percentiles by nearest rank."""
    ordered = sorted(values)
    p50, p95, p99 = (ordered[ceil(len(ordered) * percent / 100) - 1] for percent in (50, 95, 99))
    return Percentiles(count=len(ordered), p50=p50, p95=p95, p99=p99, max=ordered[-1])


def _group(requests: Sequence[LoggedRequest], target_ms: int) -> RequestGroup:
    step = choose_bucket_seconds((max(r.at for r in requests) - min(r.at for r in requests)).total_seconds())
    codes = Counter(request.code or NO_CODE for request in requests if request.status >= 400)
    return RequestGroup(
        name="all routes",
        requests=len(requests),
        missed=sum(request.waited_ms > target_ms for request in requests),
        left_out=sum(request.status >= 400 and request.waited_ms <= target_ms for request in requests),
        cold_starts=sum(request.cold_start for request in requests),
        errors=dict(codes.most_common()),
        stages=tuple(_stages(requests)),
        routes=tuple(_routes(requests)),
        bucket_seconds=step,
        buckets=tuple(_buckets(requests, step)),
    )


def _stages(requests: Sequence[LoggedRequest]) -> Iterator[StageTimes]:
    by_start: dict[Starts, list[LoggedRequest]] = {"all": list(requests)}
    if len({request.cold_start for request in requests}) > 1:  # otherwise there is no difference to show
        by_start["warm"] = [request for request in requests if not request.cold_start]
        by_start["cold"] = [request for request in requests if request.cold_start]
    for starts, some in by_start.items():
        for stage in STAGES:
            every = (request.gateway_ms if stage == "gateway" else request.stages_ms.get(stage) for request in some)
            if times := [time for time in every if time is not None]:
                yield StageTimes(stage=stage, starts=starts, **compute_spread(times).model_dump())


def _routes(requests: Iterable[LoggedRequest]) -> Iterator[RouteTimes]:
    by_route: dict[str, list[float]] = defaultdict(list)
    for request in requests:
        by_route[request.route or "(none)"].append(request.stages_ms["total"])
    for route, times in sorted(by_route.items(), key=lambda item: (-len(item[1]), item[0])):
        yield RouteTimes(route=route, **compute_spread(times).model_dump())


def _buckets(requests: Iterable[LoggedRequest], step: int) -> Iterator[TimeBucket]:
    """Fill the buckets in order; those without requests are included."""
    waited: dict[int, list[float]] = defaultdict(list)
    for request in requests:
        waited[int(request.at.timestamp()) // step].append(request.waited_ms)
    for number in range(min(waited), max(waited) + 1):
        times = waited.get(number, [])
        start = datetime.fromtimestamp(number * step, UTC)
        yield TimeBucket(start=start, requests=len(times), p95=compute_spread(times).p95 if times else None)
