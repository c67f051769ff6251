"""`chunkproof report`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import output_option, reject_api, tolerate_option
from chunkproof_cli.output import print_note
from chunkproof_cli.reports.outputs import check_outputs

if TYPE_CHECKING:
    from chunkproof_cli.suites.compare import Tolerance

EXAMPLES = """\b
Examples:
  chunkproof report report.json
  chunkproof report report.json -o report.html -o report.md -o junit.xml
  chunkproof report monday.json tuesday.json today.json -o trend.html
  chunkproof report report.json --baseline main.json
  chunkproof report s3://BUCKET/runs/ID/report.json -o report.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FileOrObject())
@output_option("Write it as .html, .json, .txt, .md or .xml (JUnit). By default it is printed.")
@click.option(
    "--baseline",
    type=FileOrObject(),
    metavar="REPORT",
    help="Compare with this suite report: exit 1 if a case newly fails.",
)
@tolerate_option
@reject_api("a report is a file or an object in S3")
def report(
    files: tuple[Path, ...], outputs: tuple[Path, ...], baseline: Path | None, tolerate: "Tolerance | None"
) -> None:
    """Render the canonical report FILE of a suite, an audit, a diff or an absence in other formats.

    FILE may be s3://BUCKET/KEY, as a deployed stack writes it. Of several suite reports, the latest is
    rendered, and .html shows the trend.
    """
    if tolerate is not None and baseline is None:
        raise click.UsageError("--tolerate needs --baseline: without one, there is nothing to be worse than.")
    others = (_render_audit, _render_diff, _render_absence)
    if len(files) > 1 or baseline or not any(render(files[0], outputs) for render in others):
        _render_suite(files, outputs, baseline, tolerate or 0)


def _render_audit(file: Path, outputs: tuple[Path, ...]) -> bool:
    """Render an audit report; False when the file holds something else."""
    from chunkproof_cli.reports.audit import FORMATS, read_audit_report, write_reports
    from chunkproof_cli.reports.audit.terminal import print_report

    audit = read_audit_report(file)
    if audit is None:
        return False
    check_outputs(outputs, FORMATS)
    if not outputs:
        print_report(audit)
    write_reports(audit, outputs)
    _confirm(outputs)
    return True


def _render_diff(file: Path, outputs: tuple[Path, ...]) -> bool:
    """Render a diff report; False when the file holds something else."""
    from chunkproof_cli.reports.diff import FORMATS, read_diff_report, write_reports
    from chunkproof_cli.reports.diff.terminal import print_report

    diff = read_diff_report(file)
    if diff is None:
        return False
    check_outputs(outputs, FORMATS)
    if not outputs:
        print_report(diff)
    write_reports(diff, outputs)
    _confirm(outputs)
    return True


def _render_absence(file: Path, outputs: tuple[Path, ...]) -> bool:
    """Render a report of absence; False when the file holds something else."""
    from chunkproof_cli.reports.absence import FORMATS, print_report, read_absence_report, write_reports

    absence = read_absence_report(file)
    if absence is None:
        return False
    check_outputs(outputs, FORMATS)
    if not outputs:
        print_report(absence)
    write_reports(absence, outputs)
    _confirm(outputs)
    return True


def _render_suite(
    files: tuple[Path, ...], outputs: tuple[Path, ...], baseline: Path | None, tolerate: "Tolerance"
) -> None:
    # An audit report needs none of these.
    from chunkproof_cli.reports.suite import FORMATS, write_reports
    from chunkproof_cli.reports.suite.terminal import print_report
    from chunkproof_cli.suites.compare import compare
    from chunkproof_cli.suites.select import load_report

    check_outputs(outputs, FORMATS)
    *earlier, latest = sorted(map(load_report, files), key=lambda one: one.validation.started_at)
    if baseline:
        latest = compare(latest, load_report(baseline), baseline, tolerate)
    if not outputs:
        print_report(latest)
    write_reports(latest, outputs, earlier)
    _confirm(outputs)
    if baseline:
        if outputs:
            print_note(latest.verdict.line)
        sys.exit(latest.verdict.exit_code)


def _confirm(outputs: tuple[Path, ...]) -> None:
    for output in outputs:
        print_note(f"Wrote {output}")
