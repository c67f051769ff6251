"""`chunkproof latency`."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import IO

import click

from chunkproof.base.files import read_lines
from chunkproof.base.settings import Settings
from chunkproof_cli.exits import FAILED
from chunkproof_cli.latency_report import LatencyReport, LogReader, report_from_log
from chunkproof_cli.options import json_option, option, output_option, reject_api, reject_nan
from chunkproof_cli.output import print_note, print_result
from chunkproof_cli.reports.outputs import LATENCY

EXAMPLES = """\b
Examples:
  chunkproof latency --stack chunkproof --since 1d
  chunkproof latency --stack chunkproof --slo 99.9 -o latency.html
  chunkproof serve > requests.jsonl         # then, after some requests:
  chunkproof latency --logs requests.jsonl
  make invoke 2>&1 | chunkproof latency --logs -
  aws logs tail /chunkproof/chunkproof/search --since 1d | chunkproof latency --logs -
"""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST = timedelta(days=455)


def _parse_since(given: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", given.strip())
    if not found:
        raise click.BadParameter(f"{given!r} is not a time such as 30m, 3h, 2d or 1w")
    since = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if since > LONGEST:
        raise click.BadParameter(f"CloudWatch keeps metrics for {LONGEST.days}d")
    return since


@click.command(epilog=EXAMPLES)
@option("--stack NAME", "Read the metrics of this stack from CloudWatch.")
@option(
    "--logs FILE",
    "Find the requests in log lines of any kind; - for standard input.",
    type=click.File("rb"),
)
@option(
    "--since TIME",
    "How far to look back: 30m, 3h, 2d, 1w. The default is 3h for a stack and everything for a log.",
    type=_parse_since,
)
@option("--slo PERCENT", "Exit 1 when fewer requests than this are within the target.", callback=reject_nan)
@output_option("Write a report, .html or .json.")
@json_option
@reject_api("times are in a stack's metrics (--stack), or in logs (--logs)")
def latency(
    *,
    stack: str | None,
    logs: IO[bytes] | None,
    since: timedelta | None,
    slo: float | None,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Show how long requests took, stage by stage, and how many were within the target.

    The target is LatencyTargetMs of the stack, or CHUNKPROOF_LATENCY_TARGET_MS for a log. What counts is the
    time that the caller waited, from the moment API Gateway received the request: a cold start is included.
    """
    if (stack is None) == (logs is None):
        raise click.UsageError("Give either --stack NAME or --logs FILE")
    LATENCY.check(outputs)
    if logs is not None:
        report = _report_log(logs, since, slo)
    else:
        from chunkproof_cli.aws.stack_metrics import report_from_stack  # loads Powertools and boto3

        report = report_from_stack(str(stack), since=since or timedelta(hours=3), slo=slo)
    LATENCY.write(report, outputs)
    print_result(report, LATENCY.print, as_json=as_json)
    sys.exit(FAILED if report.slo is not None and not report.slo.met else 0)


def _report_log(file: IO[bytes], since: timedelta | None, slo: float | None) -> LatencyReport:
    name = "standard input" if file.name in ("-", "<stdin>") else file.name
    target_ms, read = Settings.from_env().latency_target_ms, LogReader()
    read.read(line.decode("utf-8", "replace") for line in read_lines(file, name))
    if read.interrupted:
        print_note("Interrupted: the report is on the lines read so far")
    return report_from_log(read, name, target_ms=target_ms, slo=slo, since=since)
