"""CloudWatch metrics for a suite run."""

from collections.abc import Iterator

from chunkproof.runtime import emf
from chunkproof.suite.report import SuiteReport


def emit(report: SuiteReport, environment: str, function: str) -> None:
    """Emit the metrics of a run in the embedded metric format; a metric that no case has is left out."""
    emf.write(_figures(report), {"environment": environment, "function": function})


def _figures(report: SuiteReport) -> Iterator[emf.Figure]:
    result = report.result
    # As in the report, a case that could not be judged counts as not passed.
    yield "PassRate", "Percent", result.pass_rate
    for name, metric in (("RecallAt5", "recall@5"), ("MrrAt10", "mrr@10")):
        if metric in result.metrics:
            yield name, "None", result.metrics[metric]
    if any(case.timing for case in result.test_results):
        yield "SuiteP95Latency", "Milliseconds", result.performance_metrics.p95_retrieval_time_ms
