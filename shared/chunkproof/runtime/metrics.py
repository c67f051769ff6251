"""CloudWatch metrics, written by Powertools in the embedded metric format: a line of JSON on standard output."""

from collections.abc import Iterable, Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

NAMESPACE = "Chunkproof"
SERVICE = "chunkproof"

Figure = tuple[str, MetricUnit, float]
"""A metric's name, unit and value."""


def emit(figures: Iterable[Figure], dimensions: Mapping[str, str]) -> None:
    """Emit one set of metrics; the service is a dimension of every one.

    Powertools' settings apply (`POWERTOOLS_METRICS_NAMESPACE`, `POWERTOOLS_SERVICE_NAME`,
    `POWERTOOLS_METRICS_DISABLED`). The set is ephemeral, because all instances of `Metrics` share one set, in which
    the threads of a local gateway would mix their requests.
    """
    metrics = EphemeralMetrics()
    metrics.namespace = metrics.namespace or NAMESPACE
    metrics.service = metrics.service or SERVICE
    for name, value in dimensions.items():
        metrics.add_dimension(name, value)
    for metric, unit, figure in figures:
        metrics.add_metric(metric, unit, figure)
    metrics.flush_metrics()
