"""Check a manifest and sort it by point id, the order in which a scan returns points."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import heappush, heappushpop
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic_core import from_json, to_json

from chunkproof.audit.manifest import Entry, check_lines, parse_checked_line
from chunkproof.audit.sort import Sorter, merge_neighbours
from chunkproof.clients.ports import PointId

SORTED_FILE = "manifest.sorted"
MOVED_FILE = "moved.sorted"
# A read from a file lets the read-ahead thread run for milliseconds: few, large reads are faster.
BUFFER = 1024 * 1024
COLUMNS = 6
CONFLICT = b"!"
# The chunk is on the point of its key, under another id.
MOVED = b"~"


class ExpectedChunk(NamedTuple):
    """A chunk of the manifest; `conflict` when the manifest has it twice with different content.

    `moved` when it was found on its point by its text, which has another id.

    What every comparison needs has a column of its own in the line. The entry is parsed only where more is needed,
    which halves the time of an audit.
    """

    key: str
    chunk_id: str
    conflict: bool
    sha256: str
    metadata: Mapping[str, Any] | None
    line: bytes
    moved: bool = False

    @property
    def point_id(self) -> PointId:
        """The point that it is expected on."""
        return parse_point_key(self.key)

    @property
    def entry(self) -> Entry:
        """The whole entry, parsed anew."""
        return _parse_entry_column(self.line)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Parse a line of the sorted manifest."""
        key, chunk_id, conflict, sha256, metadata, _entry = line.split(b"\t", COLUMNS - 1)
        return cls(
            key.decode(),
            from_json(chunk_id),
            conflict == CONFLICT,
            sha256.decode(),
            from_json(metadata) if metadata else None,
            line,
            conflict == MOVED,
        )


@dataclass(frozen=True, slots=True)
class SortedManifest:
    """A checked manifest, sorted by point id, in a file; entries are its lines, chunks the different ids.

    Of the `presence_only` chunks, the text is unknown.
    """

    path: Path
    entries: int
    chunks: int
    sha256: str
    presence_only: int = 0

    def read(self, offset: int = 0) -> Iterator[tuple[int, ExpectedChunk]]:
        """Yield each chunk from this byte on, with the offset of the next one."""
        with self.path.open("rb", buffering=BUFFER) as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                yield offset, ExpectedChunk.from_line(line)

    def find(self, encoded_ids: "set[bytes] | None") -> Iterator[tuple[bytes, ExpectedChunk]]:
        """Yield the chunks with these ids (see `encode_id`), or all of them for None, in the order of points."""
        with self.path.open("rb", buffering=BUFFER) as file:
            for line in file:
                chunk_id = line.split(b"\t", 2)[1]
                if encoded_ids is None or chunk_id in encoded_ids:
                    yield chunk_id, ExpectedChunk.from_line(line)


def point_key(point_id: PointId) -> str:
    """Return a text that sorts as Qdrant orders point ids: integers by value, then UUIDs."""
    return f"0{point_id:020d}" if isinstance(point_id, int) else f"1{point_id}"


def parse_point_key(key: str) -> PointId:
    """Reverse `point_key`."""
    return int(key[1:]) if key[0] == "0" else key[1:]


def format_line(key: str, fields: Any) -> bytes:
    """Write a line that sorts by the key and carries the fields."""
    return f"{key}\t{json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}\n".encode()


def encode_id(chunk_id: str) -> str:
    """Write a chunk id without tabs and newlines, so that it can be a column."""
    return encode_basestring_ascii(chunk_id)


def prepare(
    lines: Iterable[bytes],
    name: str,
    folder: Path,
    on_read: Callable[[int], None] = lambda _bytes: None,
) -> SortedManifest:
    """Check the manifest on these lines and sort it; raise `InvalidParameterError` with all wrong lines."""
    by_point, digest, has_point_ids = Sorter(folder), sha256(), False

    def hash_lines() -> Iterator[bytes]:
        for line in lines:
            digest.update(line)
            on_read(len(line))
            yield line

    try:
        for entry, line in check_lines(hash_lines(), name):
            has_point_ids |= entry.point_id is not None
            by_point.add(_format_columns(entry, line))
        merged = _merge_by_id(by_point, column=1)
        if has_point_ids:  # then entries of one id may be at several points, and not next to each other
            by_id = _sort_by_second_column(merged, folder)
            merged = _sort_by_second_column(_merge_by_id(by_id, column=0), folder)
        path, chunks, presence_only = folder / SORTED_FILE, 0, 0
        with path.open("wb", buffering=BUFFER) as file:
            for line in merged:
                file.write(line)
                chunks += 1
                presence_only += not line.split(b"\t", 4)[3]
    finally:
        by_point.close()
    return SortedManifest(path, by_point.count, chunks, digest.hexdigest(), presence_only)


def draw_sample(manifest: SortedManifest, size: int, name: str) -> SortedManifest:
    """Draw chunks by a hash of their ids: the same ones every time."""
    if size >= manifest.chunks:
        return manifest
    largest: list[int] = []  # a heap of negated numbers: its top is the first to go
    with manifest.path.open("rb") as lines:
        for line in lines:
            if len(largest) < size:
                heappush(largest, -_hash_id(line))
            else:
                heappushpop(largest, -_hash_id(line))
    path = manifest.path.with_name(f"{name}.sorted")
    with manifest.path.open("rb") as lines, path.open("wb") as file:
        file.writelines(line for line in lines if _hash_id(line) <= -largest[0])
    return replace(manifest, path=path, chunks=size)


def move_chunks(manifest: SortedManifest, pairs: Iterable[bytes]) -> SortedManifest:
    """Return the manifest with each chunk that was matched by its text on the point where it is.

    A pair is the byte where the chunk's line starts, and its point.
    """
    by_offset = Sorter(manifest.path.parent)
    for each in pairs:
        by_offset.add(each)
    if not by_offset.count:
        return manifest
    path = manifest.path.with_name(MOVED_FILE)
    moved = iter(by_offset)
    pair: bytes | None = next(moved, None)
    offset = 0
    with manifest.path.open("rb", buffering=BUFFER) as lines, path.open("wb", buffering=BUFFER) as file:
        for line in lines:
            if pair is not None and int(pair.partition(b"\t")[0]) == offset:
                _, chunk_id, _, rest = line.split(b"\t", 3)
                key = point_key(from_json(pair.partition(b"\t")[2])).encode()
                file.write(b"\t".join((key, chunk_id, MOVED, rest)))
                pair = next(moved, None)
            else:
                file.write(line)
            offset += len(line)
    return replace(manifest, path=path)


def _hash_id(line: bytes) -> int:
    return int.from_bytes(sha256(line.split(b"\t", 2)[1]).digest()[:12], "big")


def _format_columns(entry: Entry, line: bytes) -> bytes:
    """Write point key, chunk id, conflict, hash, metadata and the entry; only the last may contain tabs."""
    point, chunk_id = point_key(entry.expected_point_id), encode_id(entry.chunk_id)
    metadata = to_json(entry.metadata) if entry.metadata else b""
    return f"{point}\t{chunk_id}\t=\t{entry.sha256}\t".encode() + metadata + b"\t" + line


def _merge_by_id(lines: Iterable[bytes], column: int) -> Iterator[bytes]:
    """Merge neighbours with the same chunk id, which is in this column."""
    return merge_neighbours(lines, lambda line: line.split(b"\t", 2)[column], _merge_lines)


def _merge_lines(first: bytes, second: bytes) -> bytes:
    """Keep the first line, marked as a conflict when the two differ; the first two columns come in either order."""
    left, right, conflict, rest = first.split(b"\t", 3)
    has_conflict = CONFLICT in (conflict, second.split(b"\t", 3)[2])
    if not has_conflict and _parse_entry_column(first).has_same_content_as(_parse_entry_column(second)):
        return first
    return b"\t".join((left, right, CONFLICT, rest))


def _parse_entry_column(line: bytes) -> Entry:
    return parse_checked_line(line.split(b"\t", COLUMNS - 1)[-1])


def _sort_by_second_column(lines: Iterable[bytes], folder: Path) -> Iterator[bytes]:
    """Swap the first two columns, and sort."""
    sorter = Sorter(folder)
    for line in lines:
        first, second, rest = line.split(b"\t", 2)
        sorter.add(b"\t".join((second, first, rest)))
    yield from sorter
