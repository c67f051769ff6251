"""Make manifest entries from what people have: a collection, documents, a record manager, a docstore, a snapshot."""

import json
import os
import re
import sqlite3
import tempfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha1
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from chunkproof.audit.findings import list_metadata, require_texts
from chunkproof.audit.ledger import SortedRows, point_key
from chunkproof.audit.manifest_file import ZSTD_MAGIC, Entry, create_manifest, parse_checked_line
from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.audit.source_coverage import CoverageRun, SourceCoverage, StoredTexts
from chunkproof.base.errors import CorruptChunkError, InvalidParameterError, NotConfiguredError
from chunkproof.base.files import read_file
from chunkproof.collection.lookup import parse_point_id, point_id_for
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import Reader, in_batches
from chunkproof.collection.services import Services
from chunkproof.contract.model import MAX_ID, has_lone_surrogate
from chunkproof.proof.integrity import digest, unescape_html
from chunkproof.service.terminal import new_deadline
from chunkproof.stores.store_port import PointId
from chunkproof_cli.connections import open_address, open_services, parse_address
from chunkproof_cli.options import Options
from chunkproof_cli.output import progress_bar
from chunkproof_cli.reports.audit_blocks import describe_coverage

DOCSTORE = "docstore.json"
SQLITE_MAGIC = b"SQLite format 3\x00"
SQLITE_URL = "sqlite:///"
# LangChain may name another driver, such as one for asyncio; these come with the extra `sql`.
SQL_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
SQL_SECONDS = 10  # to connect
RECORDS = "SELECT namespace, upsertion_record.key, group_id FROM upsertion_record ORDER BY 1, 2"
# Keys of a relationship to the document that a node was made from, in either form.
SOURCE_RELATIONS = ("1", "SOURCE")
# LangChain's namespace for ids that it derives from a text.
_LANGCHAIN = UUID(int=1984)
MAX_BYTES, MAX_DOCSTORE = 200_000_000, 1_000_000_000
# A comment, a declaration, or a tag; a lone < is text.
_MARKUP = re.compile(r"<(?:!--|!\[CDATA\[|[!?]|/(?![a-zA-Z])|(?P<slash>/?)(?P<tag>[a-zA-Z][^\s/>]*))")
# A quote counts only as the beginning of an attribute's value.
_TAG_END = re.compile(r"(?:=\s*+(?:\"[^\"]*\"|'[^']*')|[^>])*+>")
_OPENERS = defaultdict(lambda: re.compile(">"), {"<!--": re.compile("--!?>"), "<![CDATA[": re.compile(r"\]\]>")})
_RAW = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.I) for tag in ("script", "style")}
_SKIPPED = {"script", "style", "template", "noscript", "svg", "head"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
    *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
    *("section", "table", "td", "th", "tr", "ul"),
}
_VOID = {"br", "hr", "img", "input", "link", "meta", "col", "source", "track", "wbr", "area", "base", "embed"}


class UnreadableError(Exception):
    """A document that cannot be read, and why."""


@dataclass
class Folder:
    """The documents of a folder; `unread` collects files that could not be read, with the reason."""

    path: Path
    unread: list[tuple[str, str]] = field(default_factory=list)
    hint: str = ""  # what a folder without documents might have been

    def files(self) -> list[Path]:
        """Return the files that can be read, sorted, without hidden files and files outside of the folder.

        Links to such files are left out too: `.git/config` may hold a token.
        """
        files, root = list[Path](), self.path.resolve()
        for folder, folders, names in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            shown = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
            readable = (file for file in shown if file.suffix.lower() in READERS and file.is_file())
            places = ((file, file.resolve()) for file in readable)
            inside = ((file, place.relative_to(root)) for file, place in places if place.is_relative_to(root))
            files += [file for file, place in inside if not any(part.startswith(".") for part in place.parts)]
        if not files:
            raise InvalidParameterError(f"{self.path} has no document to read: {', '.join(READERS)}{self.hint}")
        pdf = next((file for file in files if file.suffix.lower() == ".pdf"), None)
        if pdf and find_spec("pypdf") is None:
            raise InvalidParameterError(f"{pdf}: reading PDF takes pypdf: pip install 'chunkproof[pdf]'")
        return files

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each document."""
        self.unread.clear()
        for file in self.files():
            name = file.relative_to(self.path).as_posix()
            try:
                if file.stat().st_size > MAX_BYTES:
                    raise UnreadableError(f"larger than {MAX_BYTES // 1_000_000} MB")
                yield name, READERS[file.suffix.lower()](file)
            except UnreadableError as error:
                self.unread.append((name, str(error)))
            except OSError as error:
                self.unread.append((name, error.strerror or "cannot be read"))


def read_text(file: Path) -> str:
    """Read a text file: UTF-8, UTF-16 with a byte order mark, else Windows-1252."""
    content = file.read_bytes()
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    if b"\0" in content:
        raise UnreadableError("not a text")
    try:
        return content.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def extract_text(markup: str) -> str:
    """Return the visible text of HTML; a block starts on a new line. The time is linear in its length.

    As in a browser, what is left open at the end (a comment, a tag, a script) hides the rest.
    """
    parts: list[str] = []
    hidden, depth, at = "", 0, 0
    while at < len(markup):
        token = _MARKUP.search(markup, at)
        if not hidden:
            parts.append(unescape_html(markup[at : token.start() if token else len(markup)]))
        if token is None:
            break
        tag, is_end = token["tag"].lower() if token["tag"] else "", bool(token["slash"])
        find_end = _TAG_END.match if tag else _OPENERS[token[0]].search
        closed = find_end(markup, token.end())
        if closed is None:
            break
        at = closed.end()
        if hidden:
            depth += (tag == hidden) * (-1 if is_end else 1)
            hidden = hidden if depth and tag != "body" else ""
        elif tag in _SKIPPED and not is_end and not closed[0].endswith("/>"):
            hidden, depth = tag, 1
        elif tag in _BLOCKS and not (is_end and tag in _VOID):
            parts.append("\n")
        if tag in _RAW and not is_end:
            closing = _RAW[tag].search(markup, at)
            at = closing.start() if closing else len(markup)
    return "".join(parts)


def read_pdf(file: Path) -> str:
    """Read the text of a PDF, page by page."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = [page.extract_text() for page in PdfReader(file).pages]
    except PyPdfError as error:
        raise UnreadableError(f"not a readable PDF: {error}") from None
    except Exception as error:  # noqa: BLE001 - pypdf raises anything on a damaged file
        raise UnreadableError(f"not a readable PDF ({type(error).__name__})") from None
    text = "\n".join(pages)
    if not text.strip():
        raise UnreadableError("no text: scanned pages need OCR first")
    return text


READERS: dict[str, Callable[[Path], str]] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".mdx", ".rst"), read_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), lambda file: extract_text(read_text(file))),
    ".pdf": read_pdf,
}


@dataclass(frozen=True)
class Node:
    """A node of a docstore; without a `document`, it is a document itself."""

    node_id: str
    text: str
    metadata: dict[str, Any]
    document: str | None


# What LangChain indexed in one namespace: the id of each chunk, with its source where one is recorded.
IndexedRecords = Mapping[str, str | None]


def _choose_records(rows: Iterable[Sequence[Any]], wanted: str | None, name: str) -> IndexedRecords:
    """Choose the records of a namespace, which must be named if there are several."""
    spaces = defaultdict[str, dict[str, str | None]](dict)
    for namespace, key, source in rows:
        if not isinstance(key, str) or not 0 < len(key.strip()) <= MAX_ID:
            raise InvalidParameterError(f"{name} has a record whose key is no id")
        spaces[str(namespace)][key] = source
    if not spaces:
        raise InvalidParameterError(f"{name} has no records")
    chosen = next(iter(spaces)) if wanted is None and len(spaces) == 1 else wanted
    if chosen is None or chosen not in spaces:
        raise InvalidParameterError(f"{name} has the namespaces {', '.join(spaces)}: name one with --namespace")
    return spaces[chosen]


@dataclass(frozen=True)
class EntryShape:
    """How entries are written: the metadata fields to compare, None for all, and texts or hashes."""

    fields: list[str] | None
    hashed: bool = False

    def read(self, payload: Mapping[str, Any], payloads: PayloadMap) -> dict[str, Any]:
        """Read the fields to compare from a payload."""
        if self.fields is None:
            return list_metadata(payload, payloads)
        return {name: payloads.stated(name, payload) for name in self.fields}

    def make_entry(
        self,
        chunk_id: str,
        text: str | None,
        metadata: Mapping[str, Any],
        point_id: PointId | None = None,
        *,
        sha256: str | None = None,
    ) -> Entry:
        """Make an entry with a text, or with its hash where only that is known or wanted."""
        has_text, names = text is not None and not self.hashed, metadata if self.fields is None else self.fields
        return Entry(
            chunk_id,
            original_text=text if has_text else None,
            original_sha256=None if has_text else sha256 or digest(text or ""),
            metadata={name: metadata[name] for name in names if metadata.get(name) is not None} or None,
            point_id=None if point_id is None or point_id_for(chunk_id) == point_id else point_id,
        )


@dataclass
class ManifestSource:
    """The entries of a source. The rest is complete when all of them were read.

    `unreadable` has the ids of points without a readable text, `notes` has sentences for the user.
    """

    entries: Iterable[Entry] = ()
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    coverage: SourceCoverage | None = None


def write_manifest(entries: Iterable[Entry], output: Path) -> int:
    """Write the entries sorted by point id, and return their number."""
    by_point = SortedRows()
    for entry in entries:
        by_point.add(point_key(entry.expected_point_id), entry.to_line())
    with create_manifest(output) as file:
        file.writelines(line for _, line in by_point)
    return by_point.count


@contextmanager
def open_collection(services: Services, collection: str, shape: EntryShape) -> Iterator[ManifestSource]:
    """Open a collection as it is now."""
    total = services.store.describe(collection, new_deadline(services.settings)).points_count
    with progress_bar("Reading", total) as done:
        source, reader = ManifestSource(), Reader(services, collection)
        source.entries = entries_of_collection(reader, shape, done, source.unreadable)
        yield source
        source.notes += [reader.change_note] if reader.change_note else []


@contextmanager
def open_source(
    name: str, given: Options, shape: EntryShape, *, namespace: str | None, api_key: str | None
) -> Iterator[ManifestSource]:
    """Open what `--from` names: a path that exists, else a collection."""
    path, source = Path(name.removeprefix(SQLITE_URL)), ManifestSource()
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InvalidParameterError(f"--from {name}: neither a file nor a folder")
    is_database = "://" in name and not name.startswith((SQLITE_URL, "http:", "https:"))
    if not is_database and not path.exists():
        address = parse_address(name, "--from")
        if address.url is None and ("/" in name or path.suffix in (".json", ".sqlite", ".db")):
            raise InvalidParameterError(f"--from {name}: no such file or folder")
        with (
            open_address(address, given, api_key) as services,
            open_collection(services, address.collection, shape) as source,
        ):
            yield source
        return
    if path.is_dir() and (path / DOCSTORE).is_file():
        path /= DOCSTORE
    if is_database or (path.is_file() and _starts_with(path, SQLITE_MAGIC)):
        records = _read_database(name, namespace) if is_database else _read_sqlite(path, namespace)
        with open_services(given) as services, progress_bar("Reading", None):
            reader = Reader(services, given.collection or services.settings.collection)
            services.store.describe(reader.name, new_deadline(services.settings))
            source.entries = _entries_of_records(records, reader, shape, source.notes)
            yield source
    elif path.is_file() and _starts_with(path, ZSTD_MAGIC):
        source.entries = _separate_ids(_entries_of_snapshot(Snapshot(path), shape, source.unreadable))
        yield source
    else:
        folder, nodes = Folder(path), _read_docstore(path) if path.is_file() else []
        if chunks := [node for node in nodes if node.document is not None]:
            # LlamaIndex stores a node under the id of the node.
            source.entries = (shape.make_entry(node.node_id, node.text, node.metadata) for node in chunks)
            yield source
            return
        if path.is_dir():
            folder.files()  # raises for a folder without documents, before anything is read
        with open_services(given) as services, read_texts(services, given.collection) as texts:
            documents = folder.read() if path.is_dir() else _documents_of_docstore(nodes)
            run, source.coverage = locate_chunks(texts, str(path), documents, folder.unread)
            yield _describe_coverage(source, run, texts, shape)


def _starts_with(file: Path, magic: bytes) -> bool:
    with file.open("rb") as content:
        return content.read(len(magic)) == magic


def entries_of_collection(
    reader: Reader, shape: EntryShape, done: Callable[[int], None], unreadable: list[str]
) -> Iterator[Entry]:
    """Yield an entry for every stored point; collect the ids of points without a readable text.

    The manifest expects an empty text of those. `NotConfiguredError` if no point has a text.
    """

    def read() -> Iterator[Entry]:
        require_texts(reader)
        payloads = reader.payloads
        for page in reader.pages():
            for point in page.points:
                chunk_id, text = payloads.id_of(point), payloads.find_text(point)
                if text is None:
                    unreadable.append(chunk_id)
                yield shape.make_entry(chunk_id, text or "", shape.read(point.payload, payloads), point.id)
            done(len(page.points))

    return _separate_ids(read())


def _separate_ids(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Give every entry an id of its own: the point's where several points share the one in their payloads."""
    by_id = SortedRows()
    for entry in entries:
        by_id.add(entry.chunk_id, entry.to_line())
    for _, rows in groupby(by_id, key=lambda row: row[0]):
        first, *others = (parse_checked_line(line) for _, line in rows)
        # One chunk id that cannot be the id of another point stays.
        if not others and parse_point_id(first.chunk_id) in (None, first.expected_point_id):
            yield first
            continue
        for entry in (first, *others):
            yield replace(entry, chunk_id=str(entry.expected_point_id), point_id=None)


def _entries_of_snapshot(snapshot: Snapshot, shape: EntryShape, unreadable: list[str]) -> Iterator[Entry]:
    """Yield an entry for each point of a snapshot: with its text where the snapshot keeps texts, else with its hash."""
    for entry in snapshot.entries():
        hashed = entry.sha256 or digest("")
        if hashed == digest(""):
            unreadable.append(entry.chunk_id)
        stated = {**entry.payload, "document_id": entry.document_id, "url": entry.url}
        yield shape.make_entry(entry.chunk_id, entry.original_text, stated, entry.point_id, sha256=hashed)


def _documents_of_docstore(nodes: list[Node]) -> list[tuple[str, str]]:
    """Return the documents of a docstore that keeps no nodes, as an ingestion pipeline with a cache does."""
    if not nodes:
        raise InvalidParameterError("The docstore is empty")
    return [
        (str(node.metadata.get("url") or node.metadata.get("file_path") or node.node_id), node.text) for node in nodes
    ]


def _entries_of_records(
    records: IndexedRecords, reader: Reader, shape: EntryShape, notes: list[str]
) -> Iterator[Entry]:
    """Yield an entry for each record's key; its text is the stored one if the key proves that it is the original.

    LangChain derives a key from text and metadata. A key that does not fit, or a point that is not stored, gives an
    entry that is only compared by its presence.
    """
    payloads, total = reader.payloads, len(records)
    proved = stored = present = 0
    served = set[str | None]()
    for batch in in_batches(records):
        ids = {key: point_id for key in batch if (point_id := parse_point_id(key)) is not None}
        points = reader.read_points(list(ids.values()))
        for key in batch:
            entry, point = Entry(key, present=True), points.get(ids.get(key, ""))
            if point:
                present += 1
                served.add(records[key])
            with suppress(CorruptChunkError):
                text = payloads.text_of(point) if point else None
                stored += text is not None
                if point and text is not None and _langchain_key(text, point.payload.get("metadata", {})) == key:
                    proved += 1
                    entry = shape.make_entry(key, text, shape.read(point.payload, payloads))
            yield entry
    notes.append(
        f"{proved:,} of {total:,} records have their text proved by their key; {total - proved:,} are in the manifest "
        "by their id alone"
    )
    if 0 < proved < stored:
        notes.append(f"{stored - proved:,} stored chunks have another text or metadata than LangChain indexed")
    if present < total:
        sources = {source for source in records.values() if source is not None}
        of_sources = f", of {len(served & sources):,} of {len(sources):,} sources" if sources else ""
        notes.append(
            f"The collection has {present:,} of {total:,} indexed chunks ({present / total:.0%}){of_sources}. "
            "LangChain skips the others as unchanged at every run: index them with force_update=True"
        )


@contextmanager
def read_texts(services: Services, collection: str | None) -> Iterator[StoredTexts]:
    """Read all texts of a collection into a temporary file."""
    collection = collection or services.settings.collection
    total = services.store.describe(collection, new_deadline(services.settings)).points_count
    with tempfile.TemporaryDirectory() as folder, closing(StoredTexts(Path(folder))) as texts:
        with progress_bar("Reading", total) as done:
            texts.read_collection(Reader(services, collection), done)
        yield texts


def locate_chunks(
    texts: StoredTexts,
    name: str,
    documents: Iterable[tuple[str, str]],
    unread: list[tuple[str, str]],
    least: float = 0.0,
) -> tuple[CoverageRun, SourceCoverage]:
    """Locate the chunks in documents; `unread` is filled while these are read."""
    with progress_bar("Locating", None) as done:
        run = CoverageRun(texts, done)
        run.add_documents(documents)
        return run, run.report(name, unread, least)


def _describe_coverage(
    source: ManifestSource, run: CoverageRun, texts: StoredTexts, shape: EntryShape
) -> ManifestSource:
    """Add notes on the coverage, and entries of the located chunks; an audit then finds the stale ones."""
    if coverage := source.coverage:
        source.notes.append(describe_coverage(coverage))
        if coverage.stale:
            source.notes.append(f"{coverage.stale:,} chunks are in no source and not in the manifest")
        source.notes += [f"{each.name} was not read: {each.reason}" for each in coverage.unread]
    source.entries = (
        shape.make_entry(stored.chunk_id, stored.text, {"url": stored.source or None}, stored.point_id)
        for number, stored in enumerate(texts)
        if run.is_located(number)
    )
    return source


def _read_sqlite(file: Path, namespace: str | None) -> IndexedRecords:
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return _choose_records(database.execute(RECORDS), namespace, str(file))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InvalidParameterError(f"{file} is not the database of a LangChain record manager: {error}") from None


def _read_database(address: str, namespace: str | None) -> IndexedRecords:
    """Read the records from the server that a SQLAlchemy URL names; its password is in no message."""
    try:
        import sqlalchemy
    except ImportError:
        raise NotConfiguredError("Reading a database takes SQLAlchemy: pip install 'chunkproof[sql]'") from None
    try:
        url = sqlalchemy.make_url(address)
        if (backend := url.get_backend_name()) not in SQL_DRIVERS:
            known = ", ".join([*SQL_DRIVERS, "sqlite"])
            raise InvalidParameterError(f"--from: a record manager in {backend} cannot be read, only in {known}")
        engine = sqlalchemy.create_engine(
            url.set(drivername=SQL_DRIVERS[backend]),
            connect_args={"connect_timeout": SQL_SECONDS},
            poolclass=sqlalchemy.NullPool,
        )
        with engine.connect() as connection:
            return _choose_records(connection.execute(sqlalchemy.text(RECORDS)), namespace, str(url))
    except ImportError as error:  # of the driver
        raise NotConfiguredError(f"{error.name} is not installed: pip install 'chunkproof[sql]'") from None
    except sqlalchemy.exc.ArgumentError:
        raise InvalidParameterError("--from: not a database URL, such as postgresql://USER@HOST/NAME") from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        reason = reason.replace(url.password, "***") if url.password else reason
        raise InvalidParameterError(f"--from {url}: the record manager cannot be read: {reason}") from None


def _read_docstore(file: Path) -> list[Node]:
    """Read the nodes and documents of a persisted LlamaIndex docstore."""
    content = read_file(file, most=MAX_DOCSTORE)
    try:
        stored = json.loads(content)
        data = stored["docstore/data"]
        return list(_read_nodes(data, stored.get("docstore/ref_doc_info") or {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidParameterError(f"{file} is not a LlamaIndex docstore: it has no docstore/data") from None


def _read_nodes(data: dict[str, Any], documents: dict[str, Any]) -> Iterator[Node]:
    owners = {node_id: name for name, info in documents.items() for node_id in (info or {}).get("node_ids") or ()}
    for node_id, entry in data.items():
        fields = entry["__data__"]
        if isinstance(fields, str):  # as some key-value stores keep it
            fields = json.loads(fields)
        resource = fields.get("text_resource") or {}
        text, metadata = fields.get("text") or resource.get("text") or "", fields.get("metadata") or {}
        is_right = isinstance(text, str) and isinstance(metadata, dict) and 0 < len(node_id.strip()) <= MAX_ID
        if not is_right or has_lone_surrogate(text) or has_lone_surrogate(node_id):
            raise ValueError("no node")
        relations = fields.get("relationships") or {}
        relation = next((relations[key] for key in SOURCE_RELATIONS if key in relations), None) or {}
        owner = owners.get(node_id) or (relation.get("node_id") if isinstance(relation, dict) else None)
        is_document = fields.get("class_name") == "Document" or node_id in documents or owner == node_id
        yield Node(node_id, text, metadata, None if is_document else (owner or ""))


def _langchain_key(text: str, metadata: object) -> str | None:
    """Return the id that LangChain's indexing API derives from text and metadata; None where it cannot.

    The metadata must be as the pipeline gave it, which the payload shows unless it was changed since.
    """
    try:
        serialized = json.dumps(metadata, sort_keys=True)
    except (TypeError, ValueError):
        return None
    return _hash_like_langchain(_hash_like_langchain(text) + _hash_like_langchain(serialized))


def _hash_like_langchain(text: str) -> str:
    return str(uuid5(_LANGCHAIN, sha1(text.encode(), usedforsecurity=False).hexdigest()))
