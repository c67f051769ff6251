"""A collection that this process has open: a shard of Qdrant Edge, shared with others until it is written to."""

import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from pathlib import Path
from shutil import disk_usage
from threading import TIMEOUT_MAX, Condition

import qdrant_edge as edge
from pydantic_core import to_json

from chunkproof.clients.qdrant.edge_folder import CollectionLock, Journal, ShardCopies, allocated_bytes
from chunkproof.clients.qdrant.edge_layout import (
    CONFIG,
    SAMPLE_PAYLOADS,
    filter_indexes,
    needs_segmenter,
    word_index,
)
from chunkproof.clients.qdrant.filters import Json
from chunkproof.clients.qdrant.queries import values_at
from chunkproof.deadline import run_with_timeout
from chunkproof.errors import InvalidParameterError
from chunkproof.files import LockedError, private_files

# Below, a collection is searched and opened fast enough as it was written.
OPTIMIZE_FROM_BYTES = 20_000_000
# The space that must be free for a write: the engine's next pages, and several times the points.
SPARE_BYTES = 64 << 20
SPACE_FACTOR = 4
# So many random texts show which script a collection is in.
SCRIPT_SAMPLE = 500


class Shard:
    """An open collection, for the threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = CollectionLock(folder)
        self._journal = Journal(folder)
        self._copies = ShardCopies(folder)
        self._engine: edge.EdgeShard | None = None
        self._is_writable = False
        self._readers = 0
        self._idle = Condition()

    @property
    def engine(self) -> edge.EdgeShard:
        """The open shard."""
        if self._engine is None:
            raise RuntimeError("the collection is not open")
        return self._engine

    @property
    def config(self) -> Json:
        """The configuration that the engine keeps in a file."""
        config: Json = json.loads((self._copies.current / CONFIG).read_bytes())
        return {"sparse_vectors": {}, **config}

    @contextmanager
    def reading(self) -> Iterator["Shard"]:
        """Open it to read; other threads can do the same."""
        with self._idle:
            if self._engine is None:
                with private_files():
                    self._open()
            self._readers += 1
        try:
            yield self
        finally:
            with self._idle:
                self._readers -= 1
                self._idle.notify_all()

    @contextmanager
    def writing(self) -> Iterator["Shard"]:
        """Open it to write, which no other thread or process then does; it stays writable until it is closed."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            if not self._is_writable:
                # Another process may have written meanwhile, so the engine reads everything again.
                self.close_engine()
                self._lock.acquire(exclusive=True)
                self._copies.remove_abandoned()
                self._open_engine()
                self._check_points()
                self._copies.record_points(None)
                self._is_writable = True
            yield self

    def write(self, structs: Sequence[Json]) -> None:
        """Write points so that all are on disk, or are written when the collection is opened again."""
        self._check_vectors(structs)
        operation = edge.UpdateOperation.upsert_points([to_edge_point(struct) for struct in structs])
        journal = to_json(structs)
        self._check_space(len(journal))
        if self._journal.exists():  # the write before failed
            self._repeat_interrupted()
        with self._journal.recording(journal):
            self.engine.update(operation)
            self.engine.flush()

    def optimize(self) -> None:
        """Build the indexes in a copy that replaces the shard: of words as their script needs, of vectors, for filters.

        A small collection needs only the first.
        """
        is_large = allocated_bytes(self._copies.current) >= OPTIMIZE_FROM_BYTES
        unspaced_fields = self._unspaced_fields()
        if not is_large and not unspaced_fields:
            return
        self.close_engine()
        try:
            with self._copies.changing_copy() as copy:
                # In a thread, because a call of the engine does not react to Ctrl-C.
                run_with_timeout(lambda: _optimize(copy, unspaced_fields, is_large=is_large), TIMEOUT_MAX)
        finally:
            self._open_engine()

    def _unspaced_fields(self) -> list[str]:
        """Return the fields whose texts need another tokenizer than the index of their words has."""
        fields = [
            field
            for field, index in self.engine.info().payload_schema.items()
            if isinstance(index.params, edge.TextIndexParams)
            and index.params.scoring
            and index.params.tokenizer == edge.TokenizerType.Word
        ]
        if not fields:
            return []
        drawn = self.engine.query(edge.QueryRequest(query=edge.Sample.Random, limit=SCRIPT_SAMPLE, with_payload=True))
        return [
            field
            for field in fields
            if needs_segmenter([str(text) for point in drawn for text in values_at(point.payload, field.split("."))])
        ]

    def _check_vectors(self, structs: Sequence[Json]) -> None:
        """Raise `ValueError` for a vector that does not fit, before anything is written."""
        config = self.config
        sizes = {name: params["size"] for name, params in config.get("vectors", {}).items()}
        for struct in structs:
            for name, vector in struct["vector"].items():
                if isinstance(vector, Mapping):
                    if name not in config["sparse_vectors"]:
                        raise ValueError(f"no sparse vector is named {name!r}")
                    _check_numbers(vector["values"])
                    continue
                if name not in sizes:
                    raise ValueError(f"no vector is named {name!r}")
                for row in vector if vector and isinstance(vector[0], Sequence) else [vector]:
                    if len(row) != sizes[name]:
                        raise ValueError(f"a vector of {len(row)} values instead of {sizes[name]}")
                    _check_numbers(row)

    def close(self) -> None:
        """Close it and let other processes write."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            self.finish_writing()
            self.close_engine()
            self._lock.release()
            self._is_writable = False

    def finish_writing(self) -> None:
        """Record how many points there are, if this process may have written some."""
        if self._engine is not None and self._is_writable and not self._journal.exists():
            self._copies.record_points(self._engine.info().points_count)

    def close_engine(self) -> None:
        """Close the engine's files, and keep the lock."""
        if self._engine is not None and self._is_writable:
            self._engine.close()
        self._engine = None  # without `close`, it does not write what it has only read

    def _open(self) -> None:
        with ExitStack() as failed:
            failed.callback(self._lock.release)
            self._lock.acquire(exclusive=False)
            if self._journal.exists():
                self._recover()
            self._open_engine()
            self._check_points()
            failed.pop_all()

    def _recover(self) -> None:
        """Repeat the write that was interrupted, unless another process is faster."""
        try:
            self._lock.acquire(exclusive=True)
        except LockedError:
            self._lock.acquire(exclusive=False)
            if self._journal.exists():
                raise
        else:
            self._open_engine()
            self.close_engine()
            self._lock.acquire(exclusive=False)

    def _open_engine(self) -> None:
        """Open the engine's files; repeat a write that was interrupted, if the lock is exclusive."""
        self._engine = edge.EdgeShard.load(str(self._copies.current))
        if self._journal.exists():
            self._repeat_interrupted()

    def _check_points(self) -> None:
        """Raise `InvalidParameterError` if points are missing: the engine opens some damaged files as empty ones."""
        written, found = self._copies.points, self.engine.info().points_count
        if written is not None and found != written:
            self._engine = None
            raise InvalidParameterError(
                f"data folder: {self._folder} is damaged, {found:,} of its {written:,} points can be read; "
                "restore it from a copy, or remove it and load it again"
            )

    def _repeat_interrupted(self) -> None:
        """Write the points of the journal, of which some may be half-written.

        The engine numbers its operations, and leaves out a point that has the number of the operation already. An
        interrupted operation and the next one have the same number, so another operation has to come between: the
        points are deleted first.
        """
        self._copies.record_points(None)
        points = [to_edge_point(struct) for struct in self._journal.read_points()]
        self.engine.update(edge.UpdateOperation.delete_points([point.id for point in points]))
        self.engine.update(edge.UpdateOperation.upsert_points(points))
        self.engine.flush()
        self._journal.clear()

    def _check_space(self, size: int) -> None:
        """Raise `OSError` on a nearly full disk: the engine maps its files, and a failed write ends the process."""
        if disk_usage(self._folder).free < SPARE_BYTES + SPACE_FACTOR * size:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(self._folder))


def _check_numbers(values: Sequence[float]) -> None:
    """Raise `ValueError` for a number that is not finite, or not in the 32 bits that are stored."""
    if not all(map(math.isfinite, array("f", values))):
        raise ValueError("a vector has a value that is not a finite 32-bit number")


def _optimize(shard: Path, unspaced_fields: Sequence[str], *, is_large: bool) -> None:
    engine = edge.EdgeShard.load(str(shard))
    for field in unspaced_fields:
        index = word_index(edge.TokenizerType.Multilingual)
        engine.update(edge.UpdateOperation.create_field_index(field, index))
    if is_large:
        sample, _ = engine.scroll(edge.ScrollRequest(limit=SAMPLE_PAYLOADS, with_payload=True))
        existing = engine.info().payload_schema
        for field, schema in filter_indexes([record.payload or {} for record in sample]).items():
            if field not in existing:
                engine.update(edge.UpdateOperation.create_field_index(field, schema))
        engine.optimize()
    engine.flush()
    engine.close()


def to_edge_point(struct: Json) -> edge.Point:
    """Return a point of the engine for one of Qdrant's REST API, whose vectors all have names."""
    vectors = {
        name: edge.SparseVector(vector["indices"], vector["values"]) if isinstance(vector, Mapping) else vector
        for name, vector in struct["vector"].items()
    }
    return edge.Point(struct["id"], vectors, struct["payload"])
