"""CloudWatch metrics and log lines for canaries."""

from collections.abc import Sequence

from aws_lambda_powertools.metrics import MetricUnit

from chunkproof.retrieval.canary import Canary
from chunkproof.runtime import metrics
from chunkproof.runtime.telemetry import logger


def emit(canaries: Sequence[Canary], environment: str, function: str) -> None:
    """Log a line for each embedder; emit the largest drift, and how many embedders changed.

    A new record counts as unchanged, so that the alarm is over. Nothing is emitted where nothing was recorded.
    """
    for canary in canaries:
        if canary.state == "changed":
            logger.warning("canary", extra=canary.model_dump(mode="json"))
        else:
            logger.info("canary", extra=canary.model_dump(mode="json"))
    known = [canary for canary in canaries if canary.state != "not recorded"]
    if known:
        figures = [
            ("CanaryDrift", MetricUnit.NoUnit, max(canary.drift or 0.0 for canary in known)),
            ("CanaryChanged", MetricUnit.Count, float(sum(canary.state == "changed" for canary in known))),
        ]
        metrics.emit(figures, {"environment": environment, "function": function})
