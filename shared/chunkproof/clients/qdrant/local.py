"""The local mode of Qdrant's SDK: a store in this process, in a folder or in memory."""

import pickle
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models

from chunkproof.clients.ports import (
    DenseLeg,
    Description,
    Features,
    Page,
    Point,
    PointId,
    StoreQuery,
)
from chunkproof.clients.qdrant.filters import Json, qdrant_key, to_qdrant_filter
from chunkproof.clients.qdrant.local_folder import check_folder, create_metadata, restrict_unpickling
from chunkproof.clients.qdrant.queries import (
    MAX_SCORED,
    flatten_groups,
    group_search,
    is_grouped_by_store,
    rank_points,
    sample_search,
    searches_of,
)
from chunkproof.clients.qdrant.store import (
    QdrantStore,
    build_point,
    check_collection_name,
    dense_vector_configs,
    is_invalid_collection_name,
    round_cosine,
    vector_selector,
)
from chunkproof.clients.qdrant.transfer import Layout, name_vectors, to_unit_length
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    VectorStoreRefusedError,
    VectorStoreUnavailableError,
)
from chunkproof.files import LockedError, lock_folder, private_files
from chunkproof.models.filters import Condition

restrict_unpickling()

# What local mode raises on files that are damaged or not its own.
UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    sqlite3.Error,
    pickle.UnpicklingError,
)


class LocalStore(QdrantStore):
    """A store without an index, so every search is exact. Only one process can open its folder."""

    def __init__(self, path: Path | None) -> None:
        super().__init__("memory" if path is None else str(path))
        self._lock = ExitStack()
        if path is None:
            self.client = QdrantClient(":memory:")
            return
        check_folder(path)
        try:
            self._lock.enter_context(lock_folder(path))
            with private_files():
                create_metadata(path)
                self.client = QdrantClient(path=str(path))
        except (LockedError, RuntimeError):
            self._lock.close()
            raise VectorStoreUnavailableError(
                self.host,
                "another process has this folder open; wait for it or choose another folder with --data",
            ) from None
        except UNREADABLE as error:
            self._lock.close()
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be read as a store: {error}") from None

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        return sorted(found.name for found in self.client.get_collections().collections)

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each."""
        return {each.alias_name: each.collection_name for each in self.client.get_aliases().aliases}

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        with self._translate_errors(collection):
            info = self.client.get_collection(collection)
        params = info.config.params.model_dump(mode="json", include={"vectors", "sparse_vectors"})
        return Description(
            name=collection,
            vectors=tuple(dense_vector_configs(params["vectors"])),
            points_count=info.points_count or 0,
            indexed_vectors_count=info.indexed_vectors_count or 0,
            status=info.status.value,
            indexed_fields={},
            sparse_vectors={
                name: (sparse or {}).get("modifier") for name, sparse in (params.get("sparse_vectors") or {}).items()
            },
        )

    def features(self, deadline: Deadline) -> Features:
        """Return what local mode can do: it ranks any payload field by its words, and makes no sparse vectors."""
        return Features(
            store="Qdrant's local mode", text_index=True, any_field=True, rrf_k=True, rrf_weights=True, mmr=True
        )

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first."""
        return [self._search(query) for query in queries]

    def _search(self, query: StoreQuery) -> list[Point]:
        if query.dense:  # without an index there is nothing to tune, and the SDK would warn
            leg = query.dense
            query = replace(query, dense=DenseLeg(leg.config, leg.vector, leg.score_threshold))
        with self._translate_errors(query.collection):
            if query.text and query.text.field is not None:
                index = models.TextIndexParams(type=models.TextIndexType.TEXT, scoring=True)
                self.client.create_payload_index(query.collection, qdrant_key(query.text.field), index)
            if not is_grouped_by_store(query):
                return rank_points(query, self._run(query, searches_of(query)))
            groups = self.client.query_points_groups(query.collection, **_group_arguments(query)).groups
            found = [(group.id, _points(group.hits, query)) for group in groups]
            return rank_points(query, [flatten_groups(found)])

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of all points if they are few, else of random ones."""
        points = self.count(query.collection, query.where, deadline)
        if of_all := points <= MAX_SCORED:
            query = replace(query, limit=max(1, points))
        with self._translate_errors(query.collection):
            found = self._run(query, [sample_search(query, of_all=of_all)])[0]
        return [round_cosine(point.score) for point in found]

    def _run(self, query: StoreQuery, searches: Sequence[Json]) -> list[list[Point]]:
        requests = [models.QueryRequest.model_validate(search) for search in searches]
        results = self.client.query_batch_points(query.collection, requests) if requests else []
        return [_points(result.points, query) for result in results]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        with self._translate_errors(collection):
            found = self.client.retrieve(
                collection, ids=list(ids), with_payload=True, with_vectors=vector_selector(with_vector)
            )
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
        with self._translate_errors(collection):
            found, next_id = self.client.scroll(
                collection,
                scroll_filter=_filter(where),
                limit=limit,
                offset=start,
                with_payload=True,
                with_vectors=vector_selector(with_vector),
            )
        points = tuple(_point(record, with_vector or "") for record in found)
        return Page(points, next_id if isinstance(next_id, int | str) else None)

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        with self._translate_errors(collection):
            return self.client.count(collection, count_filter=_filter(where), exact=True).count

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of a payload field, with the number of points that have each."""
        with self._translate_errors(collection):
            hits = self.client.facet(collection, field, facet_filter=_filter(where), limit=limit).hits
        return {hit.value: hit.count for hit in hits if isinstance(hit.value, str)}

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool = False) -> None:
        """Create a collection with one unnamed cosine vector; local mode has no indexes, and searches any text."""
        check_collection_name(collection)
        params = models.VectorParams(size=size, distance=models.Distance.COSINE)
        with self._translate_errors(""), private_files():
            self.client.create_collection(collection, vectors_config=params)

    def upsert(
        self,
        collection: str,
        points: Sequence[Point],
        vector_name: str,
        deadline: Deadline,
        *,
        text_vector: str | None = None,
    ) -> None:
        """Write points and replace those with the same id; they are searchable when it returns."""
        structs = [
            models.PointStruct(
                id=point.id,
                vector={vector_name: list(point.vector or ())} if vector_name else list(point.vector or ()),
                payload=dict(point.payload),
            )
            for point in points
        ]
        with self._translate_errors(collection):
            self.client.upsert(collection, structs, wait=True)

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""
        with self._translate_errors(collection):
            params = self.client.get_collection(collection).config.params
        return Layout.from_params(params.model_dump(mode="json", include={"vectors", "sparse_vectors"}))

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        with self._translate_errors(collection):
            found, next_id = self.client.scroll(
                collection, limit=limit, offset=start, with_payload=True, with_vectors=True
            )
        structs = [record.model_dump(include={"id", "vector", "payload"}) for record in found]
        vectors = self.layout(collection, deadline).vectors
        cosine = {name for name, params in vectors.items() if params["distance"] == "Cosine"}
        for struct in structs:
            struct["payload"] = struct["payload"] or {}
            # A folder has vectors as they were given; Qdrant's engine keeps cosine vectors with a length of one.
            struct["vector"] = {
                name: to_unit_length(vector) if name in cosine else vector
                for name, vector in name_vectors(struct["vector"]).items()
            }
        return structs, next_id if isinstance(next_id, int | str) else None

    def close(self) -> None:
        """Close the folder, so that another process can open it."""
        self.client.close()
        self._lock.close()

    @contextmanager
    def _translate_errors(self, collection: str) -> Iterator[None]:
        if collection and (is_invalid_collection_name(collection) or not self.client.collection_exists(collection)):
            raise CollectionNotFoundError(collection)
        try:
            yield
        except ChunkproofError:
            raise  # some are a ValueError
        except ValueError:  # local mode raises nothing more specific
            raise VectorStoreRefusedError(self.host, f"The request does not fit collection {collection}") from None
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be written: {reason}") from None


def _filter(conditions: tuple[Condition, ...]) -> models.Filter | None:
    built = to_qdrant_filter(conditions)
    return None if built is None else models.Filter.model_validate(built)


def _group_arguments(query: StoreQuery) -> Json:
    """Return the arguments of `query_points_groups`, whose names are not those of the request."""
    request = models.QueryGroupsRequest.model_validate(group_search(query))
    renamed = {"filter": "query_filter", "params": "search_params", "with_vector": "with_vectors"}
    given = {name: getattr(request, name) for name in request.model_fields_set}
    return {renamed.get(name, name): value for name, value in given.items()}


def _points(found: Sequence[Any], query: StoreQuery) -> list[Point]:
    return [_point(point, query.with_vector or "", point.score) for point in found]


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    return build_point(found.id, found.payload, found.vector, vector_name, score)
