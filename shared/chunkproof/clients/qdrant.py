"""Qdrant through its client: a server, Qdrant Cloud, a local folder or memory."""

import json
import logging
import math
import pickle
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from chunkproof.clients import Description, Nearest, Page, Point, PointId, VectorSpace, is_impossible
from chunkproof.clients.breaker import CircuitOpenError
from chunkproof.clients.http import AnswerTooLargeError, host_of, retry_after
from chunkproof.clients.qdrant_filters import SERVED_BY, field_schemas, to_qdrant
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    IndexRequiredError,
    InvalidParameterError,
    RateLimitedError,
    ResponseTooLargeError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.models.filters import Condition

log = logging.getLogger(__name__)

# Scores are 32-bit; this is more than their rounding and less than any difference that matters.
SCORE_STEP = 1e-6
# What local mode raises on files that are not its own, or no longer whole.
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


class QdrantStore:
    """A `WritableStore` over any kind of `QdrantClient`."""

    def __init__(self, client: QdrantClient, host: str, *, is_local: bool) -> None:
        self.client = client
        self.host = host
        self._is_local = is_local

    @classmethod
    def at(cls, url: str, transport: httpx.BaseTransport) -> Self:
        """A server or a cloud cluster; the transport adds the key."""
        # The client compares versions with an extra request at start; a mismatch shows itself anyway.
        client = QdrantClient(url=url, check_compatibility=False, transport=transport)
        return cls(client, host_of(url), is_local=False)

    @classmethod
    def embedded(cls, path: Path | None) -> Self:
        """A store in this folder, one process at a time; in memory when there is none."""
        try:
            client = QdrantClient(":memory:") if path is None else QdrantClient(path=str(path))
        except RuntimeError:
            raise VectorStoreUnavailableError(
                str(path), "another process has this folder open; wait for it or give another --data"
            ) from None
        except UNREADABLE as error:
            raise VectorStoreUnavailableError(
                str(path), f"the folder cannot be read as a store: {error}"
            ) from None
        return cls(client, "memory" if path is None else str(path), is_local=True)

    def collections(self, deadline: Deadline) -> list[str]:
        """All names, sorted."""
        with self._translated("", deadline):
            return sorted(found.name for found in self.client.get_collections().collections)

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Shape and counts now."""
        with self._translated(collection, deadline):
            info = self.client.get_collection(collection)
        strict = info.config.strict_mode_config
        return Description(
            name=collection,
            vectors=tuple(_spaces(info.config.params.vectors)),
            points_count=info.points_count or 0,
            indexed_vectors_count=info.indexed_vectors_count or 0,
            status=info.status.value,
            indexed_fields={name: str(index.data_type.value) for name, index in info.payload_schema.items()},
            needs_indexes=bool(strict and strict.enabled and strict.unindexed_filtering_retrieve is False),
        )

    def nearest(self, query: Nearest, deadline: Deadline) -> list[Point]:
        """Best first, scores equal to the threshold included."""
        using = query.space.name
        with self._translated(query.collection, deadline, query.where):
            answer = self.client.query_points(
                query.collection,
                query=list(query.vector),
                using=using or None,
                query_filter=to_qdrant(query.where),
                limit=query.limit,
                # A server keeps what is strictly above the threshold, local mode keeps equals.
                score_threshold=query.at_least - SCORE_STEP,
                with_payload=True,
                with_vectors=[using] if query.with_vectors and using else query.with_vectors,
                search_params=models.SearchParams(exact=True) if query.exact and not self._is_local else None,
            )
        points = [_point(found, using, found.score) for found in answer.points]
        if not self._is_local and not all(math.isfinite(found.score) for found in answer.points):
            raise self._unreachable(ValueError("a score that is no number"))
        return [point for point in points if point.score >= query.at_least]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """The points that exist among these ids."""
        with self._translated(collection, deadline):
            found = self.client.retrieve(
                collection, ids=list(ids), with_payload=True, with_vectors=_selector(with_vector)
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
        """A page of points in id order."""
        with self._translated(collection, deadline, where):
            found, next_id = self.client.scroll(
                collection,
                scroll_filter=to_qdrant(where),
                limit=limit,
                offset=start,
                with_payload=True,
                with_vectors=_selector(with_vector),
            )
        points = tuple(_point(record, with_vector or "") for record in found)
        return Page(points, next_id if isinstance(next_id, int | str) else None)

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """How many points meet the conditions, exactly."""
        with self._translated(collection, deadline, where):
            return self.client.count(collection, count_filter=to_qdrant(where), exact=True).count

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """A new collection with one unnamed cosine vector and an index on `chunk_id`."""
        if is_impossible(collection):
            raise InvalidParameterError(f"No collection can be named {collection}")
        with self._translated("", deadline):
            self.client.create_collection(
                collection, vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE)
            )
            if not self._is_local:  # local mode scans; it would only warn
                self.client.create_payload_index(
                    collection, "chunk_id", field_schema=models.PayloadSchemaType.KEYWORD
                )

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points, replacing those with the same id; done when it returns."""
        structs = [
            models.PointStruct(
                id=point.id,
                vector={vector_name: list(point.vector or ())} if vector_name else list(point.vector or ()),
                payload=dict(point.payload),
            )
            for point in points
        ]
        with self._translated(collection, deadline):
            self.client.upsert(collection, structs, wait=True)

    def close(self) -> None:
        """Give the connections, or the folder, back."""
        self.client.close()

    @contextmanager
    def _translated(
        self, collection: str, deadline: Deadline, where: tuple[Condition, ...] = ()
    ) -> Iterator[None]:
        if collection and is_impossible(collection):
            raise CollectionNotFoundError(collection)
        if self._is_local:
            if collection and not self.client.collection_exists(collection):
                raise CollectionNotFoundError(collection)
            try:
                yield
            except ValueError:  # all that local mode says when a request does not fit the collection
                raise VectorStoreRefusedError(self.host, f"It does not fit collection {collection}") from None
            return
        try:
            with deadline.applied():
                yield
        except UnexpectedResponse as error:
            raise self._refusal(error, collection, where, deadline) from None
        except ResponseHandlingException as error:
            raise self._unreachable(error.source) from None
        except QdrantException as error:  # a 429
            raise self._rate_limited(getattr(error, "retry_after_s", None)) from None
        except (ApiException, ValueError, AssertionError, RecursionError) as error:
            raise self._unreachable(error) from None

    def _refusal(
        self, error: UnexpectedResponse, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> ChunkproofError:
        status = error.status_code or 0
        wait = retry_after(error.headers)
        if status == 404 and collection and _is_qdrants(error.content):
            return CollectionNotFoundError(collection)
        if status == 429:
            return self._rate_limited(wait)
        if status in (401, 403):
            return VectorStoreUnavailableError(self.host, "Qdrant refused the key; check QDRANT_API_KEY")
        if status in (408, 504):
            return VectorStoreTimeoutError(self.host, f"Qdrant timed out ({status})", retry_after=wait)
        if status == 400 and where and (missing := self._missing_index(collection, where, deadline)):
            return missing
        if status in (400, 422):
            return VectorStoreRefusedError(self.host, f"Qdrant refused the request ({status})")
        return VectorStoreUnavailableError(self.host, f"Qdrant answered {status}", retry_after=wait)

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

    def _rate_limited(self, wait: float | None) -> RateLimitedError:
        return RateLimitedError(f"Qdrant at {self.host} limits the rate of requests", retry_after=wait)

    def _unreachable(self, cause: BaseException | None) -> ChunkproofError:
        if isinstance(cause, ChunkproofError):  # the key could not be had
            return cause
        if isinstance(cause, CircuitOpenError):
            reason = "Qdrant failed repeatedly; it is asked again after a rest"
            return VectorStoreUnavailableError(self.host, reason, retry_after=cause.retry_after)
        if isinstance(cause, AnswerTooLargeError):
            return ResponseTooLargeError(
                f"Qdrant at {self.host} answered with {cause}; ask for fewer results"
            )
        if isinstance(cause, httpx.TimeoutException):
            return VectorStoreTimeoutError(self.host, "Qdrant did not answer in time")
        if isinstance(cause, httpx.ConnectError):
            return VectorStoreUnavailableError(self.host, "The connection failed; check QDRANT_URL")
        if isinstance(cause, httpx.TransportError):
            return VectorStoreUnavailableError(
                self.host, "The connection broke off before an answer was whole"
            )
        log.warning("an answer that is not Qdrant's", exc_info=cause)
        return VectorStoreUnavailableError(self.host, "What answered there does not speak Qdrant's API")


def _is_qdrants(content: bytes) -> bool:
    """Whether an answer is Qdrant's, and not some other server's at that address."""
    try:
        return "status" in json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return False


def _spaces(vectors: Any) -> Iterator[VectorSpace]:
    named = vectors if isinstance(vectors, dict) else {"": vectors} if vectors else {}
    for name, params in named.items():
        if params.multivector_config is not None:
            continue  # one vector per token: not a single dense vector to compare with
        yield VectorSpace(name, params.size, params.distance.value)


def _selector(name: str | None) -> bool | list[str]:
    return False if name is None else [name] if name else True


def _point(found: Any, vector_name: str, score: float = 0.0) -> Point:
    vector = found.vector.get(vector_name) if isinstance(found.vector, dict) else found.vector
    return Point(
        id=found.id,
        payload=found.payload or {},
        score=_cosine(float(score)),
        vector=None if vector is None else tuple(vector),
    )


def _cosine(score: float) -> float:
    """The score at the precision it has: an identical vector scores 0.9999999 or 1.0000001 as well as 1."""
    if not math.isfinite(score):  # local mode's for a vector of zeros
        return 0.0
    return 1.0 if score > 1.0 - SCORE_STEP else score
