"""A Qdrant server or Qdrant Cloud, through the REST client of Qdrant's SDK."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import to_json

from chunkproof import __version__
from chunkproof.clients.ports import (
    Description,
    NearestQuery,
    Page,
    Point,
    PointId,
)
from chunkproof.clients.qdrant import responses
from chunkproof.clients.qdrant.failures import connection_error, is_from_qdrant, rate_limit_error, response_error
from chunkproof.clients.qdrant.filters import USABLE_INDEXES, Json, qdrant_key, required_indexes, to_qdrant_filter
from chunkproof.clients.qdrant.rest_client import load_rest_client
from chunkproof.clients.qdrant.store import (
    SCORE_STEP,
    QdrantStore,
    build_point,
    check_collection_name,
    dense_vector_configs,
    is_invalid_collection_name,
    vector_selector,
)
from chunkproof.clients.transport import host_of
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, CollectionNotFoundError, IndexRequiredError
from chunkproof.models.filters import Condition

DEFAULT_PORT = 6333
COLLECTION = "/collections/{name}"
HEADERS = {"user-agent": f"chunkproof/{__version__}", "content-type": "application/json"}


class ServerStore(QdrantStore):
    """A store behind HTTP; the transport enforces the deadline and adds the key."""

    def __init__(self, url: str, transport: httpx.BaseTransport) -> None:
        super().__init__(host_of(url))
        self.url = _base_url(url)
        self._sdk = load_rest_client()
        self._client = self._sdk.ApiClient(self.url, transport=transport, headers=HEADERS, trust_env=False)

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        with self._translate_errors("", deadline):
            found = self._request("GET", "/collections", responses.COLLECTION_LIST)
        return sorted(collection["name"] for collection in found["collections"])

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        with self._translate_errors(collection, deadline):
            info = self._request("GET", COLLECTION, responses.COLLECTION_INFO, collection)
            vectors = tuple(dense_vector_configs(info["config"]["params"].get("vectors")))
        strict = info["config"].get("strict_mode_config") or {}
        return Description(
            name=collection,
            vectors=vectors,
            points_count=info.get("points_count") or 0,
            indexed_vectors_count=info.get("indexed_vectors_count") or 0,
            status=info["status"],
            indexed_fields={name: index["data_type"] for name, index in info["payload_schema"].items()},
            needs_indexes=bool(strict.get("enabled") and strict.get("unindexed_filtering_retrieve") is False),
            sparse_vectors={
                name: (params or {}).get("modifier")
                for name, params in (info["config"]["params"].get("sparse_vectors") or {}).items()
            },
            quantization=next(iter(info["config"].get("quantization_config") or ()), None),
        )

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """Return the nearest points, best first, scores equal to the threshold included."""
        using = query.vector_config.name
        body = {
            "query": query.vector,
            "limit": query.limit,
            # A server returns only scores strictly above the threshold.
            "score_threshold": query.score_threshold - SCORE_STEP,
            "with_payload": True,
            "with_vector": vector_selector(using if query.with_vectors else None),
            **({"using": using} if using else {}),
            **_filter_field(query.where),
            **({"params": {"exact": True}} if query.exact else {}),
        }
        with self._translate_errors(query.collection, deadline, query.where):
            found = self._request("POST", COLLECTION + "/points/query", responses.QUERY_RESULT, query.collection, body)
        if not all(math.isfinite(point["score"]) for point in found["points"]):
            raise connection_error(self.host, ValueError("a score is not a finite number"))
        points = [_point(point, using, point["score"]) for point in found["points"]]
        return [point for point in points if point.score >= query.score_threshold]

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
            **_filter_field(where),
        }
        with self._translate_errors(collection, deadline, where):
            found = self._request("POST", COLLECTION + "/points/scroll", responses.SCROLL_PAGE, collection, body)
        points = tuple(_point(record, with_vector or "") for record in found["points"])
        return Page(points, found.get("next_page_offset"))

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        body = {"exact": True, **_filter_field(where)}
        with self._translate_errors(collection, deadline, where):
            found = self._request("POST", COLLECTION + "/points/count", responses.COUNT, collection, body)
        return int(found["count"])

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of an indexed payload field; None without an index, or before Qdrant 1.12."""
        body = {"key": qdrant_key(field), "limit": limit, "exact": True, **_filter_field(where)}
        with self._translate_errors(collection, deadline):
            try:
                found = self._request("POST", COLLECTION + "/facet", responses.FACET, collection, body)
            except self._sdk.UnexpectedResponse as error:
                has_no_facets = error.status_code in (404, 405) and not is_from_qdrant(error.content)
                if not has_no_facets and error.status_code not in (400, 422):
                    raise
                return None
        return {hit["value"]: hit["count"] for hit in found["hits"] if isinstance(hit["value"], str)}

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """Create a collection with one unnamed cosine vector and an index on `chunk_id`."""
        check_collection_name(collection)
        vectors = {"vectors": {"size": size, "distance": "Cosine"}}
        index = {"field_name": "chunk_id", "field_schema": "keyword"}
        with self._translate_errors("", deadline):
            self._request("PUT", COLLECTION, responses.CREATED, collection, vectors)
            self._request("PUT", COLLECTION + "/index?wait=true", responses.WRITE_RESULT, collection, index)

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points and replace those with the same id; they are searchable when it returns."""
        structs = [
            {
                "id": point.id,
                "vector": {vector_name: point.vector or ()} if vector_name else point.vector or (),
                "payload": point.payload,
            }
            for point in points
        ]
        body = {"points": structs}
        with self._translate_errors(collection, deadline):
            self._request("PUT", COLLECTION + "/points?wait=true", responses.WRITE_RESULT, collection, body)

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


def _filter_field(where: tuple[Condition, ...]) -> Json:
    return {"filter": to_qdrant_filter(where)} if where else {}


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    return build_point(found["id"], found.get("payload"), found.get("vector"), vector_name, score)
