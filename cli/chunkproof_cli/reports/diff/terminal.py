"""Diff reports in the terminal."""

from chunkproof_cli.diffs.report import DiffReport
from chunkproof_cli.output import print_line, print_table, print_title
from chunkproof_cli.reports.diff import figures
from chunkproof_cli.reports.wording import and_more

SHOWN = 20


def print_report(report: DiffReport) -> None:
    """Print differences, figures and facts; the verdict comes last, next to the prompt."""
    if rows := list(figures.finding_rows(report, SHOWN)):
        print_title("Differences")
        print_table(figures.FINDING_HEAD, rows)
        if more := and_more(report.texts.findings_total, len(rows)):
            print_line(more)
    if report.queries:
        print_title("Queries with the least in common")
        print_table(figures.ROW_HEAD, figures.query_rows(report, SHOWN))
        print_table(figures.CHANGE_HEAD, figures.change_rows(report))
    print_table(figures.SIDE_HEAD, figures.side_rows(report))
    print_table(("chunks", "count"), figures.kind_rows(report))
    print_table(("diff", ""), figures.facts(report))
    print_line(report.verdict, "bold red" if report.exit_code else "green")
