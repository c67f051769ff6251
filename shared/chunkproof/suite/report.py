"""The canonical report of a run: one JSON document, from which every other format is rendered."""

from collections.abc import Sequence
from hashlib import sha256
from math import fsum
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, computed_field, model_validator
from pydantic_core import from_json, to_json

from chunkproof import __version__
from chunkproof.errors import InvalidParameterError
from chunkproof.models import Model
from chunkproof.models.base import BrokenRules, Count, Items, Milliseconds, check_shown, require_all
from chunkproof.retrieval.repeated import RepeatedResults, count_repeated
from chunkproof.suite.blame import Blame
from chunkproof.suite.cases import Suite
from chunkproof.suite.comparison import Comparison
from chunkproof.suite.criteria import Criterion
from chunkproof.suite.latency import StageLatency, summarize_times
from chunkproof.suite.metrics import average
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.validation_report import ForeignValidationReport, ValidationReport
from chunkproof.suite.verdict import RunVerdict, judge_run

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
        check_shown("pass_rate", self.pass_rate, _percentage(self.passed, self.total_tests))
        check_shown("failure_rate", self.failure_rate, _percentage(self.failed, self.total_tests))
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
        """Read a report from JSON; its verdict is decided anew."""
        try:
            document = from_json(json_data)
        except ValueError:
            document = None  # pydantic says what is wrong with it
        if isinstance(document, dict) and document.pop("verdict", None) is not None:
            json_data = to_json(document)
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

    def canonical_json(self) -> str:
        """Return the report as it is written to a file, indented by two spaces."""
        return self.model_dump_json(indent=2) + "\n"


def read_report(content: bytes, name: str) -> SuiteReport:
    """Read a report; `InvalidParameterError` says why the content is none. `name` is for messages."""
    try:
        report = SuiteReport.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidParameterError(f"{name} is not a suite report: {where} {first['msg']}") from None
    if report.format_version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise InvalidParameterError(
            f"{name} has format {report.format_version}, this Chunkproof reads {FORMAT_VERSION}"
        )
    return report


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
    timings = [result.timing for result in results if result.timing]
    warm = [timing.latency_ms for timing in timings if not timing.cold]
    measured = summarize_times(warm or [timing.latency_ms for timing in timings])
    if measured is None:
        return PerformanceMetrics()
    return PerformanceMetrics(
        avg_retrieval_time_ms=measured.avg_ms,
        p50_retrieval_time_ms=measured.p50_ms,
        p95_retrieval_time_ms=measured.p95_ms,
        max_retrieval_time_ms=measured.max_ms,
    )
