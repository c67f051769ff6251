"""An audit as a terminal shows it."""

from rich.text import Text

from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import print_line, print_table, print_title, shorten
from chunkproof_cli.reports.audit.figures import GOOD, facts, headline, kind_rows, unshown, why

SHOWN = 20


def print_report(report: AuditReport) -> None:
    """Findings, counts, what was looked at; the verdict last, where the eye is."""
    listed = report.findings[:SHOWN]
    if listed:
        print_title("Findings")
        lines = ((one.chunk_id, Text(one.kind.value, "bold red"), shorten(why(one))) for one in listed)
        print_table(("chunk", "kind", "what is wrong"), lines)
        if more := unshown(report, len(listed)):
            print_line(more)
    print_title("Chunks by kind")
    print_table(("kind", "chunks"), ((_kind(k, n), f"{n:,}") for k, n in kind_rows(report)))
    print_table(("audit", ""), facts(report))
    print_line(headline(report), "bold red" if report.findings_total else "green")


def _kind(kind: str, count: int) -> Text:
    return Text(kind, style="green" if kind in GOOD else "bold red" if count else "dim")
