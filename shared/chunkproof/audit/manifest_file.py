"""Manifests: files of what should be, or was, stored. One JSON object per line for each chunk, plain, gzip or zstd.

Users and pipelines write an id with a text or its hash. A snapshot (`snapshot_file.py`) is a manifest that was taken
from a collection: its entries have payloads and vectors as well, a header comes first and a count at the end.
"""

import gzip
import io
import json
import os
import re
import sys
from array import array
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, JsonValue, ValidationError, field_validator

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import MAX_PROBLEMS, read_lines, replace_file
from chunkproof.collection.lookup import parse_point_id, point_id_for
from chunkproof.contract import Model, Request, read_json
from chunkproof.contract.model import MAX_ID, BrokenRules, ParseContext
from chunkproof.proof.integrity import digest
from chunkproof.stores.store_port import PointId, Vector

STDIN = Path("-")
# Bytes that are read from a pipe at a time.
PIPE_BUFFER = 1024 * 1024
MAX_SHOWN_PROBLEMS = 20
LINE = "The line"  # what messages call a line of a manifest
READING = ParseContext(subject=LINE)
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
FORMAT_VERSION = "1.0"
_HEADER_START, _END_START = b'{"format"', b'{"end"'
_SHA256 = re.compile(r"[0-9a-f]{64}", re.I)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # without it, no text of a line can have a lone surrogate
_USUAL = dict.fromkeys(("chunk_id", "original_text", "original_sha256", "metadata"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One chunk as it should be, or was, stored.

    `point_id` is set where it is not the point that `load` would use, and in a snapshot always. Of a chunk that is
    only `present`, the text is unknown: any will do. Only a snapshot has `payload`, the fields that a filter can use
    by their dotted paths, and the vector or its hash.
    """

    chunk_id: str
    original_text: str | None = None
    original_sha256: str | None = None
    metadata: Mapping[str, Any] | None = None
    point_id: PointId | None = None
    present: bool | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    vector_sha256: str | None = None
    vector: Vector | None = None

    @property
    def expected_point_id(self) -> PointId:
        """The point to look at first."""
        return point_id_for(self.chunk_id) if self.point_id is None else self.point_id

    @property
    def sha256(self) -> str:
        """The SHA-256 of the original, given or computed; empty where the text is unknown."""
        return self.original_sha256 or "" if self.original_text is None else digest(self.original_text)

    @property
    def document_id(self) -> str | None:
        """The id of its document, if the entry names one."""
        value = (self.metadata or {}).get("document_id")
        return str(value) if isinstance(value, str | int) else None

    @property
    def url(self) -> str | None:
        """The URL of its document, if the entry names one."""
        value = (self.metadata or {}).get("url")
        return value if isinstance(value, str) else None

    @property
    def keys(self) -> frozenset[str]:
        """Everything that an expectation may name the chunk by."""
        names = (self.chunk_id, str(self.expected_point_id), self.document_id, self.url)
        return frozenset(name for name in names if name)

    def has_same_content_as(self, other: "Entry") -> bool:
        """Whether both expect the same text and metadata."""
        return self.sha256 == other.sha256 and (self.metadata or {}) == (other.metadata or {})

    def to_line(self) -> bytes:
        """Write the entry as a line of a manifest."""
        fields = {name: getattr(self, name) for name in ManifestLine.model_fields}
        if self.vector is not None:
            fields["vector"] = b64encode(pack_vector(self.vector)).decode()
        return write_line({name: value for name, value in fields.items() if value is not None and value != {}})


class ManifestLine(Request):
    """A line of a manifest, read strictly: every broken rule has a message."""

    chunk_id: str
    point_id: int | str | None = None
    original_text: str | None = None
    original_sha256: str | None = None
    present: Literal[True] | None = None
    metadata: dict[str, JsonValue] | None = None
    payload: dict[str, JsonValue] | None = None
    vector_sha256: str | None = None
    vector: str | None = None

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """Require exactly one original to compare with."""
        originals = [name for name in ("original_text", "original_sha256", "present") if fields.get(name) is not None]
        if len(originals) == 1:
            return []
        return ["Give original_text or original_sha256, one of them; present: true where the text is unknown"]

    @field_validator("chunk_id")
    @classmethod
    def _check_chunk_id(cls, chunk_id: str) -> str:
        if not chunk_id.strip() or len(chunk_id) > MAX_ID:
            raise BrokenRules(f"chunk_id must have 1 to {MAX_ID} characters")
        return chunk_id

    @field_validator("point_id")
    @classmethod
    def _check_point_id(cls, point_id: PointId | None) -> PointId | None:
        if point_id is not None and parse_point_id(str(point_id)) is None:
            raise BrokenRules("point_id must be an unsigned integer or a UUID")
        return point_id

    @field_validator("original_sha256")
    @classmethod
    def _check_sha256(cls, value: str | None) -> str | None:
        if value is not None and not _SHA256.fullmatch(value):
            raise BrokenRules("original_sha256 must be 64 hexadecimal digits")
        return value

    @field_validator("vector")
    @classmethod
    def _check_vector(cls, value: str | None) -> str | None:
        try:
            array("f", b64decode(value or "", validate=True))
        except ValueError:
            raise BrokenRules("vector must be 32-bit values in base64") from None
        return value


class SnapshotVector(Model):
    """The vector that searches use."""

    name: str
    size: int
    distance: str


class SnapshotHeader(Model):
    """The first line of a snapshot: where it was taken, and what it keeps."""

    format: Literal["chunkproof-snapshot"] = "chunkproof-snapshot"
    version: str = FORMAT_VERSION
    collection: str
    host: str
    created_at: str
    vector: SnapshotVector
    model: str | None = Field(description="The model that queries were embedded with")
    texts: bool = Field(description="Whether texts are kept in full, or only their hashes")
    vectors: bool = Field(description="Whether vectors are kept in full, or only their hashes")

    @classmethod
    def from_line(cls, line: bytes, name: object) -> "SnapshotHeader":
        """Parse the first line of a snapshot."""
        try:
            header = cls.model_validate_json(line, extra="ignore")
        except ValidationError:
            raise InvalidParameterError(f"{name} is not a snapshot: chunkproof snapshot -o FILE writes one") from None
        if header.version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
            raise InvalidParameterError(f"{name} has format {header.version}, this Chunkproof reads {FORMAT_VERSION}")
        return header


def pack_vector(vector: Vector) -> bytes:
    """Return the 32-bit values of a vector."""
    return array("f", vector).tobytes()


def write_line(document: Mapping[str, Any]) -> bytes:
    """Write one line of a manifest."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def write_end(points: int) -> bytes:
    """Write the last line of a snapshot, which shows that the file is complete."""
    return write_line({"end": True, "points": points})


def find_manifest(name: str) -> Path:
    """Return the path of a manifest: a file, a pipe, or `-` for standard input."""
    path = Path(name)
    if path != STDIN and not path.exists():
        raise InvalidParameterError(f"{path}: no such file")
    if path.is_dir():
        raise InvalidParameterError(f"{path} is a folder, not a manifest")
    return path


def manifest_name(path: Path) -> str:
    """Return how reports and messages call a manifest: by its file name, if it has one."""
    if path in (STDIN, Path("/dev/stdin")):
        return "standard input"
    return path.name if path.is_file() and not path.absolute().is_relative_to("/dev") else "a pipe"


@contextmanager
def open_manifest(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a manifest, compressed or not, and yield its lines; raise `InvalidParameterError` when it is damaged.

    It is opened once and read from start to end, so a pipe can be read as well.
    """
    raw = nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb")
    with raw as stream, decompress_lines(stream) as file:
        yield read_lines(file, str(path))


@contextmanager
def create_manifest(path: Path) -> Iterator[IO[bytes]]:
    """Create a manifest, compressed according to its extension; it appears only when it is complete."""
    with replace_file(path) as target, _compress(target, path.suffix) as file:
        yield file


def size_in_megabytes(path: Path) -> int | None:
    """Return how much there is to read; None when that is unknown: it is compressed, or a pipe."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        magic = file.read(4)
    return None if magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC else int(path.stat().st_size / 1e6)


def hash_manifest(path: Path) -> str:
    """Return the SHA-256 of its lines."""
    hashed = sha256()
    with open_manifest(path) as lines:
        for line in lines:
            hashed.update(line)
    return hashed.hexdigest()


def number_entries(lines: Iterable[bytes], name: object) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is an entry, with its number; raise `InvalidParameterError` for an incomplete snapshot."""
    is_snapshot, points, count = False, None, 0
    for number, raw in enumerate(lines, 1):
        line = raw.removeprefix(BOM_UTF8) if number == 1 else raw
        if not line.strip():
            continue
        if number == 1 and line.startswith(_HEADER_START):
            is_snapshot = bool(SnapshotHeader.from_line(line, name))
        elif is_snapshot and line.startswith(_END_START):
            end = read_json(line, LINE)
            points = end.get("points") if isinstance(end, dict) else None
            break
        else:
            count += 1
            yield number, line
    if is_snapshot and points != count:
        raise InvalidParameterError(f"{name} is not complete: take the snapshot again")


def check_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[Entry, bytes]]:
    """Yield each entry with its line; at the end, raise `InvalidParameterError` if lines were wrong."""
    problems: list[str] = []
    unshown = 0
    is_empty = True
    for number, line in number_entries(lines, name):
        is_empty = False
        try:
            entry = parse_entry(line)
        except InvalidParameterError as error:
            room = MAX_SHOWN_PROBLEMS - len(problems)
            problems += [f"{name}:{number}: {message}" for message in error.messages[:room]]
            unshown += max(0, len(error.messages) - room)
            if unshown > MAX_PROBLEMS:  # it is no manifest
                break
            continue
        if not problems:
            yield entry, line.rstrip(b"\r\n") + b"\n"
    if problems:
        more = [f"… and {unshown} more"] if unshown else []
        if any("text is not a known field" in problem for problem in problems):
            more.append("If it is a chunks.jsonl, run chunkproof manifest to make a manifest from it.")
        raise InvalidParameterError(*problems, *more)
    if is_empty:
        raise InvalidParameterError(f"{name}: the manifest has no chunks")


def parse_entry(line: bytes) -> Entry:
    """Parse a line; raise `InvalidParameterError` with everything that is wrong with it."""
    fields = read_json(line, LINE)
    if not _is_usual(fields) or _SURROGATE.search(line):
        fields = vars(ManifestLine.model_validate(fields, context=READING))
    return _make_entry(fields)


def _is_usual(fields: Any) -> bool:
    """Whether a line surely breaks no rule of `ManifestLine`, whose checks take four times as long for most lines."""
    if type(fields) is not dict or not fields.keys() <= _USUAL.keys():  # another class has names twice
        return False
    chunk_id, text, hashed, metadata = map(fields.get, _USUAL)
    is_hash = type(hashed) is str and text is None and _SHA256.fullmatch(hashed) is not None
    has_id = type(chunk_id) is str and 0 < len(chunk_id.strip()) <= len(chunk_id) <= MAX_ID
    is_flat = type(metadata) is dict and {str, int, float, bool, type(None)}.issuperset(map(type, metadata.values()))
    return has_id and (is_hash or (type(text) is str and hashed is None)) and (is_flat or metadata is None)


def parse_checked_line(line: bytes) -> Entry:
    """Parse a line that `parse_entry` has accepted before, or that a snapshot has, without checking it again."""
    return _make_entry(json.loads(line))


def _make_entry(fields: Mapping[str, Any]) -> Entry:
    point_id, original_sha256, packed = fields.get("point_id"), fields.get("original_sha256"), fields.get("vector")
    return Entry(
        chunk_id=fields["chunk_id"],
        original_text=fields.get("original_text"),
        original_sha256=original_sha256.lower() if original_sha256 else None,
        metadata=fields.get("metadata") or None,
        point_id=None if point_id is None else parse_point_id(str(point_id)),
        present=fields.get("present"),
        payload=fields.get("payload") or {},
        vector_sha256=fields.get("vector_sha256"),
        vector=None if packed is None else tuple(array("f", b64decode(packed))),
    )


@contextmanager
def decompress_lines(stream: IO[bytes]) -> Iterator[Any]:
    """Yield a stream decompressed if it is gzip or zstd, with what it is read from as `packed`; else as it is."""
    packed = _Prefixed(magic := stream.read(4), stream)
    buffered = io.BufferedReader(packed, PIPE_BUFFER)
    if magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC:
        module = import_zstd() if magic == ZSTD_MAGIC else gzip
        with module.open(buffered, "rb") as file:
            file.packed = packed
            yield file
    elif stream.seekable():
        stream.seek(-len(magic), os.SEEK_CUR)
        yield stream
    else:
        yield buffered


class _Prefixed(io.RawIOBase):
    """A stream after the bytes that have been read from it already; it counts its bytes."""

    def __init__(self, prefix: bytes, stream: IO[bytes]) -> None:
        self._prefix = prefix
        self._stream = stream
        self.count = 0
        self.most_lines = 4 if prefix == ZSTD_MAGIC else 1  # the shortest have 2.3 and 0.4, when their ids count up

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._prefix or self._stream.read(len(buffer))
        taken, self._prefix = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(taken)] = taken
        self.count += len(taken)
        return len(taken)


def _compress(target: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        # Without a date and a name, the same chunks always make the same file.
        return gzip.GzipFile("", "wb", compresslevel=6, fileobj=target, mtime=0)
    if suffix in (".zst", ".zstd"):
        return import_zstd().open(target, "wb")
    return nullcontext(target)


def import_zstd() -> Any:
    """Return the module for zstd: Python's own from 3.14 on."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd
