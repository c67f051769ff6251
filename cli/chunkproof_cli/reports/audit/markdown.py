"""`.md`: fits a comment on a pull request, however large the collection."""

from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit import coverage, figures
from chunkproof_cli.reports.markdown import escape_text, join_parts, table

SHOWN = 50


def render_audit_markdown(report: AuditReport) -> str:
    """Render the verdict, then the counts, then the findings."""
    parts = [
        f"## {'❌' if figures.has_failed(report) else '✅'} Audit of {escape_text(report.collection)}",
        figures.headline(report),
        table(("kind", "chunks"), ((kind, f"{count:,}") for kind, count in figures.kind_rows(report))),
        table(("audit", ""), figures.facts(report)),
    ]
    if found := report.source_coverage:
        parts += ["### Coverage of the sources", table(coverage.DOCUMENT_HEAD, coverage.document_rows(found))]
        if passages := list(coverage.passage_rows(found)):
            parts += ["### Passages in no chunk", table(("passage", "characters", "text"), passages)]
        if chunks := list(coverage.chunk_rows(found)):
            parts += ["### Chunks that are stale or not verbatim", table(coverage.CHUNK_HEAD, chunks)]
    if listed := report.findings[:SHOWN]:
        rows = ((one.chunk_id, one.kind.value, figures.describe_finding(one)) for one in listed)
        parts += ["### Findings", table(("chunk", "kind", "what is wrong"), rows)]
        parts += filter(None, [figures.findings_left_out(report, len(listed))])
    return join_parts(parts)
