"""`chunkproof collection`."""

from collections.abc import Iterable
from typing import Any

import click

from chunkproof.contract import CollectionInfo
from chunkproof.contract.model import cut_middle
from chunkproof_cli.connections import open_backend
from chunkproof_cli.options import api_option, common_options, explicit_collection, parse_options
from chunkproof_cli.output import print_result, print_table, print_title

EXAMPLES = """\b
Examples:
  chunkproof collection handbook
  chunkproof collection --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False)
@common_options
@api_option
def collection(name: str | None, **common: Any) -> None:
    """Show what the collection NAME holds and how its payloads are read."""
    options = parse_options(**common)
    if name is not None and not name.strip():
        raise click.BadParameter("it is empty; name a collection", param_hint="NAME")
    if name and options.collection and name != options.collection:
        raise click.UsageError("Name the collection once: as NAME or with --collection.")
    with open_backend(options) as backend:
        info = backend.collection(name or explicit_collection(options))
    print_result(info, print_info, as_json=options.json)


def print_info(info: CollectionInfo) -> None:
    """Print the facts and the payload fields of a collection."""
    print_facts(info)
    mapped = {path: field for field, path in info.payload_map.items()}
    rows = ((field, "yes" if field.indexed else "no", mapped.get(field.name, "")) for field in info.payload_fields)
    lines = [(cut_middle(field.name), field.type, f"{field.share:.0%}", *more) for field, *more in rows]
    print_table(("payload field", "type", "share", "indexed", "read as"), lines)


def print_facts(info: CollectionInfo, more: Iterable[tuple[str, str]] = ()) -> None:
    """Print counts, status and vectors of a collection, and more facts below them."""
    vectors = [
        (f"vector {vector.name or '(unnamed)'}", f"{vector.size} values, {vector.distance_metric}")
        for vector in info.vectors
    ]
    counts = [
        ("points", f"{info.points_count:,}"),
        ("indexed vectors", f"{info.indexed_vectors_count:,}"),
        ("status", info.status),
    ]
    print_title(f"Collection {info.name}")
    print_table(("fact", "value"), [*counts, *vectors, *more])
