"""`.txt`: plain text for any reader."""

from collections.abc import Iterator

from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import escape_line, shorten
from chunkproof_cli.reports.audit import coverage, figures

SHOWN = 20


def render_audit_text(report: AuditReport) -> str:
    """Render the verdict, then the counts, then the findings."""
    return "".join(escape_line(line) + "\n" for line in _lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    yield figures.headline(report)
    yield ""
    yield from (f"{name:<12} {value}" for name, value in figures.facts(report))
    yield ""
    yield from (f"{count:>12,} {kind}" for kind, count in figures.kind_rows(report))
    for kind, count in report.mismatch_kinds.items():
        yield f"{count:>12,} mismatch: {kind}"
    if report.sources:
        yield ""
        yield f"Sources with findings ({report.sources_total:,}):"
        yield from (f"{one.findings:>12,} {shorten(one.source)}" for one in report.sources)
    if found := report.source_coverage:
        yield ""
        yield f"Coverage of the sources: {coverage.coverage_line(found)}"
        yield from ("  " + "  ".join(row) for row in coverage.passage_rows(found, len(found.documents) * SHOWN))
        yield from ("  " + "  ".join(row) for row in coverage.chunk_rows(found, len(found.listed)))
    if report.findings:
        yield ""
        yield "Findings:"
        for one in report.findings:
            yield f"  {one.kind.value}  {shorten(one.chunk_id)}  {shorten(figures.describe_finding(one), 400)}"
        if more := figures.findings_left_out(report, len(report.findings)):
            yield more
