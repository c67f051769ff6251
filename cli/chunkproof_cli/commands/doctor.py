"""`chunkproof doctor`."""

import sys
from typing import Any

import click

from chunkproof.runtime.local import new_deadline
from chunkproof.settings import Settings
from chunkproof.suite.files.read import Source, read_source
from chunkproof_cli.commands.collection import print_facts
from chunkproof_cli.connections import open_services
from chunkproof_cli.doctor.collection import DoctorReport, check_collection
from chunkproof_cli.doctor.result import Level
from chunkproof_cli.doctor.stack import check_api, check_stack
from chunkproof_cli.exits import FAILED
from chunkproof_cli.files.objects import FileOrObject
from chunkproof_cli.options import api_option, common_options, embedder_option, parse_options, reject_embedder
from chunkproof_cli.output import print_json, print_line, print_table, print_title, safe_text, shorten

EXAMPLES = """\b
Examples:
  QDRANT_URL=https://xyz.cloud.qdrant.io:6333 QDRANT_API_KEY=… chunkproof doctor
  chunkproof doctor --collection handbook --suite suite.yaml
  chunkproof doctor --stack chunkproof
"""
_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.FAIL: "bold red"}


@click.command(epilog=EXAMPLES)
@click.option("--stack", metavar="NAME", help="Check a deployed stack instead: its functions, Qdrant and embedder.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    type=FileOrObject(),
    metavar="FILE",
    help="A suite whose filters are checked for payload indexes. May be repeated.",
)
@common_options
@embedder_option
@api_option
def doctor(stack: str | None, suites: tuple[Any, ...], **common: Any) -> None:
    """Check a collection without changing it: what works, what does not, and how to fix it.

    It needs QDRANT_URL, QDRANT_API_KEY and the embedder of the collection. Five chunks are embedded again and
    compared with the stored vectors, and one search is made. Exit 1 when a check fails.
    """
    options = parse_options(**common)
    read = [read_source(Source(path)).suite for path in suites]
    if stack is not None:
        reject_embedder(options, "--stack")
        report = check_stack(stack, options.collection)
    elif options.api is not None:
        report = check_api(options.api, options.collection or Settings.from_env().collection)
    else:
        with open_services(options) as services:
            report = check_collection(options.collection, services, lambda: new_deadline(services.settings), read)
    if options.json:
        print_json(report.to_json())
    else:
        print_doctor_report(report)
    sys.exit(0 if report.passed else FAILED)


def print_doctor_report(report: DoctorReport) -> None:
    """Print the collections, the payload mapping with sample rows, the checks and the verdict."""
    marked = [(("→ " if name == report.collection else "  ") + name,) for name in report.collections]
    print_title(f"{report.store} at {report.host}")
    print_table(("collection",), marked)
    if report.info is not None:
        shares = [(f"share with {name}", f"{share:.0%}") for name, share in report.shares.items()]
        print_facts(
            report.info, [*shares, *([("content_hash is", report.content_hash)] if report.content_hash else [])]
        )
        mapping = {**report.mapping, **({"text": report.proposed_map["text"]} if report.proposed_map else {})}
        sampled = [
            (field, path, *(shorten(str(row.get(field, "")), 40) for row in report.rows))
            for field, path in mapping.items()
        ]
        heads = [f"sample {n}" for n in range(1, len(report.rows) + 1)]
        print_title("Payload mapping" + (", as proposed below" if report.proposed_map else ""))
        print_table(("field", "read from", *heads), sampled)
    checks = [
        (
            safe_text(check.level.value, _STYLES[check.level]),
            check.name,
            check.message + (f"\n{check.remedy}" if check.remedy else ""),
        )
        for check in report.checks
    ]
    print_title("Checks")
    print_table(("", "check", "result"), checks)
    print_line(report.verdict, "green" if report.passed else "bold red")
    for line in report.suggested_settings:
        print_line(f"  {line}")
