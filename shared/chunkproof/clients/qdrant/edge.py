"""Qdrant Edge: Qdrant's engine in this process, with one shard for each collection in a folder."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Condition as ThreadCondition
from typing import Any
from uuid import UUID

import qdrant_edge as edge
from pydantic_core import to_json

from chunkproof.clients.ports import (
    Description,
    NearestQuery,
    Page,
    Point,
    PointId,
)
from chunkproof.clients.qdrant.edge_filters import to_edge_filter
from chunkproof.clients.qdrant.edge_folder import (
    FIRST_SHARD,
    CollectionLock,
    Journal,
    ShardCopies,
    ShardFolder,
    disk_usage,
)
from chunkproof.clients.qdrant.filters import Json, qdrant_key
from chunkproof.clients.qdrant.store import (
    SCORE_STEP,
    QdrantStore,
    build_point,
    check_collection_name,
    dense_vector_configs,
    is_invalid_collection_name,
)
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    InvalidParameterError,
    VectorStoreRefusedError,
    VectorStoreUnavailableError,
)
from chunkproof.files import LockedError, private_files
from chunkproof.models.filters import Condition

CONFIG = "edge_config.json"
# Below, a collection is searched and opened fast enough as it was written.
OPTIMIZE_FROM_BYTES = 20_000_000
# How the engine's messages begin when it refuses a request; any other failure is one of the folder.
REFUSALS = ("Vector dimension error", "Not existing vector name", "Wrong input", "Bad request", "Conversion")


class EdgeStore(QdrantStore):
    """A store in a folder, with indexes. Several processes can read a collection, or one can write to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            self._folder = ShardFolder(path)
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        self._shards: dict[str, _Shard] = {}

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        return self._folder.names()

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        with self._reading(collection) as shard:
            info = shard.engine.info()
        config = shard.config
        return Description(
            name=collection,
            vectors=tuple(dense_vector_configs(config.get("vectors"))),
            points_count=info.points_count,
            indexed_vectors_count=info.indexed_vectors_count,
            status="green",
            indexed_fields={key: _type_name(index.data_type) for key, index in info.payload_schema.items()},
            sparse_vectors={name: params.get("modifier") for name, params in config["sparse_vectors"].items()},
            quantization=next(iter(config.get("quantization_config") or ()), None),
        )

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """Return the nearest points, best first, scores equal to the threshold included."""
        using = query.vector_config.name
        request = edge.QueryRequest(
            limit=query.limit,
            query=edge.Query.Nearest(list(query.vector), using=using),
            filter=to_edge_filter(query.where),
            # The engine returns only scores strictly above the threshold.
            score_threshold=query.score_threshold - SCORE_STEP,
            with_payload=True,
            with_vector=_vector_selector(using if query.with_vectors else None),
            params=edge.SearchParams(exact=query.exact),
        )
        with self._reading(query.collection) as shard:
            found = shard.engine.query(request)
        points = [_point(record, using, record.score) for record in found]
        return [point for point in points if point.score >= query.score_threshold]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        with self._reading(collection) as shard:
            found = shard.engine.retrieve(list(ids), True, _vector_selector(with_vector))
        return [_point(record, with_vector or "") for record in found]

    def scroll(
        self,
        collection: str,
        deadline: Deadline,
        *,
        limit: int,
        where: tuple[Condition, ...] = (),
        start: PointId | None = None,
        with_vector: str | None = None,
    ) -> Page:
        """Return a page of points in id order."""
        request = edge.ScrollRequest(
            offset=start,
            limit=limit,
            filter=to_edge_filter(where),
            with_payload=True,
            with_vector=_vector_selector(with_vector),
        )
        with self._reading(collection) as shard:
            found, next_id = shard.engine.scroll(request)
        return Page(tuple(_point(record, with_vector or "") for record in found), _plain_id(next_id))

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        with self._reading(collection) as shard:
            return shard.engine.count(edge.CountRequest(exact=True, filter=to_edge_filter(where)))

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of a payload field; None without an index on it."""
        key = qdrant_key(field)
        request = edge.FacetRequest(key, limit=limit, exact=True, filter=to_edge_filter(where))
        with self._reading(collection) as shard:
            if key not in shard.engine.info().payload_schema:
                return None
            hits = shard.engine.facet(request).hits
        return {hit.value: hit.count for hit in hits if isinstance(hit.value, str)}

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """Create a collection with one unnamed cosine vector, an index on `chunk_id` and one of the words in `text`."""
        vectors = {"": edge.EdgeVectorParams(size=size, distance=edge.Distance.Cosine)}
        words = edge.TextIndexParams(tokenizer=edge.TokenizerType.Multilingual, lowercase=True, scoring=True)
        indexes = {"chunk_id": edge.KeywordIndexParams(), "text": words}
        self.create_shard(collection, edge.EdgeConfig(vectors=vectors, wal_enabled=False), indexes)

    def create_shard(self, collection: str, config: edge.EdgeConfig, indexes: Mapping[str, Any]) -> None:
        """Create a collection with this configuration, which must be without the engine's write-ahead log."""
        check_collection_name(collection)
        with self._translate_errors():
            try:
                with self._folder.making(collection) as folder:
                    (folder / FIRST_SHARD).mkdir()
                    shard = edge.EdgeShard.create(str(folder / FIRST_SHARD), config)
                    for field, schema in indexes.items():
                        shard.update(edge.UpdateOperation.create_field_index(field, schema))
                    shard.flush()
                    shard.close()
            except FileExistsError:
                raise VectorStoreRefusedError(self.host, f"Collection {collection} exists already") from None

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points and replace those with the same id; they are on disk and searchable when it returns."""
        structs = [
            {"id": point.id, "vector": {vector_name: list(point.vector or ())}, "payload": dict(point.payload)}
            for point in points
        ]
        self.write(collection, structs)

    def write(self, collection: str, structs: Sequence[Json]) -> None:
        """Write points as Qdrant's REST API takes them, with all of their vectors by name."""
        if not structs:
            with self._reading(collection):
                return
        with self._writing(collection) as shard:
            shard.check_vectors(structs)
            operation = edge.UpdateOperation.upsert_points([_to_edge_point(struct) for struct in structs])
            shard.apply(structs, operation)

    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written, so that searching and opening are fast; large ones take minutes.

        It works on a copy, which then replaces the shard: whatever interrupts it, the collection stays as it is.
        """
        with self._writing(collection) as shard:
            shard.optimize()

    def drop(self, collection: str) -> None:
        """Remove a collection."""
        with self._writing(collection) as shard:
            shard.close_engine()
            self._folder.remove(collection)
        self._shards.pop(collection).close()

    def close(self) -> None:
        """Close the collections, so that other processes can write to them."""
        while self._shards:
            self._shards.popitem()[1].close()

    @contextmanager
    def _reading(self, collection: str) -> Iterator["_Shard"]:
        with self._translate_errors(), self._shard(collection).reading() as shard:
            yield shard

    @contextmanager
    def _writing(self, collection: str) -> Iterator["_Shard"]:
        with self._translate_errors(), private_files(), self._shard(collection).writing() as shard:
            yield shard

    def _shard(self, collection: str) -> "_Shard":
        if (shard := self._shards.get(collection)) is None:
            folder = None if is_invalid_collection_name(collection) else self._folder.find(collection)
            if folder is None:
                raise CollectionNotFoundError(collection)
            shard = self._shards.setdefault(collection, _Shard(folder))
        return shard

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ChunkproofError:
            raise  # some are a ValueError
        except LockedError:
            reason = "another process writes to this collection, or reads it while this one would write; wait for it"
            raise VectorStoreUnavailableError(self.host, f"{reason} or choose another folder with --data") from None
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        except (ValueError, TypeError, OverflowError) as error:  # of the bindings: a value that the engine cannot hold
            raise VectorStoreRefusedError(self.host, f"The request does not fit: {_first_line(error)}") from None
        except Exception as error:
            if type(error) is not Exception:  # the engine raises nothing more specific
                raise
            if str(error).startswith(REFUSALS):
                raise VectorStoreRefusedError(self.host, f"The request does not fit: {_first_line(error)}") from None
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {_first_line(error)}") from None


class _Shard:
    """A collection that this process has open: shared with other processes until it is written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = CollectionLock(folder)
        self._journal = Journal(folder)
        self._copies = ShardCopies(folder)
        self._engine: edge.EdgeShard | None = None
        self._is_writable = False
        self._readers = 0
        self._idle = ThreadCondition()

    @property
    def engine(self) -> edge.EdgeShard:
        """The open shard."""
        assert self._engine is not None
        return self._engine

    @property
    def config(self) -> Json:
        """The configuration that the engine keeps in a file."""
        config: Json = json.loads((self._copies.current / CONFIG).read_bytes())
        return {"sparse_vectors": {}, **config}

    @contextmanager
    def reading(self) -> Iterator["_Shard"]:
        """Open it to read; other threads can do the same."""
        with self._idle:
            if self._engine is None:
                self._open()
            self._readers += 1
        try:
            yield self
        finally:
            with self._idle:
                self._readers -= 1
                self._idle.notify_all()

    @contextmanager
    def writing(self) -> Iterator["_Shard"]:
        """Open it to write, which no other thread or process then does; it stays writable until it is closed."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            if not self._is_writable:
                # Another process may have written meanwhile, so the engine reads everything again.
                self.close_engine()
                self._lock.acquire(exclusive=True)
                self._copies.remove_abandoned()
                self._open_engine()
                self._is_writable = True
            yield self

    def apply(self, structs: Sequence[Json], operation: edge.UpdateOperation) -> None:
        """Write points so that all are on disk, or are written when the collection is opened again."""
        with self._journal.recording(to_json(structs)):
            self.engine.update(operation)
            self.engine.flush()

    def optimize(self) -> None:
        """Build the indexes in a copy that replaces the shard."""
        if disk_usage(self._copies.current) < OPTIMIZE_FROM_BYTES:
            return
        self.close_engine()
        try:
            with self._copies.changing_copy() as copy:
                engine = edge.EdgeShard.load(str(copy))
                engine.optimize()
                engine.flush()
                engine.close()
        finally:
            self._open_engine()

    def check_vectors(self, structs: Sequence[Json]) -> None:
        """Raise `ValueError` for a vector that does not fit, before anything is written."""
        config = self.config
        sizes = {name: params["size"] for name, params in config["vectors"].items()}
        for struct in structs:
            for name, vector in struct["vector"].items():
                if isinstance(vector, Mapping):
                    if name not in config["sparse_vectors"]:
                        raise ValueError(f"no sparse vector is named {name!r}")
                    continue
                if name not in sizes:
                    raise ValueError(f"no vector is named {name!r}")
                for row in vector if vector and isinstance(vector[0], Sequence) else [vector]:
                    if len(row) != sizes[name]:
                        raise ValueError(f"a vector of {len(row)} values instead of {sizes[name]}")
                    if not all(map(math.isfinite, row)):
                        raise ValueError("a vector has a value that is not a finite number")

    def close(self) -> None:
        """Close it and let other processes write."""
        with self._idle:
            self._idle.wait_for(lambda: self._readers == 0)
            self.close_engine()
            self._lock.release()
            self._is_writable = False

    def close_engine(self) -> None:
        """Close the engine's files, and keep the lock."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _open(self) -> None:
        with ExitStack() as failed:
            failed.callback(self._lock.release)
            self._lock.acquire(exclusive=False)
            if self._journal.exists():
                self._recover()
            self._open_engine()
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
            self._repeat(self._journal.read_points())
            self._journal.clear()

    def _repeat(self, structs: Sequence[Json]) -> None:
        """Write points of which some may be half-written.

        The engine numbers its operations, and leaves out a point that has the number of the operation already. An
        interrupted operation and the next one have the same number, so another operation has to come between: the
        points are deleted first.
        """
        points = [_to_edge_point(struct) for struct in structs]
        self.engine.update(edge.UpdateOperation.delete_points([point.id for point in points]))
        self.engine.update(edge.UpdateOperation.upsert_points(points))
        self.engine.flush()


def _to_edge_point(struct: Json) -> edge.Point:
    vectors = {
        name: edge.SparseVector(vector["indices"], vector["values"]) if isinstance(vector, Mapping) else vector
        for name, vector in struct["vector"].items()
    }
    return edge.Point(struct["id"], vectors, struct["payload"])


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    point_id = _plain_id(found.id)
    assert point_id is not None
    return build_point(point_id, found.payload, found.vector, vector_name, score)


def _plain_id(point_id: Any) -> PointId | None:
    return str(point_id) if isinstance(point_id, UUID) else point_id


def _vector_selector(name: str | None) -> bool | list[str]:
    return False if name is None else [name]


def _type_name(data_type: edge.PayloadSchemaType) -> str:
    return str(data_type).rpartition(".")[2].lower()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
