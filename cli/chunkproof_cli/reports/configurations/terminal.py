"""A comparison of configurations in the terminal."""

from chunkproof_cli.output import print_line, print_table
from chunkproof_cli.reports.configurations import figures
from chunkproof_cli.suites.configuration_report import ConfigurationReport


def print_configurations(report: ConfigurationReport) -> None:
    """Print the table, the notes and, last, the choice."""
    print_table(figures.head(report), figures.rows(report))
    for note in figures.notes(report):
        print_line(f"  {note}")
    print_line(figures.verdict(report), "green" if report.choice.name else "bold red")
