"""Find out what a source of `chunkproof manifest --from` is, and open it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chunkproof.audit.manifest import ZSTD_MAGIC, Entry
from chunkproof.audit.reader import Reader
from chunkproof.audit.snapshot import Snapshot
from chunkproof.errors import InvalidParameterError
from chunkproof.retrieval.services import Services
from chunkproof.runtime.local import new_deadline
from chunkproof_cli.addresses import open_address, parse_address
from chunkproof_cli.connections import open_services
from chunkproof_cli.options import Options
from chunkproof_cli.output import progress_bar
from chunkproof_cli.reports.audit.coverage import coverage_line
from chunkproof_cli.sources.documents import Folder
from chunkproof_cli.sources.frameworks import is_sqlite, read_docstore, read_records
from chunkproof_cli.sources.manifests import (
    Documents,
    Found,
    Shape,
    documents_of_docstore,
    entries_of_docstore,
    entries_of_documents,
    entries_of_records,
    entries_of_snapshot,
    locate_chunks,
    read_texts,
)
from chunkproof_cli.sources.snapshots import snapshot

DOCSTORE = "docstore.json"


@dataclass(frozen=True)
class Choice:
    """What `--from` and its options say."""

    name: str
    namespace: str | None = None
    api_key: str | None = None


@dataclass(frozen=True)
class Origin:
    """The entries of a source; `notes` is complete when all of them were read."""

    entries: Iterable[Entry]
    notes: Found


@contextmanager
def open_origin(choice: Choice, given: Options, shape: Shape, unreadable: list[str]) -> Iterator[Origin]:
    """Open what `--from` names: a path that exists, else a collection.

    Ids of points without a readable text are collected.
    """
    path, found = Path(choice.name), Found()
    if not path.exists():
        address = parse_address(choice.name, "--from")
        if address.url is None and ("/" in choice.name or path.suffix in (".json", ".sqlite", ".db")):
            raise InvalidParameterError(f"--from {choice.name}: no such file or folder")
        with open_address(address, given, choice.api_key) as services:
            reader = Reader(services, address.collection)
            total = services.store.describe(address.collection, new_deadline(services.settings)).points_count
            with progress_bar("Reading", total) as done:
                yield Origin(snapshot(reader, shape.fields, shape.hashed, done, unreadable), found)
        return
    if path.is_dir() and (path / DOCSTORE).is_file():
        path /= DOCSTORE
    if path.is_dir():
        folder = Folder(path)
        folder.files()  # raises for a folder without documents, before anything is read
        with open_services(given) as services:
            yield from _locate(services, given, shape, found, (str(path), folder.read(), lambda: folder.unread))
    elif is_zstd(path):
        yield Origin(entries_of_snapshot(Snapshot(path), shape, unreadable), found)
    elif is_sqlite(path):
        records = read_records(path, choice.namespace)
        with open_services(given) as services:
            reader = Reader(services, _collection(services, given))
            services.store.describe(reader.collection, new_deadline(services.settings))
            with progress_bar("Reading", None) as _:
                yield Origin(entries_of_records(records, reader, shape, found), found)
    else:
        nodes = read_docstore(path)
        if any(node.document is not None for node in nodes):
            yield Origin(entries_of_docstore(nodes, shape), found)
            return
        with open_services(given) as services:
            yield from _locate(services, given, shape, found, (str(path), documents_of_docstore(nodes), list))


def is_zstd(path: Path) -> bool:
    """Whether the file is compressed as a snapshot is."""
    with path.open("rb") as file:
        return file.read(len(ZSTD_MAGIC)) == ZSTD_MAGIC


def _locate(
    services: Services,
    given: Options,
    shape: Shape,
    found: Found,
    source: tuple[str, Documents, Callable[[], list[tuple[str, str]]]],
) -> Iterator[Origin]:
    with read_texts(services, _collection(services, given)) as texts:
        run, found.coverage = locate_chunks(texts, *source)
        found.notes.append(coverage_line(found.coverage))
        if found.coverage.stale:
            found.notes.append(f"{found.coverage.stale:,} chunks are in no source and not in the manifest")
        found.notes += [f"{each.name} was not read: {each.reason}" for each in found.coverage.unread]
        yield Origin(entries_of_documents(run, texts, shape), found)


def _collection(services: Services, given: Options) -> str:
    return given.collection or services.settings.collection
