"""`chunkproof push`."""

import sys
from pathlib import Path

import click

from chunkproof_cli.copying import push_collection
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import data_option, json_option, parse_options, reject_api

EXAMPLES = """\b
Examples:
  chunkproof push handbook
  chunkproof push handbook --as handbook-v2 --data ./copy
  chunkproof push handbook --resume
"""


@click.command(epilog=EXAMPLES)
@click.argument("collection")
@click.option("--as", "name", metavar="NAME", help="Name on the server; the collection's own by default.")
@data_option("")
@click.option("--resume", is_flag=True, help="Continue in a collection that an interrupted push left.")
@json_option
@reject_api("the API is read-only; push writes to QDRANT_URL")
def push(collection: str, name: str | None, data: Path | None, resume: bool, as_json: bool) -> None:
    """Copy COLLECTION from the embedded store to the server at QDRANT_URL, and verify the copy.

    The collection is created with the same vectors, sparse ones too, and the same indexes. All payloads and vectors
    are then compared point by point; if one differs, the exit code is 1. Nothing on the server is ever deleted.
    """
    given = parse_options(name or collection, data, as_json)
    made = push_collection(collection, name or collection, given.data, resume=resume)
    made.show(as_json=as_json)
    if not made.is_equal:
        sys.exit(FAILED)
