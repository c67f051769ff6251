"""Short ways to make cases, responses and backends."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from chunkproof.base.errors import ChunkproofError
from chunkproof.contract import (
    ChunkMetadata,
    CollectionInfo,
    ExecutionMetadata,
    RetrievalResponse,
    SearchResult,
    ValidationResult,
)
from chunkproof.suite.cases import Suite, TestCase, read_suite

Answer = RetrievalResponse | ChunkproofError


def case(**fields: Any) -> TestCase:
    """A case that expects chunk `a` unless the fields say what it expects."""
    expects = {"expected_doc_ids", "expected_keywords", "expect_no_results", "judgments"} & set(fields)
    expected = {} if expects else {"expected_doc_ids": ["a"]}
    return suite({"name": "case", "query_text": "question", **expected, **fields}).cases[0]


def suite(*cases: dict[str, Any], **fields: Any) -> Suite:
    """A suite as a file would hold it."""
    return read_suite({"name": "sample", **fields, "cases": list(cases)})


def chunk(chunk_id: str, score: float = 0.5, text: str = "some text", **metadata: Any) -> dict[str, Any]:
    return {"chunk_id": chunk_id, "score": score, "text": text, "metadata": metadata}


def answer(*chunks: dict[str, Any], embedding_ms: float = 3.0, cached: bool = False) -> RetrievalResponse:
    """A search's answer with these chunks, best first."""
    return RetrievalResponse(
        query="question",
        query_id="1",
        status="success",
        results=tuple(
            SearchResult(
                rank=rank,
                text=found["text"],
                similarity_score=found["score"],
                metadata=ChunkMetadata(chunk_id=found["chunk_id"], **found["metadata"]),
            )
            for rank, found in enumerate(chunks, start=1)
        ),
        execution=ExecutionMetadata(
            latency_ms=10,
            result_count=len(chunks),
            threshold_applied=0.0,
            embedding_time_ms=embedding_ms,
            embedding_cached=cached,
            qdrant_query_time_ms=5,
            collection="docs",
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        ),
    )


class Backend:
    """A backend that answers each query by a function, and raises what is an error."""

    def __init__(self, answers: Callable[[str], Answer], info: CollectionInfo | ChunkproofError | None = None) -> None:
        self._answers = answers
        self._info = info or collection_info()
        self.requests: list[dict[str, Any]] = []

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        self.requests.append(request)
        return _given(self._answers(request["query_text"]))

    def validate(self, request: dict[str, Any]) -> ValidationResult:
        return ValidationResult(
            chunk_id=request["chunk_id"],
            matches=True,
            validation_passed=True,
            stored_text="some text",
            original_text=None,
            mismatch_details=None,
            mismatch=None,
            checks=(),
            retrieval_time_ms=7.0,
        )

    def collection(self, _name: str | None) -> CollectionInfo:
        return _given(self._info)


def collection_info() -> CollectionInfo:
    return CollectionInfo(
        name="docs",
        vector_size=1024,
        distance_metric="Cosine",
        points_count=312,
        indexed_vectors_count=312,
        indexed=True,
        status="green",
        vectors=(),
        payload_fields=(),
        payload_map={},
    )


def _given(value: Any) -> Any:
    if isinstance(value, ChunkproofError):
        raise value
    return value
