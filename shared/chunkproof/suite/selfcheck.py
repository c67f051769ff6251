"""SC-005: every error class, raised in this process and handled by the runner."""

from datetime import UTC, datetime
from typing import Any

from chunkproof.errors import ChunkproofError, error_classes
from chunkproof.models import ChunkMetadata, ExecutionMetadata, RetrievalResponse, SearchResult
from chunkproof.suite.case_runner import run_case
from chunkproof.suite.cases import TestCase
from chunkproof.suite.judge import ExpectationError
from chunkproof.suite.outcome import TestStatus

_CASE = TestCase(name="self-check", query_text="anything", expected_doc_ids=("expected",))
# By the class that must be found: a case that the one result below does not meet.
_UNMET = {
    "MissingDocumentError": _CASE,
    "RelevanceError": TestCase(name="self-check", query_text="anything", relevance_threshold=0.9),
    "PerformanceError": TestCase(name="self-check", query_text="anything", max_latency_ms=1e-9),
}


def check_error_classes() -> tuple[int, int]:
    """How many error classes are handled as they should be, and how many there are."""
    handled = [_is_handled(kind) for kind in error_classes()]
    handled += [_is_found(kind) for kind in ExpectationError.__subclasses__()]
    return sum(handled), len(handled)


def _is_handled(kind: type[ChunkproofError]) -> bool:
    """A search that raises it leaves a case in error, with code and reason; nothing escapes."""

    def failing(_request: dict[str, Any]) -> RetrievalResponse:
        error = kind.__new__(kind)
        ChunkproofError.__init__(error, "self-check")
        raise error

    result = run_case(_CASE, failing)
    found = (result.status, result.error_code, result.error_message)
    return found == (TestStatus.ERROR, kind.code, "self-check")


def _is_found(kind: type[ExpectationError]) -> bool:
    """A result that breaks such an expectation leaves a failed case that names it."""
    case = _UNMET.get(kind.__name__)
    if case is None:
        return False
    result = run_case(case, _one_result)
    return result.status is TestStatus.FAILED and [u.kind for u in result.unmet] == [kind.__name__]


def _one_result(_request: dict[str, Any]) -> RetrievalResponse:
    chunk = SearchResult(rank=1, text="x", similarity_score=0.5, metadata=ChunkMetadata(chunk_id="another"))
    execution = ExecutionMetadata(
        latency_ms=1, result_count=1, threshold_applied=0.0, timestamp=datetime.now(UTC)
    )
    return RetrievalResponse(query="x", query_id="x", status="success", results=(chunk,), execution=execution)
