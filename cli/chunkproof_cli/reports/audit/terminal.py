"""An audit as a terminal shows it."""

from rich.text import Text

from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import excerpt, out, rows, shown, table, title
from chunkproof_cli.reports.audit.figures import GOOD, facts, headline, kind_rows, unshown, why

SHOWN = 20


def print_report(report: AuditReport) -> None:
    """Findings, counts, what was looked at; the verdict last, where the eye is."""
    listed = report.findings[:SHOWN]
    if listed:
        title("Findings")
        lines = ((one.chunk_id, Text(one.kind.value, "bold red"), excerpt(why(one))) for one in listed)
        out().print(rows(table("chunk", "kind", "what is wrong"), lines))
        if more := unshown(report, len(listed)):
            out().print(shown(more))
    title("Chunks by kind")
    out().print(rows(table("kind", "chunks"), ((_kind(k, n), f"{n:,}") for k, n in kind_rows(report))))
    out().print(rows(table("audit", ""), facts(report)))
    out().print(shown(headline(report), "bold red" if report.findings_total else "green"), soft_wrap=True)


def _kind(kind: str, count: int) -> Text:
    return Text(kind, style="green" if kind in GOOD else "bold red" if count else "dim")
