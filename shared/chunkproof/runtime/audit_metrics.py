"""CloudWatch metrics for an audit."""

from chunkproof.audit.report import AuditReport
from chunkproof.runtime import emf


def emit(report: AuditReport, environment: str) -> None:
    """Emit `ChunksAudited` and `AuditCoverage` once, and `ChunkMismatch` for each kind of finding, zeros included."""
    dimensions = {"environment": environment, "collection": report.collection}
    audited = ("ChunksAudited", "Count", float(report.audited))
    emf.write([audited, ("AuditCoverage", "Percent", 100 * report.coverage)], dimensions)
    for kind, count in report.kinds.items():
        if kind != "match":
            emf.write([("ChunkMismatch", "Count", float(count))], {**dimensions, "kind": kind})
