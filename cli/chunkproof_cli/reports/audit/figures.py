"""Figures and sentences that every format of an audit report shows."""

from collections.abc import Iterator
from math import floor

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.report import AuditReport
from chunkproof.retrieval.vectors import SAME
from chunkproof_cli.reports.audit.coverage import coverage_line
from chunkproof_cli.reports.wording import and_more, describe_repeated, short_version

GOOD = (Kind.MATCH, Kind.VECTOR_OK)


def has_failed(report: AuditReport) -> bool:
    """Whether something is wrong with the chunks, or with what they cover of their sources."""
    return bool(report.faults) or bool(report.source_coverage and not report.source_coverage.is_enough)


def headline(report: AuditReport) -> str:
    """Say the verdict in a sentence."""
    matches = report.kinds[Kind.MATCH]
    how = _explain_matching(report)
    is_complete = matches == report.audited and not report.faults
    more = ", byte for byte" if is_complete else ""
    if copied := report.kinds.get(Kind.DUPLICATE_TEXT, 0):
        more += f"; {copied:,} {_has_or_have(copied)} their text on more points than the manifest expects"
    if orphans := report.kinds.get(Kind.ORPHAN, 0):
        more += f"; {orphans:,} {_is_or_are(orphans, 'stored point')} not in the manifest"
    if wrong := report.vectors.checked - report.vectors.kinds[Kind.VECTOR_OK] if report.vectors else 0:
        more += f"; {wrong:,} {_is_or_are(wrong, 'vector')} not confirmed to match the stored text"
    if near := report.kinds.get(Kind.NEAR_DUPLICATE, 0):
        more += f"; {near:,} {_is_or_are(near, 'stored text')} nearly the same as another one"
    if coverage := report.source_coverage:
        how += f"; {coverage_line(coverage)}"
    whole = f"All {report.audited:,}" if is_complete else f"{matches:,} of {report.audited:,}"
    return f"{whole} chunks are stored as they should be{more}{how}."


def _explain_matching(report: AuditReport) -> str:
    """Say how chunks were found whose ids are not stored, and what to do where they were not looked for."""
    found = report.matching
    if found is None:
        if report.kinds[Kind.MISSING] < report.audited:
            return ""
        advice = "--match text looks for the texts" if report.complete_scan else "a complete audit looks for the texts"
        return f"; no id of the manifest is stored: {advice}"
    parts = []
    if found.by_text:
        parts.append(f"{found.by_text:,} {_is_or_are(found.by_text, 'chunk')} stored under other ids, matched by text")
    if found.by_nearest_text:
        parts.append(f"{found.by_nearest_text:,} compared with the nearest text")
    if found.repeated_texts and not report.kinds.get(Kind.DUPLICATE_TEXT):
        parts.append(f"{found.repeated_texts:,} {_is_or_are(found.repeated_texts, 'text')} stored more than once")
    return "".join(f"; {part}" for part in parts)


def _has_or_have(count: int) -> str:
    return "has" if count == 1 else "have"


def _is_or_are(count: int, what: str) -> str:
    return f"{what} is" if count == 1 else f"{what}s are"


def facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    """List what was audited, how far, and how long it took."""
    manifest = report.manifest
    version = f", version {short_version(report.version)}" if report.version else ""
    yield "collection", f"{report.collection} at {report.host}{version}"
    entries = f", {manifest.repeated:,} entries repeated" if manifest.repeated else ""
    yield "manifest", f"{manifest.name}: {manifest.chunks:,} chunks{entries}"
    if report.complete_scan:
        yield "read", f"all {report.points:,} points of the collection"
    else:
        yield "read", f"{report.audited:,} chunks by their ids; orphans were not looked for"
    if found := report.matching:
        yield (
            "matched",
            f"{found.by_id:,} by id, {found.by_text:,} by text under another id, "
            f"{found.by_nearest_text:,} by the nearest text",
        )
        if found.repeated_texts:
            extra = f"{found.extra_points:,} {_is_or_are(found.extra_points, 'point')} more than texts need"
            yield "repeated", f"{found.repeated_texts:,} texts are stored more than once; {extra}"
    if coverage := report.source_coverage:
        yield "sources", f"{coverage.folder}: {coverage_line(coverage)}"
    if queries := report.queries:
        yield "queries", describe_repeated(queries)
    yield "coverage", f"{describe_coverage(report)} of the chunks could be judged"
    if sample := report.sample:
        yield (
            "sample",
            f"{sample.faults:,} of {sample.drawn:,} are faulty; of all chunks at most "
            f"{sample.upper_bound:.3%} ({sample.confidence:.0%} confidence)",
        )
    if vectors := report.vectors:
        is_lossy = vectors.same_from is not None and vectors.same_from < SAME
        bits = f"; stored in few bits: equal from a cosine of {vectors.same_from}" if is_lossy else ""
        yield "vectors", f"{vectors.checked:,} texts embedded again by {vectors.model}{bits}"
    if report.run.changed:
        yield "changed", f"{report.run.changed:,} chunks changed during the audit and were read again"
    yield "time", f"{report.run.seconds:,.1f} s, {report.run.chunks_per_second:,.0f} chunks a second"


def describe_coverage(report: AuditReport) -> str:
    """Round down: with one chunk of millions that could not be judged, the coverage is not 100 %."""
    return f"{floor(report.coverage * 1e6) / 1e4:.4f}%"


def kind_rows(report: AuditReport) -> Iterator[tuple[str, int]]:
    """List every kind with its count, zeros included."""
    yield from report.kinds.items()
    if report.vectors:
        yield from report.vectors.kinds.items()


def describe_finding(finding: Finding) -> str:
    """Say what is wrong, with the place of the first difference or the cosine."""
    kind = f"{finding.mismatch.kind.value}: " if finding.mismatch else ""
    at = finding.mismatch.first_difference if finding.mismatch else None
    place = f" (byte {at.byte}, line {at.line}, column {at.column})" if at else ""
    cosine = f" (cosine {finding.cosine:.4f})" if finding.cosine is not None else ""
    return f"{kind}{finding.details}{place}{cosine}"


def findings_left_out(report: AuditReport, listed: int) -> str | None:
    """Say how many findings are not listed, and where to find them; None when all are listed."""
    more = and_more(report.findings_total, listed)
    return f"{more}; -o findings.jsonl has all of them" if more else None
