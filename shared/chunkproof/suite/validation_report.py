"""The validation report of a run, and its summary as plain text (docs/contract.md)."""

from collections.abc import Sequence
from datetime import datetime
from math import fsum
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from chunkproof.models import CollectionInfo, Model
from chunkproof.models.base import BrokenRules, Count, Items, check_shown, require_all
from chunkproof.suite.outcome import TestCaseResult, TestStatus

_LINE = "=" * 60

ConnectionStatus = Literal["connected", "failed", "timeout"]


class CollectionStats(Model):
    """What the validation report says about the collection: fields of its own, and any other that is given.

    Its fields can be read as those of a dict, too.
    """

    model_config = ConfigDict(extra="allow")

    collection_name: str = "N/A"
    vector_count: Count = 0
    vector_dim: Count = 0
    distance: str = "N/A"
    indexed: bool = False
    collection_exists: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field of this name, or the default."""
        return dict(self).get(name, default)

    def __getitem__(self, name: str) -> Any:
        return dict(self)[name]

    @classmethod
    def of(cls, info: CollectionInfo) -> "CollectionStats":
        """Convert what `GET /collections/{name}` returns."""
        return cls(
            collection_name=info.name,
            vector_count=info.points_count,
            vector_dim=info.vector_size,
            distance=info.distance_metric.upper(),
            indexed=info.indexed,
            collection_exists=True,
        )


class ValidationReport(Model):
    """Connection, queries and metadata of a run.

    `failed_queries` counts the cases that could not be judged; a case that failed is listed in `errors`.
    """

    model_config = ConfigDict(json_schema_extra=require_all)

    run_id: str
    total_queries: Count
    successful_queries: Count
    failed_queries: Count
    avg_similarity_score: float = Field(ge=0.0, le=1.0)
    avg_query_time: float = Field(ge=0.0, description="Seconds")
    metadata_completeness: float = Field(ge=0.0, le=1.0, description="Share of results with text, URL and title")
    total_results_retrieved: Count
    connection_status: ConnectionStatus
    collection_stats: CollectionStats = Field(strict=False)
    errors: Items[str]
    started_at: datetime
    completed_at: datetime

    duration_seconds: float = Field(
        default_factory=lambda known: _duration(**known), description="Seconds from start to end"
    )
    success_rate: float = Field(
        default_factory=lambda known: _success_rate(**known),
        description="Share of the queries that could be judged; 0 without queries",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> "ValidationReport":
        if self.total_queries != self.successful_queries + self.failed_queries:
            raise BrokenRules("total_queries must be successful_queries + failed_queries")
        fields = dict(self)
        if (duration := _duration(**fields)) < 0:
            raise BrokenRules("completed_at must not be before started_at")
        check_shown("duration_seconds", self.duration_seconds, duration)
        check_shown("success_rate", self.success_rate, _success_rate(**fields))
        return self

    def to_summary(self) -> str:
        """Return the report as plain text."""
        stats = self.collection_stats
        # A query may have several lines; a line of the report is one of its own.
        errors = (" ".join(error.splitlines()) for error in self.errors)
        last = ("ERRORS", *errors) if self.errors else ("STATUS", "✅ All validations passed successfully!")
        sections = [
            (
                "CONNECTION STATUS",
                f"Status: {self.connection_status}",
                f"Collection: {' '.join(stats.collection_name.splitlines())}",
                f"Vector Count: {stats.vector_count:,}",
                f"Vector Dimensions: {stats.vector_dim}",
                f"Distance Metric: {stats.distance}",
            ),
            (
                "QUERY METRICS",
                f"Total Queries: {self.total_queries}",
                f"Successful: {self.successful_queries}",
                f"Failed: {self.failed_queries}",
                f"Success Rate: {self.success_rate * 100:.1f}%",
            ),
            (
                "RETRIEVAL QUALITY",
                f"Total Results Retrieved: {self.total_results_retrieved}",
                f"Avg Similarity Score: {self.avg_similarity_score:.3f}",
                f"Avg Query Time: {self.avg_query_time:.2f}s",
            ),
            ("METADATA VALIDATION", f"Metadata Completeness: {self.metadata_completeness * 100:.1f}%"),
            last,
        ]
        head = [
            _LINE,
            "RAG Retrieval Validation Report",
            _LINE,
            f"Run ID: {self.run_id}",
            f"Started: {self.started_at:%Y-%m-%d %H:%M:%S}",
            f"Completed: {self.completed_at:%Y-%m-%d %H:%M:%S}",
            f"Duration: {self.duration_seconds:.1f}s",
        ]
        body = [format_section(title, *lines) for title, *lines in sections]
        return "\n\n".join(["\n".join(head), *body]) + f"\n{_LINE}"


class ForeignValidationReport(ValidationReport):
    """The report of a retriever whose scores have a scale of their own."""

    avg_similarity_score: float


def _duration(*, started_at: datetime, completed_at: datetime, **_: object) -> float:
    if (started_at.tzinfo is None) != (completed_at.tzinfo is None):
        raise BrokenRules("started_at and completed_at must both have an offset, or neither")
    return (completed_at - started_at).total_seconds()


def _success_rate(*, successful_queries: int, total_queries: int, **_: object) -> float:
    return successful_queries / total_queries if total_queries else 0.0


def format_section(title: str, *lines: str) -> str:
    """Format a section in the layout of the summary."""
    return "\n".join([title, _LINE, *lines])


def build_validation_report(
    results: Sequence[TestCaseResult],
    *,
    run_id: str,
    connection: ConnectionStatus,
    stats: CollectionStats,
    started_at: datetime,
    completed_at: datetime,
) -> ValidationReport:
    """Build the validation report of these cases."""
    ran = [result for result in results if result.status is not TestStatus.PENDING]
    retrieved = [chunk for result in ran for chunk in result.actual_results or ()]
    times = [result.timing.latency_ms / 1000 for result in ran if result.timing]
    failed = sum(result.status is TestStatus.ERROR for result in ran)
    score = _mean([chunk.similarity_score for chunk in retrieved])
    kind = ValidationReport if 0.0 <= score <= 1.0 else ForeignValidationReport
    return kind(
        run_id=run_id,
        total_queries=len(ran),
        successful_queries=len(ran) - failed,
        failed_queries=failed,
        avg_similarity_score=score,
        avg_query_time=_mean(times),
        metadata_completeness=_mean([float(chunk.complete) for chunk in retrieved]) if retrieved else 1.0,
        total_results_retrieved=len(retrieved),
        connection_status=connection,
        collection_stats=stats,
        errors=tuple(_list_errors(ran)),
        started_at=started_at,
        completed_at=completed_at,
    )


def _list_errors(results: Sequence[TestCaseResult]) -> list[str]:
    # Two wordings: one query could not be judged, the other was judged and did not pass.
    return [
        f"Query '{result.query_text}' failed: {result.error_message}"
        if result.status is TestStatus.ERROR
        else f"Case '{result.name}' not passed: {result.error_message}"
        for result in results
        if result.status in (TestStatus.ERROR, TestStatus.FAILED)
    ]


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
