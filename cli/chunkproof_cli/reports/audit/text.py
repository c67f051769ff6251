"""`.txt`: plain text for any reader."""

from collections.abc import Iterator

from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import escape_controls, shorten
from chunkproof_cli.reports.audit.figures import (
    describe_finding,
    facts,
    findings_left_out,
    headline,
    kind_rows,
)


def render_audit_text(report: AuditReport) -> str:
    """Render the verdict, then the counts, then the findings."""
    return "".join(escape_controls(line) + "\n" for line in _lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    yield headline(report)
    yield ""
    yield from (f"{name:<12} {value}" for name, value in facts(report))
    yield ""
    yield from (f"{count:>12,} {kind}" for kind, count in kind_rows(report))
    for kind, count in report.mismatch_kinds.items():
        yield f"{count:>12,} mismatch: {kind}"
    if report.sources:
        yield ""
        yield f"Sources with findings ({report.sources_total:,}):"
        yield from (f"{one.findings:>12,} {shorten(one.source)}" for one in report.sources)
    if report.findings:
        yield ""
        yield "Findings:"
        for one in report.findings:
            yield f"  {one.kind.value}  {shorten(one.chunk_id)}  {shorten(describe_finding(one), 400)}"
        if more := findings_left_out(report, len(report.findings)):
            yield more
