"""The response to a search."""

import operator
from datetime import datetime
from functools import partial
from typing import Literal

from pydantic import Field, JsonValue

from chunkproof.errors import ChunkproofError
from chunkproof.models.base import Model
from chunkproof.models.chunk import ChunkMetadata, SourceMetadata

is_none = partial(operator.is_, None)


class SearchResult(Model):
    """One chunk, with the stored text byte for byte."""

    rank: int = Field(ge=1)
    text: str
    similarity_score: float = Field(ge=0.0, le=1.0)
    point_id: int | str | None = Field(None, exclude_if=is_none, description="Id of the point in Qdrant")
    metadata: ChunkMetadata | SourceMetadata
    payload: dict[str, JsonValue] | None = Field(None, exclude_if=is_none)
    vector: tuple[float, ...] | None = Field(None, exclude_if=is_none)


class ForeignResult(SearchResult):
    """A result of another retriever, whose scores have a scale of their own; texts and scores may be missing."""

    similarity_score: float
    has_text: bool = True
    has_score: bool = True


class ExecutionMetadata(Model):
    """How a search was executed and how long each stage took."""

    latency_ms: int = Field(ge=0)
    result_count: int = Field(ge=0)
    threshold_applied: float
    skipped: int = Field(0, description="Points found but left out because they have no readable text")
    query_embedded_at: datetime | None = None
    embedding_time_ms: float = 0.0
    qdrant_query_time_ms: int | None = Field(None, description="Round trip as the client sees it")
    requested_top_k: int | None = None
    collection: str | None = None
    embedding_model: str | None = None
    embedding_cached: bool = False
    timestamp: datetime


class ErrorDetail(Model):
    """The error code and the first message."""

    code: str
    message: str


class RetrievalResponse(Model):
    """The envelope of every search response, successful or not."""

    query: str | None
    query_id: str | None
    status: Literal["success", "error"]
    results: tuple[SearchResult, ...]
    execution: ExecutionMetadata
    errors: tuple[str, ...] = ()
    error: ErrorDetail | None = Field(None, exclude_if=is_none)

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
