"""A snapshot of a collection: what `why` and the blame of a suite compare a collection with later.

It is a manifest (`manifest_file.py`) of every point, in the order of point ids, as a series of zstd frames
(docs/reference/files.md). It is written frame by frame beside its final place.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from chunkproof.audit.manifest_file import (
    Entry,
    SnapshotHeader,
    SnapshotVector,
    check_lines,
    import_zstd,
    number_entries,
    open_manifest,
    pack_vector,
    parse_checked_line,
    write_end,
    write_line,
)
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import LockedError, lock_folder, private_files, replace_file
from chunkproof.collection.payload_map import PayloadMap, flatten
from chunkproof.collection.reader import Reader
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import Point, Vector

# Longer values are texts, which no filter names.
LONGEST_VALUE = 200
MOST_LISTED = 50


def hash_vector(vector: Vector) -> str:
    """Return the SHA-256 of a vector's 32-bit values."""
    return sha256(pack_vector(vector)).hexdigest()


def describe_point(point: Point, payloads: PayloadMap, *, texts: bool, vectors: bool) -> Entry:
    """Make the entry of a point as it is stored now; a text that cannot be read counts as an empty one."""
    text = payloads.find_text(point) or ""
    source = {name: payloads.value(name, point.payload) for name in ("document_id", "url")}
    return Entry(
        chunk_id=payloads.id_of(point),
        original_text=text if texts else None,
        original_sha256=None if texts else digest(text),
        metadata={name: value for name, value in source.items() if isinstance(value, str | int)} or None,
        point_id=point.id,
        payload=filterable_fields(point.payload, text),
        vector_sha256=None if point.vector is None else hash_vector(point.vector),
        vector=point.vector if vectors else None,
    )


def filterable_fields(payload: Mapping[str, Any], text: str | None = None) -> dict[str, Any]:
    """Return the fields of a payload that a filter can use, by their dotted paths: short values, and lists of them."""
    fields = ((name, value) for name, value in flatten(payload) if value is not None and value != text)
    return {name: value for name, value in fields if _is_short(value)}


def _is_short(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_LISTED and all(not isinstance(item, list) and _is_short(item) for item in value)
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_VALUE)


class Snapshot:
    """A snapshot on disk. It is read from start to end for each look-up, so that its size does not matter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, tuple[Entry, ...]] = {}

    @cached_property
    def header(self) -> SnapshotHeader:
        """Where it was taken, and what it keeps."""
        with self._lines() as lines:
            return SnapshotHeader.from_line(next(lines, b""), self.path)

    def entries(self) -> Iterator[Entry]:
        """Yield every point, in the order of point ids; raise `InvalidParameterError` when the file is not complete."""
        _ = self.header  # refuses another kind of file
        with self._lines() as lines:
            yield from (entry for entry, _ in check_lines(lines, self.path.name))

    def find(self, key: str) -> tuple[Entry, ...]:
        """Return the points with this chunk id, point id, document id or URL."""
        if key not in self._entries:
            self.prefetch([key])
        return self._entries[key]

    def prefetch(self, keys: Iterable[str]) -> None:
        """Look up many keys in one pass."""
        wanted = {key: _as_written(key) for key in keys if key not in self._entries}
        entries: dict[str, list[Entry]] = {key: [] for key in wanted}
        for line in self._points() if wanted else ():
            if any(part in line for part in wanted.values()):
                entry = parse_checked_line(line)
                for key in entry.keys & wanted.keys():
                    entries[key].append(entry)
        self._entries |= {key: tuple(some) for key, some in entries.items()}

    def find_text(self, text: str) -> tuple[Entry, ...]:
        """Return the points with exactly this text."""
        hashed = digest(text)
        marked = _as_written(text) if self.header.texts else hashed.encode()
        entries = (parse_checked_line(line) for line in self._points() if marked in line)
        return tuple(entry for entry in entries if entry.sha256 == hashed)

    def _points(self) -> Iterator[bytes]:
        _ = self.header  # refuses another kind of file
        with self._lines() as lines:
            for _, line in number_entries(lines, self.path):
                yield line

    @contextmanager
    def _lines(self) -> Iterator[Iterator[bytes]]:
        try:
            with open_manifest(self.path) as lines:
                yield lines
        except OSError as error:
            raise InvalidParameterError(f"{self.path}: {error.strerror or error}") from None


def _as_written(text: str) -> bytes:
    """Return a text as it is in a line of a manifest."""
    return write_line({"": text})[5:-3]


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Takes a snapshot of a collection, in a folder beside the file until it is done; an interrupted one begins again.

    What was read before may have changed since: a snapshot is of one state.
    """

    output: Path
    reader: Reader
    texts: bool = False
    vectors: bool = False
    on_progress: Callable[[int], None] = lambda _points: None

    def write(self) -> int:
        """Write the snapshot and return the number of points. The file appears only when it is complete."""
        folder = self.output.with_name(f".{self.output.name}.partial")
        try:
            with lock_folder(folder), private_files():
                try:
                    return self._write(folder / "part.zst")
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
        except LockedError:
            raise InvalidParameterError(f"{self.output} is being written by another process: wait for it") from None

    def _write(self, part: Path) -> int:
        zstd, header, payloads, count = import_zstd(), self._describe(), self.reader.payloads, 0
        with part.open("wb") as file:
            file.write(zstd.compress(write_line(header.model_dump())))
            for page in self.reader.pages(header.vector.name):
                points = (
                    describe_point(each, payloads, texts=self.texts, vectors=self.vectors) for each in page.points
                )
                if lines := b"".join(entry.to_line() for entry in points):
                    file.write(zstd.compress(lines))
                count += len(page.points)
                self.on_progress(len(page.points))
            file.write(zstd.compress(write_end(count)))
        with part.open("rb") as source, replace_file(self.output) as copy:
            shutil.copyfileobj(source, copy)
        return count

    def _describe(self) -> SnapshotHeader:
        config, embedder = self.reader.vector, self.reader.embedder
        return SnapshotHeader(
            collection=self.reader.name,
            host=self.reader.store.host,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            vector=SnapshotVector(name=config.name, size=config.size, distance=config.distance),
            model=embedder.model if embedder else None,
            texts=self.texts,
            vectors=self.vectors,
        )
