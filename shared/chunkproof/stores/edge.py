"""Qdrant Edge: Qdrant's engine in this process, with one shard for each collection in a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import qdrant_edge as edge

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    VectorStoreRefusedError,
    VectorStoreUnavailableError,
)
from chunkproof.base.files import LockedError, private_files
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import Condition
from chunkproof.stores.edge_folder import ShardFolder
from chunkproof.stores.edge_shard import Shard, create_shard, unpack_shard
from chunkproof.stores.edge_wire import (
    build_request,
    plain_id,
    to_edge_filter,
    to_point,
    to_struct,
    type_name,
)
from chunkproof.stores.qdrant import (
    check_collection_name,
    count_indexed_dense,
    dense_search,
    dense_vector_configs,
    is_invalid_collection_name,
    qdrant_key,
    rank_dense,
    round_cosine,
    sample_search,
)
from chunkproof.stores.store_port import (
    Description,
    Features,
    Json,
    Layout,
    Page,
    Point,
    PointId,
    StoreQuery,
    WritableStore,
)

# The engine scores so many points in some ten milliseconds.
MAX_SCORED = 10_000
# How the engine's messages begin when it refuses a request; any other failure is one of the folder.
REFUSALS = ("Vector dimension error", "Not existing vector name", "Wrong input", "Bad request", "Conversion")
# The module of the exception for a panic of the engine, which is not an `Exception`: damaged files cause some.
PANICS = "pyo3_runtime"

FEATURES = Features(store="Qdrant Edge", bm25=True, text_index=True, rrf_k=True, rrf_weights=True, mmr=True)


class EdgeStore(WritableStore):
    """A store in a folder, with indexes. Several processes can read a collection, or one can write to it."""

    # So texts can be searched by their words without the sparse vector that a server needs for it.
    new_indexes = MappingProxyType({**WritableStore.new_indexes, "text": {"type": "text"}})

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            self._folder = ShardFolder(path)
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        self._shards: dict[str, Shard] = {}

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return no other names: the engine has none."""
        return {}

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
            indexed_fields={key: type_name(index.data_type) for key, index in info.payload_schema.items()},
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
            if query.is_plain:
                return rank_dense(query, _run(shard.engine, [dense_search(query)], query)[0])
            from chunkproof.stores import hybrid  # words, groups, diversity: only for queries that have them

            if query.grouping is None or not hybrid.is_grouped_by_store(query):
                return hybrid.rank_points(query, _run(shard.engine, hybrid.searches_of(query), query))
            main = hybrid.main_search(query)
            points = hybrid.group_points(
                lambda limit: _run(shard.engine, [{**main, "limit": limit}], query)[0],
                query.limit,
                query.grouping,
                shard.engine.info().points_count,
            )
            return hybrid.rank_points(query, [points])

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of all points if they are few, else of random ones."""
        count = self.count(query.collection, query.where, deadline)
        if of_all := count <= MAX_SCORED:
            query = replace(query, limit=max(1, count))
        with self._reading(query.collection) as shard:
            search = {**sample_search(query, of_all=of_all), "params": {"exact": of_all}}
            (points,) = _run(shard.engine, [search], query)
        return [round_cosine(point.score) for point in points]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        with self._reading(collection) as shard:
            records = shard.engine.retrieve(list(ids), True, with_vector is not None and [with_vector])
        return [to_point(record, with_vector or "") for record in records]

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
            with_vector=with_vector is not None and [with_vector],
        )
        with self._reading(collection) as shard:
            records, next_id = shard.engine.scroll(request)
        points = tuple(to_point(record, with_vector or "") for record in records)
        return Page(points, None if next_id is None else plain_id(next_id))

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

    def bm25_maker(self, deadline: Deadline) -> Callable[[str], Json]:
        """Return what makes the BM25 vector of a text to store."""
        from chunkproof.stores.hybrid import make_bm25_vector

        return make_bm25_vector

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made, or how the one on a server is of which it is a copy."""
        with self._reading(collection) as shard:
            return shard.layout

    def create_like(
        self, collection: str, layout: Layout, deadline: Deadline, *, word_fields: Sequence[str] = ()
    ) -> None:
        """Create a collection with this layout, and with indexes of the words of these fields."""
        check_collection_name(collection)
        with self._translate_errors():
            try:
                with self._folder.making(collection) as folder:
                    create_shard(folder, layout, word_fields)
            except FileExistsError:
                raise VectorStoreRefusedError(self.host, f"Collection {collection} exists already") from None

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        request = edge.ScrollRequest(offset=start, limit=limit, with_payload=True, with_vector=True)
        with self._reading(collection) as shard:
            records, next_id = shard.engine.scroll(request)
        return [to_struct(record) for record in records], None if next_id is None else plain_id(next_id)

    def write_points(self, collection: str, points: Sequence[Json], deadline: Deadline) -> None:
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

    def import_snapshot(self, collection: str, snapshot: Path, layout: Layout, word_fields: Sequence[str]) -> None:
        """Create a collection from the snapshot of a server's shard, with indexes of the words of these fields."""
        check_collection_name(collection)
        with self._translate_errors(), self._folder.making(collection) as folder:
            unpack_shard(snapshot, folder, layout, word_fields)

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
        except BaseException as error:
            reason = str(error).partition("\n")[0]
            # Of the bindings: a value that the engine cannot hold. The engine itself raises nothing but `Exception`.
            if isinstance(error, ValueError | TypeError | OverflowError) or (
                type(error) is Exception and reason.startswith(REFUSALS)
            ):
                raise VectorStoreRefusedError(self.host, f"The request does not fit: {reason}") from None
            if type(error) is Exception or type(error).__module__ == PANICS:
                raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {reason}") from None
            raise


def _run(engine: edge.EdgeShard, searches: Sequence[Json], query: StoreQuery) -> list[list[Point]]:
    if not searches:
        return []
    results = engine.query_batch(edge.QueryBatchRequest([build_request(search) for search in searches]))
    return [[to_point(record, query.with_vector or "", record.score) for record in records] for records in results]
