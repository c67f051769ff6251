"""Make manifest entries from what people have: documents, a record manager, a docstore, another collection."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkproof.audit.manifest import Entry
from chunkproof.audit.reader import Reader, in_batches
from chunkproof.audit.snapshot import Snapshot
from chunkproof.audit.source_coverage import CoverageRun, SourceCoverage, StoredTexts
from chunkproof.errors import CorruptChunkError, InvalidParameterError
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import parse_point_id, point_id_for
from chunkproof.retrieval.services import Services
from chunkproof.runtime.local import new_deadline
from chunkproof_cli.output import progress_bar
from chunkproof_cli.sources.documents import Folder
from chunkproof_cli.sources.frameworks import Node, Record, langchain_key
from chunkproof_cli.sources.snapshots import separate_ids

Documents = Iterable[tuple[str, str]]


@dataclass
class Found:
    """What a source gave besides entries: sentences for the user."""

    notes: list[str] = field(default_factory=list)
    coverage: SourceCoverage | None = None


@dataclass(frozen=True)
class Shape:
    """How entries are written: the metadata fields to compare, and texts or hashes."""

    fields: list[str]
    hashed: bool

    def make_entry(
        self, chunk_id: str, text: str, metadata: dict[str, Any], point_id: int | str | None = None
    ) -> Entry:
        """Make an entry with a text."""
        return Entry(
            chunk_id,
            original_text=None if self.hashed else text,
            original_sha256=digest(text) if self.hashed else None,
            metadata={name: metadata[name] for name in self.fields if metadata.get(name) is not None} or None,
            point_id=None if point_id is None or point_id_for(chunk_id) == point_id else point_id,
        )


def entries_of_snapshot(snapshot: Snapshot, shape: Shape, unreadable: list[str]) -> Iterator[Entry]:
    """Yield an entry for each point of a snapshot: with its text where the snapshot keeps texts, else with its hash."""

    def read() -> Iterator[Entry]:
        for entry in snapshot.entries():
            if entry.text_sha256 is None:
                unreadable.append(entry.chunk_id)
                continue
            known = {**entry.payload, "document_id": entry.document_id, "url": entry.url}
            has_text = entry.text is not None and not shape.hashed
            yield Entry(
                entry.chunk_id,
                original_text=entry.text if has_text else None,
                original_sha256=None if has_text else entry.text_sha256,
                metadata={name: known[name] for name in shape.fields if known.get(name) is not None} or None,
                point_id=None if point_id_for(entry.chunk_id) == entry.point_id else entry.point_id,
            )

    yield from separate_ids(read())


def entries_of_docstore(nodes: list[Node], shape: Shape) -> Iterator[Entry]:
    """Yield an entry for each node, which LlamaIndex stores under the id of the node."""
    for node in nodes:
        if node.document is not None:
            yield shape.make_entry(node.node_id, node.text, node.metadata)


def documents_of_docstore(nodes: list[Node]) -> list[tuple[str, str]]:
    """Return the documents of a docstore that keeps no nodes, as an ingestion pipeline with a cache does."""
    if not nodes:
        raise InvalidParameterError("The docstore is empty")
    return [
        (str(node.metadata.get("url") or node.metadata.get("file_path") or node.node_id), node.text) for node in nodes
    ]


def entries_of_records(records: list[Record], reader: Reader, shape: Shape, found: Found) -> Iterator[Entry]:
    """Yield an entry for each record; its text is the stored one if the record's key proves that it is the original.

    LangChain derives a key from text and metadata. A key that does not fit, or a point that is not stored, gives an
    entry that is only compared by its presence.
    """
    payloads = reader.payloads
    proved = stored = 0
    for batch in in_batches(records):
        ids = [point_id for record in batch if (point_id := parse_point_id(record.key)) is not None]
        points = reader.fetch(ids)
        for record in batch:
            point = points.get(parse_point_id(record.key) or "")
            try:
                text = None if point is None else payloads.text_of(point)
            except CorruptChunkError:
                text = None
            if point is None or text is None:
                yield Entry(record.key, present=True)
                continue
            stored += 1
            if langchain_key(text, point.payload.get("metadata", {})) != record.key:
                yield Entry(record.key, present=True)
                continue
            proved += 1
            known = {name: payloads.stated(name, point.payload) for name in shape.fields}
            yield shape.make_entry(record.key, text, known)
    found.notes.append(
        f"{proved:,} of {len(records):,} records have their text proved by their key; {len(records) - proved:,} are in "
        "the manifest by their id alone"
    )
    if 0 < proved < stored:
        found.notes.append(f"{stored - proved:,} stored chunks have another text or metadata than LangChain indexed")


@contextmanager
def read_texts(services: Services, collection: str) -> Iterator[StoredTexts]:
    """Read all texts of a collection into a temporary file."""
    reader = Reader(services, collection)
    total = services.store.describe(collection, new_deadline(services.settings)).points_count
    with tempfile.TemporaryDirectory() as folder, closing(StoredTexts(Path(folder))) as texts:
        with progress_bar("Reading", total) as done:
            texts.read_collection(reader, done)
        yield texts


def locate_in_folder(texts: StoredTexts, folder: Folder, least: float) -> tuple[CoverageRun, SourceCoverage]:
    """Locate the chunks in the documents of a folder."""
    return locate_chunks(texts, str(folder.path), folder.read(), lambda: folder.unread, least)


def locate_chunks(
    texts: StoredTexts,
    name: str,
    documents: Documents,
    unread: Callable[[], list[tuple[str, str]]] = list,
    least: float = 0.0,
) -> tuple[CoverageRun, SourceCoverage]:
    """Locate the chunks in these documents."""
    with progress_bar("Locating", None) as done:
        run = CoverageRun(texts, done)
        run.add_documents(documents)
        return run, run.report(name, unread(), least)


def entries_of_documents(run: CoverageRun, texts: StoredTexts, shape: Shape) -> Iterator[Entry]:
    """Yield an entry for each chunk that is in a document; stale ones are left out, and the audit finds them."""
    for number, stored in enumerate(texts):
        if run.is_located(number):
            known = {"url": stored.source} if stored.source else {}
            yield shape.make_entry(stored.chunk_id, stored.text, known, stored.point_id)
