"""`chunkproof doctor`."""

import sys
from typing import Any

import click

from chunkproof.settings import Settings
from chunkproof_cli.connections import open_services, terminal_deadline
from chunkproof_cli.doctor.collection import Examination, Level, examine
from chunkproof_cli.doctor.stack import examine_api, examine_stack
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import api_option, common_options, parse_options
from chunkproof_cli.output import excerpt, out, print_json, rows, shown, table, title

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
        found = examine_stack(stack, given.collection)
    elif given.api is not None:
        found = examine_api(given.api, given.collection or Settings.from_env().collection)
    else:
        with open_services(given) as services:
            found = examine(given.collection, services, lambda: terminal_deadline(services.settings))
    if given.json:
        print_json(found.as_json())
    else:
        print_examination(found)
    sys.exit(0 if found.fits else FAILED)


def print_examination(found: Examination) -> None:
    """Collections, mapping with sample rows, findings, verdict."""
    marked = [(("→ " if name == found.collection else "  ") + name,) for name in found.collections]
    title(f"At {found.host}")
    out().print(rows(table("collection"), marked))
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
        title(f"Collection {info.name}")
        out().print(rows(table("fact", "value"), facts))
        sampled = [
            (field, path, *(excerpt(str(row.get(field, "")), 40) for row in found.rows))
            for field, path in found.mapping.items()
        ]
        heads = [f"sample {n}" for n in range(1, len(found.rows) + 1)]
        title("Payload mapping")
        out().print(rows(table("field", "read from", *heads), sampled))
    findings = [
        (
            shown(item.level.value, _STYLES[item.level]),
            item.subject,
            item.message + (f"\n{item.remedy}" if item.remedy else ""),
        )
        for item in found.findings
    ]
    title("Findings")
    out().print(rows(table("", "check", "finding"), findings))
    out().print(shown(found.verdict, "green" if found.fits else "bold red"), soft_wrap=True)
    for line in found.to_set:
        out().print(shown(f"  {line}"), soft_wrap=True)
