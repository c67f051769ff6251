"""`chunkproof report`."""

import sys
from pathlib import Path

import click

from chunkproof_cli import context
from chunkproof_cli.commands.suite_run import exit_code
from chunkproof_cli.output import say
from chunkproof_cli.reports import check_outputs, write_reports
from chunkproof_cli.reports.terminal import print_report
from chunkproof_cli.suites.comparing import compared
from chunkproof_cli.suites.selecting import load_report

EXAMPLES = """\b
Examples:
  chunkproof report report.json
  chunkproof report report.json -o report.html -o report.md -o junit.xml
  chunkproof report monday.json tuesday.json today.json -o trend.html
  chunkproof report report.json --baseline main.json
"""


@click.command(epilog=EXAMPLES)
@click.argument("found", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it as .html, .json, .txt, .md or .xml (JUnit); may be repeated. Without: show it here.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="REPORT",
    help="Compare with this report: exit 1 only if it is worse than chance explains.",
)
@context.without_api("a report is a file")
def report(found: tuple[Path, ...], outputs: tuple[Path, ...], baseline: Path | None) -> None:
    """Render the canonical report FILE of a suite in other formats.

    Of several, the latest run is rendered, and .html shows how its figures came about.
    """
    check_outputs(outputs)
    *earlier, latest = sorted(map(load_report, found), key=lambda one: one.validation.started_at)
    if baseline:
        latest = compared(latest, load_report(baseline), baseline)
    if not outputs:
        print_report(latest)
    write_reports(latest, outputs, earlier)
    for output in outputs:
        say(f"Wrote {output}")
    if latest.comparison and baseline:
        if outputs:
            say(latest.comparison.verdict)
        sys.exit(exit_code(latest))
