"""What CloudWatch is told of an audit."""

from collections.abc import Iterator

from chunkproof.audit.report import AuditReport
from chunkproof.runtime import emf


def emit(report: AuditReport, environment: str) -> None:
    """`ChunksAudited` and `AuditCoverage` once, `ChunkMismatch` for each kind of finding, zeros included."""
    for figures, dimensions in _sets(report, environment):
        emf.write(figures, dimensions)


def lines(report: AuditReport, environment: str) -> Iterator[str]:
    """Each set of metrics in CloudWatch's embedded format."""
    for figures, dimensions in _sets(report, environment):
        yield emf.line(figures, dimensions)


def _sets(report: AuditReport, environment: str) -> Iterator[tuple[list[emf.Figure], dict[str, str]]]:
    places = {"environment": environment, "collection": report.collection}
    audited = ("ChunksAudited", "Count", float(report.audited))
    yield [audited, ("AuditCoverage", "Percent", 100 * report.coverage)], places
    for kind, count in report.kinds.items():
        if kind != "match":
            yield [("ChunkMismatch", "Count", float(count))], {**places, "kind": kind}
