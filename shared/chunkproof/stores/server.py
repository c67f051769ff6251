"""A Qdrant server or Qdrant Cloud, through the REST client of Qdrant's SDK."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from chunkproof import __version__
from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    IndexRequiredError,
    StrictModeError,
    VectorStoreRefusedError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import Condition
from chunkproof.net.transport import host_of
from chunkproof.stores import rest_client
from chunkproof.stores.qdrant import (
    USABLE_INDEXES,
    build_point,
    check_collection_name,
    count_indexed_dense,
    dense_search,
    dense_vector_configs,
    filter_field,
    has_edge,
    is_invalid_collection_name,
    qdrant_key,
    rank_dense,
    required_indexes,
    round_cosine,
    sample_search,
    vector_selector,
)
from chunkproof.stores.rest_client import connection_error, response_error
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

DEFAULT_PORT = 6333
Result = TypeVar("Result")
# Ids in a page, where points are counted by reading them.
COUNTED = 10_000
HEADERS = {"user-agent": f"chunkproof/{__version__}", "content-type": "application/json"}


class ServerStore(WritableStore):
    """A store behind HTTP; the transport enforces the deadline and adds the key."""

    def __init__(self, url: str, transport: httpx.BaseTransport) -> None:
        super().__init__(host_of(url))
        self.url = _base_url(url)
        self._features: Features | None = None
        # Of collections in strict mode: the highest limit of a request.
        self._limits: dict[str, int] = {}
        # Whether BM25 vectors are made here: the server is too old to make them.
        self._makes_vectors = False
        self._sdk = rest_client.load_rest_client()
        self._client = self._sdk.ApiClient(self.url, transport=transport, headers=HEADERS, trust_env=False)

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""

        def read(result: Any) -> list[str]:
            return sorted(str(collection["name"]) for collection in _items(result["collections"]))

        return self._call("GET /collections", deadline, read=read)

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each."""

        def read(result: Any) -> dict[str, str]:
            return {str(alias["alias_name"]): str(alias["collection_name"]) for alias in _items(result["aliases"])}

        return self._call("GET /aliases", deadline, read=read)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        description = self._call("GET", deadline, collection, read=partial(_read_description, collection))
        self._limits.pop(collection, None)
        if description.max_limit is not None:
            self._limits[collection] = description.max_limit
        return description

    def max_limit(self, collection: str) -> int | None:
        """Return the highest limit that the collection's strict mode allows, as far as it is known."""
        return self._limits.get(collection)

    def features(self, deadline: Deadline) -> Features:
        """Return what the server's version can do, and Qdrant Edge here in its place; it is asked once."""
        if self._features is None:
            features = self._call("GET /", deadline, read=lambda greeting: _features_of(greeting["version"]))
            self._makes_vectors = not features.bm25 and has_edge()
            self._features = replace(features, bm25=features.bm25 or self._makes_vectors)
        return self._features

    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process, because the server is too old to make them."""
        self.features(deadline)
        return self._makes_vectors

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first; queries of one collection are one request."""
        if len({query.collection for query in queries}) != 1 or any(
            q.text or q.grouping or q.diversity is not None for q in queries
        ):
            from chunkproof.stores import hybrid  # words, groups, diversity: only for queries that have them

            return hybrid.search_server(self, queries, deadline)
        where = tuple(condition for query in queries for condition in query.where)
        results = self.run(queries[0].collection, [dense_search(query) for query in queries], where, deadline)
        return [rank_dense(query, points) for query, points in zip(queries, results, strict=True)]

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points; the server draws them (from Qdrant 1.11 on)."""
        (points,) = self.run(query.collection, [sample_search(query)], query.where, deadline)
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
                return [self._call("POST /points/query", deadline, collection, searches[0], where, read=read_one)]
            body = {"searches": searches}
            return self._call("POST /points/query/batch", deadline, collection, body, where, read=read)
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
                for group in _items(result["groups"])
            ]

        return self._call("POST /points/query/groups", deadline, collection, search, where, read=read)

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        body = {"ids": list(ids), "with_payload": True, "with_vector": vector_selector(with_vector)}
        read = partial(_read_records, with_vector)
        return self._call("POST /points", deadline, collection, body, read=read)

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
        body = {"with_payload": True, "with_vector": vector_selector(with_vector), **filter_field(where)}

        def read(page: Any) -> Page:
            next_id = page.get("next_page_offset")
            points = _read_records(with_vector, page["points"])
            return Page(tuple(points), None if next_id is None else _check_id(next_id))

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
        body = {"exact": True, **filter_field(where)}
        try:
            return self._call("POST /points/count", deadline, collection, body, where, read=_read_count)
        except StrictModeError:  # it may forbid exact counts
            return self._count_ids(collection, where, deadline)

    def _count_ids(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Count the points by reading their ids."""
        body = {"limit": COUNTED, "with_payload": False, "with_vector": False, **filter_field(where)}
        total = 0

        def read(page: Any) -> tuple[int, Any]:
            return len(_items(page["points"])), page.get("next_page_offset")

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
        # An exact count of 100,000 different ids takes the server five seconds; from the index it takes 0.1.
        body = {"key": qdrant_key(field), "limit": limit, "exact": False, **filter_field(where)}

        def read(result: Any) -> dict[str, int]:
            return {hit["value"]: int(hit["count"]) for hit in _items(result["hits"]) if isinstance(hit["value"], str)}

        try:
            return self._call_limited("POST /facet", deadline, collection, body, read=read)
        except (VectorStoreRefusedError, rest_client.UnknownRouteError):
            return None

    def bm25_maker(self, deadline: Deadline) -> Callable[[str], Json]:
        """Return what makes the BM25 vector of a text to store, here or on the server."""
        from chunkproof.stores import hybrid

        return hybrid.make_bm25_vector if self.makes_vectors(deadline) else hybrid.name_bm25_vector

    def optimize(self, collection: str) -> None:
        """Do nothing: a server builds its indexes by itself."""

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""

        def read(info: Any) -> Layout:
            indexes = {
                field: {**(index.get("params") or {}), "type": index["data_type"]}
                for field, index in info["payload_schema"].items()
            }
            return Layout.from_config(info["config"], indexes)

        return self._call("GET", deadline, collection, read=read)

    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""
        check_collection_name(collection)
        only = layout.vectors[""] if set(layout.vectors) == {""} else layout.vectors
        config = {**layout.settings, "vectors": only, "sparse_vectors": layout.sparse_vectors}
        self._call("PUT", deadline, collection, config, read=_check_done)
        for field, schema in layout.indexes.items():
            index = {"field_name": field, "field_schema": schema}
            self._call("PUT /index?wait=true", deadline, collection, index, read=_check_done)

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        body = {"limit": limit, "with_payload": True, "with_vector": True, "offset": start}

        def read(page: Any) -> tuple[list[Json], PointId | None]:
            structs = [
                {"id": point["id"], "vector": _name_vectors(point.get("vector")), "payload": point.get("payload") or {}}
                for point in page["points"]
            ]
            return structs, page.get("next_page_offset")

        return self._call_limited("POST /points/scroll", deadline, collection, body, read=read)

    def write_points(self, collection: str, points: Sequence[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are searchable when it returns."""
        self._call("PUT /points?wait=true", deadline, collection, {"points": points}, read=_check_done)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

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
            return self._call(operation, deadline, collection, sent, where, read=read)
        except StrictModeError:
            if not self.has_lower_limit(collection, limit, deadline):
                raise
            return self._call_limited(operation, deadline, collection, body, where, read=read)

    def has_lower_limit(self, collection: str, limit: int | None, deadline: Deadline) -> bool:
        """Whether strict mode now allows less than what was known when a request was refused."""
        found = self.describe(collection, deadline).max_limit
        return found is not None and (limit is None or found < limit)

    def _call(
        self,
        operation: str,
        deadline: Deadline,
        collection: str = "",
        body: Json | None = None,
        where: tuple[Condition, ...] = (),
        *,
        read: Callable[[Any], Result],
    ) -> Result:
        """Send a request and return what `read` takes from the `result` of the response.

        Every failure becomes an error of Chunkproof's, also one of `read`: the response is then not Qdrant's.
        `operation` is a method and a path, below the collection if one is named. `where` are the conditions that may
        need an index.
        """
        if collection and is_invalid_collection_name(collection):
            raise CollectionNotFoundError(collection)
        method, _, path = operation.partition(" ")
        try:
            with deadline.enforced():
                response = self._client.request(
                    type_=dict[str, Any],
                    method=method,
                    url="/collections/{name}" + path if collection else path,
                    path_params={"name": collection},
                    content=None if body is None else to_json(body),
                )
            return read(response.get("result", response))
        except self._sdk.UnexpectedResponse as error:
            missing = self._missing_index(collection, where, deadline) if error.status_code == 400 and where else None
            raise missing or response_error(self.host, error, collection) from None
        except self._sdk.ResponseHandlingException as error:
            raise connection_error(self.host, error.source) from None
        except self._sdk.ResourceExhaustedResponse as error:  # a 429
            raise rest_client.rate_limit_error(self.host, error.retry_after_s) from None
        except ChunkproofError:
            raise  # some are a ValueError
        except rest_client.MALFORMED as error:
            raise connection_error(self.host, error) from None

    def _missing_index(
        self, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> IndexRequiredError | None:
        description = self.describe(collection, deadline)
        if not description.needs_indexes:
            return None
        for field, schema in required_indexes(where):
            if description.indexed_fields.get(field) not in USABLE_INDEXES[schema]:
                return IndexRequiredError(collection, field, schema)
        return None


def _base_url(url: str) -> str:
    """Return the URL, with Qdrant's default port where it has none."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{host_of(url)}{'' if parts.port else f':{DEFAULT_PORT}'}{parts.path}"


def _features_of(version: str) -> Features:
    """Return what a server of this version can do, or any recent one if it is not a version."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    release = tuple(map(int, numbers.groups())) if numbers else (1, 16, 0)
    return Features(
        store=f"Qdrant {version}",
        bm25=release >= (1, 15, 3),
        text_index=release >= (1, 20, 0),
        rrf_k=release >= (1, 16, 0),
        rrf_weights=release >= (1, 17, 0),  # 1.16 ignores them
        mmr=release >= (1, 15, 0),
    )


def _read_description(collection: str, info: Any) -> Description:
    config, schema = info["config"], info["payload_schema"]
    strict = config.get("strict_mode_config") or {}
    sparse_params = config["params"].get("sparse_vectors") or {}
    points, indexed = int(info.get("points_count") or 0), int(info.get("indexed_vectors_count") or 0)
    return Description(
        name=collection,
        vectors=tuple(dense_vector_configs(config["params"].get("vectors"))),
        points_count=points,
        indexed_vectors_count=count_indexed_dense(indexed, points, len(sparse_params)),
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


def _read_results(search: Json, result: Any) -> list[Point]:
    """Return the points of a search's result."""
    selected = search["with_vector"]
    name = selected[0] if isinstance(selected, list) else ""
    points = [_read_point(record, name, float(record["score"])) for record in _items(result["points"])]
    if not all(isfinite(point.score) for point in points):
        raise ValueError("a score is not a finite number")
    return points


def _read_records(with_vector: str | None, records: Any) -> list[Point]:
    return [_read_point(record, with_vector or "") for record in _items(records)]


def _read_point(record: Any, vector_name: str, score: float = 0.0) -> Point:
    payload = record.get("payload")
    if not (payload is None or isinstance(payload, dict)):
        raise TypeError("a payload is not an object")
    return build_point(_check_id(record["id"]), payload, record.get("vector"), vector_name, score)


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("there is no list")
    return value


def _read_count(result: Any) -> int:
    return int(result["count"])


def _check_done(result: Any) -> None:
    """Raise an error of `MALFORMED` unless the result is one of a write."""
    if result is not True and not isinstance(result["status"], str):
        raise TypeError("there is no status")


def _check_id(point_id: Any) -> PointId:
    if not isinstance(point_id, int | str):
        raise TypeError("an id is neither a number nor a text")
    return point_id


def _name_vectors(vectors: Any) -> Json:
    """Return the vectors of a point by name; the unnamed one has an empty name."""
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {"": vectors} if vectors else {}
