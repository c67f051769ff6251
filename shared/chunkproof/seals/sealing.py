"""Seal a collection: commit to every chunk that is stored now, by a signed checkpoint of a Merkle tree.

docs/reference/receipt-format.md names the files. A history is append-only. When chunks were removed or rewritten, the
next seal begins a new one and names them. Each file is written before the checkpoint that needs it, and the
checkpoint before `latest`: a seal that was interrupted is not there.
"""

import json
import os
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import Field

from chunkproof.base.errors import CorruptChunkError, IncompleteScanError, InvalidParameterError, NotFoundError
from chunkproof.collection.reader import Reader
from chunkproof.contract.model import Model
from chunkproof.seals.entries import EntryWriter, shorten
from chunkproof.seals.merkle import RootHasher, SealFiles, TreeReader, extend_tree, leaf_hash
from chunkproof.seals.notes import Checkpoint, RefutedError, Signer, decode, encode, open_note, sign_note
from chunkproof.stores.store_port import PointId

KEY_BYTES, RECORD_BYTES = 8, 16
# Of an index file; a search reads one for each result.
SHARD_RECORDS = 1_024
LISTED_CHANGES = 100
CHANGES = {
    "removed": "SELECT point FROM sealed WHERE point NOT IN (SELECT point FROM stored) ORDER BY leaf",
    "rewritten": "SELECT point FROM sealed JOIN stored USING (point) WHERE sealed.hash <> stored.hash ORDER BY leaf",
}
BASE_FILE = "chunks.sqlite"


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
    whole_consistency: tuple[str, ...] = Field((), description="The same of the tree of whole entries")


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


@dataclass(frozen=True, slots=True)
class Seal:
    """A seal of a collection, in the files of its history."""

    files: SealFiles
    note: str
    checkpoint: Checkpoint

    @classmethod
    def find(cls, place: SealFiles, checkpoint: Checkpoint | None = None) -> "Seal | None":
        """Return the latest seal in these files, of one collection, or an earlier one; None if it is not there."""
        try:
            number = place.read("latest").decode()
            files = place.within(str(int(number)))
            note = files.read("checkpoint").decode()
            found = Checkpoint.parse(open_note(note, ())[0])
            if not found.origin.endswith(f"/{number}"):
                raise RefutedError("it is the checkpoint of another history")
        except NotFoundError:
            return None
        except ValueError:
            raise CorruptChunkError(f"The seal in {place} is damaged: seal the collection again elsewhere") from None
        if checkpoint in (None, found):
            return cls(files, note, found)
        (base, _, _), (own, _, history) = found.origin.rpartition("/"), checkpoint.origin.rpartition("/")
        return cls(place.within(history), note, checkpoint) if own == base and history.isdecimal() else None

    @property
    def tree(self) -> TreeReader:
        """Its tree of short entries."""
        return TreeReader(self.files, self.checkpoint.size)

    @property
    def whole(self) -> TreeReader:
        """Its tree of whole entries."""
        return TreeReader(self.files.within("whole"), self.checkpoint.size)

    def info(self) -> SealInfo:
        """Read its description, and check it against the checkpoint."""
        content: bytes = self.files.load(f"info/{self.checkpoint.info.hex()}.json")
        if sha256(content).digest() != self.checkpoint.info:
            raise CorruptChunkError(f"The description of the seal in {self.files} was changed")
        return SealInfo.model_validate_json(content)

    def index_name(self, point: PointId) -> str:
        """Return the name of the file that has the leaf of a point."""
        size = self.checkpoint.size
        return f"index/{size}/{_shard(_key(str(point)), size):x}"

    def find_leaf(self, point: PointId) -> int | None:
        """Return the leaf of a point; None if it is not sealed."""
        key, records = _key(str(point)), self.files.load(self.index_name(point))
        at = bisect_left(range(len(records) // RECORD_BYTES), key, key=lambda n: records[n * 16 : n * 16 + KEY_BYTES])
        if len(records) % RECORD_BYTES:
            raise ValueError("An index file was cut")
        found = records[at * RECORD_BYTES : (at + 1) * RECORD_BYTES]
        return int.from_bytes(found[KEY_BYTES:], "big") if found[:KEY_BYTES] == key else None

    def checked_entries(self) -> Iterator[bytes]:
        """Yield all whole entries; `CorruptChunkError` at the end if they are not those of the checkpoint."""
        hasher, are_same = RootHasher(), True
        for short, entry in zip_longest(self.tree.entries(), self.whole.entries(), fillvalue=b""):
            hasher.add(leaf_hash(short), leaf_hash(entry))
            are_same &= short == shorten(entry)
            yield entry
        if not are_same or (hasher.count, hasher.roots()) != (self.checkpoint.size, self.checkpoint.roots):
            raise CorruptChunkError(f"The entries in {self.files} are not those that were sealed")


def _key(point: str) -> bytes:
    return sha256(point.encode()).digest()[:KEY_BYTES]


def _shard(key: bytes, size: int) -> int:
    bits = (size // SHARD_RECORDS).bit_length()
    return int.from_bytes(key, "big") >> (8 * KEY_BYTES - bits)


def point_of(entry: bytes) -> str:
    """Return the point of an entry."""
    try:
        return str(json.loads(entry)["point"])
    except (ValueError, KeyError, TypeError):
        raise CorruptChunkError("An entry is damaged: the entries are not those that were sealed") from None


def files_of(seals: SealFiles, collection: str) -> SealFiles:
    """Return the place of a collection's seals."""
    name = quote(collection, safe="")
    return seals.within(name if name.strip(".") else name.replace(".", "%2E"))  # `..` would be another folder


def seal_collection(
    reader: Reader,
    seals: SealFiles,
    signers: Sequence[Signer],
    work: Path,
    on_progress: Callable[[int], None] = lambda _points: None,
) -> SealReport:
    """Read a collection, write what is new into `seals`, and sign the checkpoint last.

    `work` is a folder of this machine for what was read. A run after an interrupted one reads all of it again: what was
    read before may have changed since.
    """
    files = files_of(seals, reader.name)
    work /= sha256(f"{files}\n{reader.store.host}\n{reader.name}".encode()).hexdigest()[:16]
    with SealFiles(str(work)).lock():
        try:
            (work / BASE_FILE).unlink(missing_ok=True)
            before = Seal.find(files)
            with closing(sqlite3.connect(work / BASE_FILE)) as base:
                chunks = _Chunks(base, reader, before.info().salt if before else encode(os.urandom(16)))
                chunks.read(on_progress)
                with files.lock():
                    before = Seal.find(files)  # another machine may have sealed it meanwhile
                    if before and before.info().salt != chunks.salt:
                        raise InvalidParameterError(f"Another process sealed {reader.name}: run this again")
                    return _write(reader, files, signers, before, chunks)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _write(
    reader: Reader, files: SealFiles, signers: Sequence[Signer], before: Seal | None, chunks: "_Chunks"
) -> SealReport:
    keys, notes = [signer.public for signer in signers], [reader.change_note]
    base, history, size = f"{keys[0].name}/{quote(reader.name, safe='')}", 1, 0
    changes, goes_on, is_signed = SealChanges(), False, False
    if before:
        try:
            signed = open_note(before.note, keys)[1]
        except RefutedError as error:
            raise CorruptChunkError(f"The checkpoint in {before.files} is damaged: {error}") from None
        if not signed:
            notes.append("The last seal is signed by none of these keys")
        changes, is_signed = chunks.compare(before.checked_entries()), len(signed) == len(keys)
        goes_on = not (changes.removed or changes.rewritten)
        base, _, last = before.checkpoint.origin.rpartition("/")
        history, size = (int(last), before.checkpoint.size) if goes_on else (int(last) + 1, 0)
    own, origin = files.within(str(history)), f"{base}/{history}"
    tree = extend_tree(own, size, map(shorten, chunks.add_from(size)))
    whole = extend_tree(own.within("whole"), size, chunks.add_from(size))
    if before and goes_on and (tree.range_hash(0, size), whole.range_hash(0, size)) != before.checkpoint.roots:
        raise CorruptChunkError(f"The tiles in {own} are not those that were sealed")
    changes = changes.model_copy(update={"added": tree.size - size})
    roots = tree.range_hash(0, tree.size), whole.range_hash(0, tree.size)
    if changes.added or not (goes_on and is_signed):
        info = SealInfo(
            collection=reader.name,
            store=reader.store.host,
            vector=reader.vector.name,
            distance=reader.vector.distance,
            embedding_model=reader.embedder.model if reader.embedder else None,
            tenant_field=reader.settings.tenant_field,
            salt=chunks.salt,
            sealed_at=datetime.now(UTC),
            previous=before.checkpoint.text() if before else None,
            consistency=tuple(map(encode, tree.prove_consistency(size))) if size else (),
            whole_consistency=tuple(map(encode, whole.prove_consistency(size))) if size else (),
            **changes.model_dump(),
        )
        for shard, records in chunks.index(tree.size):
            own.write(f"index/{tree.size}/{shard:x}", records)
        described = info.to_json().encode()
        own.write(f"info/{sha256(described).hexdigest()}.json", described)
        checkpoint = Checkpoint(origin, tree.size, roots, sha256(described).digest())
        own.write("checkpoint", sign_note(checkpoint.text(), signers).encode())
        files.write("latest", str(history).encode())
    return SealReport(
        collection=reader.name,
        address=str(files),
        history=history,
        origin=origin,
        size=tree.size,
        root=encode(roots[0]),
        is_append_only=goes_on,
        note="; ".join(filter(None, notes)) or None,
        **changes.model_dump(),
    )


class _Chunks:
    """The entries of the collection as it is now, and as it was sealed, in a database on disk: they may be many."""

    def __init__(self, base: sqlite3.Connection, reader: Reader, salt: str) -> None:
        self._reader, self.salt = reader, salt
        self._base, self._rows = base, base.execute
        self._base.create_function("index_key", 1, _key, deterministic=True)
        self._base.executescript(
            "PRAGMA synchronous = OFF;"
            "CREATE TABLE sealed (point TEXT PRIMARY KEY, leaf INTEGER, hash BLOB);"
            "CREATE TABLE stored (point TEXT PRIMARY KEY, hash BLOB, entry BLOB);"
        )

    def read(self, on_progress: Callable[[int], None]) -> None:
        """Read the collection; refuse one that does not return the same twice: nothing could be verified later."""
        reader = self._reader
        writer = EntryWriter(reader.payloads, reader.settings.tenant_field, decode(self.salt))
        for page in reader.pages(reader.vector.name):
            entries = ((str(point.id), writer.entry_of(point)) for point in page.points)
            rows = ((point, leaf_hash(entry), entry) for point, entry in entries)
            self._base.executemany("INSERT INTO stored VALUES (?, ?, ?)", rows)
            on_progress(len(page.points))
        self._base.commit()
        if reader.rewritten:
            reason = f"{reader.change_note}: seal the collection when nothing writes to it"
            raise IncompleteScanError(reader.store.host, reason)

    def compare(self, entries: Iterable[bytes]) -> SealChanges:
        """Take the entries of the last seal, and find out what was removed or rewritten since."""
        rows = ((point_of(entry), leaf, leaf_hash(entry)) for leaf, entry in enumerate(entries))
        self._base.executemany("INSERT OR REPLACE INTO sealed VALUES (?, ?, ?)", rows)
        found: dict[str, Any] = {}
        for kind, query in CHANGES.items():
            points = self._rows(query)
            first = tuple(point for (point,) in points.fetchmany(LISTED_CHANGES))
            found |= {kind: len(first) + sum(1 for _ in points), f"{kind}_points": first}
        return SealChanges(**found)

    def add_from(self, size: int) -> Iterator[bytes]:
        """Give leaves from this one on to new chunks, to all of them if it is 0; yield their entries in that order."""
        self._rows("DELETE FROM sealed WHERE leaf >= ?", (size,))
        self._rows(
            "INSERT INTO sealed SELECT point, ? - 1 + row_number() OVER (ORDER BY rowid), hash FROM stored "
            "WHERE point NOT IN (SELECT point FROM sealed)",
            (size,),
        )
        rows = self._rows("SELECT entry FROM sealed JOIN stored USING (point) WHERE leaf >= ? ORDER BY leaf", (size,))
        return (entry for (entry,) in rows)

    def index(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each index file and its records: keys in their order, each with its leaf."""
        rows = self._rows("SELECT index_key(point) AS place, leaf FROM sealed ORDER BY place, leaf")
        for shard, records in groupby(rows, lambda row: _shard(row[0], size)):
            yield shard, b"".join(key + leaf.to_bytes(8, "big") for key, leaf in records)
        if not size:
            yield 0, b""
