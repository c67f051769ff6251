"""The result of a case."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, FiniteFloat, JsonValue

from chunkproof.contract import Model, SearchResult
from chunkproof.contract.model import AS_STORED, Items, Milliseconds
from chunkproof.contract.response import RetrievalResult
from chunkproof.proof.integrity import digest
from chunkproof.suite.cases import TestCase
from chunkproof.why.causes import Cause

EXCERPT_CHARS = 200


class TestStatus(StrEnum):
    """pending → running → passed | failed | error. Failed: an expectation is not met; error: it could not be judged."""

    __test__ = False

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"

    @property
    def is_judged(self) -> bool:
        """Whether there is a verdict."""
        return self in (TestStatus.PASSED, TestStatus.FAILED)


class RetrievedChunk(Model):
    """A search result as a report keeps it: its chunk, its source, the beginning of its text."""

    model_config = AS_STORED

    rank: int = Field(ge=1)
    chunk_id: str
    similarity_score: FiniteFloat
    document_id: JsonValue = None
    url: JsonValue = None
    document_title: JsonValue = None
    excerpt: str = Field(description=f"The first {EXCERPT_CHARS} characters of the text")
    text_sha256: str
    complete: bool = Field(description="Whether text, URL and title are present")
    stands_for: str | None = Field(None, description="The judged id that this result counts as")

    def has_id(self, key: str) -> bool:
        """Whether this is its id as a chunk, a document or a URL."""
        ids = (str(one) for one in (self.document_id, self.url) if one is not None)
        return key in (self.chunk_id, self.stands_for, *ids)

    @property
    def source(self) -> str:
        """Where it is from: the title and the address of its document, as far as they are stored."""
        return ", ".join(str(part) for part in (self.document_title, self.url) if part)

    @property
    def line(self) -> str:
        """Rank, score, id and source in a line."""
        source = f" ({self.source})" if self.source else ""
        return f"{self.rank}. {self.similarity_score:.3f} {self.chunk_id}{source}"

    @classmethod
    def of(cls, result: SearchResult, stands_for: str | None) -> "RetrievedChunk":
        """Shorten a search result."""
        title = getattr(result.metadata, "document_title", None)
        return cls(
            rank=result.rank,
            chunk_id=result.metadata.chunk_id,
            similarity_score=result.similarity_score,
            document_id=getattr(result.metadata, "document_id", None),
            url=result.metadata.url,
            document_title=title,
            excerpt=result.text[:EXCERPT_CHARS],
            text_sha256=digest(result.text),
            complete=bool(result.text and result.metadata.url and title),
            stands_for=stands_for,
        )

    @classmethod
    def from_retrieval_result(cls, result: RetrievalResult) -> "RetrievedChunk":
        """Shorten a result that a caller made."""
        text = result.chunk_text or ""
        chunk_id = result.metadata.get("chunk_id")
        return cls(
            rank=result.rank,
            chunk_id=chunk_id if isinstance(chunk_id, str) else str(result.id or ""),
            similarity_score=result.similarity_score,
            document_id=result.metadata.get("document_id", result.source_url),
            url=result.source_url,
            document_title=result.page_title,
            excerpt=text[:EXCERPT_CHARS],
            text_sha256=digest(text),
            complete=bool(text and result.source_url and result.page_title),
        )


def _shorten(result: Any) -> Any:
    if isinstance(result, dict) and "excerpt" not in result:  # a whole result, as JSON has it
        result = RetrievalResult.model_validate(result)
    return RetrievedChunk.from_retrieval_result(result) if isinstance(result, RetrievalResult) else result


class Unmet(Model):
    """An expectation that was not met; `kind` is the name of the error class (docs/contract.md)."""

    kind: str
    message: str
    keyword: str | None = Field(None, description="The missing keyword, where that is the reason")


class CaseTiming(Model):
    """How long the search took: `latency_ms` as the caller saw it, the stages as the response states them."""

    latency_ms: Milliseconds
    embedding_ms: Milliseconds
    search_ms: Milliseconds
    format_ms: Milliseconds = Field(description="The rest of the latency that the response states")
    embedding_cached: bool
    cold: bool = Field(description="First search of its collection in this run")


class Approximation(Model):
    """How much of an exact search's results the index found."""

    ann_recall: float = Field(description="Share of the exact results that the index also returned")
    missed_by_index: tuple[str, ...] = Field(
        (), description="Expected ids that only the exact search found within top_k"
    )


class Diagnosis(Model):
    """One cause of a failed case, in one sentence."""

    cause: Cause
    subject: str | None = Field(None, description="The expected id or the chunk that it is about")
    message: str
    command: str | None = Field(None, description="A command that shows more")
    error_code: str | None = Field(None, description="Code of the error that kept the cause from being found")


class TestCaseResult(TestCase):
    """A case with its result."""

    __test__: ClassVar[bool] = False

    status: TestStatus = Field(TestStatus.PENDING, strict=False)
    actual_results: Items[Annotated[RetrievedChunk, BeforeValidator(_shorten)]] | None = None
    error_message: str | None = Field(None, description="Why it failed or could not be judged")
    error_code: str | None = Field(None, description="Code of the error that kept it from being judged")
    unmet: tuple[Unmet, ...] = ()
    metrics: dict[str, float] = Field(default_factory=dict)
    timing: CaseTiming | None = None
    approximation: Approximation | None = None
    diagnosis: tuple[Diagnosis, ...] = Field((), description="Why it failed, as far as it was diagnosed")

    @classmethod
    def pending(cls, case: TestCase) -> "TestCaseResult":
        """Return the case as pending, without the result of an earlier run."""
        return cls(**{name: getattr(case, name) for name in TestCase.model_fields})

    @property
    def has_expected_in_top_5(self) -> bool:
        """Whether one of the first five results is expected."""
        expected = set(self.expected_doc_ids)
        return any(chunk.stands_for in expected for chunk in (self.actual_results or ())[:5])


def list_whole(results: Sequence[TestCaseResult]) -> list[CaseTiming]:
    """Return the timings with an embedding of their own, as a new question's; all, where every one was cached."""
    timings = [result.timing for result in results if result.timing]
    return [timing for timing in timings if not timing.embedding_cached] or timings


def explain_failure(case: TestCaseResult) -> Iterator[str]:
    """Yield what was not met, why, the query and what was returned, in lines."""
    yield f"query: {case.query_text}"
    yield from (f"{unmet.kind}: {unmet.message}" for unmet in case.unmet)
    for cause in case.diagnosis:
        yield f"{cause.cause}: {cause.message}"
        if cause.command:
            yield f"  {cause.command}"
    yield from (chunk.line for chunk in case.actual_results or ())


def find_returned(case: TestCaseResult, key: str) -> RetrievedChunk | None:
    """Return the first result that has this id, as a chunk, a document or a URL."""
    return next((result for result in case.actual_results or () if result.has_id(key)), None)
