"""`chunkproof report`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chunkproof.base.files import read_file
from chunkproof_cli.options import fetch_file, option, output_option, reject_api, tolerate_option
from chunkproof_cli.output import print_note
from chunkproof_cli.reports.outputs import RECOGNIZED, SUITE, ReportKind, find_report

if TYPE_CHECKING:
    from chunkproof_cli.suites.baseline import Tolerance

EXAMPLES = """\b
Examples:
  chunkproof report report.json
  chunkproof report report.json -o report.html -o report.md -o junit.xml
  chunkproof report monday.json tuesday.json today.json -o trend.html
  chunkproof report report.json --baseline main.json
  chunkproof report s3://BUCKET/runs/ID/report.json -o report.html
"""


@click.command(epilog=EXAMPLES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=fetch_file)
@output_option(
    "Write it as .html, .json, .txt, .md, .xml (JUnit), .ctrf.json (CTRF), or .sarif (of an audit). By default it is "
    "printed."
)
@option("--baseline REPORT", "Compare with this suite report: exit 1 if a case newly fails.")
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
    found = find_report(read_file(files[0]), RECOGNIZED) if len(files) == 1 and not baseline else None
    if found:
        _show(*found, outputs)
    else:
        _show_suites(files, outputs, baseline, tolerate or 0)


def _show(kind: ReportKind, found: Any, outputs: tuple[Path, ...], *context: Any) -> None:
    """Write the report, or print it when there is no file to write."""
    kind.check(outputs)
    kind.write(found, outputs, *context)
    for output in outputs:
        print_note(f"Wrote {output}")
    if not outputs:
        kind.print(found)


def _show_suites(
    files: tuple[Path, ...], outputs: tuple[Path, ...], baseline: Path | None, tolerate: "Tolerance"
) -> None:
    from chunkproof_cli.suites.baseline import compare, load_report  # an audit report needs neither

    SUITE.check(outputs)
    *earlier, latest = sorted(map(load_report, files), key=lambda each: each.validation.started_at)
    before = load_report(baseline) if baseline else None
    if baseline and before:
        latest = compare(latest, before, baseline, tolerate)
    _show(SUITE, latest, outputs, earlier, before)
    if baseline:
        if outputs:
            print_note(latest.verdict.line)
        sys.exit(latest.verdict.exit_code)
