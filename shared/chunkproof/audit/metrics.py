"""What CloudWatch is told of an audit."""

import json
import sys
from collections.abc import Iterator

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from chunkproof.audit.summary import AuditReport

# As telemetry has them, which is a layer above.
NAMESPACE, SERVICE = "Chunkproof", "chunkproof"


def emit(report: AuditReport, environment: str) -> None:
    """`ChunksAudited` and `AuditCoverage` once, `ChunkMismatch` for each kind of finding, zeros included."""
    for line in lines(report, environment):
        sys.stdout.write(line + "\n")


def lines(report: AuditReport, environment: str) -> Iterator[str]:
    """Each set of metrics in CloudWatch's embedded format."""
    overall = _metrics(report, environment)
    overall.add_metric("ChunksAudited", MetricUnit.Count, report.audited)
    overall.add_metric("AuditCoverage", MetricUnit.Percent, 100 * report.coverage)
    yield json.dumps(overall.serialize_metric_set(), separators=(",", ":"))
    for kind, count in report.kinds.items():
        if kind != "match":
            of_kind = _metrics(report, environment)
            of_kind.add_dimension("kind", kind)
            of_kind.add_metric("ChunkMismatch", MetricUnit.Count, count)
            yield json.dumps(of_kind.serialize_metric_set(), separators=(",", ":"))


def _metrics(report: AuditReport, environment: str) -> EphemeralMetrics:
    metrics = EphemeralMetrics(namespace=NAMESPACE, service=SERVICE)
    metrics.add_dimension("environment", environment)
    metrics.add_dimension("collection", report.collection)
    return metrics
