"""`chunkproof report`."""

import sys
from pathlib import Path

import click

from chunkproof.audit.report import AuditReport
from chunkproof_cli.commands.suite_run import suite_exit_code
from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import output_option, reject_api
from chunkproof_cli.output import print_note
from chunkproof_cli.reports import audit as audit_reports
from chunkproof_cli.reports.audit import audit_in
from chunkproof_cli.reports.audit.terminal import print_report as print_audit
from chunkproof_cli.reports.outputs import check_outputs
from chunkproof_cli.reports.suite import FORMATS, write_reports
from chunkproof_cli.reports.suite.terminal import print_report
from chunkproof_cli.suites.compare import compare
from chunkproof_cli.suites.select import load_report

EXAMPLES = """\b
Examples:
  chunkproof report report.json
  chunkproof report report.json -o report.html -o report.md -o junit.xml
  chunkproof report monday.json tuesday.json today.json -o trend.html
  chunkproof report report.json --baseline main.json
  chunkproof report s3://BUCKET/runs/ID/report.json -o report.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("found", metavar="FILE...", nargs=-1, required=True, type=FileOrObject())
@output_option("Write it as .html, .json, .txt, .md or .xml (JUnit); without, it is shown here.")
@click.option(
    "--baseline",
    type=FileOrObject(),
    metavar="REPORT",
    help="Compare with this report of a suite: exit 1 only if it is worse than chance explains.",
)
@reject_api("a report is a file or an object in S3")
def report(found: tuple[Path, ...], outputs: tuple[Path, ...], baseline: Path | None) -> None:
    """Render the canonical report FILE of a suite or an audit in other formats.

    FILE may be s3://BUCKET/KEY, as a deployed stack leaves it. Of several suites, the latest run is rendered, and
    .html shows how its figures came about.
    """
    audit = audit_in(found[0]) if len(found) == 1 and baseline is None else None
    if audit is not None:
        _render_audit(audit, outputs)
        return
    check_outputs(outputs, FORMATS)
    *earlier, latest = sorted(map(load_report, found), key=lambda one: one.validation.started_at)
    if baseline:
        latest = compare(latest, load_report(baseline), baseline)
    if not outputs:
        print_report(latest)
    write_reports(latest, outputs, earlier)
    for output in outputs:
        print_note(f"Wrote {output}")
    if latest.comparison and baseline:
        if outputs:
            print_note(latest.comparison.verdict)
        sys.exit(suite_exit_code(latest))


def _render_audit(audit: AuditReport, outputs: tuple[Path, ...]) -> None:
    check_outputs(outputs, audit_reports.FORMATS)
    if not outputs:
        print_audit(audit)
    audit_reports.write_reports(audit, outputs)
    for output in outputs:
        print_note(f"Wrote {output}")
