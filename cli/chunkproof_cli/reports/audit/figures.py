"""What several formats show alike."""

from collections.abc import Iterator
from math import floor

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.report import AuditReport

GOOD = (Kind.MATCH, Kind.VECTOR_OK)


def headline(report: AuditReport) -> str:
    """The verdict in a sentence."""
    matches = report.kinds[Kind.MATCH]
    if matches == report.audited and not faults(report):
        return f"All {report.audited:,} chunks are stored as they should be, byte for byte."
    more = ""
    if orphans := report.kinds.get(Kind.ORPHAN, 0):
        more = f"; {orphans:,} {_are(orphans, 'stored point')} not in the manifest"
    if wrong := report.vectors.checked - report.vectors.kinds[Kind.VECTOR_OK] if report.vectors else 0:
        more += f"; {wrong:,} {_are(wrong, 'vector')} not shown to be of the stored text"
    return f"{matches:,} of {report.audited:,} chunks are stored as they should be{more}."


def _are(count: int, what: str) -> str:
    return f"{what} is" if count == 1 else f"{what}s are"


def faults(report: AuditReport) -> int:
    """Findings of any kind."""
    return report.findings_total


def facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    """What was looked at, and how far."""
    manifest = report.manifest
    yield "collection", f"{report.collection} at {report.host}"
    entries = f", {manifest.repeated:,} entries repeated" if manifest.repeated else ""
    yield "manifest", f"{manifest.name}: {manifest.chunks:,} chunks{entries}"
    if report.complete_scan:
        yield "read", f"all {report.points:,} points of the collection"
    else:
        yield "read", f"{report.audited:,} chunks by their ids; orphans are not looked for"
    # Rounded down: a single chunk of millions that could not be judged is not 100 %.
    yield "coverage", f"{floor(report.coverage * 1e6) / 1e4:.4f}% of the chunks could be judged"
    if sample := report.sample:
        yield (
            "sample",
            f"{sample.faults:,} of {sample.drawn:,} are faulty; of all chunks at most "
            f"{sample.upper_bound:.3%} ({sample.confidence:.0%} confidence)",
        )
    if vectors := report.vectors:
        yield "vectors", f"{vectors.checked:,} texts embedded again by {vectors.model}"
    if report.run.changed:
        yield "changed", f"{report.run.changed:,} chunks changed meanwhile and were read again"
    yield "time", f"{report.run.seconds:,.1f} s, {report.run.chunks_per_second:,.0f} chunks a second"


def kind_rows(report: AuditReport) -> Iterator[tuple[str, int]]:
    """Every kind with its count, zeros included."""
    yield from report.kinds.items()
    if report.vectors:
        yield from report.vectors.kinds.items()


def place(finding: Finding) -> str:
    """Where a text begins to differ."""
    at = finding.mismatch.first_difference if finding.mismatch else None
    return f"byte {at.byte}, line {at.line}, column {at.column}" if at else ""


def why(finding: Finding) -> str:
    """What is wrong, with the place or the cosine."""
    kind = f"{finding.mismatch.kind.value}: " if finding.mismatch else ""
    where = f" ({place(finding)})" if place(finding) else ""
    cosine = f" (cosine {finding.cosine:.4f})" if finding.cosine is not None else ""
    return f"{kind}{finding.details}{where}{cosine}"


def unshown(report: AuditReport, shown: int) -> str | None:
    """A line on findings that are not listed."""
    more = report.findings_total - shown
    return f"… and {more:,} more; -o findings.jsonl has all of them" if more > 0 else None
