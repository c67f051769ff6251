"""Latency report from the CloudWatch metrics of a deployed stack."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil

from chunkproof.base import errors
from chunkproof.base.errors import ChunkproofError, InvalidParameterError, UnavailableError
from chunkproof.base.settings import Settings
from chunkproof.service.telemetry import NAMESPACE, SERVICE, STAGE_METRICS
from chunkproof_cli.aws.stack import MetricQuery, Points, Stack, fetch_metric_data, find_stack
from chunkproof_cli.latency_report import (
    DAY,
    HOUR,
    MINUTE,
    NO_CODE,
    STAGES,
    LatencyReport,
    LatencySource,
    RequestGroup,
    StageTimes,
    TimeBucket,
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
class FunctionMetrics:
    """The metrics of one function; `points` is filled with what CloudWatch has for its `queries`."""

    dimensions: tuple[tuple[str, str], ...]
    window: Window
    points: Mapping[MetricQuery, Points] = field(default_factory=dict)

    @classmethod
    def of(cls, stack: Stack, output: str, window: Window) -> "FunctionMetrics":
        """Return the metrics of the function that an output of the stack names."""
        if output not in stack.outputs or "EnvironmentName" not in stack.parameters:
            raise InvalidParameterError(
                f"Stack {stack.name} lacks the output {output} or the parameter EnvironmentName: deploy this version"
            )
        environment, function = stack.parameters["EnvironmentName"], stack.outputs[output]
        return cls((("service", SERVICE), ("environment", environment), ("function", function)), window)

    def queries(self) -> Iterator[MetricQuery]:
        """Yield everything that the report needs."""
        for metric in METRICS.values():
            yield from (self._query(metric, stat) for stat in (COUNT, *PERCENTILES, MAXIMUM))
        yield self._query("TargetMissed", COUNT)
        for metric in ("TargetMissed", "ColdStart", "Errors", *(f"Errors.{code}" for code in CODES)):
            yield self._query(metric, SUM)
        for metric in (METRICS["gateway"], METRICS["total"]):
            yield from (self._query(metric, stat, self.window.bucket) for stat in (COUNT, "p95"))

    def _query(self, name: str, stat: str, period: int | None = None) -> MetricQuery:
        return MetricQuery(NAMESPACE, name, self.dimensions, stat, period or self.window.seconds)

    def _value(self, name: str, stat: str, start: datetime | None = None) -> float | None:
        """Return the figure of the bucket that starts then, or of the whole window.

        CloudWatch may align its periods to the clock instead of the window. Of several percentiles, only the worst is
        safe to report.
        """
        points = self.points[self._query(name, stat, self.window.bucket if start else None)]
        if start is not None:
            first, end = start == self.window.start, start + timedelta(seconds=self.window.bucket)
            points = [(at, value) for at, value in points if (first or start <= at) and at < end]
        values = [value for _, value in points]
        return None if not values else sum(values) if stat in (SUM, COUNT) else max(values)

    def _count(self, name: str, stat: str = SUM) -> int:
        return round(self._value(name, stat) or 0)

    def group(self, name: str) -> RequestGroup:
        """Report the requests of the function."""
        requests = self._count(METRICS["total"], COUNT)
        codes = {code: self._count(f"Errors.{code}") for code in CODES}
        codes[NO_CODE] = self._count("Errors") - sum(codes.values())
        return RequestGroup(
            name=name,
            requests=requests,
            missed=self._count("TargetMissed"),
            left_out=max(0, requests - self._count("TargetMissed", COUNT)),
            cold_starts=self._count("ColdStart"),
            errors={code: count for code, count in sorted(codes.items(), key=lambda item: -item[1]) if count > 0},
            stages=tuple(self._stages()),
            bucket_seconds=self.window.bucket,
            buckets=tuple(self._buckets()),
        )

    def _stages(self) -> Iterator[StageTimes]:
        for stage in STAGES:
            if count := self._count(METRICS[stage], COUNT):
                p50, p95, p99, most = (self._value(METRICS[stage], stat) or 0.0 for stat in (*PERCENTILES, MAXIMUM))
                yield StageTimes(stage=stage, count=count, p50=p50, p95=p95, p99=p99, max=most)

    def _buckets(self) -> Iterator[TimeBucket]:
        """Fill the buckets in order; those without requests are included."""
        gateway, total = METRICS["gateway"], METRICS["total"]
        waited = gateway if self._count(gateway, COUNT) else total
        start = self.window.start
        while start < self.window.end:
            requests = round(self._value(total, COUNT, start) or 0)
            yield TimeBucket(start=start, requests=requests, p95=self._value(waited, "p95", start))
            start += timedelta(seconds=self.window.bucket)


def report_from_stack(name: str, *, since: timedelta, slo: float | None) -> LatencyReport:
    """Report the requests of the functions of a stack, or raise `NoDataError` when there are none."""
    stack, window = find_stack(name), Window.until_now(since)
    functions = {label: FunctionMetrics.of(stack, output, window) for label, output in FUNCTIONS.items()}
    queries = [query for metrics in functions.values() for query in metrics.queries()]
    points = fetch_metric_data(queries, window.start, window.end)
    groups = [replace(metrics, points=points).group(label) for label, metrics in functions.items()]
    if not any(group.requests for group in groups):
        raise NoDataError(
            f"CloudWatch has no requests of stack {name} since {window.start:%Y-%m-%d %H:%M} UTC: "
            f"look further back with --since, or check the stack with chunkproof doctor --stack {name}"
        )
    target_ms = int(stack.parameters.get("LatencyTargetMs", Settings.model_fields["latency_target_ms"].default))
    source = LatencySource(kind="stack", name=name, start=window.start, end=window.end, percentiles=BY_CLOUDWATCH)
    return LatencyReport.of(groups, source, target_ms, slo)
