"""`chunkproof load`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from chunkproof_cli.connections import Connection, connect
from chunkproof_cli.files.chunks import ChunkRecord, check_chunks
from chunkproof_cli.loading import Loader
from chunkproof_cli.options import common_options, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar

EXAMPLES = """\b
Examples:
  chunkproof load chunks.jsonl --collection handbook
  chunkproof load beir/scifact --collection scifact

\b
A line of chunks.jsonl:
  {"chunk_id": "intro-1", "text": "…", "url": "https://docs.example.com/intro", "document_title": "Intro"}
"""


@click.command(epilog=EXAMPLES)
@click.argument("path", type=click.Path(path_type=Path))
@common_options
@reject_api("the API only reads; load writes to QDRANT_URL, or to the embedded store")
def load(path: Path, **common: Any) -> None:
    """Embed the chunks of PATH (chunks.jsonl, or a BEIR folder) and write them to a collection.

    Every line is checked first: one bad line, and nothing is written. Chunks are replaced by id, so that
    loading twice, or again after an interruption, gives the same collection.
    """
    given = parse_options(**common)
    with connect(given) as connected:
        chunks = check_chunks(path, connected.embedder.excess)
        name = given.collection or connected.services.settings.collection
        load_chunks(chunks, chunks.count, name, connected)
        if chunks.extra_fields:
            print_note(f"Stored along with the chunks: {', '.join(chunks.extra_fields)}")
        if given.json:
            model = connected.embedder.model
            print_json({"collection": name, "chunks": chunks.count, "embedding_model": model})
        else:
            print_line(f"{chunks.count} chunks of {path} are in collection {name} of {connected.store.host}.")


def load_chunks(chunks: Iterable[ChunkRecord], count: int, collection: str, connected: Connection) -> None:
    """Embed and write the chunks, showing how far it is."""
    settings = connected.services.settings
    loader = Loader(connected.store, connected.embedder, collection, settings.vector_name)
    with progress_bar("Embedding and writing", 2 * count) as done:
        loader.load(chunks, embedded=done, written=done)
