"""CloudWatch metrics and a log line for a suite run."""

from collections.abc import Iterator

from aws_lambda_powertools.metrics import MetricUnit

from chunkproof.runtime import metrics
from chunkproof.runtime.telemetry import logger
from chunkproof.suite.report import SuiteReport


def emit(report: SuiteReport, environment: str, function: str) -> None:
    """Log a line, and emit the metrics of a run; a metric that no case has is left out."""
    facts = {"collection": report.suite.collection, "versions": report.suite.versions, "passed": report.result.passed}
    logger.info("suite", extra={**facts, "cases": report.result.total_tests})
    metrics.emit(_figures(report), {"environment": environment, "function": function})


def _figures(report: SuiteReport) -> Iterator[metrics.Figure]:
    result = report.result
    # As in the report, a case that could not be judged counts as not passed.
    yield "PassRate", MetricUnit.Percent, result.pass_rate
    for name, metric in (("RecallAt5", "recall@5"), ("MrrAt10", "mrr@10")):
        if metric in result.metrics:
            yield name, MetricUnit.NoUnit, result.metrics[metric]
    if any(case.timing for case in result.test_results):
        yield "SuiteP95Latency", MetricUnit.Milliseconds, result.performance_metrics.p95_retrieval_time_ms
