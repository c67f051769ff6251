"""The reports of a run: the canonical one, a JSON document from which every other format is rendered, and the
validation report with its summary as plain text (docs/contract.md).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from math import fsum
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, computed_field, model_validator
from pydantic_core import from_json, to_json

from chunkproof import __version__
from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import CollectionInfo, Model
from chunkproof.contract.model import BrokenRules, Count, Items, Milliseconds, check_derived, has_fields, require_all
from chunkproof.proof.near_text import RepeatedResults, count_repeated
from chunkproof.suite.cases import Suite
from chunkproof.suite.criteria import Comparison, Criterion, RunVerdict, StageLatency, judge_run, summarize_latency
from chunkproof.suite.diagnosis import Blame
from chunkproof.suite.judge import average
from chunkproof.suite.outcome import TestCaseResult, TestStatus, list_whole

_LINE = "=" * 60

ConnectionStatus = Literal["connected", "failed", "timeout"]


class CollectionStats(Model):
    """The collection in the validation report; fields that are not declared here are kept.

    Fields can also be read as from a dict.
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
        check_derived("duration_seconds", self.duration_seconds, duration)
        check_derived("success_rate", self.success_rate, _success_rate(**fields))
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
        body = ["\n".join([title, _LINE, *lines]) for title, *lines in sections]
        return "\n\n".join(["\n".join(head), *body]) + f"\n{_LINE}"


class ForeignValidationReport(ValidationReport):
    """The report of a retriever whose scores have their own scale."""

    avg_similarity_score: float


def _duration(*, started_at: datetime, completed_at: datetime, **_: object) -> float:
    if (started_at.tzinfo is None) != (completed_at.tzinfo is None):
        raise BrokenRules("started_at and completed_at must both have an offset, or neither")
    return (completed_at - started_at).total_seconds()


def _success_rate(*, successful_queries: int, total_queries: int, **_: object) -> float:
    return successful_queries / total_queries if total_queries else 0.0


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
    times = [timing.latency_ms / 1000 for timing in list_whole(ran)]
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


FORMAT_VERSION = "1.0"


class PerformanceMetrics(Model):
    """Latency of the warm searches, or of all where none is warm."""

    avg_retrieval_time_ms: Milliseconds = 0.0
    p50_retrieval_time_ms: Milliseconds = 0.0
    p95_retrieval_time_ms: Milliseconds = 0.0
    max_retrieval_time_ms: Milliseconds = 0.0


class TestSuiteResult(Model):
    """The result of a suite: counts, cases, latency and retrieval metrics (docs/contract.md)."""

    model_config = ConfigDict(json_schema_extra=require_all)

    __test__: ClassVar[bool] = False

    total_tests: Count
    passed: Count
    failed: Count
    errors: Count
    execution_time_ms: Milliseconds
    test_results: Items[TestCaseResult]
    performance_metrics: PerformanceMetrics = Field(default_factory=PerformanceMetrics, strict=False)
    metrics: dict[str, float] = Field(
        default_factory=dict, description="Mean over the cases that name relevant documents"
    )
    metric_queries: dict[str, int] = Field(default_factory=dict, description="How many cases each mean is over")
    timestamp: str
    pass_rate: float = Field(
        default_factory=lambda known: _percentage(known["passed"], known["total_tests"]),
        description="Percentage of the cases that passed; 0 without cases",
    )
    failure_rate: float = Field(
        default_factory=lambda known: _percentage(known["failed"], known["total_tests"]),
        description="Percentage of the cases that failed; 0 without cases",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> "TestSuiteResult":
        finished = self.passed + self.failed + self.errors
        unfinished = sum(result.status in (TestStatus.PENDING, TestStatus.RUNNING) for result in self.test_results)
        if not finished <= self.total_tests <= finished + unfinished:
            raise BrokenRules("total_tests must be passed + failed + errors, and the cases that are not finished")
        check_derived("pass_rate", self.pass_rate, _percentage(self.passed, self.total_tests))
        check_derived("failure_rate", self.failure_rate, _percentage(self.failed, self.total_tests))
        return self

    @classmethod
    def of(cls, results: Sequence[TestCaseResult], *, execution_time_ms: float, timestamp: str) -> "TestSuiteResult":
        """Summarize the results of these cases."""
        states = [result.status for result in results]
        means, counts = average([result.metrics for result in results if result.metrics])
        return cls(
            total_tests=len(results),
            passed=states.count(TestStatus.PASSED),
            failed=states.count(TestStatus.FAILED),
            errors=states.count(TestStatus.ERROR),
            execution_time_ms=execution_time_ms,
            test_results=tuple(results),
            performance_metrics=_measure_performance(results),
            metrics=means,
            metric_queries=counts,
            timestamp=timestamp,
        )


def _percentage(part: int, whole: int) -> float:
    return part / whole * 100 if whole else 0.0


class SuiteIdentity(Model):
    """Which suite was run; `fingerprint` changes with any of its cases."""

    name: str
    source: str
    fingerprint: str
    collection: str | None
    cases: int = Field(description="Cases of the whole suite, selected or not")
    retriever: str | None = Field(None, description="The retriever that was tested instead of the collection's search")
    versions: dict[str, str] | None = Field(
        None, description="Of published collections, by name: the version that every case was searched in"
    )


class ApproximationSummary(Model):
    """How much of the exact results the index found, relevant or not."""

    queries: int
    ann_recall: float
    lowest: float
    missed_by_index: int = Field(description="Cases where only the exact search found an expected id")


class SuiteReport(Model):
    """The report of a run."""

    format: Literal["chunkproof-suite-report"] = "chunkproof-suite-report"
    format_version: str = FORMAT_VERSION
    chunkproof_version: str = __version__
    suite: SuiteIdentity
    complete: bool = Field(description="False when it was interrupted; pending cases can be run with --resume")
    result: TestSuiteResult
    validation: ValidationReport | ForeignValidationReport
    latency: tuple[StageLatency, ...]
    criteria: tuple[Criterion, ...]
    approximation: ApproximationSummary | None = None
    repeated: RepeatedResults | None = Field(None, description="Results that repeat the text of a better one")
    runs: int = 1
    comparison: Comparison | None = Field(None, description="With the baseline, where one was given")
    blame: Blame | None = Field(None, description="With --blame: what brings the newly lost questions back")

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Read a report from JSON; its verdict is decided again."""
        with suppress(ValueError):  # pydantic says what is wrong with it
            if isinstance(document := from_json(json_data), dict):
                document.pop("verdict", None)
                names = dict.fromkeys(document.keys() & cls.model_fields)
                json_data = to_json(document if has_fields(cls, document) else names)
        return super().model_validate_json(json_data, **options)

    @computed_field(description="The exit code and what decided it")  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> RunVerdict:
        """The exit code and what decided it."""
        return judge_run(self.result.test_results, self.criteria, self.comparison)

    @property
    def unmet_criteria(self) -> tuple[Criterion, ...]:
        """The criteria that were judged, are not met and count."""
        return tuple(one for one in self.criteria if one.decides_failure)

    def without_latency(self) -> "SuiteReport":
        """Return the report with latency criteria that have no say in the exit code."""
        ignored = (one.model_copy(update={"ignored": True}) if one.is_latency else one for one in self.criteria)
        return self.model_copy(update={"criteria": tuple(ignored)})


def read_report(content: bytes, name: str) -> SuiteReport:
    """Read a report; `InvalidParameterError` says why the content is not a report. `name` is for messages."""
    try:
        report = SuiteReport.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "missing")
        where = " ".join((".".join(map(str, first["loc"])), first["msg"])).lstrip()
        raise InvalidParameterError(f"{name} is not a suite report: {where}") from None
    if report.format_version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise InvalidParameterError(
            f"{name} has format {report.format_version}, this Chunkproof reads {FORMAT_VERSION}"
        )
    if fault := next(_find_faults(report), None):
        raise InvalidParameterError(f"{name} is not a suite report: {fault}")
    counted = TestSuiteResult.of(report.result.test_results, execution_time_ms=0, timestamp="")
    counts = counted.model_dump(include={"total_tests", "passed", "failed", "errors", "pass_rate", "failure_rate"})
    return report.model_copy(update={"result": report.result.model_copy(update=counts)})


def _find_faults(report: SuiteReport) -> Iterator[str]:
    """Say what no run writes: a gate could not rely on it."""
    names = Counter(case.name for case in report.result.test_results)
    yield from (f"case {name} is in it more than once" for name, count in names.items() if count > 1)
    for case in report.result.test_results:
        wrong = (name for name, value in case.metrics.items() if not 0 <= value < 1.001)
        yield from (f"{name} of case {case.name} is not 0 to 1" for name in wrong)
    if report.validation.started_at.tzinfo is None:
        yield "validation.started_at has no offset from UTC"


def fingerprint(suite: Suite) -> str:
    """Return a digest of all cases: a run can only be resumed with the same ones."""
    return sha256("\n".join(case.model_dump_json() for case in suite.cases).encode()).hexdigest()


def summarize_approximation(results: Sequence[TestCaseResult]) -> ApproximationSummary | None:
    """Summarize the cases that were also searched exactly; None without any."""
    found = [result.approximation for result in results if result.approximation]
    if not found:
        return None
    recalls = [one.ann_recall for one in found]
    return ApproximationSummary(
        queries=len(found),
        ann_recall=fsum(recalls) / len(recalls),
        lowest=min(recalls),
        missed_by_index=sum(bool(one.missed_by_index) for one in found),
    )


def summarize_repeated(results: Sequence[TestCaseResult]) -> RepeatedResults | None:
    """Count results that repeat a text; None where no result has one, as of a retriever that returns ids."""
    found = [[one.text_sha256 for one in result.actual_results or () if one.excerpt] for result in results]
    return count_repeated(found) if any(found) else None


def _measure_performance(results: Sequence[TestCaseResult]) -> PerformanceMetrics:
    measured = summarize_latency(results)
    figures = measured.model_dump(exclude={"count"}) if measured else {}
    return PerformanceMetrics(**{name.replace("_ms", "_retrieval_time_ms"): value for name, value in figures.items()})
