"""`chunkproof load`."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import click

from chunkproof.errors import UnavailableError
from chunkproof.runtime.local import Connection
from chunkproof_cli.connections import connect
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
@reject_api("the API is read-only; load writes to QDRANT_URL, or to the embedded store")
def load(path: Path, **common: Any) -> None:
    """Embed the chunks of PATH (chunks.jsonl, or a BEIR folder) and write them to a collection.

    Every line is checked first: if one is invalid, nothing is written. A chunk replaces the stored chunk with
    the same id, so loading twice, or again after an interruption, gives the same collection.
    """
    options = parse_options(**common)
    with connect(options) as connection:
        chunks = check_chunks(path, connection.embedder.excess)
        name = options.collection or connection.services.settings.collection
        load_chunks(chunks, chunks.count, name, connection)
        if chunks.extra_fields:
            print_note(f"Extra fields stored with the chunks: {', '.join(chunks.extra_fields)}")
        if options.json:
            model = connection.embedder.model
            print_json({"collection": name, "chunks": chunks.count, "embedding_model": model})
        else:
            print_line(f"{chunks.count} chunks of {path} are in collection {name} of {connection.store.host}.")


def load_chunks(chunks: Iterable[ChunkRecord], count: int, collection: str, connection: Connection) -> None:
    """Embed and write the chunks, with a progress bar."""
    settings = connection.services.settings
    loader = Loader(connection.store, connection.embedder, collection, settings.vector_name)
    try:
        with progress_bar("Embedding and writing", 2 * count) as advance:
            loader.load(chunks, advance)
    except (UnavailableError, OSError) as error:
        print_note("Stopped before all chunks were stored. Run the same command again: it replaces what is stored.")
        if isinstance(error, OSError):  # of the file that holds the vectors until they are written
            raise OSError(error.errno, error.strerror, error.filename or gettempdir()) from None
        raise
