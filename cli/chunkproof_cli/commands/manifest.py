"""`chunkproof manifest` and `chunkproof snapshot`: write down what should be stored, or what is."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.manifest_file import Entry
from chunkproof.audit.snapshot_file import SnapshotWriter
from chunkproof.base.errors import ChunkproofError
from chunkproof.collection.reader import Reader
from chunkproof.service.terminal import new_deadline
from chunkproof_cli.connections import open_services
from chunkproof_cli.loading import ChunkRecord, check_chunks
from chunkproof_cli.manifest_sources import EntryShape, ManifestSource, open_collection, open_source, write_manifest
from chunkproof_cli.options import common_options, option, parse_options, reject_api
from chunkproof_cli.output import mask_secrets, print_json, print_line, print_note, progress_bar

MAX_SHOWN_UNREADABLE = 20
DEFAULT_METADATA = "url"
EXAMPLES = """\b
Examples:
  chunkproof manifest chunks.jsonl -o manifest.jsonl
  chunkproof manifest --collection handbook --hash -o before.jsonl.gz
  chunkproof manifest --from docs/ --collection handbook -o manifest.jsonl
  chunkproof manifest --from record_manager_cache.sqlite --collection handbook -o manifest.jsonl
  chunkproof manifest --from postgresql://reader@db.example.com/rag --collection handbook -o manifest.jsonl
  chunkproof manifest --from storage/docstore.json -o manifest.jsonl
  chunkproof manifest --from before.snapshot -o manifest.jsonl
  chunkproof manifest --from https://old.example.com:6333/collections/handbook -o manifest.jsonl

\b
A line of a manifest:
  {"chunk_id": "intro-1", "original_text": "…", "metadata": {"url": "https://docs.example.com/intro"}}
  {"chunk_id": "intro-2", "original_sha256": "9f86d0…", "point_id": 17}
"""


@click.command(epilog=EXAMPLES)
@click.argument("chunks", type=click.Path(path_type=Path), required=False)
@option("-o --output FILE", "File to write; .gz and .zst are compressed.", required=True)
@option(
    "--from origin SOURCE",
    "Make it from a folder of documents, the database of LangChain's record manager (an SQLite file, or the "
    "SQLAlchemy URL of PostgreSQL or MySQL), a LlamaIndex docstore.json, a snapshot, or another collection: its name "
    "or URL.",
)
@option("--namespace NAME", "With a record manager: the namespace, where it has several.")
@option(
    "--from-api-key KEY", "With the URL of another collection: the key of its server.", envvar="CHUNKPROOF_FROM_API_KEY"
)
@option("--hash hashed", "Write only the SHA-256 of each text: smaller, and no text can leak.")
@option("--metadata FIELD,…", "Payload fields that the audit compares as well; none for no field.", DEFAULT_METADATA)
@common_options
@reject_api("a manifest is made from the collection itself; set QDRANT_URL")
def manifest(
    chunks: Path | None, output: Path, hashed: bool, metadata: str, origin: str | None, **options: Any
) -> None:
    """Write a manifest of what should be stored, for `chunkproof audit`.

    With CHUNKS (what `chunkproof load` takes), it lists what the collection should hold. Without, it is a
    snapshot of the collection as it is now, to compare with later. Lines are sorted by point id.

    With --from, it is made from what you have. Of a folder of documents (text, Markdown, HTML, PDF), the chunks of the
    collection are located in them; those in no document are left out.
    """
    namespace, from_api_key = options.pop("namespace"), options.pop("from_api_key")
    given = parse_options(**options)
    if chunks is not None and origin is not None:
        raise click.UsageError("Give CHUNKS or --from, not both.")
    if namespace is not None and origin is None:
        raise click.UsageError("--namespace is for the record manager of --from.")
    if not output.parent.is_dir():
        raise click.BadParameter(f"{output.parent}: no such folder", param_hint="-o")
    shape = EntryShape(
        [name.strip() for name in metadata.split(",") if name.strip()] if metadata != "none" else [], hashed
    )
    seen: set[str] = set()
    with ExitStack() as stack:
        if chunks is not None:
            source = ManifestSource(make_entry(record, shape) for record in check_chunks(chunks, lambda _text: None))
        elif origin is not None:
            opened = open_source(origin, given, shape, namespace=namespace, api_key=from_api_key)
            source = stack.enter_context(opened)
        else:
            services = stack.enter_context(open_services(given))
            collection = given.collection or services.settings.collection
            source = stack.enter_context(open_collection(services, collection, shape))
        count = write_manifest(_collect_fields(source.entries, seen), output)
    if metadata != DEFAULT_METADATA and (unseen := [name for name in shape.fields or () if name not in seen]):
        print_note(f"--metadata: no chunk has {' or '.join(unseen)}; an audit will not compare it")
    _print_result(output, count, source, as_json=given.json)


def make_entry(record: ChunkRecord, shape: EntryShape) -> Entry:
    """Make the manifest entry of a chunk that is to be loaded."""
    return shape.make_entry(record.chunk_id, record.text, record.model_dump(exclude_none=True, mode="json"))


def _collect_fields(entries: Iterable[Entry], seen: set[str]) -> Iterator[Entry]:
    """Yield the entries, and collect the metadata fields that they have."""
    for entry in entries:
        seen.update(entry.metadata or ())
        yield entry


def _print_result(output: Path, count: int, source: ManifestSource, *, as_json: bool) -> None:
    for note in source.notes:
        print_note(note)
    if as_json:
        more = {"source_coverage": source.coverage.model_dump(mode="json")} if source.coverage else {}
        print_json({"manifest": str(output), "chunks": count, "unreadable": source.unreadable, **more})
    else:
        print_line(mask_secrets(f"{count} chunks are in {output}."))
    if unreadable := source.unreadable:
        named = ", ".join(unreadable[:MAX_SHOWN_UNREADABLE]) + (", …" if len(unreadable) > MAX_SHOWN_UNREADABLE else "")
        print_note(f"{len(unreadable)} points have no readable text, and an audit expects none there: {named}")


SNAPSHOT_EXAMPLES = """\b
Examples:
  chunkproof snapshot -o before.snapshot
  chunkproof snapshot --texts --vectors -o before.snapshot
  chunkproof why "how are backups made" --expect vectordb-operations-03 --snapshot before.snapshot
  chunkproof suite run suite.yaml --baseline before.json --blame --snapshot before.snapshot
"""


@click.command(epilog=SNAPSHOT_EXAMPLES)
@option("-o --output FILE", "File to write, COLLECTION.snapshot by default.")
@option("--texts", "Keep the texts in full: blame can then put a former text back.")
@option("--vectors", "Keep the vectors in full: blame can then put a former vector back.")
@option("--restart", "Not needed any more: it always begins again.", hidden=True, expose_value=False)
@common_options
@reject_api("a snapshot is taken from the collection itself; set QDRANT_URL")
def snapshot(output: Path | None, texts: bool, vectors: bool, **common: Any) -> None:
    """Keep what a collection holds now, to find out later what changed and what it cost.

    By default it keeps ids, the fields that filters use, and the hashes of texts and vectors: no text leaves the
    store. A snapshot that was interrupted begins again, so that it is of one state.
    """
    given = parse_options(**common)
    with open_services(given) as services:
        collection = services.collection(given.collection).name
        file = output or Path(f"{collection.replace('/', '-')}.snapshot")
        if not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent}: no such folder", param_hint="-o")
        total = services.store.describe(collection, new_deadline(services.settings)).points_count
        with progress_bar("Reading", total) as done:
            reader = Reader(services, collection)
            try:
                count = SnapshotWriter(file, reader, texts, vectors, done).write()
            except OSError as error:
                if not isinstance(error, ChunkproofError) and error.filename is None:
                    raise OSError(error.errno, error.strerror, str(file)) from None
                raise
    if reader.change_note:
        print_note(reader.change_note)
    kept = " and ".join(name for name, is_kept in (("texts", texts), ("vectors", vectors)) if is_kept)
    if given.json:
        size = file.stat().st_size
        print_json({"snapshot": str(file), "collection": collection, "points": count, "bytes": size})
    else:
        described = f"with {kept} in full" if kept else "texts and vectors as hashes"
        print_line(mask_secrets(f"{count:,} points of {collection} are in {file} ({described})."))
