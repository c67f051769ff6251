"""Merkle trees as RFC 9162 defines them, kept as C2SP tlog-tiles in a folder or a bucket.

Files are never changed, only added: a reader of an older tree finds all of its files.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from time import time
from typing import Any

from chunkproof.base.errors import InvalidParameterError, NotFoundError
from chunkproof.base.files import LockedError, lock_folder, replace_file
from chunkproof.base.request import run_with_timeout
from chunkproof.collection.reader import in_batches
from chunkproof.net.s3 import Bucket, is_s3_address, map_in_parallel, parse_address

WIDTH, HASH_BYTES = 256, 32
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

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file in one step."""
        path = f"{self.place}/{name}"
        _cache.pop((self, name), None)  # of a seal that was deleted meanwhile
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
        key = f"{self.place}/lock"
        with suppress(NotFoundError, ValueError):
            if float(self.read("lock")) < time():
                self.bucket.delete(key)
        if not self.bucket.create(key, str(time() + LEASE_SECONDS).encode()):
            raise InvalidParameterError(f"{LOCKED}; a lock that was left behind ends after an hour")
        try:
            yield
        finally:
            self.bucket.delete(key)

    def load(self, name: str) -> Any:
        """Return what is in a file that never changes, and keep it in memory.

        Of a bundle, its entries; of a tile, its hashes and those of the complete nodes above them, level by level.
        """
        content = _cache.get((self, name))
        if content is None:
            while len(_cache) >= CACHED_FILES:
                _cache.pop(next(iter(_cache)), None)
            content = self.read(name)
            if name.startswith("tile/entries/"):
                content = unpack(content)
            elif name.startswith("tile/"):
                content = _levels([content[at : at + HASH_BYTES] for at in range(0, len(content), HASH_BYTES)])
            _cache[self, name] = content
        return content

    def fetch(self, names: Iterable[str], seconds: float) -> None:
        """Load files, those of a bucket several at a time; `TimeoutError` if that takes too long."""
        missing = {name for name in names if (self, name) not in _cache}
        if missing and self.bucket is not None:
            run_with_timeout(lambda: list(map_in_parallel(self.load, missing)), seconds)

    def __str__(self) -> str:
        return self.place if self.bucket is None else self.bucket.address(self.place)


_cache: dict[tuple[SealFiles, str], Any] = {}
forget_files = _cache.clear


def open_files(address: str) -> SealFiles:
    """Return the files of a folder, or below `s3://BUCKET/PREFIX`."""
    if not is_s3_address(address):
        return SealFiles(address.rstrip("/") or "/")
    bucket, prefix = parse_address(address)
    return SealFiles(prefix.strip("/"), bucket)


def tile_name(level: int | str, index: int, width: int = WIDTH) -> str:
    """Return the name of a tile, or of a bundle of entries if the level is `entries`."""
    digits = f"{index % 1000:03d}"
    while index := index // 1000:
        digits = f"x{index % 1000:03d}/{digits}"
    return f"tile/{level}/{digits}" + ("" if width == WIDTH else f".p/{width}")


def extend_tree(files: SealFiles, size: int, entries: Iterable[bytes]) -> "TreeReader":
    """Append entries to the tree of this size, and return the new tree; one hash of each full tile is in memory."""
    old, first = TreeReader(files, size), size // WIDTH
    kept, full = old.tile("entries", first) if size % WIDTH else (), list[bytes]()
    for index, bundle in enumerate(in_batches(chain(kept, entries), WIDTH), first):
        packed = b"".join(len(entry).to_bytes(2, "big") + entry for entry in bundle)
        files.write(tile_name("entries", index, len(bundle)), packed)
        full += _write_tile(files, 0, index, [leaf_hash(entry) for entry in bundle])
        size = index * WIDTH + len(bundle)
    level = 0
    while full:
        level, first = level + 1, first // WIDTH
        hashes = [*(old.tile(level, first)[0] if (old.size >> 8 * level) % WIDTH else ()), *full]
        tiles = enumerate(in_batches(hashes, WIDTH), first)
        full = [root for index, tile in tiles for root in _write_tile(files, level, index, tile)]
    return TreeReader(files, size)


def _write_tile(files: SealFiles, level: int, index: int, hashes: Sequence[bytes]) -> list[bytes]:
    """Write a tile, and return the hash over it if it is full."""
    files.write(tile_name(level, index, len(hashes)), b"".join(hashes))
    return _levels(hashes)[-1] if len(hashes) == WIDTH else []


def _levels(hashes: Sequence[bytes]) -> list[list[bytes]]:
    """Return the hashes, and those of the complete nodes above them, level by level."""
    levels = [list(hashes)]
    while len(below := levels[-1]) > 1:
        levels.append([node_hash(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)])
    return levels


def unpack(bundle: bytes) -> tuple[bytes, ...]:
    """Return the entries of a bundle."""
    at, entries = 0, []
    while at < len(bundle):
        end = at + 2 + int.from_bytes(bundle[at : at + 2], "big")
        entries.append(bundle[at + 2 : end])
        at = end
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class TreeReader:
    """Reads a tree of a certain size from its tiles, which are kept in memory."""

    files: SealFiles
    size: int

    def _name(self, level: int | str, index: int) -> str:
        total = self.size if level == "entries" else self.size >> (8 * int(level))
        return tile_name(level, index, min(WIDTH, total - index * WIDTH))

    def tile(self, level: int | str, index: int) -> Any:
        """Load a tile, or a bundle."""
        return self.files.load(self._name(level, index))

    def entry(self, leaf: int) -> bytes:
        """Return the entry of a leaf."""
        return bytes(self.tile("entries", leaf // WIDTH)[leaf % WIDTH])

    def entries(self) -> Iterator[bytes]:
        """Yield all entries in their order; no more than one bundle is in memory."""
        for index in range(-(-self.size // WIDTH)):
            yield from unpack(self.files.read(self._name("entries", index)))

    def _node(self, level: int, index: int) -> bytes:
        height, at = level % 8, (index << level % 8) // WIDTH
        return bytes(self.tile(level // 8, at)[height][index - ((at * WIDTH) >> height)])

    def range_hash(self, start: int, end: int) -> bytes:
        """Return the root over the leaves from `start` to `end`, a subtree of this tree or its right edge."""
        return fold([self._node(level, index) for level, index in _subtrees(start, end)])

    def names_for(self, leaves: Sequence[int]) -> set[str]:
        """Return the names of all files that the proof of these leaves needs."""
        ranges = uncovered(0, self.size, sorted(set(leaves)))
        nodes = (node for start, end in ranges for node in _subtrees(start, end))
        names = {self._name(level // 8, (index << level % 8) // WIDTH) for level, index in nodes}
        return names | {self._name("entries", leaf // WIDTH) for leaf in leaves}

    def prove(self, leaves: Sequence[int]) -> list[bytes]:
        """Return the nodes from which, with these leaves, `root_of` computes the root; left to right."""
        return [self.range_hash(start, end) for start, end in uncovered(0, self.size, sorted(set(leaves)))]

    def prove_consistency(self, old: int) -> list[bytes]:
        """Return the proof of RFC 9162, 2.1.4, that the first `old` leaves, at least one, are those of an older tree.

        It is made from the root down to the last complete subtree of the older tree, and read the other way.
        """
        start, end, proof = 0, self.size, list[bytes]()
        while old < end:
            middle = start + split(end - start)
            proof.append(self.range_hash(middle, end) if old <= middle else self.range_hash(start, middle))
            start, end = (start, middle) if old <= middle else (middle, end)
        return [*([self.range_hash(start, end)] if start else ()), *reversed(proof)]


class RootHasher:
    """Computes the roots of two trees of one size over hashes of their leaves, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._subtrees: list[tuple[bytes, ...]] = []

    def add(self, *leaves: bytes) -> None:
        """Add the next leaf of each."""
        self.count += 1
        for _ in range((self.count & -self.count).bit_length() - 1):
            leaves = tuple(map(node_hash, self._subtrees.pop(), leaves))
        self._subtrees.append(leaves)

    def roots(self) -> tuple[bytes, bytes]:
        """Return the roots over the leaves so far."""
        return fold([one for one, _ in self._subtrees]), fold([other for _, other in self._subtrees])


def fold(subtrees: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees, the largest first."""
    root = subtrees[-1] if subtrees else sha256().digest()
    for left in reversed(subtrees[:-1]):
        root = node_hash(left, root)
    return root


def split(size: int) -> int:
    """Return the largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def _subtrees(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield level and index of the complete subtrees that cover a range which begins where the largest of them may."""
    while start < end:
        level = (end - start).bit_length() - 1
        yield level, start >> level
        start += 1 << level


def uncovered(start: int, end: int, leaves: Sequence[int]) -> list[tuple[int, int]]:
    """Return the largest subtrees, left to right, that have none of these leaves, which are sorted."""
    ranges, left = [], [(start, end, 0, len(leaves))]
    while left:
        start, end, first, last = left.pop()
        if first == last:
            ranges.append((start, end))
        elif end - start > 1:
            middle = start + split(end - start)
            at = bisect_left(leaves, middle, first, last)
            left += [(middle, end, at, last), (start, middle, first, at)]
    return ranges


def root_of(leaves: Mapping[int, bytes], nodes: Sequence[bytes], size: int) -> bytes | None:
    """Compute the root from the hashes of some leaves and the nodes beside them; None if they do not make a tree."""
    if not leaves or min(leaves) < 0 or max(leaves) >= size or size >= 1 << 60:
        return None
    ranges = uncovered(0, size, sorted(leaves))
    known = {(leaf, leaf + 1): hashed for leaf, hashed in leaves.items()} | dict(zip(ranges, nodes, strict=False))

    def root(start: int, end: int) -> bytes:
        if (start, end) in known:
            return known[start, end]
        middle = start + split(end - start)
        return node_hash(root(start, middle), root(middle, end))

    return root(0, size) if len(nodes) == len(ranges) else None
