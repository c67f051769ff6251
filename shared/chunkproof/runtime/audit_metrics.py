"""CloudWatch metrics and a log line for an audit."""

from aws_lambda_powertools.metrics import MetricUnit

from chunkproof.audit.report import AuditReport
from chunkproof.runtime import metrics
from chunkproof.runtime.telemetry import logger


def emit(report: AuditReport, environment: str) -> None:
    """Log a line; emit `ChunksAudited` and `AuditCoverage` once, and `ChunkMismatch` for each kind, zeros included."""
    facts = {"collection": report.collection, "version": report.version, "findings": report.findings_total}
    logger.info("audit", extra=facts)
    dimensions = {"environment": environment, "collection": report.collection}
    audited = ("ChunksAudited", MetricUnit.Count, report.audited)
    metrics.emit([audited, ("AuditCoverage", MetricUnit.Percent, 100 * report.coverage)], dimensions)
    for kind, count in report.kinds.items():
        if kind != "match":
            metrics.emit([("ChunkMismatch", MetricUnit.Count, count)], {**dimensions, "kind": kind})
