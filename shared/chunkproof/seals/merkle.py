"""Merkle trees as RFC 9162 defines them, kept as C2SP tlog-tiles in a folder or a bucket.

    tile/LEVEL/INDEX          256 hashes; INDEX.p/WIDTH has the first WIDTH of a tile that is not full
    tile/entries/INDEX        256 entries, each after its length in two bytes

Files are never changed, only added: a reader of an older tree finds all of its files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from time import time

from chunkproof.base.errors import InvalidParameterError, NotFoundError
from chunkproof.base.files import LockedError, lock_folder, replace_file
from chunkproof.base.request import run_with_timeout
from chunkproof.net.s3 import Bucket, is_s3_address, map_in_parallel

WIDTH, HASH_BYTES = 256, 32
MAX_ENTRY = 65_535
# Tiles and what is computed from them: 16 kB each.
CACHED_FILES = 1024
# A process that was killed leaves its lock in a bucket; after this time another may take it.
LEASE_SECONDS = 3_600
LOCKED = "Another process seals this collection: wait until it is done"


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return sha256(b"\1" + left + right).digest()


@dataclass(frozen=True, slots=True)
class SealFiles:
    """Files by their names below a folder, or below a prefix of a bucket. A missing one raises `NotFoundError`."""

    place: str
    bucket: Bucket | None = None

    def read(self, name: str) -> bytes:
        """Read a whole file."""
        path = f"{self.place}/{name}"
        if self.bucket is not None:
            return self.bucket.read(path)
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"There is no {path}") from None

    def read_if_exists(self, name: str) -> bytes | None:
        """Read a whole file; None if there is none."""
        with suppress(NotFoundError):
            return self.read(name)
        return None

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file in one step."""
        path = f"{self.place}/{name}"
        if self.bucket is not None:
            self.bucket.write(path, content)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replace_file(Path(path)) as file:
            file.write(content)

    def within(self, name: str) -> "SealFiles":
        """Return the place of this name below this one."""
        return replace(self, place=f"{self.place}/{name}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock this place against other writers; `InvalidParameterError` if one holds it.

        A process that was killed holds its lock of a bucket until its lease ends.
        """
        if self.bucket is None:
            try:
                with lock_folder(Path(self.place)):
                    yield
            except LockedError:
                raise InvalidParameterError(LOCKED) from None
            return
        key, known = f"{self.place}/lock", self.read_if_exists("lock")
        if known is not None and loads(known)["until"] < time():
            self.bucket.delete(key)
        if not self.bucket.create(key, dumps({"until": time() + LEASE_SECONDS}).encode()):
            raise InvalidParameterError(f"{LOCKED}; a lock that was left behind ends after an hour")
        try:
            yield
        finally:
            self.bucket.delete(key)

    def read_cached(self, name: str) -> bytes:
        """Read a file that never changes, and keep it in memory."""
        content = _cache.get((self, name))
        if content is None:
            while len(_cache) >= CACHED_FILES:
                _cache.pop(next(iter(_cache)), None)
            content = _cache[self, name] = self.read(name)
        return content

    def fetch(self, names: Iterable[str], seconds: float) -> None:
        """Read files into memory, those of a bucket several at a time; `TimeoutError` if that takes too long."""
        missing = {name for name in names if (self, name) not in _cache}
        if missing and self.bucket is not None:
            run_with_timeout(lambda: list(map_in_parallel(self.read_cached, missing)), seconds)

    def __str__(self) -> str:
        return self.place if self.bucket is None else self.bucket.address(self.place)


def open_files(address: str) -> SealFiles:
    """Return the files of a folder, or below `s3://BUCKET/PREFIX`."""
    if not is_s3_address(address):
        return SealFiles(address.rstrip("/") or "/")
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not bucket:
        raise InvalidParameterError(f"{address} is not the address of a bucket, s3://BUCKET/PREFIX")
    return SealFiles(prefix.strip("/") or "seals", Bucket(bucket))


def tile_name(level: int | str, index: int, width: int = WIDTH) -> str:
    """Return the name of a tile, or of a bundle of entries if the level is `entries`."""
    digits = f"{index % 1000:03d}"
    while index := index // 1000:
        digits = f"x{index % 1000:03d}/{digits}"
    return f"tile/{level}/{digits}" + ("" if width == WIDTH else f".p/{width}")


def _perfect_root(hashes: Sequence[bytes]) -> bytes:
    while len(hashes) > 1:
        hashes = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
    return hashes[0]


class TreeWriter:
    """Appends entries to a tree; it holds one unfinished tile of each level in memory."""

    def __init__(self, files: SealFiles, size: int = 0) -> None:
        self._files, self.size = files, size
        self._pending: list[list[bytes]] = []
        tree = TreeReader(files, size)
        level = 0
        while size >> (8 * level):
            width = (size >> (8 * level)) % WIDTH
            self._pending.append(tree.tile(level, size >> (8 * (level + 1))) if width else [])
            level += 1
        self._entries = list(tree.bundle(size // WIDTH)) if size % WIDTH else []

    def append(self, entry: bytes) -> None:
        """Add an entry; full tiles are written at once."""
        self._entries.append(entry)
        self.size += 1
        if len(self._entries) == WIDTH:
            self._files.write(tile_name("entries", self.size // WIDTH - 1), _pack(self._entries))
            self._entries = []
        self._add(0, leaf_hash(entry))

    def _add(self, level: int, hashed: bytes) -> None:
        if level == len(self._pending):
            self._pending.append([])
        self._pending[level].append(hashed)
        if len(self._pending[level]) == WIDTH:
            hashes, self._pending[level] = self._pending[level], []
            index = (self.size >> (8 * (level + 1))) - 1
            self._files.write(tile_name(level, index), b"".join(hashes))
            self._add(level + 1, _perfect_root(hashes))

    def finish(self) -> bytes:
        """Write the tiles that are not full, and return the root."""
        if self._entries:
            name = tile_name("entries", self.size // WIDTH, len(self._entries))
            self._files.write(name, _pack(self._entries))
        for level, hashes in enumerate(self._pending):
            if hashes:
                name = tile_name(level, self.size >> (8 * (level + 1)), len(hashes))
                self._files.write(name, b"".join(hashes))
        return TreeReader(self._files, self.size).range_hash(0, self.size)


def _pack(entries: Iterable[bytes]) -> bytes:
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


_cache: dict[tuple[SealFiles, str], bytes] = {}


@lru_cache(CACHED_FILES)
def _read_bundle(files: SealFiles, name: str) -> tuple[bytes, ...]:
    return _unpack(files.read_cached(name))


def _unpack(content: bytes) -> tuple[bytes, ...]:
    at, entries = 0, []
    while at < len(content):
        end = at + 2 + int.from_bytes(content[at : at + 2], "big")
        entries.append(content[at + 2 : end])
        at = end
    return tuple(entries)


@lru_cache(CACHED_FILES)
def _read_tile(files: SealFiles, name: str) -> tuple[list[bytes], ...]:
    """Return the hashes of a tile, and those of the complete nodes above them, level by level."""
    content = files.read_cached(name)
    hashes = [content[at : at + HASH_BYTES] for at in range(0, len(content), HASH_BYTES)]
    levels = [hashes]
    while len(hashes) > 1:
        hashes = [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]
        levels.append(hashes)
    return tuple(levels)


class TreeReader:
    """Reads a tree of a certain size from its tiles, which are kept in memory."""

    def __init__(self, files: SealFiles, size: int) -> None:
        self._files, self.size = files, size

    def _name(self, level: int | str, index: int) -> str:
        total = self.size if level == "entries" else self.size >> (8 * int(level))
        return tile_name(level, index, min(WIDTH, total - index * WIDTH))

    def tile(self, level: int, index: int) -> list[bytes]:
        """Return the hashes of a tile."""
        return list(_read_tile(self._files, self._name(level, index))[0])

    def bundle(self, index: int) -> tuple[bytes, ...]:
        """Return up to 256 entries."""
        return _read_bundle(self._files, self._name("entries", index))

    def entry(self, leaf: int) -> bytes:
        """Return the entry of a leaf."""
        return self.bundle(leaf // WIDTH)[leaf % WIDTH]

    def entries(self) -> Iterator[bytes]:
        """Yield all entries in their order; no more than one bundle is in memory."""
        for index in range(-(-self.size // WIDTH)):
            yield from _unpack(self._files.read(self._name("entries", index)))

    def _node(self, level: int, index: int) -> bytes:
        tile, height = level // 8, level % 8
        at = (index << height) // WIDTH
        levels = _read_tile(self._files, self._name(tile, at))
        return levels[height][index - ((at * WIDTH) >> height)]

    def range_hash(self, start: int, end: int) -> bytes:
        """Return the root over the leaves from `start` to `end`, a subtree of this tree or its right edge."""
        right: bytes | None = None
        for level, index in reversed(list(_subtrees(start, end))):
            node = self._node(level, index)
            right = node if right is None else node_hash(node, right)
        return right or sha256().digest()

    def names_for(self, leaves: Sequence[int]) -> set[str]:
        """Return the names of all files that the proof of these leaves needs."""
        names = {self._name(level // 8, (index << level % 8) // WIDTH) for level, index in self._nodes(leaves)}
        return names | {self._name("entries", leaf // WIDTH) for leaf in leaves}

    def _nodes(self, leaves: Sequence[int]) -> Iterator[tuple[int, int]]:
        for start, end in uncovered(0, self.size, sorted(set(leaves))):
            yield from _subtrees(start, end)

    def prove(self, leaves: Sequence[int]) -> list[bytes]:
        """Return the nodes from which, with these leaves, `root_of` computes the root; left to right."""
        return [self.range_hash(start, end) for start, end in uncovered(0, self.size, sorted(set(leaves)))]

    def prove_consistency(self, old: int) -> list[bytes]:
        """Return the proof of RFC 9162, 2.1.4, that the first `old` leaves are those of the older tree."""
        return list(self._subproof(old, 0, self.size, is_whole=True)) if 0 < old < self.size else []

    def _subproof(self, old: int, start: int, end: int, *, is_whole: bool) -> Iterator[bytes]:
        if old == end - start:
            if not is_whole:
                yield self.range_hash(start, end)
            return
        half = split(end - start)
        if old <= half:
            yield from self._subproof(old, start, start + half, is_whole=is_whole)
            yield self.range_hash(start + half, end)
        else:
            yield from self._subproof(old - half, start + half, end, is_whole=False)
            yield self.range_hash(start, start + half)


def split(size: int) -> int:
    """Return the largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def _subtrees(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield level and index of the complete subtrees that cover a range which begins where the largest of them may."""
    while start < end:
        level = (end - start).bit_length() - 1
        yield level, start >> level
        start += 1 << level


def uncovered(start: int, end: int, leaves: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the largest subtrees, left to right, that have none of these leaves, which are sorted."""
    if not leaves:
        yield start, end
    elif end - start > 1:
        middle = start + split(end - start)
        at = sum(leaf < middle for leaf in leaves)
        yield from uncovered(start, middle, leaves[:at])
        yield from uncovered(middle, end, leaves[at:])


def root_of(leaves: Mapping[int, bytes], nodes: Sequence[bytes], size: int) -> bytes | None:
    """Compute the root from the hashes of some leaves and the nodes beside them; None if they do not make a tree."""
    remaining = iter(nodes)

    def root(start: int, end: int, within: Sequence[int]) -> bytes:
        if not within:
            return next(remaining)
        if end - start == 1:
            return leaves[start]
        middle = start + split(end - start)
        at = sum(leaf < middle for leaf in within)
        return node_hash(root(start, middle, within[:at]), root(middle, end, within[at:]))

    if not leaves or min(leaves) < 0 or max(leaves) >= size or size >= 1 << 60:
        return None
    try:
        found = root(0, size, sorted(leaves))
    except (StopIteration, RuntimeError):
        return None
    return found if next(remaining, None) is None else None
