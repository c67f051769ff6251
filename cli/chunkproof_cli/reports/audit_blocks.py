"""The blocks of audit and absence reports."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor
from types import MappingProxyType
from typing import Literal

from chunkproof.audit.absence import AbsenceReport
from chunkproof.audit.audit_report import AuditReport
from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.source_coverage import SourceCoverage
from chunkproof.contract import MismatchKind
from chunkproof.proof.vector_judge import SAME
from chunkproof_cli.output import shorten
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import Medium, TableLayout, Tone
from chunkproof_cli.reports.to_junit import JunitCase, JunitSuite, SarifResult

GOOD = (Kind.MATCH, Kind.VECTOR_OK)
# Listed, but no reason to fail.
NOTED = (Kind.NEAR_DUPLICATE,)
NOT_JUDGED = (Kind.UNVERIFIABLE, Kind.UNVERIFIABLE_VECTOR)
MOST_JUNIT_LINES, MOST_ABSENCE_ROWS = 50, 1_000
_EXCERPT = 160
# Characters that are shown before the first difference.
_CONTEXT = 12
HAVE = ("has", "have")
# What the verdict says of each kind, the worst one first.
WORST_FIRST: dict[str, Callable[[int], str]] = {
    Kind.MISMATCH: lambda n: f"{n:,} {_is_or_are(n, 'chunk', HAVE)} another text",
    Kind.MISSING: lambda n: f"{n:,} {_is_or_are(n, 'chunk')} missing",
    Kind.DUPLICATE: lambda n: f"{n:,} {_is_or_are(n, 'chunk')} on several points, or twice in the manifest",
    Kind.UNVERIFIABLE: lambda n: f"{n:,} {_is_or_are(n, 'chunk')} not readable",
    Kind.METADATA_MISMATCH: lambda n: f"{n:,} {_is_or_are(n, 'chunk', HAVE)} other metadata",
    Kind.DUPLICATE_TEXT: lambda n: f"{n:,} {HAVE[n != 1]} their text on more points than the manifest expects",
    Kind.ORPHAN: lambda n: f"{n:,} {_is_or_are(n, 'stored point')} not in the manifest",
}


def describe_audit(report: AuditReport) -> blocks.ReportBody:
    """Describe the report: each finding, what the sources lack, then counts and facts."""
    coverage = report.source_coverage
    is_good = not report.faults and (coverage is None or coverage.is_enough)
    return blocks.ReportBody(
        f"Audit of {report.collection}",
        [blocks.VerdictLine(say_verdict(report), Tone.of(is_good))],
        list(_audit_sections(report)),
        summary=[blocks.Paragraph(f"{report.run.started_at:%Y-%m-%d %H:%M} UTC", Tone.DIM, media=Medium.PAGE)],
        footer=f"Manifest {report.manifest.name}, SHA-256 {report.manifest.sha256}",
    )


def say_verdict(report: AuditReport) -> str:
    """Say the verdict in a sentence: what was found, worst first."""
    matches, how = report.kinds[Kind.MATCH], _explain_matching(report)
    is_complete = matches == report.audited and not report.faults
    found = [describe(report.kinds[kind]) for kind, describe in WORST_FIRST.items() if report.kinds.get(kind)]
    if report.mismatch_kinds:
        found[0] += f" ({', '.join(f'{count:,} {kind}' for kind, count in report.mismatch_kinds.items())})"
    if vectors := report.vectors:
        kinds = {kind: count for kind, count in vectors.kinds.items() if count and kind != Kind.VECTOR_OK}
        if wrong := sum(kinds.values()):
            named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            found.append(f"{wrong:,} {_is_or_are(wrong, 'vector')} not confirmed to match the stored text ({named})")
    if near := report.kinds.get(Kind.NEAR_DUPLICATE, 0):
        found.append(f"{near:,} {_is_or_are(near, 'stored text')} nearly the same as another one")
    if coverage := report.source_coverage:
        how += f"; {describe_coverage(coverage)}"
    whole = f"All {report.audited:,}" if is_complete else f"{matches:,} of {report.audited:,}"
    more = ", byte for byte" if is_complete else ""
    return f"{'; '.join((f'{whole} chunks are stored as they should be{more}', *found))}{how}."


def _explain_matching(report: AuditReport) -> str:
    """Explain how chunks with other ids were matched, or how to match them."""
    matching = report.matching
    if matching is None:
        if report.kinds[Kind.MISSING] < report.audited:
            return ""
        advice = "--match text looks for the texts" if report.complete_scan else "a complete audit looks for the texts"
        return f"; no id of the manifest is stored: {advice}"
    parts = []
    if by_text := matching.by_text:
        parts.append(f"{by_text:,} {_is_or_are(by_text, 'chunk')} stored under other ids, matched by text")
    if matching.by_nearest_text:
        parts.append(f"{matching.by_nearest_text:,} compared with the nearest text")
    if (repeated := matching.repeated_texts) and not report.kinds.get(Kind.DUPLICATE_TEXT):
        parts.append(f"{repeated:,} {_is_or_are(repeated, 'text')} stored more than once")
    return "".join(f"; {part}" for part in parts)


def _is_or_are(count: int, what: str, verbs: tuple[str, str] = ("is", "are")) -> str:
    return f"{what} {verbs[0]}" if count == 1 else f"{what}s {verbs[1]}"


def _audit_sections(report: AuditReport) -> Iterator[blocks.Section]:
    if report.findings:
        yield blocks.Section("Findings", list(_findings(report)))
    if report.source_coverage:
        yield from _coverage_sections(report.source_coverage)
    tiles = (
        ("chunks audited", f"{report.audited:,}"),
        ("stored as they should be", f"{report.kinds[Kind.MATCH]:,}"),
        ("findings", f"{report.findings_total:,}"),
        ("coverage", _round_down(report.coverage, 4)),
    )
    kinds = _count_bars("kind", "chunks", [(kind, count, kind in GOOD) for kind, count in _kind_counts(report)])
    yield blocks.Section("Chunks by kind", [blocks.Tiles(tiles), kinds])
    if causes := [(cause, count, False) for cause, count in report.mismatch_kinds.items()]:
        chart = _count_bars("cause", "chunks", causes)
        yield blocks.Section("Mismatches by cause", [chart], media=Medium.PAGE | Medium.TEXT)
    if sources := [(shorten(each.source), each.findings, False) for each in report.sources]:
        title = f"Findings by source ({report.sources_total:,})"
        yield blocks.Section(title, [_count_bars("source", "findings", sources)], media=Medium.PAGE | Medium.TEXT)
    yield blocks.Section("Audit", [blocks.FactList(list(list_facts(report)))])


def _kind_counts(report: AuditReport) -> Iterator[tuple[str, int]]:
    """List every kind with its count, zeros included."""
    yield from report.kinds.items()
    if report.vectors:
        yield from report.vectors.kinds.items()


def _count_bars(name: str, unit: str, counts: list[tuple[str, int, bool]]) -> blocks.BarChart:
    bars = [
        blocks.Bar(label, count, (f"{count:,}",), Tone.GOOD if is_good else Tone.BAD if count else Tone.DIM)
        for label, count, is_good in counts
    ]
    return blocks.BarChart((name, "relative to the largest", unit), bars, layout=TableLayout.STACKED)


def list_facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    """List what was audited, how far, and how long it took."""
    manifest = report.manifest
    version = f", version {blocks.short_version(report.version)}" if report.version else ""
    yield "collection", f"{report.collection} at {report.host}{version}"
    entries = f", {manifest.repeated:,} entries repeated" if manifest.repeated else ""
    yield "manifest", f"{manifest.name}: {manifest.chunks:,} chunks{entries}"
    if report.complete_scan:
        yield "read", f"all {report.points:,} points of the collection"
    else:
        yield "read", f"{report.audited:,} chunks by their ids; orphans were not looked for"
    if matching := report.matching:
        yield (
            "matched",
            f"{matching.by_id:,} by id, {matching.by_text:,} by text under another id, "
            f"{matching.by_nearest_text:,} by the nearest text",
        )
        if matching.repeated_texts:
            extra = f"{matching.extra_points:,} {_is_or_are(matching.extra_points, 'point')} more than texts need"
            yield "repeated", f"{matching.repeated_texts:,} texts are stored more than once; {extra}"
    if coverage := report.source_coverage:
        yield "sources", f"{coverage.folder}: {describe_coverage(coverage)}"
    if queries := report.queries:
        yield "queries", blocks.describe_repeated(queries)
    yield "coverage", f"{_round_down(report.coverage, 4)} of the chunks could be judged"
    if sample := report.sample:
        yield (
            "sample",
            f"{sample.faults:,} of {sample.drawn:,} are faulty; of all chunks at most "
            f"{sample.upper_bound:.3%} ({sample.confidence:.0%} confidence)",
        )
    if vectors := report.vectors:
        is_lossy = vectors.same_from is not None and vectors.same_from < SAME
        bits = f"; stored in few bits: equal from a cosine of {vectors.same_from}" if is_lossy else ""
        earlier = f"; {vectors.earlier:,} before the audit was interrupted" if vectors.earlier else ""
        yield "vectors", f"{vectors.checked:,} texts embedded again by {vectors.model}{bits}{earlier}"
        rest = f"; not compared, as another model makes them: {', '.join(vectors.not_compared)}"
        if names := ", ".join(name or "the unnamed one" for name in vectors.names):
            yield "vectors compared", f"{names}{rest if vectors.not_compared else ''}"
    if report.run.changed:
        yield "changed", f"{report.run.changed:,} chunks changed during the audit and were read again"
    if report.run.resumed and report.run.read_at:
        yield "resumed", f"the collection was read from its start at {report.run.read_at:%Y-%m-%d %H:%M} UTC"
    yield "time", f"{report.run.seconds:,.1f} s, {report.run.chunks_per_second:,.0f} chunks a second"


def _round_down(share: float, digits: int) -> str:
    """With one chunk of millions missing, the share is not 100 %."""
    return f"{floor(share * 10 ** (digits + 2)) / 10**digits:.{digits}f}%"


def _findings(report: AuditReport) -> Iterator[blocks.Block]:
    rows = [
        (each.chunk_id, blocks.Cell(each.kind.value, _tone(each)), f"{describe_finding(each)}{show_change(each)}")
        for each in report.findings
    ]
    rest = "-o findings.jsonl has all of them"
    table = blocks.Table(
        ("chunk", "kind", "what is wrong"), rows, total=report.findings_total, rest=rest, media=Medium.NOT_PAGE
    )
    yield table
    yield list_entries(report.findings, "".join(table.left_out(len(rows))))


def list_entries(
    findings: Sequence[Finding],
    left_out: str = "",
    heads: tuple[str, str] = ("expected", "stored"),
    names: Mapping[Kind, str] = MappingProxyType({}),
    describe: Callable[[Finding], str] | None = None,
) -> blocks.Entries:
    """List findings for a page: what is wrong, and both texts with the changed words."""
    entries = []
    for finding in findings:
        details: list[blocks.Block] = [blocks.Paragraph((describe or describe_finding)(finding))]
        if finding.source:
            details.append(blocks.Paragraph(finding.source, Tone.DIM))
        if (mismatch := finding.mismatch) and mismatch.original_excerpt is not None:
            details.append(blocks.mark_changes(mismatch.original_excerpt, mismatch.stored_excerpt, heads))
        for each in finding.metadata:
            expected, stored = (f"{each.field}: {_show_value(value)}" for value in (each.expected, each.stored))
            details.append(blocks.mark_changes(expected, stored, heads))
        name = names.get(finding.kind, finding.kind.value)
        entries.append(blocks.CaseRow(finding.chunk_id, _tone(finding), name, details=details))
    return blocks.Entries(entries, left_out=left_out)


def _tone(finding: Finding) -> Tone:
    return Tone.UNSURE if finding.kind in NOTED else Tone.BAD


def _show_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def describe_finding(finding: Finding) -> str:
    """Say what is wrong, with the place of the first difference or the cosine."""
    kind = f"{finding.mismatch.kind.value}: " if finding.mismatch else ""
    at = finding.mismatch.first_difference if finding.mismatch else None
    place = f" (byte {at.byte}, line {at.line}, column {at.column})" if at else ""
    cosine = f" (cosine {finding.cosine:.4f})" if finding.cosine is not None else ""
    return f"{kind}{finding.details}{place}{cosine}"


def show_change(finding: Finding) -> str:
    """Show the words around the first difference, stored and expected; nothing where only a hash is known."""
    mismatch = finding.mismatch
    if mismatch is None or mismatch.original_excerpt is None or mismatch.stored_excerpt == mismatch.original_excerpt:
        return ""
    stored, original = mismatch.stored_excerpt, mismatch.original_excerpt
    same = next((at for at, (left, right) in enumerate(zip(stored, original, strict=False)) if left != right), 0)
    start = stored.rfind(" ", 0, max(0, same - _CONTEXT)) + 1
    shown = [each[start : same + 2 * _CONTEXT] for each in (stored, original)]
    look_alike = mismatch.kind in (MismatchKind.UNICODE_NORMALIZATION, MismatchKind.INVISIBLE_CHARACTERS)
    return ": {} instead of {}".format(*map(ascii if look_alike else repr, shown))


def describe_coverage(coverage: SourceCoverage) -> str:
    """Say in a sentence what the chunks cover of the sources."""
    parts = [
        f"{_round_down(coverage.share, 2)} of {blocks.plural(coverage.documents_total, 'document')} "
        f"({coverage.covered:,} of {coverage.characters:,} letters and digits) is in chunks"
    ]
    if coverage.without_chunks:
        parts.append(f"{blocks.plural(coverage.without_chunks, 'document')} without a chunk")
    if coverage.stale:
        parts.append(f"{blocks.plural(coverage.stale, 'chunk')} in no source")
    if changed := sum(coverage.not_verbatim.values()):
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in coverage.not_verbatim.items())
        parts.append(f"{blocks.plural(changed, 'chunk')} not verbatim ({kinds})")
    if coverage.unread:
        parts.append(f"{blocks.plural(len(coverage.unread), 'file')} not read")
    return "; ".join(parts)


def _coverage_sections(coverage: SourceCoverage) -> Iterator[blocks.Section]:
    """Show the documents with the least coverage, on a page each with its text, and the chunks in none of them."""
    documents = [
        (
            each.name,
            _round_down(each.share, 2),
            f"{each.characters:,}",
            f"{each.characters - each.covered:,}",
            f"{each.passages_total:,}",
            f"{each.chunks:,}",
        )
        for each in coverage.documents
    ]
    head = ("document", "coverage", "letters", "in no chunk", "passages", "chunks")
    texts = [
        blocks.MarkedText(
            f"{each.name}: {_round_down(each.share, 2)}, {blocks.plural(each.passages_total, 'passage')} in no chunk",
            [(segment.text, not segment.covered) for segment in each.segments],
        )
        for each in coverage.documents
        if each.segments
    ]
    verdict = blocks.VerdictLine(f"{describe_coverage(coverage)}.", Tone.of(coverage.is_enough), media=Medium.PAGE)
    table = blocks.Table(head, documents, total=coverage.documents_total)
    yield blocks.Section("Coverage of the sources", [verdict, table, *texts])
    if passages := _passage_rows(coverage):
        table = blocks.Table(("passage", "characters", "text"), passages)
        yield blocks.Section("Passages in no chunk", [table], media=Medium.NOT_PAGE)
    if chunks := _chunk_rows(coverage):
        table = blocks.Table(("chunk", "kind", "what is wrong", "source", "text"), chunks, layout=TableLayout.STACKED)
        yield blocks.Section("Chunks that are stale or not verbatim", [table])
    if unread := [(file.name, file.reason) for file in coverage.unread]:
        yield blocks.Section("Files that were not read", [blocks.Table(("file", "reason"), unread)])


def _passage_rows(coverage: SourceCoverage) -> list[tuple[str, ...]]:
    return [
        (f"{document.name}:{passage.line}", f"{passage.length:,}", shorten(passage.excerpt, _EXCERPT))
        for document in coverage.documents
        for passage in document.passages
    ]


def _chunk_rows(coverage: SourceCoverage) -> list[tuple[str, ...]]:
    return [
        (chunk.chunk_id, chunk.kind, chunk.details, chunk.source or "", shorten(chunk.excerpt, _EXCERPT))
        for chunk in coverage.listed
    ]


def list_audit_cases(report: AuditReport) -> JunitSuite:
    """Return a case for JUnit for each kind of finding, which fails when a chunk has it."""
    cases = [_kind_case(report, Kind(kind), count) for kind, count in _kind_counts(report) if kind not in GOOD]
    if coverage := report.source_coverage:
        name = f"sources are covered to {coverage.least:.0%}, and no chunk is stale"
        rows = _passage_rows(coverage)[:MOST_JUNIT_LINES] + _chunk_rows(coverage)[:MOST_JUNIT_LINES]
        problem = (describe_coverage(coverage), "\n".join(" ".join(row) for row in rows))
        failed = JunitCase(name, 0.0, "failure", "source_coverage", *problem)
        cases.append(JunitCase(name) if coverage.is_enough else failed)
    return JunitSuite(
        f"audit of {report.collection}",
        f"audit.{report.collection}",
        cases,
        list(list_facts(report)),
        report.run.started_at,
        report.run.seconds,
    )


def list_audit_results(report: AuditReport) -> list[SarifResult]:
    """Return the findings for SARIF, at the manifest that they contradict."""
    return [
        SarifResult(
            finding.kind.value,
            "note" if finding.kind in NOTED else "warning" if finding.kind in NOT_JUDGED else "error",
            f"{finding.chunk_id}: {describe_finding(finding)}",
            report.manifest.name,
            subject=finding.chunk_id,
        )
        for finding in report.findings
    ]


def _kind_case(report: AuditReport, kind: Kind, count: int) -> JunitCase:
    name = f"no {kind.value}"
    if not count:
        return JunitCase(name)
    findings = [finding for finding in report.findings if finding.kind is kind][:MOST_JUNIT_LINES]
    lines = [f"{finding.chunk_id}: {describe_finding(finding)}" for finding in findings]
    if count > len(lines):
        lines.append(f"… and {count - len(lines):,} more")
    problem: Literal["skipped", "error", "failure"] = (
        "skipped" if kind in NOTED else "error" if kind in NOT_JUDGED else "failure"
    )
    return JunitCase(name, 0.0, problem, kind.value, f"{count:,} {kind.value}", "\n".join(lines))


def describe_absence(report: AbsenceReport) -> blocks.ReportBody:
    """Describe a dated report for the requester of an erasure."""
    date = f"Checked at {report.checked_at:%Y-%m-%d %H:%M:%S} UTC, at {report.host}, in {report.seconds:,.1f} s."
    tone = Tone.BAD if report.found else Tone.UNSURE if report.not_checked else Tone.GOOD
    return blocks.ReportBody(
        "Report of absence",
        [blocks.VerdictLine(report.verdict, tone)],
        list(_absence_sections(report)),
        summary=[blocks.Paragraph(date, Tone.DIM)],
        footer="Texts are named by their SHA-256",
    )


def _absence_sections(report: AbsenceReport) -> Iterator[blocks.Section]:
    hits = [
        (subject.name, hit.how.value, hit.collection, str(hit.point_id), hit.field or "", hit.details)
        for subject in report.subjects
        for hit in subject.hits
    ]
    if hits:
        hit_head = ("deleted", "found by", "collection", "point", "field", "details")
        table = blocks.Table(hit_head, hits[:MOST_ABSENCE_ROWS], layout=TableLayout.STACKED, total=report.hits_total)
        yield blocks.Section("Still stored", [table])
    absent = "not found" if report.not_checked else "absent"
    subjects = [
        (
            subject.name,
            subject.kind,
            "" if subject.characters is None else f"{subject.characters:,}",
            subject.sha256 or "",
            f"found {len(subject.hits):,} times" if subject.hits else absent,
        )
        for subject in report.subjects[:MOST_ABSENCE_ROWS]
    ]
    head = ("deleted", "kind", "characters", "SHA-256", "result")
    table = blocks.Table(head, subjects, layout=TableLayout.STACKED, total=len(report.subjects))
    yield blocks.Section("Deleted", [table])
    collections = [
        (each.name, ", ".join(each.aliases), f"{each.points:,}", f"{each.read:,}", f"{each.searches:,}")
        for each in report.collections
    ]
    yield blocks.Section(
        "Collections", [blocks.Table(("collection", "aliases", "points", "points read", "searches"), collections)]
    )
    yield blocks.Section("Checked", [blocks.BulletList(report.checks)])
    if report.not_checked:
        yield blocks.Section("Could not be checked", [blocks.BulletList(report.not_checked)])
    yield blocks.Section("Not checked: out of reach", [blocks.BulletList(report.out_of_reach)])
