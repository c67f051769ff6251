"""A Qdrant server, through the REST client of Qdrant's SDK."""

import math
from collections.abc import Iterator, Sequence
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
    is_invalid_collection_name,
)
from chunkproof.clients.qdrant import responses as answers
from chunkproof.clients.qdrant.failures import rate_limited, refused, unreachable
from chunkproof.clients.qdrant.filters import SERVED_BY, Json, field_schemas, to_qdrant
from chunkproof.clients.qdrant.rest_client import rest_client
from chunkproof.clients.qdrant.store import (
    SCORE_STEP,
    QdrantStore,
    creatable,
    dense_spaces,
    point_of,
    vector_selector,
)
from chunkproof.clients.transport import host_of
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, CollectionNotFoundError, IndexRequiredError
from chunkproof.models.filters import Condition

DEFAULT_PORT = 6333
ONE = "/collections/{name}"
HEADERS = {"user-agent": f"chunkproof/{__version__}", "content-type": "application/json"}


class ServedStore(QdrantStore):
    """Asks over HTTP; the transport bounds each call and adds the key."""

    def __init__(self, url: str, transport: httpx.BaseTransport) -> None:
        super().__init__(host_of(url))
        self.url = _base(url)
        self._sdk = rest_client()
        self._client = self._sdk.ApiClient(self.url, transport=transport, headers=HEADERS, trust_env=False)

    def collections(self, deadline: Deadline) -> list[str]:
        """All names, sorted."""
        with self._translated("", deadline):
            found = self._asked("GET", "/collections", answers.NAMES)
        return sorted(collection["name"] for collection in found["collections"])

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Shape and counts now."""
        with self._translated(collection, deadline):
            info = self._asked("GET", ONE, answers.INFO, collection)
            vectors = tuple(dense_spaces(info["config"]["params"].get("vectors")))
        strict = info["config"].get("strict_mode_config") or {}
        return Description(
            name=collection,
            vectors=vectors,
            points_count=info.get("points_count") or 0,
            indexed_vectors_count=info.get("indexed_vectors_count") or 0,
            status=info["status"],
            indexed_fields={name: index["data_type"] for name, index in info["payload_schema"].items()},
            needs_indexes=bool(strict.get("enabled") and strict.get("unindexed_filtering_retrieve") is False),
        )

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """Best first, scores equal to the threshold included."""
        using = query.space.name
        body = {
            "query": query.vector,
            "limit": query.limit,
            # A server keeps what is strictly above the threshold.
            "score_threshold": query.score_threshold - SCORE_STEP,
            "with_payload": True,
            "with_vector": vector_selector(using if query.with_vectors else None),
            **({"using": using} if using else {}),
            **_filtered(query.where),
            **({"params": {"exact": True}} if query.exact else {}),
        }
        with self._translated(query.collection, deadline, query.where):
            found = self._asked("POST", ONE + "/points/query", answers.FOUND, query.collection, body)
        if not all(math.isfinite(point["score"]) for point in found["points"]):
            raise unreachable(self.host, ValueError("a score that is no number"))
        points = [_point(point, using, point["score"]) for point in found["points"]]
        return [point for point in points if point.score >= query.score_threshold]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """The points that exist among these ids."""
        body = {"ids": list(ids), "with_payload": True, "with_vector": vector_selector(with_vector)}
        with self._translated(collection, deadline):
            found = self._asked("POST", ONE + "/points", answers.RECORDS, collection, body)
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
        """A page of points in id order."""
        body = {
            "limit": limit,
            "with_payload": True,
            "with_vector": vector_selector(with_vector),
            **({} if start is None else {"offset": start}),
            **_filtered(where),
        }
        with self._translated(collection, deadline, where):
            found = self._asked("POST", ONE + "/points/scroll", answers.SCROLLED, collection, body)
        points = tuple(_point(record, with_vector or "") for record in found["points"])
        return Page(points, found.get("next_page_offset"))

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """How many points meet the conditions, exactly."""
        body = {"exact": True, **_filtered(where)}
        with self._translated(collection, deadline, where):
            found = self._asked("POST", ONE + "/points/count", answers.COUNTED, collection, body)
        return int(found["count"])

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """A new collection with one unnamed cosine vector and an index on `chunk_id`."""
        creatable(collection)
        index = {"field_name": "chunk_id", "field_schema": "keyword"}
        with self._translated("", deadline):
            self._asked(
                "PUT", ONE, answers.MADE, collection, {"vectors": {"size": size, "distance": "Cosine"}}
            )
            self._asked("PUT", ONE + "/index?wait=true", answers.WRITTEN, collection, index)

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points, replacing those with the same id; done when it returns."""
        structs = [
            {
                "id": point.id,
                "vector": {vector_name: point.vector or ()} if vector_name else point.vector or (),
                "payload": point.payload,
            }
            for point in points
        ]
        with self._translated(collection, deadline):
            self._asked("PUT", ONE + "/points?wait=true", answers.WRITTEN, collection, {"points": structs})

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _asked(
        self, method: str, path: str, answer_type: Any, collection: str = "", body: Json | None = None
    ) -> Any:
        """What the server answers, checked to be of its type."""
        answer = self._client.request(
            type_=answer_type,
            method=method,
            url=path,
            path_params={"name": collection},
            content=None if body is None else to_json(body),
        )
        return answer["result"]

    @contextmanager
    def _translated(
        self, collection: str, deadline: Deadline, where: tuple[Condition, ...] = ()
    ) -> Iterator[None]:
        if collection and is_invalid_collection_name(collection):
            raise CollectionNotFoundError(collection)
        try:
            with deadline.applied():
                yield
        except self._sdk.UnexpectedResponse as error:
            raise self._refusal(error, collection, where, deadline) from None
        except self._sdk.ResponseHandlingException as error:
            raise unreachable(self.host, error.source) from None
        except self._sdk.ResourceExhaustedResponse as error:  # a 429
            raise rate_limited(self.host, error.retry_after_s) from None
        except (ValueError, RecursionError) as error:  # not JSON, or nested without end
            raise unreachable(self.host, error) from None

    def _refusal(
        self, error: Any, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> ChunkproofError:
        needed = (
            self._missing_index(collection, where, deadline) if error.status_code == 400 and where else None
        )
        return needed or refused(self.host, error.status_code or 0, error.content, error.headers, collection)

    def _missing_index(
        self, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> IndexRequiredError | None:
        description = self.describe(collection, deadline)
        if not description.needs_indexes:
            return None
        for field, schema in field_schemas(where):
            if description.indexed_fields.get(field) not in SERVED_BY[schema]:
                return IndexRequiredError(collection, field, schema)
        return None


def _base(url: str) -> str:
    """The address, with Qdrant's own port where it names none."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{host_of(url)}{'' if parts.port else f':{DEFAULT_PORT}'}{parts.path}"


def _filtered(where: tuple[Condition, ...]) -> Json:
    built = to_qdrant(where)
    return {} if built is None else {"filter": built}


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    return point_of(found["id"], found.get("payload"), found.get("vector"), vector_name, score)
