"""A Qdrant server or Qdrant Cloud, through the REST client of Qdrant's SDK."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from chunkproof import __version__
from chunkproof.clients.ports import (
    TEXT_VECTOR,
    Description,
    Features,
    Grouping,
    Page,
    Point,
    PointId,
    StoreQuery,
)
from chunkproof.clients.qdrant import responses
from chunkproof.clients.qdrant.failures import connection_error, is_from_qdrant, rate_limit_error, response_error
from chunkproof.clients.qdrant.filters import USABLE_INDEXES, Json, qdrant_key, required_indexes
from chunkproof.clients.qdrant.queries import (
    are_finite,
    bm25_vector,
    filter_field,
    flatten_groups,
    group_search,
    is_grouped_by_store,
    rank_points,
    sample_search,
    searches_of,
)
from chunkproof.clients.qdrant.rest_client import load_rest_client
from chunkproof.clients.qdrant.store import (
    QdrantStore,
    build_point,
    check_collection_name,
    count_indexed_dense,
    dense_vector_configs,
    has_edge,
    is_invalid_collection_name,
    round_cosine,
    vector_selector,
)
from chunkproof.clients.qdrant.transfer import Layout, name_vectors
from chunkproof.clients.transport import host_of
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, CollectionNotFoundError, IndexRequiredError
from chunkproof.models.filters import AnyOf, Condition, HasId

DEFAULT_PORT = 6333
COLLECTION = "/collections/{name}"
HEADERS = {"user-agent": f"chunkproof/{__version__}", "content-type": "application/json"}


class ServerStore(QdrantStore):
    """A store behind HTTP; the transport enforces the deadline and adds the key."""

    def __init__(self, url: str, transport: httpx.BaseTransport) -> None:
        super().__init__(host_of(url))
        self.url = _base_url(url)
        self._features: Features | None = None
        # Whether BM25 vectors are made here: the server is too old to make them.
        self._makes_vectors = False
        self._sdk = load_rest_client()
        self._client = self._sdk.ApiClient(self.url, transport=transport, headers=HEADERS, trust_env=False)

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        with self._translate_errors("", deadline):
            found = self._request("GET", "/collections", responses.COLLECTION_LIST)
        return sorted(collection["name"] for collection in found["collections"])

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each."""
        with self._translate_errors("", deadline):
            found = self._request("GET", "/aliases", responses.ALIAS_LIST)
        return {each["alias_name"]: each["collection_name"] for each in found["aliases"]}

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        with self._translate_errors(collection, deadline):
            info = self._request("GET", COLLECTION, responses.COLLECTION_INFO, collection)
            vectors = tuple(dense_vector_configs(info["config"]["params"].get("vectors")))
        strict = info["config"].get("strict_mode_config") or {}
        sparse_params = info["config"]["params"].get("sparse_vectors") or {}
        points, indexed = info.get("points_count") or 0, info.get("indexed_vectors_count") or 0
        return Description(
            name=collection,
            vectors=vectors,
            points_count=points,
            indexed_vectors_count=count_indexed_dense(indexed, points, len(sparse_params)),
            status=info["status"],
            indexed_fields={name: index["data_type"] for name, index in info["payload_schema"].items()},
            needs_indexes=bool(strict.get("enabled") and strict.get("unindexed_filtering_retrieve") is False),
            sparse_vectors={name: (params or {}).get("modifier") for name, params in sparse_params.items()},
            quantization=next(iter(info["config"].get("quantization_config") or ()), None),
            text_fields=tuple(
                name
                for name, index in info["payload_schema"].items()
                if index["data_type"] == "text" and (index.get("params") or {}).get("scoring")
            ),
        )

    def features(self, deadline: Deadline) -> Features:
        """Return what the server's version can do, and Qdrant Edge here in its place; it is asked once."""
        if self._features is None:
            with self._translate_errors("", deadline):
                greeting = self._client.request(type_=responses.Greeting, method="GET", url="/")
            features = _features_of(greeting["version"])
            self._makes_vectors = not features.bm25 and has_edge()
            self._features = replace(features, bm25=features.bm25 or self._makes_vectors)
        return self._features

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first; queries of one collection are one request."""
        found: dict[int, list[Point]] = {}
        together: dict[str, list[int]] = {}
        for number, query in enumerate(queries):
            if is_grouped_by_store(query):
                found[number] = self._search_groups(query, deadline)
            elif query.grouping:
                found[number] = self._search_fused_groups(query, query.grouping, deadline)
            else:
                together.setdefault(query.collection, []).append(number)
        for collection, numbers in together.items():
            batch = [queries[number] for number in numbers]
            found |= zip(numbers, self._search_batch(collection, batch, deadline), strict=True)
        return [found[number] for number in range(len(queries))]

    def _search_batch(self, collection: str, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        searches = [self._with_bm25(query, searches_of(query), deadline) for query in queries]
        where = tuple(condition for query in queries for condition in query.where)
        with self._translate_errors(collection, deadline, where):
            results = iter(self._run(collection, [one for own in searches for one in own]))
        found = []
        for query, own in zip(queries, searches, strict=True):
            found.append(rank_points(query, [self._points(next(results), query) for _ in own]))
        return found

    def _search_groups(self, query: StoreQuery, deadline: Deadline) -> list[Point]:
        (body,) = self._with_bm25(query, [group_search(query)], deadline)
        grouped_by = AnyOf(query.grouping.field, ("",)) if query.grouping else None
        where = (*query.where, grouped_by) if grouped_by else query.where
        with self._translate_errors(query.collection, deadline, where):
            path = COLLECTION + "/points/query/groups"
            groups = self._request("POST", path, responses.GROUP_RESULT, query.collection, body)["groups"]
        points = flatten_groups([(group["id"], self._points(group["hits"], query)) for group in groups])
        return rank_points(query, [points])

    def _search_fused_groups(self, query: StoreQuery, grouping: Grouping, deadline: Deadline) -> list[Point]:
        """Form groups of all candidates, and read the payloads of those that are left."""
        main, *others = self._with_bm25(query, searches_of(query), deadline)
        main |= {"with_payload": [qdrant_key(grouping.field)], "with_vector": False}
        with self._translate_errors(query.collection, deadline, query.where):
            results = self._run(query.collection, [main, *others])
        points = rank_points(query, [self._points(found, query) for found in results])
        if not points:
            return []
        where = (*query.where, HasId(tuple(point.id for point in points)))
        page = self.scroll(query.collection, deadline, limit=len(points), where=where, with_vector=query.with_vector)
        stored = {point.id: point for point in page.points}
        return [
            replace(point, payload=stored[point.id].payload, vector=stored[point.id].vector)
            for point in points
            if point.id in stored
        ]

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points; the server draws them (from Qdrant 1.11 on)."""
        with self._translate_errors(query.collection, deadline, query.where):
            found = self._run(query.collection, [sample_search(query)])[0]
        return [round_cosine(point.score) for point in self._points(found, query)]

    def _with_bm25(self, query: StoreQuery, searches: list[Json], deadline: Deadline) -> list[Json]:
        """Return the searches of a query with BM25 vectors, if they are made here."""
        if query.text is None or query.text.sparse_vector is None:
            return searches
        self.features(deadline)
        if not self._makes_vectors:
            return searches
        from chunkproof.clients.qdrant.edge_queries import make_vectors

        return [make_vectors(search) for search in searches]

    def _run(self, collection: str, searches: Sequence[Json]) -> list[Any]:
        """Send the searches as one request, and return the points of each."""
        if len(searches) == 1:
            path = COLLECTION + "/points/query"
            return [self._request("POST", path, responses.QUERY_RESULT, collection, searches[0])["points"]]
        path, body = COLLECTION + "/points/query/batch", {"searches": searches}
        results = self._request("POST", path, responses.QUERY_RESULTS, collection, body)
        if len(results) != len(searches):
            raise ValueError("there is not one result for each search")
        return [result["points"] for result in results]

    def _points(self, found: Any, query: StoreQuery) -> list[Point]:
        points = [_point(point, query.with_vector or "", point["score"]) for point in found]
        if not are_finite(points):
            raise connection_error(self.host, ValueError("a score is not a finite number"))
        return points

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist."""
        body = {"ids": list(ids), "with_payload": True, "with_vector": vector_selector(with_vector)}
        with self._translate_errors(collection, deadline):
            found = self._request("POST", COLLECTION + "/points", responses.RECORDS, collection, body)
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
        body = {
            "limit": limit,
            "with_payload": True,
            "with_vector": vector_selector(with_vector),
            **({} if start is None else {"offset": start}),
            **filter_field(where),
        }
        with self._translate_errors(collection, deadline, where):
            found = self._request("POST", COLLECTION + "/points/scroll", responses.SCROLL_PAGE, collection, body)
        points = tuple(_point(record, with_vector or "") for record in found["points"])
        return Page(points, found.get("next_page_offset"))

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        body = {"exact": True, **filter_field(where)}
        with self._translate_errors(collection, deadline, where):
            found = self._request("POST", COLLECTION + "/points/count", responses.COUNT, collection, body)
        return int(found["count"])

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of an indexed payload field; None without an index, or before Qdrant 1.12."""
        # An exact count of 100,000 different ids takes the server five seconds; from the index it takes 0.1.
        body = {"key": qdrant_key(field), "limit": limit, "exact": False, **filter_field(where)}
        with self._translate_errors(collection, deadline):
            try:
                found = self._request("POST", COLLECTION + "/facet", responses.FACET, collection, body)
            except self._sdk.UnexpectedResponse as error:
                has_no_facets = error.status_code in (404, 405) and not is_from_qdrant(error.content)
                if not has_no_facets and error.status_code not in (400, 422):
                    raise
                return None
        return {hit["value"]: hit["count"] for hit in found["hits"] if isinstance(hit["value"], str)}

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool = False) -> None:
        """Create a collection with one unnamed cosine vector, an index on `chunk_id`, and a sparse vector if wanted."""
        check_collection_name(collection)
        config: Json = {"vectors": {"size": size, "distance": "Cosine"}}
        if text_search:
            config["sparse_vectors"] = {TEXT_VECTOR: {"modifier": "idf"}}
        index = {"field_name": "chunk_id", "field_schema": "keyword"}
        with self._translate_errors("", deadline):
            self._request("PUT", COLLECTION, responses.CREATED, collection, config)
            self._request("PUT", COLLECTION + "/index?wait=true", responses.WRITE_RESULT, collection, index)

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
        words = self._document_vector(deadline) if text_vector is not None else None

        def vectors(point: Point) -> Any:
            dense = point.vector or ()
            if text_vector is None or words is None:
                return {vector_name: dense} if vector_name else dense
            return {vector_name: dense, text_vector: words(str(point.payload["text"]))}

        body = {"points": [{"id": point.id, "vector": vectors(point), "payload": point.payload} for point in points]}
        with self._translate_errors(collection, deadline):
            self._request("PUT", COLLECTION + "/points?wait=true", responses.WRITE_RESULT, collection, body)

    def _document_vector(self, deadline: Deadline) -> Callable[[str], Json]:
        """Return what makes the BM25 vector of a stored text, here or on the server."""
        self.features(deadline)
        if not self._makes_vectors:
            return bm25_vector
        from chunkproof.clients.qdrant import edge_queries

        return partial(edge_queries.bm25_vector, is_query=False)

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""
        with self._translate_errors(collection, deadline):
            info = self._request("GET", COLLECTION, responses.RAW, collection)
        indexes = {
            field: {**(index.get("params") or {}), "type": index["data_type"]}
            for field, index in info["payload_schema"].items()
        }
        return Layout.from_params(info["config"]["params"], indexes)

    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""
        check_collection_name(collection)
        only = layout.vectors[""] if set(layout.vectors) == {""} else layout.vectors
        with self._translate_errors("", deadline):
            config = {"vectors": only, "sparse_vectors": layout.sparse_vectors}
            self._request("PUT", COLLECTION, responses.CREATED, collection, config)
            for field, schema in layout.indexes.items():
                index = {"field_name": field, "field_schema": schema}
                self._request("PUT", COLLECTION + "/index?wait=true", responses.WRITE_RESULT, collection, index)

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        body = {"limit": limit, "with_payload": True, "with_vector": True, "offset": start}
        with self._translate_errors(collection, deadline):
            found = self._request("POST", COLLECTION + "/points/scroll", responses.RAW, collection, body)
        structs = [
            {"id": point["id"], "vector": name_vectors(point.get("vector")), "payload": point.get("payload") or {}}
            for point in found["points"]
        ]
        return structs, found.get("next_page_offset")

    def write_points(self, collection: str, points: list[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are searchable when it returns."""
        with self._translate_errors(collection, deadline):
            path = COLLECTION + "/points?wait=true"
            self._request("PUT", path, responses.WRITE_RESULT, collection, {"points": points})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(
        self, method: str, path: str, response_type: Any, collection: str = "", body: Json | None = None
    ) -> Any:
        """Send a request and return the `result` of the response, which the SDK validates against `response_type`."""
        response = self._client.request(
            type_=response_type,
            method=method,
            url=path,
            path_params={"name": collection},
            content=None if body is None else to_json(body),
        )
        return response["result"]

    @contextmanager
    def _translate_errors(
        self, collection: str, deadline: Deadline, where: tuple[Condition, ...] = ()
    ) -> Iterator[None]:
        if collection and is_invalid_collection_name(collection):
            raise CollectionNotFoundError(collection)
        try:
            with deadline.enforced():
                yield
        except self._sdk.UnexpectedResponse as error:
            raise self._response_error(error, collection, where, deadline) from None
        except self._sdk.ResponseHandlingException as error:
            raise connection_error(self.host, error.source) from None
        except self._sdk.ResourceExhaustedResponse as error:  # a 429
            raise rate_limit_error(self.host, error.retry_after_s) from None
        except ChunkproofError:
            raise  # some are a ValueError
        except (ValueError, RecursionError) as error:  # not JSON, or nested too deep
            raise connection_error(self.host, error) from None

    def _response_error(
        self, error: Any, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> ChunkproofError:
        missing_index = self._missing_index(collection, where, deadline) if error.status_code == 400 and where else None
        return missing_index or response_error(
            self.host, error.status_code or 0, error.content, error.headers, collection
        )

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


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    return build_point(found["id"], found.get("payload"), found.get("vector"), vector_name, score)
