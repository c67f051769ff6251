"""What CloudWatch is told of a run."""

import json
import sys
from collections.abc import Iterator

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from chunkproof.suite.report import SuiteReport
from chunkproof.telemetry import NAMESPACE, SERVICE


def emit(report: SuiteReport, environment: str, function: str) -> None:
    """One set of metrics in CloudWatch's embedded format; what no case measured is left out."""
    metrics = EphemeralMetrics(namespace=NAMESPACE, service=SERVICE)
    metrics.add_dimension("environment", environment)
    metrics.add_dimension("function", function)
    for name, unit, value in _figures(report):
        metrics.add_metric(name, unit, value)
    sys.stdout.write(json.dumps(metrics.serialize_metric_set(), separators=(",", ":")) + "\n")


def _figures(report: SuiteReport) -> Iterator[tuple[str, MetricUnit, float]]:
    result = report.result
    # As in the report: a case that could not be judged has not passed.
    yield "PassRate", MetricUnit.Percent, result.pass_rate
    for name, metric in (("RecallAt5", "recall@5"), ("MrrAt10", "mrr@10")):
        if metric in result.metrics:
            yield name, MetricUnit.NoUnit, result.metrics[metric]
    if any(case.timing for case in result.test_results):
        yield "SuiteP95Latency", MetricUnit.Milliseconds, result.performance_metrics.p95_retrieval_time_ms
