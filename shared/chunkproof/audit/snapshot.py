"""A snapshot of a collection: what `why` and the blame of a suite compare a collection with later.

The file is a series of zstd frames (docs/reference/files.md): a header line, a line for each point in the order of
point ids, and a last line that shows that the file is complete. It is written frame by frame beside its final place,
so that an interrupted snapshot goes on where it stopped.
"""

import json
import os
import shutil
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from chunkproof.audit.manifest import cannot_decompress, read_lines
from chunkproof.audit.manifest_files import import_zstd
from chunkproof.audit.reader import CALL_MS, Reader
from chunkproof.clients.ports import Point, PointId, Vector
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, InvalidParameterError
from chunkproof.files import LOCK_FILE, LockedError, lock_folder, private_files, replace_file
from chunkproof.models import Model
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.payload import PayloadMap, flatten
from chunkproof.retrieval.services import choose_vector

FORMAT_VERSION = "1.0"
STATE_FILE, PART_FILE = "state.json", "part.zst"
# Longer values are texts, which no filter names.
LONGEST_VALUE = 200
MOST_LISTED = 50


class SnapshotVector(Model):
    """The vector that searches use."""

    name: str
    size: int
    distance: str


class Header(Model):
    """What a snapshot is of, and what it keeps."""

    format: Literal["chunkproof-snapshot"] = "chunkproof-snapshot"
    version: str = FORMAT_VERSION
    collection: str
    host: str
    created_at: str
    vector: SnapshotVector
    model: str | None = Field(description="The model that queries were embedded with")
    texts: bool = Field(description="Whether texts are kept in full, or only their hashes")
    vectors: bool = Field(description="Whether vectors are kept in full, or only their hashes")


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A point as it was; `text` and `vector` are None where the snapshot keeps hashes, or the point had none.

    `payload` has the fields that a filter can use, by their dotted paths.
    """

    point_id: PointId
    chunk_id: str
    text_sha256: str | None
    vector_sha256: str | None
    payload: Mapping[str, Any]
    document_id: str | None = None
    url: str | None = None
    text: str | None = None
    vector: tuple[float, ...] | None = None

    def to_line(self) -> bytes:
        """Write the entry as a line of a snapshot."""
        line = {
            "id": self.point_id,
            "chunk_id": self.chunk_id,
            "document_id": self.document_id,
            "url": self.url,
            "text_sha256": self.text_sha256,
            "vector_sha256": self.vector_sha256,
            "payload": dict(self.payload),
            "text": self.text,
            "vector": None if self.vector is None else b64encode(_pack(self.vector)).decode(),
        }
        return _to_line({name: value for name, value in line.items() if value is not None})

    @classmethod
    def from_line(cls, line: bytes) -> "SnapshotEntry":
        """Read a line of a snapshot."""
        found = json.loads(line)
        packed = found.get("vector")
        return cls(
            point_id=found["id"],
            chunk_id=found["chunk_id"],
            text_sha256=found.get("text_sha256"),
            vector_sha256=found.get("vector_sha256"),
            payload=found.get("payload", {}),
            document_id=found.get("document_id"),
            url=found.get("url"),
            text=found.get("text"),
            vector=None if packed is None else tuple(array("f", b64decode(packed))),
        )

    @property
    def keys(self) -> frozenset[str]:
        """Everything that an expectation may name it by."""
        named = (self.chunk_id, str(self.point_id), self.document_id, self.url)
        return frozenset(key for key in named if key)


def hash_vector(vector: Vector) -> str:
    """Return the SHA-256 of a vector's 32-bit values."""
    return sha256(_pack(vector)).hexdigest()


def make_entry(point: Point, payloads: PayloadMap, *, texts: bool, vectors: bool) -> SnapshotEntry:
    """Describe a point as it is stored now."""
    try:
        text: str | None = payloads.text_of(point)
    except CorruptChunkError:
        text = None
    document, url = (payloads.value(field, point.payload) for field in ("document_id", "url"))
    return SnapshotEntry(
        point_id=point.id,
        chunk_id=payloads.id_of(point),
        text_sha256=None if text is None else digest(text),
        vector_sha256=None if point.vector is None else hash_vector(point.vector),
        payload=filterable_fields(point.payload, text),
        document_id=str(document) if isinstance(document, str | int) else None,
        url=url if isinstance(url, str) else None,
        text=text if texts else None,
        vector=point.vector if vectors else None,
    )


def filterable_fields(payload: Mapping[str, Any], text: str | None = None) -> dict[str, Any]:
    """Return the fields of a payload that a filter can use, by their dotted paths: short values, and lists of them."""
    found = ((name, value) for name, value in flatten(payload) if value is not None and value != text)
    return {name: value for name, value in found if _is_short(value)}


def _is_short(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MOST_LISTED and all(not isinstance(item, list) and _is_short(item) for item in value)
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_VALUE)


class Snapshot:
    """A snapshot on disk. It is read from start to end for each look-up, so that its size does not matter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[str, tuple[SnapshotEntry, ...]] = {}

    @cached_property
    def header(self) -> Header:
        """What it is of."""
        with self._lines() as lines:
            return _read_header(next(lines, b""), self.path)

    def entries(self) -> Iterator[SnapshotEntry]:
        """Yield every point, in the order of point ids; raise `InvalidParameterError` when the file is not complete."""
        for line in self._points():
            yield SnapshotEntry.from_line(line)

    def find(self, key: str) -> tuple[SnapshotEntry, ...]:
        """Return the points with this chunk id, point id, document id or URL."""
        if key not in self._found:
            self.prefetch([key])
        return self._found[key]

    def prefetch(self, keys: Iterable[str]) -> None:
        """Look up many keys in one pass."""
        wanted = {key: json.dumps(key, ensure_ascii=False)[1:-1].encode() for key in keys if key not in self._found}
        found: dict[str, list[SnapshotEntry]] = {key: [] for key in wanted}
        for line in self._points() if wanted else ():
            if any(part in line for part in wanted.values()):
                entry = SnapshotEntry.from_line(line)
                for key in entry.keys & wanted.keys():
                    found[key].append(entry)
        self._found |= {key: tuple(entries) for key, entries in found.items()}

    def find_text(self, text: str) -> tuple[SnapshotEntry, ...]:
        """Return the points with exactly this text."""
        hashed = digest(text)
        marked = hashed.encode()
        entries = (SnapshotEntry.from_line(line) for line in self._points() if marked in line)
        return tuple(entry for entry in entries if entry.text_sha256 == hashed)

    def _points(self) -> Iterator[bytes]:
        count, end = 0, None
        with self._lines() as lines:
            _read_header(next(lines, b""), self.path)
            for line in lines:
                if line.startswith(b'{"end"'):
                    end = json.loads(line)
                    break
                count += 1
                yield line
        if end is None or end.get("points") != count:
            raise InvalidParameterError(f"{self.path} is not complete: take the snapshot again")

    @contextmanager
    def _lines(self) -> Iterator[Iterator[bytes]]:
        zstd = import_zstd()
        try:
            with zstd.open(self.path, "rb") as file:
                yield read_lines(file, str(self.path))
        except (zstd.ZstdError, EOFError) as error:
            raise cannot_decompress(self.path, error) from None
        except OSError as error:
            raise InvalidParameterError(f"{self.path}: {error.strerror or error}") from None


def _read_header(line: bytes, path: Path) -> Header:
    try:
        header = Header.model_validate_json(line, extra="ignore")
    except ValidationError:
        raise InvalidParameterError(f"{path} is not a snapshot: chunkproof snapshot -o FILE writes one") from None
    if header.version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise InvalidParameterError(f"{path} has format {header.version}, this Chunkproof reads {FORMAT_VERSION}")
    return header


class _State(Model):
    """How far an interrupted snapshot has come."""

    header: Header
    next_point: int | str | None = None
    length: int = 0
    points: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Takes a snapshot of a collection; what an interrupted one has written is kept in `folder` until it is done."""

    output: Path
    reader: Reader
    texts: bool = False
    vectors: bool = False
    restart: bool = False
    on_progress: Callable[[int], None] = lambda _points: None
    on_resume: Callable[[int], None] = lambda _points: None

    @property
    def folder(self) -> Path:
        """The folder of an unfinished snapshot, beside the file."""
        return self.output.with_name(f".{self.output.name}.partial")

    def write(self) -> int:
        """Write the snapshot and return the number of points. The file appears only when it is complete."""
        try:
            with lock_folder(self.folder), private_files():
                return self._write()
        except LockedError:
            raise InvalidParameterError(f"{self.output} is being written by another process: wait for it") from None

    def _write(self) -> int:
        header = self._describe()
        state = self._resume(header) or _State(header=header)
        zstd, part = import_zstd(), self.folder / PART_FILE
        with part.open("r+b" if part.exists() else "w+b") as file:
            file.truncate(state.length)
            file.seek(0, os.SEEK_END)
            if not state.length:
                file.write(zstd.compress(_to_line(header.model_dump())))
                state = self._save(state, file)
            else:
                self.on_resume(state.points)
            self.on_progress(state.points)
            if state.next_point is not None or not state.points:
                state = self._add_points(state, file)
            file.write(zstd.compress(_to_line({"end": True, "points": state.points})))
            file.flush()
            os.fsync(file.fileno())
        self._publish(part)
        for name in (STATE_FILE, LOCK_FILE):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()
        return state.points

    def _publish(self, part: Path) -> None:
        """Move the file to its place in one step; a device, or a place on another disk, gets a copy."""
        target = Path(os.path.realpath(self.output))
        is_special = target.exists() and not target.is_file()
        if is_special or target.parent.stat().st_dev != part.stat().st_dev:
            with part.open("rb") as source, replace_file(self.output) as copy:
                shutil.copyfileobj(source, copy)
            part.unlink()
        else:
            part.replace(target)

    def _add_points(self, state: _State, file: Any) -> _State:
        zstd, payloads = import_zstd(), self.reader.payloads
        for page in self.reader.pages(state.next_point, with_vector=state.header.vector.name):
            entries = (make_entry(point, payloads, texts=self.texts, vectors=self.vectors) for point in page.points)
            if lines := b"".join(entry.to_line() for entry in entries):
                file.write(zstd.compress(lines))
            points = state.points + len(page.points)
            state = self._save(state.model_copy(update={"next_point": page.next_id, "points": points}), file)
            self.on_progress(len(page.points))
        return state

    def _save(self, state: _State, file: Any) -> _State:
        file.flush()
        state = state.model_copy(update={"length": file.tell()})
        new = self.folder / f"{STATE_FILE}.new"
        new.write_text(state.model_dump_json(), "utf-8")
        new.replace(self.folder / STATE_FILE)
        return state

    def _describe(self) -> Header:
        services, deadline = self.reader.services, Deadline(CALL_MS)
        vectors = services.store.describe(self.reader.collection, deadline).vectors
        config = choose_vector(vectors, services.settings.vector_name, self.reader.collection)
        embedder = services.embedder_of(self.reader.collection)
        return Header(
            collection=self.reader.collection,
            host=services.store.host,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            vector=SnapshotVector(name=config.name, size=config.size, distance=config.distance),
            model=embedder.model if embedder else None,
            texts=self.texts,
            vectors=self.vectors,
        )

    def _resume(self, now: Header) -> _State | None:
        """Return the state of an interrupted snapshot with the same options."""
        path, part = self.folder / STATE_FILE, self.folder / PART_FILE
        if self.restart or not path.exists() or not part.exists():  # without the part, the snapshot was complete
            return None
        try:
            state = _State.model_validate_json(path.read_bytes(), strict=False)
        except (ValidationError, OSError):
            raise InvalidParameterError(f"{path} cannot be read: start again with --restart") from None
        differing = [
            name
            for name in Header.model_fields
            if name != "created_at" and getattr(now, name) != getattr(state.header, name)
        ]
        if differing:
            raise InvalidParameterError(
                f"The interrupted snapshot in {self.folder} has another {differing[0]}: "
                "finish it with the same options, or start again with --restart"
            )
        if part.stat().st_size < state.length:
            raise InvalidParameterError(f"{part} has changed since it was interrupted: start again with --restart")
        return state


def _pack(vector: Vector) -> bytes:
    return array("f", vector).tobytes()


def _to_line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
