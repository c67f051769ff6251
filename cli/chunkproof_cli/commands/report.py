"""`chunkproof report`."""

from pathlib import Path

import click

from chunkproof_cli import audit_reports, context
from chunkproof_cli.audit_reports import audit_in
from chunkproof_cli.audit_reports.terminal import print_report as print_audit
from chunkproof_cli.output import say
from chunkproof_cli.reports import check_outputs, write_reports
from chunkproof_cli.reports.terminal import print_report
from chunkproof_cli.suites.selecting import load_report

EXAMPLES = """\b
Examples:
  chunkproof report report.json
  chunkproof report report.json -o report.md -o junit.xml
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it as .json, .txt, .md or .xml (JUnit), an audit as .html too; repeatable. Without: show it here.",
)
@context.without_api("a report is a file")
def report(file: Path, outputs: tuple[Path, ...]) -> None:
    """Render the canonical report FILE of a suite or an audit in other formats."""
    audit = audit_in(file)
    if audit is not None:
        check_outputs(outputs, audit_reports.FORMATS)
        audit_reports.write_reports(audit, outputs)
        if not outputs:
            print_audit(audit)
    else:
        check_outputs(outputs)
        found = load_report(file)
        if not outputs:
            print_report(found)
        write_reports(found, outputs)
    for output in outputs:
        say(f"Wrote {output}")
