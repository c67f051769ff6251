"""Seal a collection: commit to every chunk that is stored now, by a signed checkpoint of a Merkle tree.

    COLLECTION/latest                     the number of the current history
    COLLECTION/NUMBER/checkpoint          signed: origin, size, root, and the hash of the description
    COLLECTION/NUMBER/tile/…              the tree (`merkle.py`)
    COLLECTION/NUMBER/info/SHA256.json    the description: model, store, settings, what changed since the last seal
    COLLECTION/NUMBER/index/SIZE/SHARD    the leaf of each point

A history is append-only. When chunks were removed or rewritten, the next seal begins a new one and names them. Each
file is written before the checkpoint that needs it, and the checkpoint before `latest`: a seal that was interrupted is
not there.
"""

import json
import os
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import Field

from chunkproof.base.errors import CorruptChunkError, InvalidParameterError
from chunkproof.base.files import LockedError, lock_folder, make_private_folder, write_file
from chunkproof.collection.reader import Reader
from chunkproof.contract.model import Model
from chunkproof.seals.entries import EntryWriter
from chunkproof.seals.merkle import LOCKED, SealFiles, TreeReader, TreeWriter, leaf_hash, node_hash
from chunkproof.seals.notes import Checkpoint, Signer, decode, encode, open_note, sign_note
from chunkproof.stores.store_port import PointId

KEY_BYTES, RECORD_BYTES = 8, 16
# Of an index file; a search reads one for each result.
SHARD_RECORDS = 1_024
LISTED_CHANGES = 100
TWICE_READ = 32


class SealChanges(Model):
    """What changed since the seal before; the first hundred points of each kind."""

    added: int = 0
    removed: int = 0
    rewritten: int = 0
    removed_points: tuple[str, ...] = ()
    rewritten_points: tuple[str, ...] = ()


class SealInfo(SealChanges):
    """What a checkpoint is about. `salt` hides tenants in entries."""

    format: str = "chunkproof-seal/1"
    collection: str
    store: str
    vector: str
    distance: str
    embedding_model: str | None
    tenant_field: str | None = None
    salt: str
    sealed_at: datetime
    previous: str | None = Field(None, description="Text of the checkpoint before this one")
    consistency: tuple[str, ...] = Field((), description="Proof of RFC 9162 that the previous tree was only added to")


class SealReport(SealChanges):
    """The result of sealing."""

    collection: str
    address: str
    history: int
    origin: str
    size: int
    root: str
    is_append_only: bool = Field(description="Whether the history of the last seal goes on")
    note: str | None = None


class Seal:
    """The latest seal of a collection."""

    def __init__(self, place: SealFiles, history: int, note: str, checkpoint: Checkpoint | None = None) -> None:
        self._place, self.history, self.note = place, history, note
        self.files = place.within(str(history))
        self.checkpoint = checkpoint or Checkpoint.parse(open_note(note, ())[0])
        self.tree = TreeReader(self.files, self.checkpoint.size)

    @classmethod
    def find(cls, place: SealFiles) -> "Seal | None":
        """Return the seal in these files, of one collection; None if there is none."""
        latest = place.read_if_exists("latest")
        if latest is None:
            return None
        try:
            history = int(latest)
            return cls(place, history, place.read(f"{history}/checkpoint").decode())
        except ValueError:
            raise CorruptChunkError(f"The seal in {place} is damaged: seal the collection again elsewhere") from None

    def at(self, checkpoint: Checkpoint) -> "Seal | None":
        """Return an earlier seal of this collection; None if it is not of its histories."""
        base, _, history = checkpoint.origin.rpartition("/")
        is_ours = base == self.checkpoint.origin.rpartition("/")[0] and history.isdecimal()
        return Seal(self._place, int(history), self.note, checkpoint) if is_ours else None

    def info(self) -> SealInfo:
        """Read its description, and check it against the checkpoint."""
        digest = self.checkpoint.info
        content = self.files.read(f"info/{digest.hex()}.json")
        if sha256(content).digest() != digest:
            raise CorruptChunkError(f"The description of the seal in {self.files} was changed")
        return SealInfo.model_validate_json(content)

    def index_name(self, point: PointId) -> str:
        """Return the name of the file that has the leaf of a point."""
        size = self.checkpoint.size
        return f"index/{size}/{_shard(_key(str(point)), size):x}"

    def find_leaf(self, point: PointId) -> int | None:
        """Return the leaf of a point; None if it is not sealed."""
        key, records = _key(str(point)), self.files.read_cached(self.index_name(point))
        at = bisect_left(range(len(records) // RECORD_BYTES), key, key=lambda n: records[n * 16 : n * 16 + KEY_BYTES])
        start = at * RECORD_BYTES
        is_known = records[start : start + KEY_BYTES] == key
        return int.from_bytes(records[start + KEY_BYTES : start + RECORD_BYTES], "big") if is_known else None

    def checked_entries(self) -> Iterator[bytes]:
        """Yield all entries; `CorruptChunkError` at the end if they are not those of the checkpoint."""
        hasher = RootHasher()
        for entry in self.tree.entries():
            hasher.add(leaf_hash(entry))
            yield entry
        if hasher.count != self.checkpoint.size or hasher.root() != self.checkpoint.root:
            raise CorruptChunkError(f"The entries in {self.files} are not those that were sealed")


class RootHasher:
    """Computes the root over hashes of leaves, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._stack: list[bytes] = []

    def add(self, hashed: bytes) -> None:
        """Add the next leaf."""
        self.count += 1
        for _ in range((self.count & -self.count).bit_length() - 1):
            hashed = node_hash(self._stack.pop(), hashed)
        self._stack.append(hashed)

    def root(self) -> bytes:
        """Return the root over the leaves so far."""
        stack = list(self._stack)
        while len(stack) > 1:
            right = stack.pop()
            stack.append(node_hash(stack.pop(), right))
        return stack[0] if stack else sha256().digest()


def _key(point: str) -> bytes:
    return sha256(point.encode()).digest()[:KEY_BYTES]


def _shard(key: bytes, size: int) -> int:
    bits = (size // SHARD_RECORDS).bit_length()
    return int.from_bytes(key, "big") >> (8 * KEY_BYTES - bits)


def files_of(seals: SealFiles, collection: str) -> SealFiles:
    """Return the place of a collection's seals."""
    name = quote(collection, safe="")
    return seals.within(name if name.strip(".") else name.replace(".", "%2E"))  # `..` would be another folder


class Sealing:
    """Seals one collection into `seals`. `work` is a folder of this machine where an interrupted run goes on."""

    def __init__(
        self,
        reader: Reader,
        seals: SealFiles,
        signers: Sequence[Signer],
        work: Path,
        on_progress: Callable[[int], None] = lambda _points: None,
    ) -> None:
        self._reader, self._signers, self._on_progress = reader, signers, on_progress
        self._files = files_of(seals, reader.name)
        place = sha256(f"{self._files}\n{reader.store.host}\n{reader.name}".encode()).hexdigest()[:16]
        self._work = work / place

    def run(self) -> SealReport:
        """Read the collection, write what is new, and sign the checkpoint last."""
        with self._lock():
            before = Seal.find(self._files)
            spool = _Spool(self._work, self._reader, decode(before.info().salt) if before else None)
            spool.fill(self._on_progress)
            with self._files.lock(), closing(_Leaves(self._work / "leaves.sqlite")) as leaves:
                before = Seal.find(self._files)  # another machine may have sealed it meanwhile
                if before and before.info().salt != encode(spool.salt):
                    raise InvalidParameterError(f"{self._reader.name} was sealed by another process: run this again")
                report = self._write(before, spool, leaves)
        shutil.rmtree(self._work, ignore_errors=True)
        return report

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            with lock_folder(self._work):
                yield
        except LockedError:
            raise InvalidParameterError(LOCKED) from None

    def _write(self, before: Seal | None, spool: "_Spool", leaves: "_Leaves") -> SealReport:
        history, goes_on = (before.history, True) if before else (1, False)
        size, changes = 0, SealChanges()
        if before:
            leaves.load(before.checked_entries())
            changes = leaves.compare(spool.entries())
            size = before.checkpoint.size
            if changes.removed or changes.rewritten:
                history, goes_on, size = history + 1, False, 0
                leaves.clear()
        own = self._files.within(str(history))
        tree = TreeWriter(own, size)
        for entry in leaves.add_new(spool.entries(), size):
            tree.append(entry)
        root, added = tree.finish(), tree.size - size
        changed = changes.model_dump() | {"added": added}
        vector = self._reader.vector
        embedder = self._reader.embedder
        info = SealInfo(
            collection=self._reader.name,
            store=self._reader.store.host,
            vector=vector.name,
            distance=vector.distance,
            embedding_model=embedder.model if embedder else None,
            tenant_field=self._reader.settings.tenant_field,
            salt=encode(spool.salt),
            sealed_at=datetime.now(UTC),
            previous=before.checkpoint.text() if before else None,
            consistency=tuple(map(encode, TreeReader(own, tree.size).prove_consistency(size))) if goes_on else (),
            **changed,
        )
        own_name = f"{self._signers[0].public.name}/{quote(self._reader.name, safe='')}"
        origin = f"{before.checkpoint.origin.rpartition('/')[0] if before else own_name}/{history}"
        if before and goes_on and TreeReader(own, tree.size).range_hash(0, size) != before.checkpoint.root:
            raise CorruptChunkError(f"The tiles in {own} are not those that were sealed")
        if not (before and goes_on and not added and self._has_signed(before)):
            for shard, records in leaves.index(tree.size):
                own.write(f"index/{tree.size}/{shard:x}", records)
            described = info.to_json().encode()
            own.write(f"info/{sha256(described).hexdigest()}.json", described)
            checkpoint = Checkpoint(origin, tree.size, root, sha256(described).digest())
            own.write("checkpoint", sign_note(checkpoint.text(), self._signers).encode())
            self._files.write("latest", str(history).encode())
        return SealReport(
            collection=info.collection,
            address=str(self._files),
            history=history,
            origin=origin,
            size=tree.size,
            root=encode(root),
            is_append_only=goes_on,
            note=self._reader.change_note,
            **changed,
        )

    def _has_signed(self, seal: Seal) -> bool:
        keys = [signer.public for signer in self._signers]
        return len(open_note(seal.note, keys)[1]) == len(keys)


class _Spool:
    """The entries of the collection as it is now, in a file that grows page by page."""

    def __init__(self, folder: Path, reader: Reader, salt: bytes | None) -> None:
        self._entries, self._state = folder / "entries", folder / "state.json"
        self._reader = reader
        make_private_folder(folder)
        self._vector = reader.vector.name
        state: dict[str, Any] = json.loads(self._state.read_bytes()) if self._state.exists() else {}
        fits = state.get("vector") == self._vector and salt in (None, decode(state["salt"]) if state else None)
        self._next, self._count, self._bytes, self._is_done = None, 0, 0, False
        self.salt = salt or os.urandom(16)
        if state and fits:
            self._next, self._count, self._bytes = state["next"], state["count"], state["bytes"]
            self.salt = decode(state["salt"])
        self._writer = EntryWriter(reader.payloads, reader.settings.tenant_field, self.salt)

    def fill(self, on_progress: Callable[[int], None]) -> None:
        """Read the collection from where an interrupted run stopped."""
        on_progress(self._count)
        with self._entries.open("ab") as file:
            file.truncate(self._bytes)
            for page in self._reader.pages(self._next, self._vector, seen=self._count):
                lines = [self._writer.entry_of(point) for point in page.points]
                if not self._count:
                    self._check_twice([point.id for point in page.points[:TWICE_READ]], lines)
                file.write(b"".join(line + b"\n" for line in lines))
                file.flush()
                self._count += len(lines)
                self._bytes = file.tell()
                if page.next_id is not None:
                    self._save(page.next_id)
                on_progress(len(lines))
            os.fsync(file.fileno())

    def _save(self, next_id: PointId) -> None:
        state = {"next": next_id, "count": self._count, "bytes": self._bytes, "vector": self._vector}
        write_file(self._state, json.dumps(state | {"salt": encode(self.salt)}))

    def _check_twice(self, ids: Sequence[PointId], lines: Sequence[bytes]) -> None:
        """Refuse a store that does not return the same values twice: nothing could be verified later."""
        again = self._reader.read_points(ids, self._vector)
        for point, line in zip(ids, lines, strict=False):
            if point in again and self._writer.entry_of(again[point]) != line:
                raise InvalidParameterError(
                    f"Point {point} of {self._reader.name} had another text, vector or payload when it was read again: "
                    "seal the collection when nothing writes to it"
                )

    def entries(self) -> Iterator[bytes]:
        """Yield all entries in the order of point ids."""
        with self._entries.open("rb") as file:
            for line in file:
                yield line[:-1]


class _Leaves:
    """The leaf of each point, in a database on disk: a collection may not fit in memory."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._base = sqlite3.connect(path)
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute(
            "CREATE TABLE leaves (point TEXT PRIMARY KEY, key BLOB, leaf INTEGER, hash BLOB, seen INTEGER)"
        )

    def close(self) -> None:
        self._base.close()

    def clear(self) -> None:
        """Forget all leaves."""
        self._base.execute("DELETE FROM leaves")

    def _insert(self, rows: Iterable[tuple[str, bytes, int, bytes]]) -> None:
        self._base.executemany("INSERT OR REPLACE INTO leaves VALUES (?, ?, ?, ?, 0)", rows)

    def load(self, entries: Iterable[bytes]) -> None:
        """Add the entries of an earlier seal."""
        self._insert(_row(entry, leaf) for leaf, entry in enumerate(entries))

    def compare(self, entries: Iterable[bytes]) -> SealChanges:
        """Find out what was removed or rewritten since these leaves were sealed."""
        rewritten = []
        for entry in entries:
            point, _, _, hashed = _row(entry, 0)
            known = self._base.execute("SELECT hash FROM leaves WHERE point = ?", (point,)).fetchone()
            if known is not None:
                self._base.execute("UPDATE leaves SET seen = 1 WHERE point = ?", (point,))
                if known[0] != hashed:
                    rewritten.append(point)
        removed = [row[0] for row in self._base.execute("SELECT point FROM leaves WHERE seen = 0 ORDER BY leaf")]
        return SealChanges(
            removed=len(removed),
            rewritten=len(rewritten),
            removed_points=tuple(removed[:LISTED_CHANGES]),
            rewritten_points=tuple(rewritten[:LISTED_CHANGES]),
        )

    def add_new(self, entries: Iterable[bytes], size: int) -> Iterator[bytes]:
        """Yield the entries of points that have no leaf yet, and give them the next ones."""
        entries = iter(entries)
        while some := list(islice(entries, 1_000)):
            rows = []
            for entry in some:
                row = _row(entry, size)
                if not self._base.execute("SELECT 1 FROM leaves WHERE point = ?", row[:1]).fetchone():
                    rows.append(row)
                    size += 1
                    yield entry
            self._insert(rows)

    def index(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each index file and its records: keys in their order, each with its leaf."""
        rows = self._base.execute("SELECT key, leaf FROM leaves ORDER BY key, leaf")
        written = -1
        for shard, records in groupby(rows, lambda row: _shard(row[0], size)):
            yield from ((empty, b"") for empty in range(written + 1, shard))
            yield shard, b"".join(key + leaf.to_bytes(8, "big") for key, leaf in records)
            written = shard
        yield from ((empty, b"") for empty in range(written + 1, 1 << (size // SHARD_RECORDS).bit_length()))


def _row(entry: bytes, leaf: int) -> tuple[str, bytes, int, bytes]:
    try:
        point = str(json.loads(entry)["point"])
    except (ValueError, KeyError, TypeError):
        raise CorruptChunkError("An entry is damaged: the entries are not those that were sealed") from None
    return point, _key(point), leaf, leaf_hash(entry)
