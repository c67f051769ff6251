"""A manifest, checked whole and brought into the order in which a scan returns points."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any, Self

from chunkproof.audit.manifest import Entry, read_entry
from chunkproof.audit.sorting import Sorter
from chunkproof.clients import PointId
from chunkproof.errors import InvalidParameterError

SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Expected:
    """A chunk of the manifest, once; `conflict` when the manifest has it twice with different content."""

    entry: Entry
    key: str
    conflict: bool = False

    @classmethod
    def of(cls, entry: Entry, *, conflict: bool = False) -> Self:
        """The chunk with its place in the order."""
        return cls(entry, point_key(entry.home), conflict)

    def fields(self) -> list[Any]:
        """All of it, the id first, so that equal ids stand together when sorted."""
        e = self.entry
        return [e.chunk_id, e.original_text, e.original_sha256, e.metadata, e.point_id, self.conflict]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> Self:
        """The reverse of `fields`."""
        chunk_id, text, digest, metadata, point_id, conflict = fields
        return cls.of(Entry(chunk_id, text, digest, metadata, point_id), conflict=conflict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A manifest in order, in a file of its own."""

    path: Path
    entries: int
    chunks: int
    sha256: str

    def read(self, offset: int = 0) -> Iterator[tuple[int, Expected]]:
        """Each chunk from this byte on, with the byte that the next one begins at."""
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                yield offset, expected_on(line)


def point_key(point_id: PointId) -> str:
    """A text that sorts as Qdrant orders ids: integers by value, then UUIDs. Seen on a server and in local mode."""
    return f"0{point_id:020d}" if isinstance(point_id, int) else f"1{point_id}"


def keyed(key: str, fields: Any) -> bytes:
    """A line that sorts by the key, and carries the fields."""
    return f"{key}\t{json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}\n".encode()


def id_key(chunk_id: str) -> str:
    """A chunk id without tabs and newlines, in an order of its own."""
    return json.dumps(chunk_id)


def expected_on(line: bytes) -> Expected:
    """The chunk on a line of the prepared file."""
    key, _, fields = line.partition(b"\t")
    chunk_id, text, digest, metadata, point_id, conflict = json.loads(fields)
    return Expected(Entry(chunk_id, text, digest, metadata, point_id), key.decode(), conflict)


def prepare(
    lines: Iterable[bytes],
    name: str,
    folder: Path,
    done: Callable[[int], None] = lambda _bytes: None,
) -> Prepared:
    """The manifest on these lines in order; `InvalidParameterError` lists the lines that are none."""
    by_point, facts = Sorter(folder), _Facts()
    try:
        for entry in _checked(lines, name, facts, done):
            expected = Expected.of(entry)
            by_point.add(keyed(expected.key, expected.fields()))
        ordered = _once(by_point)
        if facts.has_points:  # the same id may stand at several points
            ordered = _once(_resorted(_once(_resorted(ordered, folder, _by_id)), folder, _by_key))
        path, chunks = folder / "manifest.sorted", 0
        with path.open("wb") as file:
            for chunk in ordered:
                file.write(keyed(chunk.key, chunk.fields()))
                chunks += 1
    finally:
        by_point.close()
    return Prepared(path, facts.entries, chunks, facts.hash.hexdigest())


def sampled(prepared: Prepared, size: int, name: str) -> Prepared:
    """So many of its chunks, drawn by a hash of their ids: the same ones every time."""
    if size >= prepared.chunks:
        return prepared
    largest: list[int] = []  # a heap of what was drawn, negated: its top is the first to go
    for _, expected in prepared.read():
        drawn = -_draw(expected)
        if len(largest) < size:
            heappush(largest, drawn)
        else:
            heappushpop(largest, drawn)
    path = prepared.path.with_name(f"{name}.sorted")
    with path.open("wb") as file:
        for _, expected in prepared.read():
            if _draw(expected) <= -largest[0]:
                file.write(keyed(expected.key, expected.fields()))
    return replace(prepared, path=path, chunks=size)


def _draw(expected: Expected) -> int:
    return int.from_bytes(sha256(expected.entry.chunk_id.encode()).digest()[:12], "big")


class _Facts:
    """What is learned of a manifest as it is read."""

    def __init__(self) -> None:
        self.entries = 0
        self.has_points = False
        self.hash = sha256()


def _checked(
    lines: Iterable[bytes], name: str, facts: _Facts, done: Callable[[int], None]
) -> Iterator[Entry]:
    problems: list[str] = []
    more = 0
    for number, line in enumerate(lines, start=1):
        facts.hash.update(line)
        done(len(line))
        if not line.strip():
            continue
        facts.entries += 1
        try:
            entry = read_entry(line)
        except InvalidParameterError as error:
            room = SHOWN_PROBLEMS - len(problems)
            problems += [f"{name}:{number}: {message}" for message in error.messages[:room]]
            more += max(0, len(error.messages) - room)
            continue
        facts.has_points |= entry.point_id is not None
        if not problems:
            yield entry
    if problems:
        raise InvalidParameterError(*problems, *([f"… and {more} more"] if more else []), *_hint(problems))
    if not facts.entries:
        raise InvalidParameterError(f"{name}: no chunks in it")


def _hint(problems: list[str]) -> list[str]:
    if any("text is not a known field" in problem for problem in problems):
        return ["Is it a chunks.jsonl? chunkproof manifest makes a manifest of it."]
    return []


def _once(lines: Iterable[bytes]) -> Iterator[Expected]:
    """Each chunk once: neighbours with the same id become one, in conflict when they differ."""
    last: Expected | None = None
    for line in lines:
        found = Expected.from_fields(json.loads(line.partition(b"\t")[2]))
        if last is not None and last.entry.chunk_id == found.entry.chunk_id:
            same = last.entry.says_the_same_as(found.entry) and not (last.conflict or found.conflict)
            last = Expected(last.entry, last.key, conflict=not same)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last


def _resorted(chunks: Iterable[Expected], folder: Path, key: Callable[[Expected], str]) -> Iterator[bytes]:
    sorter = Sorter(folder)
    for expected in chunks:
        sorter.add(keyed(key(expected), expected.fields()))
    yield from sorter


def _by_id(expected: Expected) -> str:
    return id_key(expected.entry.chunk_id)


def _by_key(expected: Expected) -> str:
    return expected.key
