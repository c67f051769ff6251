"""Latency report from the CloudWatch metrics of a deployed stack."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from chunkproof import errors
from chunkproof.errors import ChunkproofError, InvalidParameterError, UnavailableError
from chunkproof.runtime.metrics import NAMESPACE, SERVICE
from chunkproof.runtime.telemetry import STAGE_METRICS
from chunkproof.settings import Settings
from chunkproof_cli.aws.stack import MetricQuery, Points, Stack, fetch_metric_data, find_stack
from chunkproof_cli.latency.report import (
    DAY,
    HOUR,
    MINUTE,
    NO_CODE,
    STAGES,
    Bucket,
    Group,
    LatencyReport,
    Source,
    StageTimes,
    choose_bucket_seconds,
)

METRICS = {**STAGE_METRICS, "total": "RequestLatency", "gateway": "GatewayLatency"}
FUNCTIONS = {"search": "SearchFunctionName", "validate-chunk": "ValidateChunkFunctionName"}
COUNT, SUM, MAXIMUM = "SampleCount", "Sum", "Maximum"
PERCENTILES = ("p50", "p95", "p99")
CODES = sorted(
    {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ChunkproofError)}
)
BY_CLOUDWATCH = "computed by CloudWatch over the whole time"


class NoDataError(UnavailableError):
    """CloudWatch has no requests in this time."""

    code = "NO_DATA"


@dataclass(frozen=True)
class Window:
    """The time to report: whole minutes, in at most a dozen buckets."""

    start: datetime
    end: datetime
    bucket: int

    @classmethod
    def until_now(cls, since: timedelta) -> "Window":
        """Make the window that ends now.

        CloudWatch keeps older data by five minutes and then by the hour; periods must be multiples of that.
        """
        days = since.total_seconds() / DAY
        grain = MINUTE if days < 15 else 5 * MINUTE if days < 63 else HOUR
        seconds = ceil(since.total_seconds() / grain) * grain
        now = datetime.now(UTC)
        end = datetime.fromtimestamp(ceil(now.timestamp() / grain) * grain, UTC)
        return cls(end - timedelta(seconds=seconds), end, max(grain, choose_bucket_seconds(seconds)))

    @property
    def seconds(self) -> int:
        """Its length; as a period, it gives one figure for the whole window."""
        return int((self.end - self.start).total_seconds())


@dataclass(frozen=True)
class Metrics:
    """The metrics of one function."""

    dimensions: tuple[tuple[str, str], ...]
    window: Window
    points: dict[MetricQuery, Points]

    def value_overall(self, name: str, stat: str) -> float | None:
        """Return one figure for the whole window."""
        return _combine(stat, [value for _, value in self._points(name, stat, self.window.seconds)])

    def count(self, name: str, stat: str = SUM) -> int:
        """Return it as a whole number, 0 for a metric without data."""
        return round(self.value_overall(name, stat) or 0)

    def value_in_bucket(self, start: datetime, name: str, stat: str) -> float | None:
        """Return the figure of one bucket; CloudWatch may align its periods to the clock instead of the window."""
        first, end = start == self.window.start, start + timedelta(seconds=self.window.bucket)
        points = self._points(name, stat, self.window.bucket)
        return _combine(stat, [value for at, value in points if (first or start <= at) and at < end])

    def _points(self, name: str, stat: str, period: int) -> Points:
        return self.points[_query(name, self.dimensions, stat, period)]


def _combine(stat: str, values: list[float]) -> float | None:
    """Combine the values of several periods; of several percentiles, only the worst is safe to report."""
    if not values:
        return None
    return sum(values) if stat in (SUM, COUNT) else max(values)


def report_from_stack(name: str, *, since: timedelta, slo: float | None) -> LatencyReport:
    """Report the requests of the functions of a stack, or raise `NoDataError` when there are none."""
    stack, window = find_stack(name), Window.until_now(since)
    dimensions = {label: _dimensions(stack, output) for label, output in FUNCTIONS.items()}
    queries = [query for of_function in dimensions.values() for query in _queries(of_function, window)]
    points = fetch_metric_data(queries, window.start, window.end)
    groups = [_group(label, Metrics(of, window, points)) for label, of in dimensions.items()]
    if not any(group.requests for group in groups):
        raise NoDataError(
            f"CloudWatch has no requests of stack {name} since {window.start:%Y-%m-%d %H:%M} UTC: "
            f"look further back with --since, or check the stack with chunkproof doctor --stack {name}"
        )
    source = Source(kind="stack", name=name, start=window.start, end=window.end, percentiles=BY_CLOUDWATCH)
    return LatencyReport.of(groups, source, _target_ms(stack), slo)


def _dimensions(stack: Stack, output: str) -> tuple[tuple[str, str], ...]:
    if output not in stack.outputs or "EnvironmentName" not in stack.parameters:
        raise InvalidParameterError(
            f"Stack {stack.name} lacks the output {output} or the parameter EnvironmentName: deploy this version"
        )
    return (
        ("service", SERVICE),
        ("environment", stack.parameters["EnvironmentName"]),
        ("function", stack.outputs[output]),
    )


def _target_ms(stack: Stack) -> int:
    default = Settings.model_fields["latency_target_ms"].default
    return int(stack.parameters.get("LatencyTargetMs", default))


def _query(name: str, dimensions: tuple[tuple[str, str], ...], stat: str, period: int) -> MetricQuery:
    return MetricQuery(NAMESPACE, name, dimensions, stat, period)


def _queries(dimensions: tuple[tuple[str, str], ...], window: Window) -> Iterator[MetricQuery]:
    for metric in METRICS.values():
        for stat in (COUNT, *PERCENTILES, MAXIMUM):
            yield _query(metric, dimensions, stat, window.seconds)
    yield _query("TargetMissed", dimensions, COUNT, window.seconds)
    for metric in ("TargetMissed", "ColdStart", "Errors", *(f"Errors.{code}" for code in CODES)):
        yield _query(metric, dimensions, SUM, window.seconds)
    for metric in (METRICS["gateway"], METRICS["total"]):
        for stat in (COUNT, "p95"):
            yield _query(metric, dimensions, stat, window.bucket)


def _group(name: str, metrics: Metrics) -> Group:
    return Group(
        name=name,
        requests=metrics.count(METRICS["total"], COUNT),
        missed=metrics.count("TargetMissed"),
        left_out=max(0, metrics.count(METRICS["total"], COUNT) - metrics.count("TargetMissed", COUNT)),
        cold_starts=metrics.count("ColdStart"),
        errors=_errors(metrics),
        stages=tuple(_stages(metrics)),
        bucket_seconds=metrics.window.bucket,
        buckets=tuple(_buckets(metrics)),
    )


def _stages(metrics: Metrics) -> Iterator[StageTimes]:
    for stage in STAGES:
        if count := metrics.count(METRICS[stage], COUNT):
            p50, p95, p99, most = (
                metrics.value_overall(METRICS[stage], stat) or 0.0 for stat in (*PERCENTILES, MAXIMUM)
            )
            yield StageTimes(stage=stage, count=count, p50=p50, p95=p95, p99=p99, max=most)


def _errors(metrics: Metrics) -> dict[str, int]:
    by_code = {code: metrics.count(f"Errors.{code}") for code in CODES}
    by_code[NO_CODE] = metrics.count("Errors") - sum(by_code.values())
    most_first = sorted(by_code.items(), key=lambda item: -item[1])
    return {code: count for code, count in most_first if count > 0}


def _buckets(metrics: Metrics) -> Iterator[Bucket]:
    """Fill the buckets in order; those without requests are included."""
    gateway, total = METRICS["gateway"], METRICS["total"]
    waited = gateway if metrics.count(gateway, COUNT) else total
    start = metrics.window.start
    while start < metrics.window.end:
        requests = round(metrics.value_in_bucket(start, total, COUNT) or 0)
        yield Bucket(start=start, requests=requests, p95=metrics.value_in_bucket(start, waited, "p95"))
        start += timedelta(seconds=metrics.window.bucket)
