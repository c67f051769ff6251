"""The response to a search."""

import operator
from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from chunkproof.errors import ChunkproofError
from chunkproof.models.base import AS_STORED, BrokenRules, Count, Items, Milliseconds, Model, is_none
from chunkproof.models.chunk import ChunkMetadata, SourceMetadata
from chunkproof.models.extras import Highlight, Neighbours, QueryExplanation, RerankExecution, ResultExplanation
from chunkproof.models.ranking import FusionInForce, Mode, ResultScores, TextSearch


class SearchResult(Model):
    """One chunk, with the stored text byte for byte."""

    model_config = AS_STORED

    rank: int = Field(ge=1)
    text: str
    similarity_score: float = Field(
        ge=0.0, le=1.0, description="Cosine similarity; 0 where it was not computed, which scores shows"
    )
    scores: ResultScores | None = Field(None, exclude_if=is_none, description="In modes text and hybrid, and reranked")
    group: int | str | None = Field(None, exclude_if=is_none, description="Value of the field that group_by names")
    point_id: int | str | None = Field(None, exclude_if=is_none, description="Id of the point in Qdrant")
    # In this order, what has only an id and a URL is read back as it was written.
    metadata: SourceMetadata | ChunkMetadata
    payload: dict[str, JsonValue] | None = Field(None, exclude_if=is_none)
    vector: Items[float] | None = Field(None, exclude_if=is_none)
    highlight: Highlight | None = Field(None, exclude_if=is_none)
    neighbours: Neighbours | None = Field(None, exclude_if=is_none)
    explain: ResultExplanation | None = Field(None, exclude_if=is_none)


class ForeignResult(SearchResult):
    """A result of another retriever, whose scores have a scale of their own; texts and scores may be missing."""

    similarity_score: float
    has_text: bool = True
    has_score: bool = True


class ExecutionMetadata(Model):
    """How a search was executed and how long each stage took."""

    latency_ms: Count
    result_count: Count
    threshold_applied: float
    skipped: Count = Field(0, description="Points found but left out because they have no readable text")
    query_embedded_at: datetime | None = None
    embedding_time_ms: Milliseconds = 0.0
    qdrant_query_time_ms: Count | None = Field(None, description="Round trip as the client sees it")
    requested_top_k: int | None = None
    collection: str | None = None
    embedding_model: str | None = None
    embedding_cached: bool = False
    timestamp: datetime
    mode: Mode | None = Field(None, exclude_if=is_none, description="As the request has it")
    text_search: TextSearch | None = Field(None, exclude_if=is_none, description="In modes text and hybrid")
    fusion: FusionInForce | None = Field(None, exclude_if=is_none, description="In mode hybrid")
    rerank: RerankExecution | None = Field(None, exclude_if=is_none, description="If reranking was requested")


class ErrorDetail(Model):
    """The error code and the first message."""

    code: str
    message: str


class RetrievalResponse(Model):
    """The envelope of every search response, successful or not."""

    query: str | None
    query_id: str | None
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
