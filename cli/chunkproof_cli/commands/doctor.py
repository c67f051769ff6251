"""`chunkproof doctor`."""

import sys
from typing import Any

import click

from chunkproof.settings import Settings
from chunkproof_cli.connections import new_deadline, open_services
from chunkproof_cli.doctor.collection import DoctorReport, Level, check_collection
from chunkproof_cli.doctor.stack import check_api, check_stack
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import api_option, common_options, parse_options
from chunkproof_cli.output import print_json, print_line, print_table, print_title, safe_text, shorten

EXAMPLES = """\b
Examples:
  QDRANT_URL=https://xyz.cloud.qdrant.io:6333 QDRANT_API_KEY=… chunkproof doctor
  chunkproof doctor --collection handbook
  chunkproof doctor --stack chunkproof
"""
_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.FAIL: "bold red"}


@click.command(epilog=EXAMPLES)
@click.option(
    "--stack", metavar="NAME", help="Look at a deployed stack instead: its functions, Qdrant and embedder."
)
@common_options
@api_option
def doctor(stack: str | None, **common: Any) -> None:
    """Look at a collection, read-only: what fits, what does not, and what to do.

    An address and a key suffice. With an embedder whose vectors have the collection's size, five chunks
    are embedded again and compared with what is stored. Exit 1 when something does not fit.
    """
    given = parse_options(**common)
    if stack is not None:
        found = check_stack(stack, given.collection)
    elif given.api is not None:
        found = check_api(given.api, given.collection or Settings.from_env().collection)
    else:
        with open_services(given) as services:
            found = check_collection(given.collection, services, lambda: new_deadline(services.settings))
    if given.json:
        print_json(found.as_json())
    else:
        print_doctor_report(found)
    sys.exit(0 if found.fits else FAILED)


def print_doctor_report(found: DoctorReport) -> None:
    """Collections, mapping with sample rows, findings, verdict."""
    marked = [(("→ " if name == found.collection else "  ") + name,) for name in found.collections]
    print_title(f"At {found.host}")
    print_table(("collection",), marked)
    info = found.info
    if info is not None:
        facts = [
            ("points", f"{info.points_count:,}"),
            ("status", info.status),
            *(
                (f"vector {vector.name or '(unnamed)'}", f"{vector.size} values, {vector.distance_metric}")
                for vector in info.vectors
            ),
            *((f"share with {name}", f"{share:.0%}") for name, share in found.shares.items()),
        ]
        print_title(f"Collection {info.name}")
        print_table(("fact", "value"), facts)
        sampled = [
            (field, path, *(shorten(str(row.get(field, "")), 40) for row in found.rows))
            for field, path in found.mapping.items()
        ]
        heads = [f"sample {n}" for n in range(1, len(found.rows) + 1)]
        print_title("Payload mapping")
        print_table(("field", "read from", *heads), sampled)
    findings = [
        (
            safe_text(item.level.value, _STYLES[item.level]),
            item.subject,
            item.message + (f"\n{item.remedy}" if item.remedy else ""),
        )
        for item in found.findings
    ]
    print_title("Findings")
    print_table(("", "check", "finding"), findings)
    print_line(found.verdict, "green" if found.fits else "bold red")
    for line in found.to_set:
        print_line(f"  {line}")
