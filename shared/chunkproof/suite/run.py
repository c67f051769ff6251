"""A suite, run from its first look at the collection to its report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from chunkproof.deadline import Stopwatch
from chunkproof.errors import (
    ChunkproofError,
    ForbiddenError,
    InvalidParameterError,
    NotFoundError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.models import CollectionInfo
from chunkproof.retrieval.backend import Backend
from chunkproof.suite import criteria
from chunkproof.suite.case_runner import CaseRunner, OnResult, Search, mark_as_error
from chunkproof.suite.cases import Suite, TestCase
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.latency import summarize_stages
from chunkproof.suite.outcome import RetrievedChunk, TestCaseResult, TestStatus
from chunkproof.suite.report import (
    SuiteIdentity,
    SuiteReport,
    TestSuiteResult,
    fingerprint,
    summarize_approximation,
)
from chunkproof.suite.selfcheck import check_error_classes
from chunkproof.suite.validation_report import CollectionStats, ConnectionStatus, build_validation_report

LOOKUPS = 10
# Of the store, and of a stack in front of it.
NO_CONNECTION = {VectorStoreUnavailableError.code, VectorStoreTimeoutError.code, "API_UNAVAILABLE"}
WRONG_INPUT = (InvalidParameterError, NotFoundError, ForbiddenError)


@dataclass(frozen=True)
class RunPlan:
    """What to run. A case that comes with a verdict keeps it: of a run that
    was interrupted, or of one in several processes, which began at `started_at`.
    """

    suite: Suite
    source: str
    cases: Sequence[TestCase]
    jobs: int = 1
    repeat: int = 1
    latency_target_ms: float = criteria.LATENCY_TARGET_MS
    started_at: datetime | None = None


class InterruptedRun(KeyboardInterrupt):
    """The run was stopped; its report holds what is known so far, the other cases as pending."""

    def __init__(self, report: SuiteReport) -> None:
        super().__init__()
        self.report = report


@dataclass(frozen=True)
class Inspection:
    """The collection as it was found; `down` when the store could not be asked."""

    connection: ConnectionStatus
    stats: CollectionStats
    down: ChunkproofError | None = None


def inspect_collections(cases: Sequence[TestCase], backend: Backend) -> Inspection:
    """The collections of these cases; what is wrong with the request itself is raised."""
    names = list(dict.fromkeys(case.collection_name for case in cases if case.collection_name))
    infos: list[CollectionInfo] = []
    try:
        infos += [backend.collection(name) for name in names]
    except WRONG_INPUT:
        raise
    except ChunkproofError as error:
        status: ConnectionStatus = "timeout" if isinstance(error, VectorStoreTimeoutError) else "failed"
        return Inspection(status, CollectionStats(collection_name=names[0]), error)
    return Inspection("connected", CollectionStats.of(infos[0]) if infos else CollectionStats())


def run_suite(
    plan: RunPlan,
    backend: Backend,
    *,
    exact_search: Search | None = None,
    on_result: OnResult | None = None,
    diagnoser: Diagnoser | None = None,
) -> SuiteReport:
    """Run every case, judge the criteria and look into what failed. A collection that does not exist is an
    error at once; a store that is down leaves every case in error."""
    return _Session(plan, backend, exact_search, on_result, diagnoser).report()


class _Session:
    def __init__(
        self,
        plan: RunPlan,
        backend: Backend,
        exact_search: Search | None,
        on_result: OnResult | None,
        diagnoser: Diagnoser | None,
    ) -> None:
        self._plan = plan
        self._diagnoser = diagnoser
        self._backend = backend
        self._started, self._watch = plan.started_at or datetime.now(UTC), Stopwatch()
        self._first = CaseRunner(
            plan.cases, backend.search, exact_search=exact_search, jobs=plan.jobs, on_result=on_result
        )
        self._others: list[CaseRunner] = []
        self._look = Inspection("failed", CollectionStats())

    def report(self) -> SuiteReport:
        try:
            self._look = inspect_collections(self._plan.cases, self._backend)
            if self._look.down is not None:
                down = self._look.down
                self._first.results = [_undecided(case, down) for case in self._first.results]
            else:
                self._first.execute()
                self._repeat()
                if self._diagnoser:
                    self._first.results = self._diagnoser.diagnose(self._first.results)
            return self._made(complete=True)
        except KeyboardInterrupt:
            raise InterruptedRun(self._made(complete=False)) from None

    def _repeat(self) -> None:
        for _ in range(1, self._plan.repeat):
            fresh = [TestCaseResult.pending(case) for case in self._plan.cases]
            run = CaseRunner(fresh, self._backend.search, jobs=self._plan.jobs)
            run.execute()
            self._others.append(run)

    def _made(self, *, complete: bool) -> SuiteReport:
        execution_ms, ended = self._watch.ms(), datetime.now(UTC)
        if self._plan.started_at:
            execution_ms = (ended - self._started).total_seconds() * 1000
        results = [_settled(result) for result in self._first.results]
        latency = summarize_stages(results)
        lookups, reason = self._lookups(results) if complete else ([], "the run was interrupted")
        evidence = criteria.CriteriaInput(
            results=results,
            latency=latency,
            lookups_ms=lookups,
            lookups_reason=reason,
            error_classes=check_error_classes(),
            runs=1 + len(self._others),
            differing=[result.name for n, result in enumerate(results) if self._differs(n, result)],
            latency_target_ms=self._plan.latency_target_ms,
        )
        suite = self._plan.suite
        return SuiteReport(
            suite=SuiteIdentity(
                name=suite.name,
                source=self._plan.source,
                fingerprint=fingerprint(suite),
                collection=self._look.stats.collection_name if self._look.stats.collection_exists else None,
                cases=len(suite.cases),
            ),
            complete=complete,
            result=TestSuiteResult.of(
                results, execution_time_ms=execution_ms, timestamp=self._started.isoformat()
            ),
            validation=build_validation_report(
                results,
                run_id=str(uuid4()),
                connection=_connection(self._look.connection, results),
                stats=self._look.stats,
                started_at=self._started,
                completed_at=ended,
            ),
            latency=latency,
            criteria=criteria.judge_criteria(evidence),
            approximation=summarize_approximation(results),
            runs=1 + len(self._others),
        )

    def _differs(self, index: int, result: TestCaseResult) -> bool:
        return any(run.results[index].status is not result.status for run in self._others)

    def _lookups(self, results: Sequence[TestCaseResult]) -> tuple[list[float], str]:
        """How long some of the returned chunks take to be fetched by their id."""
        times: list[float] = []
        for collection, chunk in _some_chunks(results):
            request = {"chunk_id": chunk.chunk_id, "original_sha256": chunk.text_sha256}
            try:
                found = self._backend.validate(request | ({"collection": collection} if collection else {}))
            except ChunkproofError as error:
                return [], str(error)
            times.append(found.retrieval_time_ms)
        return times, "no search returned a chunk to look up"


def _connection(at_start: ConnectionStatus, results: Sequence[TestCaseResult]) -> ConnectionStatus:
    """As it was at the start, unless no search got through after that."""
    codes = {result.error_code for result in results if result.status is TestStatus.ERROR}
    if at_start != "connected" or not codes or any(result.status.is_judged for result in results):
        return at_start
    if codes == {VectorStoreTimeoutError.code}:
        return "timeout"
    return "failed" if codes & NO_CONNECTION else at_start


def _some_chunks(results: Sequence[TestCaseResult]) -> Iterator[tuple[str | None, RetrievedChunk]]:
    best = {
        (result.collection_name, result.actual_results[0].chunk_id): result.actual_results[0]
        for result in results
        if result.actual_results
    }
    for (collection, _), chunk in list(best.items())[:LOOKUPS]:
        yield collection, chunk


def _undecided(case: TestCaseResult, down: ChunkproofError) -> TestCaseResult:
    return mark_as_error(case, down, tried=False) if case.status is TestStatus.PENDING else case


def _settled(result: TestCaseResult) -> TestCaseResult:
    """A case that an interruption caught in its run is as if it had not begun."""
    if result.status is TestStatus.RUNNING:
        return result.model_copy(update={"status": TestStatus.PENDING})
    return result
