"""A manifest, checked whole and brought into the order in which a scan returns points."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from heapq import heappush, heappushpop
from itertools import count
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic_core import from_json, to_json

from chunkproof.audit.manifest import Entry, entry_on, numbered, read_entry
from chunkproof.audit.sort import Sorter, neighbours_joined
from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError

SHOWN_PROBLEMS = 20
# At every read from a file, the thread that reads pages ahead may take over for milliseconds: few, large ones.
BUFFER = 1024 * 1024
COLUMNS = 6
CONFLICT = b"!"


class Expected(NamedTuple):
    """A chunk of the manifest, once; `conflict` when the manifest has it twice with different content.

    What every comparison needs stands on its line by itself; the entry is read only where more is wanted, which
    halves the time of an audit.
    """

    key: str
    chunk_id: str
    conflict: bool
    sha256: str
    metadata: Mapping[str, Any] | None
    line: bytes

    @property
    def entry(self) -> Entry:
        """All of it."""
        return _entry_of(self.line)

    @classmethod
    def on(cls, line: bytes) -> Self:
        """The chunk on a line of the prepared file."""
        key, chunk_id, conflict, sha256, metadata, _entry = line.split(b"\t", COLUMNS - 1)
        return cls(
            key.decode(),
            from_json(chunk_id),
            conflict == CONFLICT,
            sha256.decode(),
            from_json(metadata) if metadata else None,
            line,
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A manifest in order, in a file of its own."""

    path: Path
    entries: int
    chunks: int
    sha256: str

    def read(self, offset: int = 0) -> Iterator[tuple[int, Expected]]:
        """Each chunk from this byte on, with the byte that the next one begins at."""
        with self.path.open("rb", buffering=BUFFER) as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                yield offset, Expected.on(line)

    def known(self, ids: "set[bytes] | None") -> Iterator[tuple[bytes, Expected]]:
        """The chunks with these ids, as `id_key` writes them, or all; in no order of ids."""
        with self.path.open("rb", buffering=BUFFER) as file:
            for line in file:
                chunk_id = line.split(b"\t", 2)[1]
                if ids is None or chunk_id in ids:
                    yield chunk_id, Expected.on(line)


def point_key(point_id: PointId) -> str:
    """A text that sorts as Qdrant orders ids: integers by value, then UUIDs. Seen on a server and in local mode."""
    return f"0{point_id:020d}" if isinstance(point_id, int) else f"1{point_id}"


def point_of(key: str) -> PointId:
    """The reverse of `point_key`."""
    return int(key[1:]) if key[0] == "0" else key[1:]


def keyed(key: str, fields: Any) -> bytes:
    """A line that sorts by the key, and carries the fields."""
    return f"{key}\t{json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}\n".encode()


def id_key(chunk_id: str) -> str:
    """A chunk id without tabs and newlines, in an order of its own."""
    return encode_basestring_ascii(chunk_id)


def prepare(
    lines: Iterable[bytes],
    name: str,
    folder: Path,
    done: Callable[[int], None] = lambda _bytes: None,
) -> Prepared:
    """The manifest on these lines in order; `InvalidParameterError` lists the lines that are none."""
    ordered, facts = Sorter(folder), _Facts()
    try:
        for line in _checked(lines, name, facts, done):
            ordered.add(line)
        once = _once(ordered)
        if facts.has_points:  # the same id may stand at several points
            once = _resorted(_once(_resorted(once, folder), at=0), folder)
        path, written = folder / "manifest.sorted", count()
        with path.open("wb", buffering=BUFFER) as file:
            file.writelines(line for line, _ in zip(once, written, strict=False))
    finally:
        ordered.close()
    return Prepared(path, facts.entries, next(written), facts.hash.hexdigest())


def sampled(prepared: Prepared, size: int, name: str) -> Prepared:
    """So many of its chunks, drawn by a hash of their ids: the same ones every time."""
    if size >= prepared.chunks:
        return prepared
    largest: list[int] = []  # a heap of what was drawn, negated: its top is the first to go
    with prepared.path.open("rb") as lines:
        for line in lines:
            if len(largest) < size:
                heappush(largest, -_draw(line))
            else:
                heappushpop(largest, -_draw(line))
    path = prepared.path.with_name(f"{name}.sorted")
    with prepared.path.open("rb") as lines, path.open("wb") as file:
        file.writelines(line for line in lines if _draw(line) <= -largest[0])
    return replace(prepared, path=path, chunks=size)


def _draw(line: bytes) -> int:
    return int.from_bytes(sha256(line.split(b"\t", 2)[1]).digest()[:12], "big")


class _Facts:
    """What is learned of a manifest as it is read."""

    def __init__(self) -> None:
        self.entries = 0
        self.has_points = False
        self.hash = sha256()


def _checked(
    lines: Iterable[bytes], name: str, facts: _Facts, done: Callable[[int], None]
) -> Iterator[bytes]:
    """Each good line with its keys before it: the point's, the chunk's."""
    problems: list[str] = []
    more = 0
    for number, line in numbered(_hashed(lines, facts, done)):
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
            yield _columns(entry, line)
    if problems:
        raise InvalidParameterError(*problems, *([f"… and {more} more"] if more else []), *_hint(problems))
    if not facts.entries:
        raise InvalidParameterError(f"{name}: no chunks in it")


def _hashed(lines: Iterable[bytes], facts: _Facts, done: Callable[[int], None]) -> Iterator[bytes]:
    for line in lines:
        facts.hash.update(line)
        done(len(line))
        yield line


def _columns(entry: Entry, line: bytes) -> bytes:
    """Key of the point, id, conflict, hash, metadata, and the entry as it was: none of them but the last has a tab."""
    before = f"{point_key(entry.home)}\t{id_key(entry.chunk_id)}\t=\t{entry.sha256}\t".encode()
    metadata = to_json(entry.metadata) if entry.metadata else b""
    return b"%b%b\t%b\n" % (before, metadata, line.rstrip(b"\r\n"))


def _hint(problems: list[str]) -> list[str]:
    if any("text is not a known field" in problem for problem in problems):
        return ["Is it a chunks.jsonl? chunkproof manifest makes a manifest of it."]
    return []


def _once(lines: Iterable[bytes], at: int = 1) -> Iterator[bytes]:
    """Each chunk once: neighbours with the same id, in this column, become one, in conflict when they differ."""
    return neighbours_joined(lines, lambda line: line.split(b"\t", 2)[at], _as_one)


def _as_one(first: bytes, second: bytes) -> bytes:
    """One line for two entries of a chunk. The two keys in front come in either order: nothing here reads them."""
    before, after, conflict, rest = first.split(b"\t", 3)
    other_conflict = second.split(b"\t", 3)[2]
    same = CONFLICT not in (conflict, other_conflict) and _entry_of(first).says_the_same_as(_entry_of(second))
    return first if same else b"\t".join((before, after, CONFLICT, rest))


def _entry_of(line: bytes) -> Entry:
    return entry_on(line.split(b"\t", COLUMNS - 1)[-1])


def _resorted(lines: Iterable[bytes], folder: Path) -> Iterator[bytes]:
    """The lines with their first two keys changed about, and in the order of what is first then."""
    sorter = Sorter(folder)
    for line in lines:
        first, second, rest = line.split(b"\t", 2)
        sorter.add(b"\t".join((second, first, rest)))
    yield from sorter
