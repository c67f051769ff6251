"""`chunkproof manifest`."""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from chunkproof.audit.manifest import Entry, parse_checked_line
from chunkproof.audit.manifest_files import create_manifest
from chunkproof.audit.prepare import encode_id, point_key
from chunkproof.audit.reader import Reader
from chunkproof.audit.sort import Sorter
from chunkproof.errors import CorruptChunkError
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import parse_point_id, point_id_for
from chunkproof.runtime.local import new_deadline
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.files.chunks import ChunkRecord, check_chunks
from chunkproof_cli.options import common_options, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, progress_bar
from chunkproof_cli.sources.manifests import Shape
from chunkproof_cli.sources.origin import Choice, Origin, open_origin

MAX_SHOWN_UNREADABLE = 20
DEFAULT_METADATA = "url"
EXAMPLES = """\b
Examples:
  chunkproof manifest chunks.jsonl -o manifest.jsonl
  chunkproof manifest --collection handbook --hash -o before.jsonl.gz
  chunkproof manifest --from docs/ --collection handbook -o manifest.jsonl
  chunkproof manifest --from record_manager_cache.sqlite --collection handbook -o manifest.jsonl
  chunkproof manifest --from storage/docstore.json -o manifest.jsonl
  chunkproof manifest --from https://old.example.com:6333/collections/handbook -o manifest.jsonl

\b
A line of a manifest:
  {"chunk_id": "intro-1", "original_text": "…", "metadata": {"url": "https://docs.example.com/intro"}}
  {"chunk_id": "intro-2", "original_sha256": "9f86d0…", "point_id": 17}
"""


@click.command(epilog=EXAMPLES)
@click.argument("chunks", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="File to write; .gz and .zst are compressed.",
)
@click.option(
    "--from",
    "origin",
    metavar="SOURCE",
    help="Make it from a folder of documents, the SQLite database of LangChain's record manager, a LlamaIndex "
    "docstore.json, or another collection: its name or URL.",
)
@click.option("--namespace", metavar="NAME", help="With a record manager: the namespace, where it has several.")
@click.option(
    "--from-api-key",
    metavar="KEY",
    envvar="CHUNKPROOF_FROM_API_KEY",
    show_envvar=True,
    help="With the URL of another collection: the key of its server.",
)
@click.option(
    "--hash",
    "hashed",
    is_flag=True,
    help="Write only the SHA-256 of each text: smaller, and no text can leak.",
)
@click.option(
    "--metadata",
    default=DEFAULT_METADATA,
    show_default=True,
    metavar="FIELD,…",
    help="Payload fields that the audit compares as well; none for no field.",
)
@common_options
@reject_api("a manifest is made from the collection itself; set QDRANT_URL")
def manifest(
    chunks: Path | None, output: Path, hashed: bool, metadata: str, origin: str | None, **options: Any
) -> None:
    """Write a manifest of what should be stored, for `chunkproof audit`.

    With CHUNKS (chunks.jsonl, or a BEIR folder), it lists what the collection should hold. Without, it is a
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
    fields = [name.strip() for name in metadata.split(",") if name.strip()] if metadata != "none" else []
    unreadable: list[str] = []
    found: Origin | None = None
    seen: set[str] = set()
    if chunks is not None:
        source = check_chunks(chunks, lambda _text: None)
        entries = (make_entry(record, fields, hashed=hashed) for record in source)
        count = write_manifest(_collect_fields(entries, seen), output)
    elif origin is not None:
        choice = Choice(origin, namespace, from_api_key)
        shape = Shape(fields, hashed)
        copy = partial(snapshot, fields=fields, hashed=hashed, done=lambda _count: None, unreadable=unreadable)
        with open_origin(choice, given, shape, copy) as found:
            count = write_manifest(_collect_fields(found.entries, seen), output)
    else:
        with open_services(given) as services:
            collection = given.collection or services.settings.collection
            total = services.store.describe(collection, new_deadline(services.settings)).points_count
            with progress_bar("Reading", total) as done:
                stored = snapshot(Reader(services, collection), fields, hashed, done, unreadable)
                count = write_manifest(_collect_fields(stored, seen), output)
    if metadata != DEFAULT_METADATA and (unseen := [name for name in fields if name not in seen]):
        print_note(f"--metadata: no chunk has {' or '.join(unseen)}; an audit will not compare it")
    _print_result(output, count, unreadable, found, as_json=given.json)


def write_manifest(entries: Iterable[Entry], output: Path) -> int:
    """Write the entries sorted by point id, and return their number."""
    with tempfile.TemporaryDirectory() as folder:
        by_point = Sorter(Path(folder))
        for entry in entries:
            by_point.add(f"{point_key(entry.expected_point_id)}\t".encode() + entry.to_line())
        with create_manifest(output) as file:
            file.writelines(line.partition(b"\t")[2] for line in by_point)
        return by_point.count


def make_entry(record: ChunkRecord, fields: list[str], *, hashed: bool) -> Entry:
    """Make the manifest entry of a chunk that is to be loaded."""
    stored = record.model_dump(exclude_none=True, mode="json")
    return _build_entry(record.chunk_id, record.text, {name: stored[name] for name in fields if name in stored}, hashed)


def _collect_fields(entries: Iterable[Entry], seen: set[str]) -> Iterator[Entry]:
    """Yield the entries, and collect the metadata fields that they have."""
    for entry in entries:
        seen.update(entry.metadata or ())
        yield entry


def snapshot(reader: Reader, fields: list[str], hashed: bool, done: Any, unreadable: list[str]) -> Iterator[Entry]:
    """Yield an entry for every point as it is stored now; ids of points without a readable text are collected.

    Every entry has an id of its own: the point's where several points share the one in their payloads.
    """
    with tempfile.TemporaryDirectory() as folder:
        by_id = Sorter(Path(folder))
        for entry in _read_entries(reader, fields, hashed, done, unreadable):
            by_id.add(f"{encode_id(entry.chunk_id)}\t".encode() + entry.to_line())
        for _, lines in groupby(by_id, key=lambda line: line.partition(b"\t")[0]):
            first, *others = (parse_checked_line(line.partition(b"\t")[2]) for line in lines)
            if not others and _is_unmistakable(first):
                yield first
                continue
            for entry in (first, *others):
                yield replace(entry, chunk_id=str(entry.expected_point_id), point_id=None)


def _is_unmistakable(entry: Entry) -> bool:
    """Whether the chunk id cannot be the id of another point."""
    return parse_point_id(entry.chunk_id) in (None, entry.expected_point_id)


def _read_entries(reader: Reader, fields: list[str], hashed: bool, done: Any, unreadable: list[str]) -> Iterator[Entry]:
    payloads = reader.payloads
    for page in reader.pages(None):
        for point in page.points:
            chunk_id = payloads.id_of(point)
            try:
                text = payloads.text_of(point)
            except CorruptChunkError:
                unreadable.append(chunk_id)
                continue
            values = {name: payloads.stated(name, point.payload) for name in fields}
            known = {name: value for name, value in values.items() if value is not None}
            point_id = None if point_id_for(chunk_id) == point.id else point.id
            yield _build_entry(chunk_id, text, known, hashed, point_id)
        done(len(page.points))


def _build_entry(
    chunk_id: str, text: str, metadata: dict[str, Any], hashed: bool, point_id: int | str | None = None
) -> Entry:
    return Entry(
        chunk_id,
        original_text=None if hashed else text,
        original_sha256=digest(text) if hashed else None,
        metadata=metadata or None,
        point_id=point_id,
    )


def _print_result(output: Path, count: int, unreadable: list[str], found: Origin | None, *, as_json: bool) -> None:
    coverage = found.notes.coverage if found else None
    for note in found.notes.notes if found else ():
        print_note(note)
    if as_json:
        more = {"source_coverage": coverage.model_dump(mode="json")} if coverage else {}
        print_json({"manifest": str(output), "chunks": count, "unreadable": unreadable, **more})
    else:
        print_line(f"{count} chunks are in {output}.")
    if unreadable:
        named = ", ".join(unreadable[:MAX_SHOWN_UNREADABLE]) + (", …" if len(unreadable) > MAX_SHOWN_UNREADABLE else "")
        print_note(f"{len(unreadable)} points have no readable text and are not in it: {named}")
        sys.exit(FAILED)
