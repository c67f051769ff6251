"""`.md`: fits a comment on a pull request, however large the collection."""

from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit import figures
from chunkproof_cli.reports.markdown import escape_text, join_parts, table

SHOWN = 50


def render_audit_markdown(report: AuditReport) -> str:
    """Render the verdict, then the counts, then the findings."""
    parts = [
        f"## {'❌' if report.faults else '✅'} Audit of {escape_text(report.collection)}",
        figures.headline(report),
        table(("kind", "chunks"), ((kind, f"{count:,}") for kind, count in figures.kind_rows(report))),
        table(("audit", ""), figures.facts(report)),
    ]
    if listed := report.findings[:SHOWN]:
        rows = ((one.chunk_id, one.kind.value, figures.describe_finding(one)) for one in listed)
        parts += ["### Findings", table(("chunk", "kind", "what is wrong"), rows)]
        parts += filter(None, [figures.findings_left_out(report, len(listed))])
    return join_parts(parts)
