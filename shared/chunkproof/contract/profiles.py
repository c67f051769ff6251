"""Response profiles: `POST /search` in the shape of another data model, for clients that were written for it.

A caller names a profile in the query string (`?profile=flat`) or in `Accept: application/json; profile="flat"`.
docs/contract.md has the table. Each shape is a pure function of the canonical `RetrievalResponse`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from chunkproof.base.errors import InvalidParameterError, error_classes
from chunkproof.contract.model import AS_STORED, Count, Items, Limits, Milliseconds, Model, is_none
from chunkproof.contract.query import DEFAULT_TOP_K, SearchQuery
from chunkproof.contract.response import ErrorDetail, RetrievalResponse, SearchResult, Stored, Time

_ACCEPTED = re.compile(r"""application/json\s*;[^,]*?\bprofile\s*=\s*(?:"([^"]*)"|([^\s;,]+))""", re.IGNORECASE)
# Fields of a result and of its metadata under the names of profiles.
_NAMES = {"source_url": "url", "page_title": "document_title", "chunk_index": "position"}
_RANKED = {"chunk_text": "text", "similarity_score": "similarity_score", "rank": "rank"}
_LISTED = {**_RANKED, **_NAMES, "section_heading": "section_heading", "breadcrumb": "breadcrumb"}
_FLAT = {name: name for name in ("url", "position", "similarity_score", "chunk_id")}
_FLAT |= {"content": "text", "created_at": "timestamp"}
_NESTED = {**_NAMES, "section_headers": "section_headers", "tokens": "tokens"}
_CODES = {"QDRANT_UNAVAILABLE": "QDRANT_CONNECTION_FAILED"}
# What a request can add to a response, and no profile has a place for.
_ADDED = frozenset({"highlight", "neighbours", "explain", "cursor", "group_by", "receipt"})


class Query(Model):
    """A question with its id and its time, as clients of profile `nested` keep it."""

    text: str = Field(pattern=r"\S")
    query_id: str = ""
    timestamp: str = ""


class QueryEmbedding(Model):
    """The vector of a query, and how it was made."""

    query_id: str
    embedding: Items[float]
    model: str = "embed-english-v3.0"
    input_type: str = "search_query"
    embedding_time_ms: Milliseconds = 0.0


class FlatChunk(Model):
    """A result with its source beside its text."""

    model_config = AS_STORED

    content: str
    url: Stored
    position: Stored = None
    similarity_score: float
    chunk_id: str
    created_at: Stored = None


class FlatMetadata(Model):
    """Time and number of results of a search."""

    query_time_ms: Count
    total_results: Count
    timestamp: Time


class FlatResponse(Model):
    """Profile `flat`: results without nesting, and times in `metadata`."""

    query: str
    results: Items[FlatChunk]
    metadata: FlatMetadata
    error: ErrorDetail | None = Field(None, exclude_if=is_none)


class ListedChunk(Model):
    """An item of profile `chunks`: a result under the payload's names, with the payload itself."""

    model_config = AS_STORED

    query_id: str | None
    chunk_text: str
    source_url: Stored
    page_title: Stored = None
    section_heading: Stored = None
    breadcrumb: Stored = None
    chunk_index: Stored = None
    similarity_score: float
    metadata: dict[str, JsonValue]
    rank: int


class ListedPoint(Model):
    """An item of profile `points`: a point as Qdrant returns it."""

    model_config = AS_STORED

    id: int | str
    score: float
    payload: dict[str, JsonValue] | None
    vector: Items[float] | None
    retrieval_time_ms: Milliseconds


class FailedList(Model):
    """The error of a profile that returns a list on success."""

    error: str
    message: str
    errors: Items[str]


class NestedMetadata(Model):
    """The source of a result of profile `nested`."""

    model_config = AS_STORED | {"extra": "ignore"}

    source_url: Stored = None
    page_title: Stored = None
    section_headers: Stored = Field(default_factory=list)
    chunk_index: Stored = None
    tokens: Stored = None


class NestedResult(Model):
    """A result of profile `nested`."""

    chunk_id: str
    chunk_text: str
    similarity_score: float
    rank: int
    metadata: NestedMetadata


def _to_nested_result(result: Any) -> Any:
    """Convert a search result to this shape; return any other value unchanged."""
    if not isinstance(result, SearchResult):
        return result
    metadata = NestedMetadata(**_rename(result, _NESTED))
    return NestedResult(chunk_id=result.metadata.chunk_id, **_rename(result, _RANKED), metadata=metadata)


class NestedQuery(Model):
    """The query of profile `nested`."""

    text: str
    query_id: str = ""


class ExecutionMetrics(Model):
    """The times of profile `nested`."""

    query_embedding_time_ms: Milliseconds = 0.0
    vector_search_time_ms: Milliseconds | None = Field(None, exclude_if=is_none)
    total_execution_time_ms: Milliseconds
    embedding_model: str | None = None
    collection_name: str | None = None


class NestedResponse(Model):
    """Profile `nested`: the query as an object, and times in `execution_metrics`."""

    status: Literal["success", "error"]
    query: NestedQuery
    # In Python, results may be a client's own `SearchResult`s.
    results: Items[Annotated[NestedResult, BeforeValidator(_to_nested_result)]]
    total_results: Count
    requested_top_k: int | None = None
    execution_metrics: ExecutionMetrics
    error: ErrorDetail | None = Field(None, exclude_if=is_none)


def _to_flat(response: RetrievalResponse) -> FlatResponse:
    return FlatResponse(
        query=response.query or "",
        results=tuple(FlatChunk(**_rename(result, _FLAT)) for result in response.results),
        metadata=FlatMetadata(
            query_time_ms=round(response.execution.latency_ms),
            total_results=response.execution.result_count,
            timestamp=response.execution.timestamp,
        ),
        error=_to_error(response),
    )


def _to_chunks(response: RetrievalResponse) -> list[ListedChunk] | FailedList:
    return _to_failure(response) or [
        ListedChunk(
            query_id=response.query_id,
            metadata=result.payload if result.payload is not None else result.metadata.model_dump(mode="json"),
            **_rename(result, _LISTED),
        )
        for result in response.results
    ]


def _to_points(response: RetrievalResponse) -> list[ListedPoint] | FailedList:
    return _to_failure(response) or [
        ListedPoint(
            id=result.metadata.chunk_id if result.point_id is None else result.point_id,
            score=result.similarity_score,
            payload=result.payload,
            vector=result.vector,
            retrieval_time_ms=response.execution.qdrant_query_time_ms or 0,
        )
        for result in response.results
    ]


def _to_nested(response: RetrievalResponse) -> NestedResponse:
    execution = response.execution
    return NestedResponse(
        status=response.status,
        query=NestedQuery(text=response.query or "", query_id=response.query_id or ""),
        results=tuple(_to_nested_result(result) for result in response.results),
        total_results=execution.result_count,
        requested_top_k=execution.requested_top_k,
        execution_metrics=ExecutionMetrics(
            query_embedding_time_ms=execution.embedding_time_ms,
            vector_search_time_ms=execution.qdrant_query_time_ms,
            total_execution_time_ms=execution.latency_ms,
            embedding_model=execution.embedding_model,
            collection_name=execution.collection,
        ),
        error=_to_error(response, _CODES),
    )


def _to_error(response: RetrievalResponse, codes: Mapping[str, str] | None = None) -> ErrorDetail | None:
    """Return the error with all messages joined, for shapes without a list of errors."""
    if response.error is None:
        return None
    renamed = (codes or {}).get(response.error.code)
    return ErrorDetail(code=renamed or response.error.code, message="; ".join(response.errors))


def _rename(result: SearchResult, names: Mapping[str, str]) -> dict[str, Any]:
    """Return fields of a result under other names, without those that `include_metadata: false` left out."""
    fields = dict(result.metadata) | dict(result)
    return {name: fields[field] for name, field in names.items() if field in fields}


# The error's name where it differs from the first class with the code.
_CLASSES = {
    "INTERNAL": "InternalError",
    "EMBEDDING_TIMEOUT": "TimeoutError",
    "QDRANT_TIMEOUT": "TimeoutError",
    "QDRANT_UNAVAILABLE": "ConnectionError",
}


def _to_failure(response: RetrievalResponse) -> FailedList | None:
    if response.error is None:
        return None
    code = response.error.code
    name = _CLASSES.get(code) or next((kind.__name__ for kind in error_classes() if kind.code == code), code)
    return FailedList(error=name, message=response.error.message, errors=response.errors)


def to_canonical(document: dict[str, Any]) -> dict[str, Any]:
    """Return a response, or one result, of profile `flat` or `nested` in the canonical shape; else the document."""
    if "execution_metrics" in document:
        return _from_nested(NestedResponse.model_validate(document))
    if isinstance(document.get("metadata"), dict) and "query_time_ms" in document["metadata"]:
        return _from_flat(FlatResponse.model_validate(document))
    if "content" in document:
        return _from_flat_chunk(FlatChunk.model_validate(document))
    if "chunk_id" in document and "chunk_text" in document:
        return _from_nested_result(NestedResult.model_validate(document))
    return document


def _from_flat(response: FlatResponse) -> dict[str, Any]:
    return {
        "status": "error" if response.error else "success",
        "query": response.query or None,
        "results": [_from_flat_chunk(chunk, rank) for rank, chunk in enumerate(response.results, start=1)],
        "execution": {
            "latency_ms": response.metadata.query_time_ms,
            "result_count": response.metadata.total_results,
            "threshold_applied": 0.0,
            "timestamp": response.metadata.timestamp,
        },
        **_from_error(response.error),
    }


def _from_flat_chunk(chunk: FlatChunk, rank: int = 1) -> dict[str, Any]:
    metadata = {"chunk_id": chunk.chunk_id, "url": chunk.url, "position": chunk.position, "timestamp": chunk.created_at}
    return {"rank": rank, "text": chunk.content, "similarity_score": chunk.similarity_score, "metadata": metadata}


def _from_nested(response: NestedResponse) -> dict[str, Any]:
    metrics = response.execution_metrics
    return {
        "status": response.status,
        "query": response.query.text or None,
        "query_id": response.query.query_id or None,
        "results": [_from_nested_result(result) for result in response.results],
        "execution": {
            "latency_ms": round(metrics.total_execution_time_ms),
            "result_count": response.total_results,
            "threshold_applied": 0.0,
            "embedding_time_ms": metrics.query_embedding_time_ms,
            "qdrant_query_time_ms": None if (ms := metrics.vector_search_time_ms) is None else round(ms),
            "requested_top_k": response.requested_top_k,
            "collection": metrics.collection_name,
            "embedding_model": metrics.embedding_model,
        },
        **_from_error(response.error),
    }


def _from_nested_result(result: NestedResult) -> dict[str, Any]:
    metadata = {_NAMES.get(name, name): value for name, value in result.metadata} | {"chunk_id": result.chunk_id}
    scored = {"rank": result.rank, "similarity_score": result.similarity_score}
    return {**scored, "text": result.chunk_text, "metadata": metadata}


def _from_error(error: ErrorDetail | None) -> dict[str, Any]:
    if error is None:
        return {}
    code = next((ours for ours, theirs in _CODES.items() if theirs == error.code), error.code)
    return {"errors": [error.message], "error": {"code": code, "message": error.message}}


@dataclass(frozen=True, slots=True)
class Profile:
    """A shape of responses, and the defaults of requests that a client of it expects."""

    name: str
    shape: Callable[[RetrievalResponse], Model | Sequence[Model]]
    # Schema of a success: the model, or a list of it.
    model: type[Model]
    is_list: bool = False
    # How many results a client expects by default.
    top_k: int = DEFAULT_TOP_K
    # Fields that a request may ask for, and this profile has no place for.
    refused: frozenset[str] = _ADDED | {"with_payload", "with_vectors"}

    @property
    def media_type(self) -> str:
        """The content type of a response."""
        return f'application/json; profile="{self.name}"'

    def read(self, document: Any, limits: Limits) -> SearchQuery:
        """Read a query with the profile's defaults; refuse what the response could not show."""
        if isinstance(document, dict):
            defaults = {"with_payload": "with_payload" not in self.refused, "top_k": min(self.top_k, limits.max_top_k)}
            document = copy(document)  # of the same kind: one kind of dict remembers the names that were given twice
            document.update({name: value for name, value in defaults.items() if document.get(name) is None})
        query = SearchQuery.parse(document, limits)
        refused = sorted(name for name in query.model_fields_set & self.refused if getattr(query, name))
        if refused:
            raise InvalidParameterError(*(f"profile {self.name} has no place for {name}" for name in refused))
        return query

    def write(self, body: str, total_ms: float | None = None, round_trip_ms: float | None = None) -> str:
        """Return a canonical response as JSON of this profile; with several queries, each in a list `responses`.

        The canonical times are whole milliseconds. For a single query, the given times replace them.
        """
        response = RetrievalResponse.model_validate_json(body)
        if response.responses is not None:
            return f'{{"responses":[{",".join(_to_json(self.shape(part)) for part in response.responses)}]}}'
        if total_ms is not None:
            exact = {"latency_ms": total_ms, "qdrant_query_time_ms": round_trip_ms}
            response = response.model_copy(update={"execution": response.execution.model_copy(update=exact)})
        return _to_json(self.shape(response))


def _to_json(shaped: Model | Sequence[Model]) -> str:
    return shaped.to_json() if isinstance(shaped, Model) else f"[{','.join(item.to_json() for item in shaped)}]"


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("flat", _to_flat, FlatResponse),
        Profile("chunks", _to_chunks, ListedChunk, True, refused=_ADDED | {"with_vectors"}),
        Profile("points", _to_points, ListedPoint, True, top_k=10, refused=_ADDED),
        Profile("nested", _to_nested, NestedResponse),
    )
}


def find_profile(accept: str, parameter: str | None) -> Profile | None:
    """Return the profile that a request names, None for the canonical shape; the query string wins."""
    accepted = _ACCEPTED.search(accept)
    name = parameter if parameter is not None else (accepted[1] or accepted[2]) if accepted else None
    if name is None or name == "canonical":
        return None
    if name not in PROFILES:
        raise InvalidParameterError(f"profile must be one of canonical, {', '.join(PROFILES)}")
    return PROFILES[name]
