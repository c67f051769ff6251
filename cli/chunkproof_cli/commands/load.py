"""`chunkproof load`."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import click

from chunkproof.base.errors import UnavailableError
from chunkproof.service.terminal import Connection
from chunkproof_cli.connections import connect
from chunkproof_cli.loading import ChunkRecord, Loader, TooLong, check_chunks
from chunkproof_cli.options import common_options, embedder_option, option, parse_options, reject_api
from chunkproof_cli.output import mask_secrets, print_json, print_line, print_note, progress_bar

MAX_NAMED = 20
NEXT_STEP = (
    "The documents were cut by a plain rule (chunkproof load --help). Next, let a pipeline of your own cut them and "
    "write chunks.jsonl, or the collection itself; the same suite then measures whether it finds more."
)
_WORDS = {TooLong.TRUNCATE: "truncated", TooLong.SKIP: "skipped"}
EXAMPLES = """\b
Examples:
  chunkproof load docs/ --collection handbook
  chunkproof load chunks.jsonl --collection handbook
  chunkproof load beir/scifact --collection scifact --truncate
  chunkproof load chunks.jsonl --collection handbook --hybrid

\b
A line of chunks.jsonl:
  {"chunk_id": "intro-1", "text": "…", "url": "https://docs.example.com/intro", "document_title": "Intro"}
"""


@click.command(epilog=EXAMPLES)
@click.argument("path", type=click.Path(path_type=Path))
@option(
    "--truncate if_too_long",
    "Embed only the beginning of texts that are longer than the model reads; they are stored whole.",
    flag_value=TooLong.TRUNCATE.value,
)
@option(
    "--skip-too-long if_too_long",
    "Leave out chunks whose text is longer than the model reads.",
    flag_value=TooLong.SKIP.value,
)
@option("--skip-unreadable", "Leave out documents that cannot be read, and name them.")
@option(
    "--hybrid", "Make a collection that can be searched by words too (search --mode hybrid): Qdrant adds a BM25 vector."
)
@common_options
@embedder_option
@reject_api("the API is read-only; load writes to QDRANT_URL, or to the embedded store")
def load(path: Path, if_too_long: str | None, skip_unreadable: bool, hybrid: bool, **common: Any) -> None:
    """Embed the chunks of PATH and write them to a collection.

    PATH is chunks.jsonl, a BEIR folder, or a folder of documents (text, Markdown, HTML, PDF), which are cut at their
    headings and paragraphs into chunks of some 150 words: enough to begin with.

    Every line is checked first: if one is invalid, or longer than the model reads, nothing is written. A chunk
    replaces the stored chunk with the same id, so loading twice, or again after an interruption, gives the same
    collection.
    """
    options = parse_options(**common)
    with connect(options) as connection:
        rule = TooLong(if_too_long or TooLong.REFUSE)
        name = options.collection or connection.services.settings.collection
        embedder = connection.services.collection(name).require_embedder()
        excess = embedder.excess if rule is TooLong.REFUSE else lambda _text: None
        chunks = check_chunks(path, excess, skip_unreadable=skip_unreadable)
        too_long = load_chunks(chunks, chunks.count, name, connection, rule, hybrid=hybrid)
        stored = chunks.count - (len(too_long) if rule is TooLong.SKIP else 0)
        if chunks.extra_fields:
            print_note(f"Extra fields stored with the chunks: {', '.join(chunks.extra_fields)}")
        for name_and_reason in chunks.unread:
            print_note(name_and_reason)
        if chunks.documents:
            print_note(NEXT_STEP)
        if options.json:
            listed = {} if rule is TooLong.REFUSE else {_WORDS[rule]: too_long}
            unread = {"unread": list(chunks.unread)} if chunks.unread else {}
            print_json({"collection": name, "chunks": stored, "embedding_model": embedder.model, **listed, **unread})
        else:
            print_line(mask_secrets(f"{stored} chunks of {path} are in collection {name} of {connection.store.host}."))
            if too_long:
                more = ", …" if len(too_long) > MAX_NAMED else ""
                print_line(
                    f"{len(too_long)} {_WORDS[rule]}, longer than {embedder.model} reads: "
                    f"{', '.join(too_long[:MAX_NAMED])}{more}"
                )


def load_chunks(
    chunks: Iterable[ChunkRecord],
    count: int,
    collection: str,
    connection: Connection,
    if_too_long: TooLong = TooLong.REFUSE,
    *,
    hybrid: bool = False,
) -> list[str]:
    """Embed and write the chunks, with a progress bar; return the ids of those that were too long."""
    services = connection.services
    loader = Loader(
        connection.store,
        services.collection(collection).require_embedder(),
        collection,
        services.settings.vector_name,
        if_too_long,
        setting=services.collection(collection).model_setting,
        hybrid=hybrid,
    )
    try:
        with progress_bar("Embedding and writing", 2 * count) as advance:
            loader.load(chunks, advance)
        with progress_bar("Building indexes", None):
            connection.store.optimize(collection)
        return list(loader.too_long)
    except (UnavailableError, OSError) as error:
        print_note("Stopped before all chunks were stored. Run the same command again: it replaces what is stored.")
        if not isinstance(error, UnavailableError):  # of the file that holds the vectors until they are written
            raise OSError(error.errno, error.strerror, error.filename or gettempdir()) from None
        raise
