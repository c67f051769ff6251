"""The responses to a search, to `GET /collections/{name}` and to `GET /health`."""

import json
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, JsonValue, ValidationError, WithJsonSchema, field_validator, model_validator

from chunkproof.base.errors import ChunkproofError
from chunkproof.contract.model import (
    AS_STORED,
    AT_ONCE,
    BrokenRules,
    Count,
    Items,
    Milliseconds,
    Model,
    NotBlank,
    Request,
    is_none,
    require_all,
)
from chunkproof.contract.query_options import (
    FusionInForce,
    Highlight,
    Mode,
    Neighbours,
    QueryExplanation,
    RerankExecution,
    ResultExplanation,
    ResultScores,
    TextSearch,
)

# Any JSON value. Most are of the first types, which pydantic checks without calling Python.
Stored = Annotated[str | bool | int | float | JsonValue | None, Field(union_mode="left_to_right"), WithJsonSchema({})]

# Python callers may pass ISO 8601, as JSON has it.
Time = Annotated[datetime, Field(strict=False)]
Integrity = Literal["verified", "changed", "unknown"]


class SourceMetadata(Model):
    """The id and the source of a chunk."""

    model_config = AS_STORED

    chunk_id: str = Field(description="The id to use in /validate-chunk")
    url: Stored = Field(None, description="Source of the document")


class ChunkMetadata(SourceMetadata):
    """The metadata of a chunk.

    Values are returned as stored, whatever their type; validation reports what is wrong with them.
    """

    document_id: Stored = None
    position: Stored = Field(None, description="Position in the document, as the pipeline counts")
    timestamp: Stored = Field(None, description="ISO 8601, as stored")
    document_title: Stored = None
    section_heading: Stored = None
    section_headers: Stored = Field(default_factory=list)
    breadcrumb: Stored = None
    total_chunks: Stored = None
    tokens: Stored = None
    content_type: Stored = None
    has_code: Stored = None
    content_hash: Stored = None
    embedding_model: Stored = None


class Shaped(Model):
    """A model that also reads the shapes of the response profiles (docs/contract.md#profiles)."""

    # A field that every canonical document has, and no other shape.
    own_field: ClassVar[str]

    def __init__(self, **fields: Any) -> None:
        super().__init__(**self._to_canonical(fields))

    # To pydantic this is its own `__init__`: models are still made without calling it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Read the model from a dict, in the canonical shape or a profile's."""
        return super().model_validate(cls._to_canonical(obj), **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Read the model from JSON, in the canonical shape or a profile's."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            try:
                document = json.loads(json_data)
            except (ValueError, RecursionError):
                raise error from None
            if cls._to_canonical(document) is document:
                raise
            return cls.model_validate(document, **options)

    @classmethod
    def _to_canonical(cls, document: Any) -> Any:
        if not isinstance(document, dict) or cls.own_field in document:
            return document
        from chunkproof.contract.profiles import to_canonical

        return to_canonical(document)


class SearchResult(Shaped):
    """One chunk, with the stored text byte for byte."""

    model_config = AS_STORED
    own_field: ClassVar[str] = "text"

    rank: int = Field(ge=1)
    text: str
    similarity_score: float = Field(
        ge=0.0, le=1.0, description="Cosine similarity; 0 where it was not computed, which scores shows"
    )
    scores: ResultScores | None = Field(None, exclude_if=is_none, description="In modes text and hybrid, and reranked")
    group: int | str | None = Field(None, exclude_if=is_none, description="Value of the field that group_by names")
    point_id: int | str | None = Field(None, exclude_if=is_none, description="Id of the point in Qdrant")
    integrity: Integrity = Field(
        "unknown",
        description="Whether the text matches the hash in its payload or id, or the seal; unknown without any of them",
    )
    # In this order, what has only an id and a URL is read back as it was written.
    metadata: SourceMetadata | ChunkMetadata
    payload: dict[str, JsonValue] | None = Field(None, exclude_if=is_none)
    vector: Items[float] | None = Field(None, exclude_if=is_none)
    highlight: Highlight | None = Field(None, exclude_if=is_none)
    neighbours: Neighbours | None = Field(None, exclude_if=is_none)
    explain: ResultExplanation | None = Field(None, exclude_if=is_none)


class ForeignResult(SearchResult):
    """A result of another retriever: its scores have their own scale, and text or score may be missing."""

    model_config = ConfigDict(defer_build=True)

    similarity_score: float
    has_text: bool = True
    has_score: bool = True


class ExecutionMetadata(Model):
    """How a search was executed and how long each stage took."""

    model_config = AT_ONCE

    latency_ms: Count
    result_count: Count
    threshold_applied: float
    skipped: Count = Field(0, description="Points found but left out: without readable text, or changed")
    query_embedded_at: Time | None = None
    embedding_time_ms: Milliseconds = 0.0
    qdrant_query_time_ms: Count | None = Field(None, description="Round trip as the client sees it")
    requested_top_k: int | None = None
    collection: str | None = None
    embedding_model: str | None = None
    embedding_cached: bool = False
    timestamp: Time = Field(default_factory=lambda: datetime.now(UTC))
    mode: Mode | None = Field(None, exclude_if=is_none, description="As the request has it")
    text_search: TextSearch | None = Field(None, exclude_if=is_none, description="In modes text and hybrid")
    fusion: FusionInForce | None = Field(None, exclude_if=is_none, description="In mode hybrid")
    rerank: RerankExecution | None = Field(None, exclude_if=is_none, description="If reranking was requested")


class ErrorDetail(Model):
    """The error code and the first message."""

    code: str
    message: str


class RetrievalResponse(Shaped):
    """The envelope of every search response, successful or not."""

    own_field: ClassVar[str] = "execution"

    query: str | None = None
    query_id: str | None = None
    status: Literal["success", "error"]
    results: Items[SearchResult]
    execution: ExecutionMetadata
    errors: Items[str] = ()
    notes: Items[str] = Field(
        (),
        exclude_if=operator.not_,
        description="Why there may be no results, or something that was asked for is missing",
    )
    explain: QueryExplanation | None = Field(None, exclude_if=is_none)
    error: ErrorDetail | None = Field(None, exclude_if=is_none)
    responses: "Items[RetrievalResponse] | None" = Field(
        None, exclude_if=is_none, description="One for each of several queries, in their order; results is empty then"
    )
    receipt: dict[str, JsonValue] | None = Field(
        None, exclude_if=is_none, description="Proof that the results were sealed (docs/reference/receipt-format.md)"
    )
    next_cursor: str | None = Field(
        None, exclude_if=is_none, description="Cursor of the next page, if the request has a cursor and there is one"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> "RetrievalResponse":
        if self.status == "success" and (self.errors or self.error):
            raise BrokenRules("a success has no errors")
        if self.status == "error" and (self.results or not self.errors):
            raise BrokenRules("an error has no results and at least one message in errors")
        if self.execution.result_count != len(self.results):
            raise BrokenRules(
                f"result_count is {self.execution.result_count}, but there are {len(self.results)} results"
            )
        return self

    @classmethod
    def from_error(
        cls, error: ChunkproofError, execution: ExecutionMetadata, *, query: str | None, query_id: str | None
    ) -> "RetrievalResponse":
        """Make the envelope of a failed request."""
        return cls(
            query=query,
            query_id=query_id,
            status="error",
            results=(),
            execution=execution,
            errors=error.messages,
            error=ErrorDetail(code=error.code, message=error.message),
        )


# Where payloads keep a field, in order.
TEXT = ("chunk_text", "content", "text", "page_content")
URL = ("source_url", "url", "source")
TITLE = ("page_title", "document_title", "title")
POSITION = ("chunk_index", "position")


def _first(payload: dict[str, Any], names: tuple[str, ...], kind: type) -> Any:
    found = (payload.get(name) for name in names)
    return next((value for value in found if isinstance(value, kind) and not isinstance(value, bool)), None)


def _of_payload(*names: str) -> Callable[[dict[str, Any]], Any]:
    return lambda known: _first(known["metadata"], names, str)


def _text(known: dict[str, Any]) -> str | None:
    text: str | None = _first(known["metadata"], TEXT, str)
    return text if text and text.strip() else None


def _url(known: dict[str, Any]) -> str | None:
    url: str | None = _first(known["metadata"], URL, str)
    return url if url and _is_url(url) else None


def _position(known: dict[str, Any]) -> int | None:
    position: int | None = _first(known["metadata"], POSITION, int)
    return position if position is not None and position >= 0 else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)


class RetrievalResult(Request):
    """A search result with the payload it was made from.

    Text, URL, title and position are read from the payload (`metadata`) where they are not given.
    """

    aliases: ClassVar[Mapping[str, str]] = {"score": "similarity_score", "payload": "metadata"}

    id: int | str | None = Field(None, description="The point's id")
    similarity_score: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    metadata: dict[str, JsonValue] = Field(default_factory=dict, description="The payload")
    query_id: str | None = None
    rank: int = Field(1, ge=1)
    chunk_text: NotBlank | None = Field(default_factory=_text)
    source_url: str | None = Field(default_factory=_url)
    page_title: str | None = Field(default_factory=_of_payload(*TITLE))
    section_heading: str | None = Field(default_factory=_of_payload("section_heading"))
    breadcrumb: str | None = Field(default_factory=_of_payload("breadcrumb"))
    chunk_index: int | None = Field(default_factory=_position, ge=0)
    vector: Items[float] | None = None
    retrieval_time_ms: Milliseconds = Field(0.0, allow_inf_nan=False)

    @property
    def score(self) -> float:
        """The similarity score."""
        return self.similarity_score

    @property
    def payload(self) -> dict[str, JsonValue]:
        """The payload."""
        return self.metadata

    @classmethod
    def of(cls, result: SearchResult, query_id: str | None = None) -> "RetrievalResult":
        """Convert a result of a search."""
        return cls(
            query_id=query_id,
            rank=result.rank,
            similarity_score=result.similarity_score,
            metadata=result.payload or result.metadata.model_dump(mode="json"),
            chunk_text=result.text or None,
            vector=result.vector,
        )

    @field_validator("source_url")
    @classmethod
    def _url_is_one(cls, url: str | None) -> str | None:
        if url is not None and not _is_url(url):
            raise BrokenRules("source_url must be a URL")
        return url

    @field_validator("vector")
    @classmethod
    def _vector_is_finite(cls, vector: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if vector is not None and not all(isfinite(value) for value in vector):
            raise BrokenRules("vector must hold finite numbers")
        return vector


class VectorInfo(Model):
    """One dense vector of the collection; the unnamed one has an empty name."""

    name: str
    size: int
    distance_metric: str


class PayloadField(Model):
    """A payload field as the sampled points have it."""

    name: str
    type: str
    share: float = Field(ge=0.0, le=1.0, description="Share of the sampled points that have it")
    indexed: bool


class CollectionInfo(Model):
    """A collection's vectors and counts, and how its payloads are read."""

    model_config = ConfigDict(json_schema_extra=require_all)

    name: str
    vector_size: Count
    distance_metric: str
    points_count: Count
    indexed_vectors_count: Count
    indexed: bool = Field(default_factory=lambda known: is_indexed(**known))
    status: Literal["green", "yellow", "red", "grey"]
    vectors: Items[VectorInfo] = ()
    payload_fields: Items[PayloadField] = ()
    payload_map: dict[str, str] = Field(
        default_factory=dict, description="Canonical field → the payload path it is read from"
    )


def is_indexed(*, points_count: int, indexed_vectors_count: int, **_: object) -> bool:
    """Whether a collection has points, and each is in the index."""
    return 0 < points_count <= indexed_vectors_count


class DependencyHealth(Model):
    """The state of one dependency."""

    status: Literal["ok", "down"]
    latency_ms: Milliseconds
    message: str | None = Field(None, description="Why it is down")
    circuit: Literal["closed", "open", "half-open"] | None = Field(
        None, description="The circuit breaker: open after repeated failures, when no calls are made"
    )


class Health(Model):
    """The state of the service; the dependencies are included only with `deep=true`."""

    status: Literal["ok", "down"]
    contract_version: str
    qdrant: DependencyHealth | None = Field(None, exclude_if=is_none)
    embedder: DependencyHealth | None = Field(None, exclude_if=is_none)
