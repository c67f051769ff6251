"""Audit reports in the terminal."""

from rich.text import Text

from chunkproof.audit.report import AuditReport
from chunkproof.models.json import cut_middle
from chunkproof_cli.output import print_line, print_table, print_title, shorten
from chunkproof_cli.reports.audit import coverage, figures

SHOWN = 20


def print_report(report: AuditReport) -> None:
    """Print findings, counts and facts; the verdict comes last, next to the prompt."""
    listed = report.findings[:SHOWN]
    if listed:
        print_title("Findings")
        lines = (
            (cut_middle(one.chunk_id), Text(one.kind.value, "bold red"), shorten(figures.describe_finding(one)))
            for one in listed
        )
        print_table(("chunk", "kind", "what is wrong"), lines)
        if more := figures.findings_left_out(report, len(listed)):
            print_line(more)
    if found := report.source_coverage:
        print_title("Coverage of the sources")
        print_table(coverage.DOCUMENT_HEAD, coverage.document_rows(found, SHOWN))
        if passages := list(coverage.passage_rows(found, SHOWN)):
            print_table(("passage in no chunk", "characters", "text"), passages)
        if chunks := list(coverage.chunk_rows(found, SHOWN)):
            print_table(coverage.CHUNK_HEAD, chunks)
    print_title("Chunks by kind")
    print_table(("kind", "chunks"), ((_kind(k, n), f"{n:,}") for k, n in figures.kind_rows(report)))
    print_table(("audit", ""), figures.facts(report))
    print_line(figures.headline(report), "bold red" if figures.has_failed(report) else "green")


def _kind(kind: str, count: int) -> Text:
    return Text(kind, style="green" if kind in figures.GOOD else "bold red" if count else "dim")
