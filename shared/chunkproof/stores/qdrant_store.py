"""Collections read by requests of Qdrant's REST API, whoever answers them; and a store of one tenant's points.

A server answers over HTTP (`server.py`), the engine in this process (`edge.py`).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, TypeVar

from chunkproof.base.errors import (
    InvalidParameterError,
    StrictModeError,
    VectorStoreRefusedError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf, Condition, HasId
from chunkproof.stores.qdrant import (
    dense_search,
    filter_field,
    qdrant_key,
    rank_dense,
    round_cosine,
    sample_search,
    vector_selector,
)
from chunkproof.stores.store_port import (
    Description,
    Features,
    Json,
    Page,
    Point,
    PointId,
    StoreQuery,
    TextLeg,
    VectorConfig,
    VectorStore,
)

Result = TypeVar("Result")
# Ids in a page, where points are counted by reading them.
COUNTED = 10_000
# The engine scores so many points in some ten milliseconds.
MAX_SCORED = 10_000


class UnknownRouteError(VectorStoreUnavailableError):
    """The server is older than the request, or is not Qdrant."""


class QdrantStore(VectorStore):
    """A store whose methods are requests of Qdrant's REST API, which `call` answers.

    `is_embedded`: the engine in this process answers. It forms no groups, makes no BM25 vectors and is fast enough to
    score every point of a small collection.
    """

    is_embedded = False

    def __init__(self, host: str) -> None:
        self._host = host
        # Of collections in strict mode: the highest limit of a request.
        self._limits: dict[str, int] = {}

    @property
    def host(self) -> str:
        """The host or folder, as messages show it."""
        return self._host

    def for_tenant(self, field: str, tenant: str) -> "TenantStore":
        """Return a store of the points whose payload field has this tenant."""
        return TenantStore(self, field, tenant)

    @abstractmethod
    def call(
        self,
        operation: str,
        deadline: Deadline,
        collection: str = "",
        body: Json | None = None,
        where: tuple[Condition, ...] = (),
        *,
        read: Callable[[Any], Result],
    ) -> Result:
        """Return what `read` takes from the `result` of a response; every failure is one of `chunkproof.base.errors`.

        `operation` is a method and a path, below the collection if one is named. `where` are the conditions that may
        need an index.
        """

    @abstractmethod
    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process, and not by the server."""

    def _own(self, where: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Return the conditions of a request with those that every request has."""
        return where

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""

        def read(result: Any) -> list[str]:
            return sorted(str(collection["name"]) for collection in check_list(result["collections"]))

        return self.call("GET /collections", deadline, read=read)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        description = self.call("GET", deadline, collection, read=partial(_read_description, collection))
        self._limits.pop(collection, None)
        if description.max_limit is not None:
            self._limits[collection] = description.max_limit
        return description

    def max_limit(self, collection: str) -> int | None:
        """Return the highest limit that the collection's strict mode allows, as far as it is known."""
        return self._limits.get(collection)

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first; queries of one collection are one request."""
        if len({query.collection for query in queries}) != 1 or not all(query.is_plain for query in queries):
            from chunkproof.stores import hybrid  # words, groups, diversity: only for queries that have them

            return hybrid.search_store(self, queries, deadline)
        where = tuple(condition for query in queries for condition in query.where)
        results = self.run(queries[0].collection, [dense_search(query) for query in queries], where, deadline)
        return [rank_dense(query, points) for query, points in zip(queries, results, strict=True)]

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points, which a server draws (from Qdrant 1.11 on); of few here, those of all."""
        of_all = False
        if self.is_embedded:
            count = self.count(query.collection, query.where, deadline)
            of_all = count <= MAX_SCORED
            query = replace(query, limit=max(1, count)) if of_all else query
        query = replace(query, where=self._own(query.where))
        (points,) = self.run(query.collection, [sample_search(query, of_all=of_all)], query.where, deadline)
        return [round_cosine(point.score) for point in points]

    def run(
        self, collection: str, searches: Sequence[Json], where: tuple[Condition, ...], deadline: Deadline
    ) -> list[list[Point]]:
        """Send the searches as one request, and return the results of each; `where` are all of their conditions."""
        limit = self._limits.get(collection)
        if limit is not None and any(search["limit"] > limit for search in searches):
            from chunkproof.stores import hybrid

            return hybrid.search_in_pages(self, collection, searches, where, deadline)

        def read(results: Any) -> list[list[Point]]:
            return [_read_results(search, result) for search, result in zip(searches, results, strict=True)]

        try:
            if len(searches) == 1:
                read_one = partial(_read_results, searches[0])
                return [self.call("POST /points/query", deadline, collection, searches[0], where, read=read_one)]
            body = {"searches": searches}
            return self.call("POST /points/query/batch", deadline, collection, body, where, read=read)
        except StrictModeError:
            if not self.has_lower_limit(collection, limit, deadline):
                raise
            return self.run(collection, searches, where, deadline)

    def run_groups(
        self, collection: str, search: Json, where: tuple[Condition, ...], deadline: Deadline
    ) -> list[tuple[PointId, list[Point]]]:
        """Send a search whose results the server groups, and return the groups."""

        def read(result: Any) -> list[tuple[PointId, list[Point]]]:
            return [
                (_check_id(group["id"]), _read_results(search, {"points": group["hits"]}))
                for group in check_list(result["groups"])
            ]

        return self.call("POST /points/query/groups", deadline, collection, search, where, read=read)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        body = {"ids": list(ids), "with_payload": True, "with_vector": vector_selector(with_vector)}
        read = partial(_read_records, with_vector)
        return self.call("POST /points", deadline, collection, body, read=read)

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
        where = self._own(where)
        body = {"with_payload": True, "with_vector": vector_selector(with_vector), **filter_field(where)}

        def read(page: Any) -> Page:
            return Page(tuple(_read_records(with_vector, page["points"])), _read_next_id(page))

        points: list[Point] = []
        while True:  # once, unless strict mode allows less than this limit
            body |= {"limit": limit - len(points), **({} if start is None else {"offset": start})}
            page = self._call_limited("POST /points/scroll", deadline, collection, body, where, read=read)
            points += page.points
            if page.next_id is None or not page.points or len(points) >= limit:
                return Page(tuple(points), page.next_id)
            start = page.next_id

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        where = self._own(where)
        body = {"exact": True, **filter_field(where)}
        try:
            return self.call("POST /points/count", deadline, collection, body, where, read=_read_count)
        except StrictModeError:  # it may forbid exact counts
            return self._count_ids(collection, where, deadline)

    def _count_ids(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Count the points by reading their ids."""
        body = {"limit": COUNTED, "with_payload": False, "with_vector": False, **filter_field(where)}
        total = 0

        def read(page: Any) -> tuple[int, Any]:
            return len(check_list(page["points"])), page.get("next_page_offset")

        while True:
            count, following = self._call_limited("POST /points/scroll", deadline, collection, body, where, read=read)
            total += count
            if following is None or not count:
                return total
            body["offset"] = following

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of an indexed payload field; None without an index, or before Qdrant 1.12."""
        # An exact count of 100,000 different ids takes five seconds; from the index it takes 0.1. The engine's counts
        # of the index are exact as well while no other process writes; tests compare them with what was written.
        body = {"key": qdrant_key(field), "limit": limit, "exact": False, **filter_field(self._own(where))}

        def read(result: Any) -> dict[str, int]:
            texts = [hit for hit in check_list(result["hits"]) if isinstance(hit["value"], str)]
            return {hit["value"]: int(hit["count"]) for hit in texts if hit["count"]}

        try:
            return self._call_limited("POST /facet", deadline, collection, body, read=read)
        except (VectorStoreRefusedError, UnknownRouteError):
            return None

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        body = {"limit": limit, "with_payload": True, "with_vector": True, "offset": start}
        body |= filter_field(self._own(()))

        def read(page: Any) -> tuple[list[Json], PointId | None]:
            structs = [
                {"id": point["id"], "vector": _name_vectors(point.get("vector")), "payload": point.get("payload") or {}}
                for point in page["points"]
            ]
            return structs, _read_next_id(page)

        return self._call_limited("POST /points/scroll", deadline, collection, body, read=read)

    def bm25_maker(self, deadline: Deadline) -> Callable[[str], Json]:
        """Return what makes the BM25 vector of a text to store, here or on the server."""
        from chunkproof.stores import hybrid

        return hybrid.make_bm25_vector if self.makes_vectors(deadline) else hybrid.name_bm25_vector

    def _call_limited(
        self,
        operation: str,
        deadline: Deadline,
        collection: str,
        body: Json,
        where: tuple[Condition, ...] = (),
        *,
        read: Callable[[Any], Result],
    ) -> Result:
        """Call with the limit of the body, or with the highest that the collection's strict mode allows."""
        limit = self._limits.get(collection)
        sent = body if limit is None else {**body, "limit": min(body["limit"], limit)}
        try:
            return self.call(operation, deadline, collection, sent, where, read=read)
        except StrictModeError:
            if not self.has_lower_limit(collection, limit, deadline):
                raise
            return self._call_limited(operation, deadline, collection, body, where, read=read)

    def has_lower_limit(self, collection: str, limit: int | None, deadline: Deadline) -> bool:
        """Whether strict mode now allows less than what was known when a request was refused."""
        found = QdrantStore.describe(self, collection, deadline).max_limit
        return found is not None and (limit is None or found < limit)


class TenantStore(QdrantStore):
    """A `VectorStore` that adds its tenant's condition to every request of another store.

    Use cases get this store instead of the real one, so none of them can forget the condition, and a caller's
    filter cannot widen it: Qdrant requires both to hold.
    """

    def __init__(self, store: QdrantStore, field: str, tenant: str) -> None:
        super().__init__(store.host)
        self.tenant = tenant
        self._store, self._condition = store, AnyOf(field, (tenant,))
        self._limits, self.is_embedded = store._limits, store.is_embedded

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Send the request."""
        return self._store.call(*arguments, **options)

    def features(self, deadline: Deadline) -> Features:
        """Return what the store can do."""
        return self._store.features(deadline)

    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process."""
        return self._store.makes_vectors(deadline)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Describe the collection, counting only the tenant's points."""
        found = self._store.describe(collection, deadline)
        own = self.count(collection, (), deadline)
        # The store counts indexed vectors of all tenants; unless all are indexed, claim none of this tenant's.
        is_indexed = found.indexed_vectors_count >= found.points_count
        return replace(found, points_count=own, indexed_vectors_count=own if is_indexed else 0)

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Search the tenant's points; a word weighs by how many of these have it."""
        found = super().search([self._own_query(query, deadline) for query in queries], deadline)
        return [[_without_text_score(point) for point in points] for points in found]

    def _own_query(self, query: StoreQuery, deadline: Deadline) -> StoreQuery:
        text = query.text
        if text is not None:
            check_own_words(text, self.features(deadline))
            text = replace(text, corpus=(self._condition,))
        return replace(query, where=self._own(query.where), text=text)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the tenant's points among these ids; another tenant's point does not exist."""
        where = (HasId(tuple(ids)),)
        page = self.scroll(collection, deadline, limit=max(1, len(ids)), where=where, with_vector=with_vector)
        return list(page.points)

    def _own(self, where: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return where if self._condition in where else (self._condition, *where)


def check_own_words(leg: TextLeg, features: Features) -> None:
    """Raise `InvalidParameterError` unless words can be weighed by the points of one tenant.

    Weighed by all points, the order of a tenant's own results shows which words the points of others have.
    """
    if leg.sparse_vector is None or not features.idf_corpus:
        weighs = f"{features.store} weighs words" if leg.sparse_vector else "a text index weighs words"
        raise InvalidParameterError(
            f"mode text and mode hybrid are off for tenants: {weighs} by how many chunks of all tenants have them, "
            "which shows the words of others. Use mode dense; or search a BM25 vector, which chunkproof load --hybrid "
            "makes, on Qdrant 1.19 or later or with Store=edge, where words are weighed within each tenant"
        )


def _without_text_score(point: Point) -> Point:
    return replace(point, scores=replace(point.scores, text=None)) if point.scores else point


# Responses


def _read_description(collection: str, info: Any) -> Description:
    config, schema = info["config"], info["payload_schema"]
    strict = config.get("strict_mode_config") or {}
    sparse_params = config["params"].get("sparse_vectors") or {}
    points, indexed = int(info.get("points_count") or 0), int(info.get("indexed_vectors_count") or 0)
    return Description(
        name=collection,
        vectors=tuple(_dense_vectors(config["params"].get("vectors"))),
        points_count=points,
        # Qdrant's count includes sparse vectors, which always have an index.
        indexed_vectors_count=max(0, indexed - points * len(sparse_params)),
        status=str(info["status"]),
        indexed_fields={name: str(index["data_type"]) for name, index in schema.items()},
        needs_indexes=bool(strict.get("enabled") and strict.get("unindexed_filtering_retrieve") is False),
        sparse_vectors={name: (params or {}).get("modifier") for name, params in sparse_params.items()},
        quantization=next(iter(config.get("quantization_config") or ()), None),
        text_fields=tuple(
            name
            for name, index in schema.items()
            if index["data_type"] == "text" and (index.get("params") or {}).get("scoring")
        ),
        max_limit=strict.get("max_query_limit") if strict.get("enabled") else None,
    )


def _dense_vectors(vectors: Mapping[str, Any] | None) -> Iterator[VectorConfig]:
    """Yield the single dense vectors in the `vectors` of a collection's configuration."""
    named = {} if not vectors else {"": vectors} if isinstance(vectors.get("size"), int) else vectors
    for name, params in named.items():
        if params.get("multivector_config") is None:  # a multivector has one vector per token
            yield VectorConfig(name, int(params["size"]), str(params["distance"]), params.get("datatype"))


def _read_results(search: Json, result: Any) -> list[Point]:
    """Return the points of a search's result."""
    selected = search["with_vector"]
    name = selected[0] if isinstance(selected, list) else ""
    points = [_read_point(record, name, float(record["score"])) for record in check_list(result["points"])]
    if not all(isfinite(point.score) for point in points):
        raise ValueError("a score is not a finite number")
    return points


def _read_records(with_vector: str | None, records: Any) -> list[Point]:
    return [_read_point(record, with_vector or "") for record in check_list(records)]


def _read_point(record: Any, vector_name: str, score: float = 0.0) -> Point:
    payload, vectors = record.get("payload"), record.get("vector")
    if not (payload is None or isinstance(payload, dict)):
        raise TypeError("a payload is not an object")
    vector = vectors.get(vector_name) if isinstance(vectors, dict) else vectors
    return Point(_check_id(record["id"]), payload or {}, score, None if vector is None else tuple(vector))


def check_list(value: Any) -> list[Any]:
    """Return a list; raise `TypeError` for anything else."""
    if not isinstance(value, list):
        raise TypeError("there is no list")
    return value


def _read_count(result: Any) -> int:
    return int(result["count"])


def _read_next_id(page: Any) -> PointId | None:
    next_id = page.get("next_page_offset")
    return None if next_id is None else _check_id(next_id)


def _check_id(point_id: Any) -> PointId:
    if not isinstance(point_id, int | str):
        raise TypeError("an id is neither a number nor a text")
    return point_id


def _name_vectors(vectors: Any) -> Json:
    """Return the vectors of a point by name; the unnamed one has an empty name."""
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {"": vectors} if vectors else {}
