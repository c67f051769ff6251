"""What a Qdrant server and Qdrant's engine have in common: requests and responses as Qdrant's JSON, and their store.

A server answers the requests over HTTP (`server.py`), the engine in this process (`edge.py`).
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chunkproof.base import errors
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import (
    Absent,
    All,
    AnyOf,
    Between,
    Condition,
    Either,
    HasId,
    HasVector,
    Not,
    Scalar,
    fields_of,
)
from chunkproof.contract.model import MAX_NAME
from chunkproof.stores.store_port import (
    DenseLeg,
    Description,
    Json,
    Page,
    Point,
    PointId,
    StoreQuery,
    VectorConfig,
    VectorStore,
)

if TYPE_CHECKING:
    from chunkproof.stores.edge import EdgeStore

NO_EDGE = (
    "collections in a folder need Qdrant Edge, which is not installed (there are builds for Linux with glibc and for "
    "macOS): pip install 'chunkproof[local]', or set QDRANT_URL to use a server"
)
# For each type of index to create: all types that serve the same conditions.
USABLE_INDEXES = {
    "keyword": {"keyword", "uuid"},
    "integer": {"integer"},
    "float": {"float", "integer"},
    "bool": {"bool"},
    "datetime": {"datetime"},
}
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\[\])?")
Result = TypeVar("Result")
# More than the rounding of a 32-bit score, and less than any difference that matters.
SCORE_STEP = 1e-6
# Qdrant refuses such names, and in a URL these characters would mean something else.
_FORBIDDEN = re.compile(r'[/\\<>:"|?*\x00-\x1f\x7f]')
# Ids in a page, where points are counted by reading them.
COUNTED = 10_000
# The engine scores this many points in about ten milliseconds.
MAX_SCORED = 10_000


def has_edge() -> bool:
    """Whether Qdrant Edge can be imported on this machine."""
    try:
        import_module("qdrant_edge")
    except ImportError:
        return False
    return True


def open_edge_store(folder: Path) -> "EdgeStore":
    """Open the embedded store in a folder; raise `VectorStoreUnavailableError` on a machine without Qdrant Edge."""
    if not has_edge():
        raise errors.VectorStoreUnavailableError(str(folder), NO_EDGE)
    from chunkproof.stores.edge import EdgeStore

    return EdgeStore(folder)


class UnknownRouteError(errors.VectorStoreUnavailableError):
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

    def for_tenant(self, field: str, tenant: str) -> VectorStore:
        """Return a store of the points whose payload field has this tenant."""
        from chunkproof.stores.tenants import TenantStore

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

    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process, by Qdrant's engine, and not by the server."""
        return True

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
        if len({query.collection for query in queries}) != 1 or any(
            query.text or query.grouping or query.diversity is not None for query in queries
        ):
            from chunkproof.stores import hybrid  # words, groups, diversity: only for queries that have them

            return hybrid.search_store(self, queries, deadline)
        where = tuple(condition for query in queries for condition in query.where)
        results = self.run(queries[0].collection, [dense_search(query) for query in queries], where, deadline)
        return [rank_dense(query, points) for query, points in zip(queries, results, strict=True)]

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points, which a server draws (from 1.11 on); here, of all if there are few."""
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
        except errors.StrictModeError:
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
            return self.call(
                "POST /points/count", deadline, collection, body, where, read=lambda found: int(found["count"])
            )
        except errors.StrictModeError:  # it may forbid exact counts
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
        except (errors.VectorStoreRefusedError, UnknownRouteError):
            return None

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        body = {"limit": limit, "with_payload": True, "with_vector": True, "offset": start}
        body |= filter_field(self._own(()))

        def read(page: Any) -> tuple[list[Json], PointId | None]:
            structs = [
                {"id": _check_id(each["id"]), "vector": _name_vectors(each.get("vector")), "payload": each["payload"]}
                for each in page["points"]
            ]
            return structs, _read_next_id(page)

        return self._call_limited("POST /points/scroll", deadline, collection, body, read=read)

    def read_vectors(self, collection: str, ids: Sequence[PointId], deadline: Deadline) -> dict[PointId, Json]:
        """Return all vectors of the points that exist among these, by name."""
        body = {"ids": list(ids), "with_payload": False, "with_vector": True}

        def read(found: Any) -> dict[PointId, Json]:
            return {_check_id(each["id"]): _name_vectors(each.get("vector")) for each in check_list(found)}

        return self.call("POST /points", deadline, collection, body, read=read)

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
        except errors.StrictModeError:
            if not self.has_lower_limit(collection, limit, deadline):
                raise
            return self._call_limited(operation, deadline, collection, body, where, read=read)

    def has_lower_limit(self, collection: str, limit: int | None, deadline: Deadline) -> bool:
        """Whether strict mode now allows less than what was known when a request was refused."""
        found = QdrantStore.describe(self, collection, deadline).max_limit
        return found is not None and (limit is None or found < limit)


# Requests


def is_invalid_collection_name(collection: str) -> bool:
    """Whether no collection can have this name."""
    return bool(_FORBIDDEN.search(collection)) or collection in ("", ".", "..") or len(collection) > MAX_NAME


def check_collection_name(collection: str) -> None:
    """Raise `InvalidParameterError` if no collection can have this name."""
    if is_invalid_collection_name(collection):
        raise errors.InvalidParameterError(f"No collection can be named {collection}")


def dense_search(query: StoreQuery) -> Json:
    """Return the search of a query that has a dense leg alone."""
    if query.dense is None:
        raise ValueError("a search needs a dense leg or a text leg")
    return {
        **dense_leg(query.dense, query.where),
        "limit": query.limit,
        "with_payload": query.with_payload,
        "with_vector": vector_selector(query.with_vector),
    }


def rank_dense(query: StoreQuery, points: Sequence[Point]) -> list[Point]:
    """Return the results of a dense search that reach the threshold; identical vectors have a cosine of 1."""
    threshold = query.dense.score_threshold if query.dense else 0.0
    rounded = [replace(point, score=1.0) if point.score > 1.0 - SCORE_STEP else point for point in points]
    return [point for point in rounded if point.score >= threshold][: query.limit]


def sample_search(query: StoreQuery, *, of_all: bool = False) -> Json:
    """Return the search for the scores of random points, or of all (up to the limit), for the dense leg."""
    if query.dense is None:
        raise ValueError("the query has no dense leg")
    search = {
        "query": query.dense.vector,
        **({"using": query.dense.config.name} if query.dense.config.name else {}),
        **filter_field(query.where),
        "limit": query.limit,
        "with_payload": False,
        "with_vector": False,
    }
    drawn = {"query": {"sample": "random"}, "limit": query.limit, **filter_field(query.where)}
    return {**search, "params": {"exact": True}} if of_all else {**search, "prefetch": [drawn]}


def dense_leg(leg: DenseLeg, where: tuple[Condition, ...]) -> Json:
    """Return the search of a dense leg, without a limit."""
    quantization = {"rescore": leg.rescore, "oversampling": leg.oversampling}
    chosen = {name: value for name, value in quantization.items() if value is not None}
    params: Json = {
        **({"exact": True} if leg.exact else {}),
        **({"hnsw_ef": leg.hnsw_ef} if leg.hnsw_ef is not None else {}),
        **({"quantization": chosen} if chosen else {}),
    }
    return {
        "query": leg.vector,
        # A server returns only scores strictly above the threshold.
        "score_threshold": leg.score_threshold - SCORE_STEP,
        **({"using": leg.config.name} if leg.config.name else {}),
        **filter_field(where),
        **({"params": params} if params else {}),
    }


def vector_selector(name: str | None) -> bool | list[str]:
    """Return Qdrant's `with_vector` value: False for no vector, True for the unnamed one, or a list with a name."""
    return False if name is None else [name] if name else True


def round_cosine(score: float) -> float:
    """Return 1.0 for scores such as 0.9999999 and 1.0000001, which identical vectors get."""
    return 1.0 if score > 1.0 - SCORE_STEP else score


def filter_field(where: tuple[Condition, ...]) -> Json:
    """Return the `filter` of a request, if it has conditions."""
    return {"filter": to_qdrant_filter(where)} if where else {}


# Filters


def to_qdrant_filter(conditions: tuple[Condition, ...]) -> Json | None:
    """Return a filter that requires all conditions; None when there are none."""
    return {"must": [_condition(condition) for condition in conditions]} if conditions else None


def required_indexes(conditions: tuple[Condition, ...]) -> Iterator[tuple[str, str]]:
    """Yield each field of the conditions, in Qdrant's notation, and the type of index to create for it."""
    for condition in fields_of(conditions):
        key = qdrant_key(condition.field)
        if isinstance(condition, Between):
            yield key, "datetime" if condition.is_about_time else "float"
        elif isinstance(condition, AnyOf):
            yield from ((key, index_type) for index_type in dict.fromkeys(map(_index_type, condition.values)))


def _index_type(value: Scalar) -> str:
    if isinstance(value, bool):
        return "bool"
    return "keyword" if isinstance(value, str) else "integer" if isinstance(value, int) else "float"


def _condition(condition: Condition) -> Json:
    match condition:
        case Not(conditions):
            return {"must_not": [{"must": [_condition(c) for c in conditions]}]}
        case All(conditions):
            return {"must": [_condition(c) for c in conditions]}
        case Either(conditions):
            return {"should": [_condition(c) for c in conditions]}
        case Between():
            given = {bound: getattr(condition, bound) for bound in ("gte", "gt", "lte", "lt")}
            bounds = {
                bound: value.isoformat() if isinstance(value, datetime) else value
                for bound, value in given.items()
                if value is not None
            }
            return {"key": qdrant_key(condition.field), "range": bounds}
        case HasId(ids):
            return {"has_id": list(ids)}
        case HasVector(name):
            return {"has_vector": name}
        case Absent(field):
            return {"is_empty": {"key": qdrant_key(field)}}
        case AnyOf(field, values):
            alternatives = list(_alternatives(qdrant_key(field), values))
            return alternatives[0] if len(alternatives) == 1 else {"should": alternatives}


def _alternatives(key: str, values: tuple[Scalar, ...]) -> Iterator[Json]:
    strings = [v for v in values if isinstance(v, str)]
    integers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    for group in (strings, integers):
        if len(group) == 1:
            yield {"key": key, "match": {"value": group[0]}}
        elif group:
            yield {"key": key, "match": {"any": group}}
    for value in values:
        if isinstance(value, bool):
            yield {"key": key, "match": {"value": value}}
        elif isinstance(value, float):
            yield {"key": key, "range": {"gte": value, "lte": value}}


def qdrant_key(field: str) -> str:
    """Return the path in Qdrant's notation, where a segment that is not a plain name is quoted."""
    return ".".join(map(_segment, field.split(".")))


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    name = part.removesuffix("[]")
    return f'"{name}"' + part[len(name) :]


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


def _read_next_id(page: Any) -> PointId | None:
    # Qdrant returns at least an empty payload: without one, a point would be taken for one that has nothing.
    if not all(isinstance(point["payload"], dict) for point in check_list(page["points"])):
        raise TypeError("a point of a scan has no payload")
    next_id = page.get("next_page_offset")
    return None if next_id is None else _check_id(next_id)


def _check_id(point_id: Any) -> PointId:
    if not isinstance(point_id, (int, str)):
        raise TypeError("an id is neither a number nor a text")
    return point_id


def _name_vectors(vectors: Any) -> Json:
    """Return the vectors of a point by name; the unnamed one has an empty name."""
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {"": vectors} if vectors else {}
