"""`chunkproof pull`."""

import sys
from typing import Any

import click

from chunkproof_cli.copying import pull_collection
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import data_option, json_option, parse_options, reject_api

EXAMPLES = """\b
Examples:
  chunkproof pull handbook
  chunkproof pull handbook --as production --data ./copy
  chunkproof pull handbook --replace --by scroll
\b
Then, without the server:
  QDRANT_URL= chunkproof search "rotate a key" --collection handbook
"""


@click.command(epilog=EXAMPLES)
@click.argument("collection")
@click.option("--as", "name", metavar="NAME", help="Name of the copy; the collection's own by default.")
@data_option("")
@click.option("--replace", is_flag=True, help="Replace a collection of that name once the copy is verified.")
@click.option(
    "--by",
    "how",
    type=click.Choice(["auto", "snapshot", "scroll"]),
    default="auto",
    show_default=True,
    help="Copy a snapshot of the server, which has the vector index too, or read point by point. With auto, points "
    "are read where there is no snapshot that fits.",
)
@json_option
@reject_api("the copy is made from the collection itself; set QDRANT_URL")
def pull(collection: str, name: str | None, replace: bool, how: str, **common: Any) -> None:
    """Copy COLLECTION from the server at QDRANT_URL into the embedded store, and verify the copy.

    All payloads and vectors, named and sparse ones too, are compared point by point. The copy appears only if they
    are equal; otherwise the exit code is 1. A pull that was interrupted is continued by the same command.
    """
    given = parse_options(name or collection, **common)
    made = pull_collection(collection, name or collection, given.data, how, replace_old=replace)
    made.show(as_json=given.json)
    if not made.is_equal:
        sys.exit(FAILED)
