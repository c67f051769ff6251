"""Qdrant Edge: Qdrant's engine in this process, with one shard for each collection in a folder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from chunkproof.clients.ports import (
    TEXT_VECTOR,
    Description,
    Features,
    Page,
    Point,
    PointId,
    StoreQuery,
)
from chunkproof.clients.qdrant.edge_filters import to_edge_filter
from chunkproof.clients.qdrant.edge_folder import FIRST_SHARD, ShardFolder
from chunkproof.clients.qdrant.edge_layout import to_edge_config, to_edge_indexes, unpack_shard, word_index
from chunkproof.clients.qdrant.edge_queries import bm25_vector, build_request, group_points
from chunkproof.clients.qdrant.edge_shard import Shard
from chunkproof.clients.qdrant.filters import Json, qdrant_key
from chunkproof.clients.qdrant.queries import (
    MAX_SCORED,
    is_grouped_by_store,
    main_search,
    rank_points,
    sample_search,
    searches_of,
)
from chunkproof.clients.qdrant.store import (
    QdrantStore,
    build_point,
    check_collection_name,
    count_indexed_dense,
    dense_vector_configs,
    is_invalid_collection_name,
    round_cosine,
)
from chunkproof.clients.qdrant.transfer import Layout
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    VectorStoreRefusedError,
    VectorStoreUnavailableError,
)
from chunkproof.files import LockedError, private_files
from chunkproof.models.filters import Condition

# How the engine's messages begin when it refuses a request; any other failure is one of the folder.
REFUSALS = ("Vector dimension error", "Not existing vector name", "Wrong input", "Bad request", "Conversion")
# The module of the exception for a panic of the engine, which is not an `Exception`: damaged files cause some.
PANICS = "pyo3_runtime"

FEATURES = Features(store="Qdrant Edge", bm25=True, text_index=True, rrf_k=True, rrf_weights=True, mmr=True)


class EdgeStore(QdrantStore):
    """A store in a folder, with indexes. Several processes can read a collection, or one can write to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            self._folder = ShardFolder(path)
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        self._shards: dict[str, Shard] = {}

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        return self._folder.names()

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        with self._reading(collection) as shard:
            info, config = shard.engine.info(), shard.config
        return Description(
            name=collection,
            vectors=tuple(dense_vector_configs(config.get("vectors"))),
            points_count=info.points_count,
            indexed_vectors_count=count_indexed_dense(
                info.indexed_vectors_count, info.points_count, len(config["sparse_vectors"])
            ),
            status="green",
            indexed_fields={key: _type_name(index.data_type) for key, index in info.payload_schema.items()},
            sparse_vectors={name: params.get("modifier") for name, params in config["sparse_vectors"].items()},
            quantization=next(iter(config.get("quantization_config") or ()), None),
            text_fields=tuple(
                key for key, index in info.payload_schema.items() if getattr(index.params, "scoring", None)
            ),
        )

    def features(self, deadline: Deadline) -> Features:
        """Return what the engine can do."""
        return FEATURES

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first."""
        return [self._search(query) for query in queries]

    def _search(self, query: StoreQuery) -> list[Point]:
        with self._reading(query.collection) as shard:
            if query.grouping is None or not is_grouped_by_store(query):
                return rank_points(query, _run(shard.engine, searches_of(query), query))
            main = main_search(query)
            points = group_points(
                lambda limit: _run(shard.engine, [{**main, "limit": limit}], query)[0],
                query.limit,
                query.grouping,
                shard.engine.info().points_count,
            )
            return rank_points(query, [points])

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of all points if they are few, else of random ones."""
        points = self.count(query.collection, query.where, deadline)
        if of_all := points <= MAX_SCORED:
            query = replace(query, limit=max(1, points))
        with self._reading(query.collection) as shard:
            search = {**sample_search(query, of_all=of_all), "params": {"exact": of_all}}
            found = _run(shard.engine, [search], query)[0]
        return [round_cosine(point.score) for point in found]

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
        return Page(
            tuple(_point(record, with_vector or "") for record in found),
            None if next_id is None else _plain_id(next_id),
        )

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        with self._reading(collection) as shard:
            return shard.engine.count(edge.CountRequest(exact=True, filter=to_edge_filter(where)))

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of a payload field; None without an index on it.

        An exact count of 100,000 different ids takes the engine seconds. The counts of the index are exact as well
        while no other process writes; tests compare them with what was written.
        """
        key = qdrant_key(field)
        request = edge.FacetRequest(key, limit=limit, exact=False, filter=to_edge_filter(where))
        with self._reading(collection) as shard:
            if key not in shard.engine.info().payload_schema:
                return None
            hits = shard.engine.facet(request).hits
        return {hit.value: hit.count for hit in hits if isinstance(hit.value, str) and hit.count}

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool = False) -> None:
        """Create a collection with one unnamed cosine vector, an index on `chunk_id` and one of the words in `text`.

        So its texts can be searched by their words without `text_search`, which adds a sparse vector as on a server.
        """
        vectors = {"": edge.EdgeVectorParams(size=size, distance=edge.Distance.Cosine)}
        sparse = {TEXT_VECTOR: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)} if text_search else {}
        config = edge.EdgeConfig(vectors=vectors, sparse_vectors=sparse, wal_enabled=False)
        self.create_shard(collection, config, {"chunk_id": edge.KeywordIndexParams(), "text": word_index()})

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

    def upsert(
        self,
        collection: str,
        points: Sequence[Point],
        vector_name: str,
        deadline: Deadline,
        *,
        text_vector: str | None = None,
    ) -> None:
        """Write points and replace those with the same id; they are on disk and searchable when it returns."""

        def vectors(point: Point) -> Json:
            dense = {vector_name: list(point.vector or ())}
            if text_vector is None:
                return dense
            return {**dense, text_vector: bm25_vector(str(point.payload["text"]), is_query=False)}

        structs = [{"id": point.id, "vector": vectors(point), "payload": dict(point.payload)} for point in points]
        self.write_points(collection, structs, deadline)

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made, without the indexes that `optimize` added; those alone are on disk."""
        with self._reading(collection) as shard:
            schema, config = shard.engine.info().payload_schema, shard.config
        own = {field: index for field, index in schema.items() if not getattr(index.params, "on_disk", None)}
        return Layout.from_params(config, {field: _index_params(index) for field, index in own.items()})

    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""
        self.create_shard(collection, to_edge_config(layout), to_edge_indexes(layout))

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        request = edge.ScrollRequest(offset=start, limit=limit, with_payload=True, with_vector=True)
        with self._reading(collection) as shard:
            found, next_id = shard.engine.scroll(request)
        return [_to_struct(record) for record in found], None if next_id is None else _plain_id(next_id)

    def write_points(self, collection: str, points: list[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are on disk and searchable when it returns."""
        if not points:
            with self._reading(collection):
                return
        with self._writing(collection) as shard:
            shard.write(points)

    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written, so that searching and opening are fast; large ones take minutes.

        It works on a copy, which then replaces the shard: whatever interrupts it, the collection stays as it is.
        """
        with self._writing(collection) as shard:
            shard.optimize()

    def import_snapshot(self, collection: str, snapshot: Path, word_fields: Sequence[str]) -> None:
        """Create a collection from the snapshot of a server's shard, with indexes of the words of these fields."""
        check_collection_name(collection)
        with self._translate_errors(), self._folder.making(collection) as folder:
            unpack_shard(snapshot, folder / FIRST_SHARD, word_fields)

    def rename(self, collection: str, name: str) -> None:
        """Give a collection another name, in place of the one that had it."""
        check_collection_name(name)
        if name in self._folder.names():
            self.drop(name)
        with self._writing(collection) as shard:
            shard.finish_writing()
            shard.close_engine()
            self._folder.rename(collection, name)
        self._shards.pop(collection).close()

    def drop(self, collection: str) -> None:
        """Remove a collection."""
        with self._writing(collection) as shard:
            shard.close_engine()
            self._folder.remove(collection)
        self._shards.pop(collection).close()

    def close(self) -> None:
        """Close the collections, so that other processes can write to them."""
        with private_files():
            while self._shards:
                self._shards.popitem()[1].close()

    @contextmanager
    def _reading(self, collection: str) -> Iterator[Shard]:
        with self._translate_errors(), self._shard(collection).reading() as shard:
            yield shard

    @contextmanager
    def _writing(self, collection: str) -> Iterator[Shard]:
        with self._translate_errors(), private_files(), self._shard(collection).writing() as shard:
            yield shard

    def _shard(self, collection: str) -> Shard:
        if (shard := self._shards.get(collection)) is None:
            folder = None if is_invalid_collection_name(collection) else self._folder.find(collection)
            if folder is None:
                raise CollectionNotFoundError(collection)
            shard = self._shards.setdefault(collection, Shard(folder))
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
        except BaseException as error:
            if type(error).__module__ != PANICS:
                raise
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {_first_line(error)}") from None


def _run(engine: edge.EdgeShard, searches: Sequence[Json], query: StoreQuery) -> list[list[Point]]:
    if not searches:
        return []
    found = engine.query_batch(edge.QueryBatchRequest([build_request(search) for search in searches]))
    return [[_point(point, query.with_vector or "", point.score) for point in points] for points in found]


def _to_struct(record: Any) -> Json:
    vectors = record.vector if isinstance(record.vector, dict) else {"": record.vector}
    return {
        "id": _plain_id(record.id),
        "vector": {
            name: {"indices": vector.indices, "values": vector.values}
            if isinstance(vector, edge.SparseVector)
            else vector
            for name, vector in vectors.items()
        },
        "payload": record.payload or {},
    }


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    return build_point(_plain_id(found.id), found.payload, found.vector, vector_name, score)


def _plain_id(point_id: UUID | PointId) -> PointId:
    return str(point_id) if isinstance(point_id, UUID) else point_id


def _vector_selector(name: str | None) -> bool | list[str]:
    return False if name is None else [name]


def _index_params(index: Any) -> Json:
    kind = {"type": _type_name(index.data_type)}
    if isinstance(index.params, edge.TextIndexParams):
        return {**kind, "tokenizer": _type_name(index.params.tokenizer), "lowercase": index.params.lowercase}
    return kind


def _type_name(member: edge.PayloadSchemaType | edge.TokenizerType) -> str:
    return str(member).rpartition(".")[2].lower()


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
