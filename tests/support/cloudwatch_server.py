"""A loopback server for CloudWatch's GetMetricData with percentiles, which moto does not compute."""

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
    """The data points and how to answer; periods begin with the start of the query, as in CloudWatch."""

    data: list[Datum] = field(default_factory=list)
    refusal: CannedResponse | None = None
    status: str = "Complete"
    # The results of a query are spread over this many pages.
    pages: int = 1
    # Begin periods at multiples of their length instead.
    by_the_clock: bool = False
    server: RecordingServer = field(default_factory=lambda: RecordingServer(""))

    def put(self, name: str, dimensions: Mapping[str, str], at: float, *values: float) -> None:
        self.data += [Datum(name, frozenset(dimensions.items()), at, value) for value in values]

    def take(self, line: dict[str, Any]) -> None:
        """Store the metrics of a line in the embedded metric format, as CloudWatch does."""
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        dimensions = {name: line[name] for name in directive["Dimensions"][0]}
        for metric in directive["Metrics"]:
            self.put(metric["Name"], dimensions, line["_aws"]["Timestamp"] / 1000, *line[metric["Name"]])

    def answer(self, request: RecordedRequest) -> CannedResponse:
        assert request.headers["x-amz-target"] == "GraniteServiceVersion20100801.GetMetricData"
        if self.refusal is not None:
            return self.refusal
        body = json.loads(request.body)
        page = int(body.get("NextToken", 0))
        results = [self._result(query, body, page) for query in body["MetricDataQueries"]]
        following = {"NextToken": str(page + 1)} if page + 1 < self.pages else {}
        response = json.dumps({"MetricDataResults": results, **following}).encode()
        return CannedResponse(body=response, headers=JSON)

    def _result(self, query: Query, body: dict[str, Any], page: int) -> dict[str, Any]:
        points = list(self._points(query["MetricStat"], body["StartTime"], body["EndTime"]))
        mine = points[page :: self.pages]
        return {
            "Id": query["Id"],
            "Label": query["Id"],
            "Timestamps": [at for at, _ in mine],
            "Values": [value for _, value in mine],
            "StatusCode": self.status if page + 1 == self.pages else "PartialData",
        }

    def _points(self, query: Query, start: float, end: float) -> Iterator[tuple[float, float]]:
        metric, period = query["Metric"], query["Period"]
        dimensions = frozenset((d["Name"], d["Value"]) for d in metric["Dimensions"])
        found = [d for d in self.data if (d.name, d.dimensions) == (metric["MetricName"], dimensions)]
        at = start // period * period if self.by_the_clock else start
        while at < end:
            values = [d.value for d in found if max(at, start) <= d.at < min(at + period, end)]
            if values:
                yield at, _statistic(query["Stat"], values)
            at += period


def _statistic(name: str, values: list[float]) -> float:
    if name.startswith("p"):
        return float(np.percentile(values, float(name[1:]), method="inverted_cdf"))
    return float({"Sum": sum, "Maximum": max, "SampleCount": len}[name](values))


def refusal(code: str, message: str) -> CannedResponse:
    """Make an error response of AWS."""
    return CannedResponse(400, json.dumps({"__type": code, "message": message}).encode(), JSON)


@contextmanager
def cloudwatch_server() -> Iterator[CloudWatch]:
    cloudwatch = CloudWatch()
    with recording_server(cloudwatch.answer) as server:
        cloudwatch.server = server
        yield cloudwatch
