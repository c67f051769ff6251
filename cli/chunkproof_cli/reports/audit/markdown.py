"""`.md`: fits a comment on a pull request, however large the collection."""

from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit.figures import facts, headline, kind_rows, unshown, why
from chunkproof_cli.reports.suite.markdown import MOST_CHARS, cell, table

SHOWN = 50


def markdown(report: AuditReport) -> str:
    """Verdict first, then counts, then what is wrong."""
    parts = [
        f"## {'❌' if report.findings_total else '✅'} Audit of {cell(report.collection)}",
        headline(report),
        table(("kind", "chunks"), ((kind, f"{count:,}") for kind, count in kind_rows(report))),
        table(("audit", ""), facts(report)),
    ]
    if report.findings:
        listed = report.findings[:SHOWN]
        parts.append("### Findings")
        parts.append(
            table(("chunk", "kind", "what is wrong"), ((f.chunk_id, f.kind.value, why(f)) for f in listed))
        )
        if more := unshown(report, len(listed)):
            parts.append(more)
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 40].rpartition("\n")[0] + "\n\n…\n"
