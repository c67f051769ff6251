"""CloudWatch metrics for an audit."""

from aws_lambda_powertools.metrics import MetricUnit

from chunkproof.audit.report import AuditReport
from chunkproof.runtime import metrics


def emit(report: AuditReport, environment: str) -> None:
    """Emit `ChunksAudited` and `AuditCoverage` once, and `ChunkMismatch` for each kind of finding, zeros included."""
    dimensions = {"environment": environment, "collection": report.collection}
    audited = ("ChunksAudited", MetricUnit.Count, report.audited)
    metrics.emit([audited, ("AuditCoverage", MetricUnit.Percent, 100 * report.coverage)], dimensions)
    for kind, count in report.kinds.items():
        if kind != "match":
            metrics.emit([("ChunkMismatch", MetricUnit.Count, count)], {**dimensions, "kind": kind})
