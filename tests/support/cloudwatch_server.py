"""A loopback server that speaks CloudWatch's GetMetricData, percentiles included, which moto does not compute."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, recording_server

JSON = {"content-type": "application/x-amz-json-1.0"}
Query = dict[str, Any]


@dataclass(frozen=True)
class Datum:
    name: str
    dimensions: frozenset[tuple[str, str]]
    at: float
    value: float


@dataclass
class CloudWatch:
    """What it was given, and how it answers: periods begin with the request's start, as CloudWatch's do."""

    data: list[Datum] = field(default_factory=list)
    refusal: CannedResponse | None = None
    status: str = "Complete"
    # More than one, and what a query has is spread over as many pages.
    pages: int = 1
    # Begin periods at multiples of their length instead.
    by_the_clock: bool = False
    server: RecordingServer = field(default_factory=lambda: RecordingServer(""))

    def put(self, name: str, dimensions: Mapping[str, str], at: float, *values: float) -> None:
        self.data += [Datum(name, frozenset(dimensions.items()), at, value) for value in values]

    def take(self, line: dict[str, Any]) -> None:
        """A line of the embedded metric format, as CloudWatch takes it out of a log."""
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        dimensions = {name: line[name] for name in directive["Dimensions"][0]}
        for metric in directive["Metrics"]:
            self.put(metric["Name"], dimensions, line["_aws"]["Timestamp"] / 1000, *line[metric["Name"]])

    def answer(self, asked: RecordedRequest) -> CannedResponse:
        assert asked.headers["x-amz-target"] == "GraniteServiceVersion20100801.GetMetricData"
        if self.refusal is not None:
            return self.refusal
        request = json.loads(asked.body)
        page = int(request.get("NextToken", 0))
        results = [self._result(query, request, page) for query in request["MetricDataQueries"]]
        following = {"NextToken": str(page + 1)} if page + 1 < self.pages else {}
        body = json.dumps({"MetricDataResults": results, **following}).encode()
        return CannedResponse(body=body, headers=JSON)

    def _result(self, query: Query, request: dict[str, Any], page: int) -> dict[str, Any]:
        points = list(self._points(query["MetricStat"], request["StartTime"], request["EndTime"]))
        mine = points[page :: self.pages]
        return {
            "Id": query["Id"],
            "Label": query["Id"],
            "Timestamps": [at for at, _ in mine],
            "Values": [value for _, value in mine],
            "StatusCode": self.status if page + 1 == self.pages else "PartialData",
        }

    def _points(self, asked: Query, start: float, end: float) -> Iterator[tuple[float, float]]:
        metric, period = asked["Metric"], asked["Period"]
        dimensions = frozenset((d["Name"], d["Value"]) for d in metric["Dimensions"])
        found = [d for d in self.data if (d.name, d.dimensions) == (metric["MetricName"], dimensions)]
        at = start // period * period if self.by_the_clock else start
        while at < end:
            values = [d.value for d in found if max(at, start) <= d.at < min(at + period, end)]
            if values:
                yield at, _statistic(asked["Stat"], values)
            at += period


def _statistic(name: str, values: list[float]) -> float:
    if name.startswith("p"):
        return float(np.percentile(values, float(name[1:]), method="inverted_cdf"))
    return float({"Sum": sum, "Maximum": max, "SampleCount": len}[name](values))


def refusal(code: str, message: str) -> CannedResponse:
    """An error in AWS's words."""
    return CannedResponse(400, json.dumps({"__type": code, "message": message}).encode(), JSON)


@contextmanager
def cloudwatch_server() -> Iterator[CloudWatch]:
    cloudwatch = CloudWatch()
    with recording_server(cloudwatch.answer) as server:
        cloudwatch.server = server
        yield cloudwatch
