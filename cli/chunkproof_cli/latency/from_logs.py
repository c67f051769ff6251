"""Latency report from log lines."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from chunkproof.errors import InvalidParameterError
from chunkproof_cli.latency.log_lines import LoggedRequest, LogReader
from chunkproof_cli.latency.report import (
    NO_CODE,
    STAGES,
    Bucket,
    Group,
    LatencyReport,
    RouteTimes,
    Source,
    Spread,
    StageTimes,
    Starts,
    choose_bucket_seconds,
)

NEAREST_RANK = "nearest rank, so that each is a measured time"


def report_from_log(
    read: LogReader, name: str, *, target_ms: int, slo: float | None, since: timedelta | None
) -> LatencyReport:
    """Report the requests of a log, or of its last `since`.

    A log without requests is an `InvalidParameterError`.
    """
    if not read.requests:
        raise InvalidParameterError(_no_requests(read, name))
    start = datetime.now(UTC) - since if since else None
    requests = [request for request in read.requests if start is None or request.at >= start]
    if not requests:
        last = max(request.at for request in read.requests)
        raise InvalidParameterError(
            f"{name}: none of its {len(read.requests)} requests is within --since; "
            f"the last is of {last:%Y-%m-%d %H:%M} UTC"
        )
    times = [request.at for request in requests]
    source = Source(
        kind="logs",
        name=name,
        start=min(times),
        end=max(times),
        percentiles=NEAREST_RANK,
        lines=read.lines,
        unreadable=read.unreadable,
    )
    return LatencyReport.of([_group(requests, target_ms)], source, target_ms, slo)


def _no_requests(read: LogReader, name: str) -> str:
    broken = f", and {read.unreadable} that look like one cannot be read" if read.unreadable else ""
    return (
        f"{name}: none of its {read.lines} lines is a request{broken}. A request is a line of JSON with "
        '"message":"request" and "stages_ms", which the functions write to standard output: '
        "chunkproof serve > FILE, sam local … 2> FILE, aws logs tail GROUP > FILE"
    )


def compute_spread(values: Sequence[float]) -> Spread:
    """Compute percentiles by nearest rank."""
    import numpy as np  # takes 0.1 s to import

    p50, p95, p99 = np.percentile(values, (50, 95, 99), method="inverted_cdf").tolist()
    return Spread(count=len(values), p50=p50, p95=p95, p99=p99, max=max(values))


def _group(requests: Sequence[LoggedRequest], target_ms: int) -> Group:
    step = choose_bucket_seconds((max(r.at for r in requests) - min(r.at for r in requests)).total_seconds())
    codes = Counter(request.code or NO_CODE for request in requests if request.status >= 400)
    return Group(
        name="all routes",
        requests=len(requests),
        missed=sum(request.waited_ms > target_ms for request in requests),
        left_out=sum(request.is_left_out(target_ms) for request in requests),
        cold_starts=sum(request.cold_start for request in requests),
        errors=dict(codes.most_common()),
        stages=tuple(_stages(requests)),
        routes=tuple(_routes(requests)),
        bucket_seconds=step,
        buckets=tuple(_buckets(requests, step)),
    )


def _stages(requests: Sequence[LoggedRequest]) -> Iterator[StageTimes]:
    by_start: dict[Starts, list[LoggedRequest]] = {
        "all": list(requests),
        "warm": [request for request in requests if not request.cold_start],
        "cold": [request for request in requests if request.cold_start],
    }
    if not (by_start["warm"] and by_start["cold"]):  # no difference to show
        by_start = {"all": by_start["all"]}
    for starts, some in by_start.items():
        for stage in STAGES:
            if times := list(_times(some, stage)):
                yield StageTimes(stage=stage, starts=starts, **compute_spread(times).model_dump())


def _times(requests: Iterable[LoggedRequest], stage: str) -> Iterator[float]:
    for request in requests:
        time = request.gateway_ms if stage == "gateway" else request.stages_ms.get(stage)
        if time is not None:
            yield time


def _routes(requests: Iterable[LoggedRequest]) -> Iterator[RouteTimes]:
    by_route: dict[str, list[float]] = defaultdict(list)
    for request in requests:
        by_route[request.route or "(none)"].append(request.total_ms)
    for route, times in sorted(by_route.items(), key=lambda item: (-len(item[1]), item[0])):
        yield RouteTimes(route=route, **compute_spread(times).model_dump())


def _buckets(requests: Iterable[LoggedRequest], step: int) -> Iterator[Bucket]:
    """Fill the buckets in order; those without requests are included."""
    waited: dict[int, list[float]] = defaultdict(list)
    for request in requests:
        waited[int(request.at.timestamp()) // step].append(request.waited_ms)
    for number in range(min(waited), max(waited) + 1):
        times = waited.get(number, [])
        start = datetime.fromtimestamp(number * step, UTC)
        yield Bucket(start=start, requests=len(times), p95=compute_spread(times).p95 if times else None)
