"""Run a suite: inspect its collections, run its cases, judge the criteria, write the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from chunkproof.suite.case_runner import CaseRunner, OnResult, Search, call_backend, mark_as_error
from chunkproof.suite.cases import Suite, TestCase
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.latency import STAGES, summarize_stages
from chunkproof.suite.outcome import RetrievedChunk, TestCaseResult, TestStatus
from chunkproof.suite.report import (
    SuiteIdentity,
    SuiteReport,
    TestSuiteResult,
    fingerprint,
    summarize_approximation,
    summarize_repeated,
)
from chunkproof.suite.validation_report import CollectionStats, ConnectionStatus, build_validation_report

LOOKUPS = 10
SERVER_JOBS = 4  # searches at a time
# Of the store, and of a stack in front of it.
NO_CONNECTION = {VectorStoreUnavailableError.code, VectorStoreTimeoutError.code, "API_UNAVAILABLE"}
WRONG_INPUT = (InvalidParameterError, NotFoundError, ForbiddenError)


@dataclass(frozen=True)
class RunPlan:
    """What to run.

    A case that already has a verdict keeps it: from an interrupted run, or from a sharded one that began at
    `started_at`. With a `retriever`, the backend is another one than the collection's search, and `has_collection`
    says whether it can look chunks up in a collection as well. Latency is reported by `stages`. `versions` are those
    of published collections that the backend searches.
    """

    suite: Suite
    source: str
    cases: Sequence[TestCase]
    jobs: int = 1
    repeat: int = 1
    latency_target_ms: float = criteria.LATENCY_TARGET_MS
    judge_latency: bool = True
    started_at: datetime | None = None
    retriever: str | None = None
    has_collection: bool = True
    stages: Sequence[str] = STAGES
    versions: Mapping[str, str] = field(default_factory=dict)


class InterruptedRun(KeyboardInterrupt):
    """The run was interrupted; `report` has the verdicts so far, and the other cases as pending."""

    def __init__(self, report: SuiteReport) -> None:
        super().__init__()
        self.report = report


@dataclass(frozen=True)
class Inspection:
    """The collection as it was found; `down` is the error when the store could not be reached."""

    connection: ConnectionStatus
    stats: CollectionStats
    down: ChunkproofError | None = None


def collections_of(cases: Sequence[TestCase]) -> list[str]:
    """Return the names of the collections that these cases search, in their order."""
    return list(dict.fromkeys(case.collection_name for case in cases if case.collection_name))


def inspect_collections(cases: Sequence[TestCase], backend: Backend) -> Inspection:
    """Look up the collections of these cases; wrong input, such as an unknown collection, is raised."""
    names = collections_of(cases)
    infos: list[CollectionInfo] = []
    try:
        infos += [call_backend(backend.collection, name) for name in names]
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
    on_complete: Callable[[], None] = lambda: None,
) -> SuiteReport:
    """Run every case, judge the criteria and diagnose the failed cases.

    A collection that does not exist is raised at once; a store that is down leaves every case in error. An
    interruption before `on_complete` is called raises `InterruptedRun` with the report so far.
    """
    return _SuiteRun(plan, backend, exact_search, on_result, diagnoser).report(on_complete)


class _SuiteRun:
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
        self._repeats: list[CaseRunner] = []
        self._inspection = Inspection("failed", CollectionStats())

    def report(self, on_complete: Callable[[], None]) -> SuiteReport:
        try:
            inspected = self._plan.cases if self._plan.has_collection else ()
            self._inspection = inspect_collections(inspected, self._backend)
            if self._inspection.down is not None:
                down = self._inspection.down
                self._first.results = [_mark_if_pending(case, down) for case in self._first.results]
            else:
                self._first.execute()
                self._repeat()
                if self._diagnoser:
                    self._first.results = self._diagnoser.diagnose(self._first.results)
            report = self._build_report(complete=True)
            on_complete()
            return report
        except KeyboardInterrupt:
            raise InterruptedRun(self._build_report(complete=False)) from None

    def _repeat(self) -> None:
        for _ in range(1, self._plan.repeat):
            fresh = [TestCaseResult.pending(case) for case in self._plan.cases]
            runner = CaseRunner(fresh, self._backend.search, jobs=self._plan.jobs)
            runner.execute()
            self._repeats.append(runner)

    def _build_report(self, *, complete: bool) -> SuiteReport:
        execution_ms, ended = self._watch.ms(), datetime.now(UTC)
        if self._plan.started_at:
            execution_ms = (ended - self._started).total_seconds() * 1000
        results = [_reset_if_running(result) for result in self._first.results]
        latency = summarize_stages(results, self._plan.stages)
        lookups = self._time_lookups(results) if complete else _Lookups(reason="the run was interrupted")
        repeated = [result for runner in self._repeats for result in runner.results]
        down = self._inspection.down
        given = criteria.CriteriaInput(
            results=results,
            latency=latency,
            lookups_ms=lookups.times_ms,
            lookups_reason=lookups.reason,
            error_codes=[
                *([down.code] if down else []),
                *_error_codes([*results, *repeated]),
                *lookups.error_codes,
            ],
            runs=1 + len(self._repeats),
            differing=[result.name for n, result in enumerate(results) if self._differs(n, result)],
            latency_target_ms=self._plan.latency_target_ms,
            limits=self._plan.suite.limits,
            judge_latency=self._plan.judge_latency,
        )
        suite, stats = self._plan.suite, self._inspection.stats
        return SuiteReport(
            suite=SuiteIdentity(
                name=suite.name,
                source=self._plan.source,
                fingerprint=fingerprint(suite),
                collection=stats.collection_name if stats.collection_exists else None,
                cases=len(suite.cases),
                retriever=self._plan.retriever,
                versions=dict(self._plan.versions) or None,
            ),
            complete=complete,
            result=TestSuiteResult.of(results, execution_time_ms=execution_ms, timestamp=self._started.isoformat()),
            validation=build_validation_report(
                results,
                run_id=str(uuid4()),
                connection=_connection_status(self._inspection.connection, results),
                stats=stats,
                started_at=self._started,
                completed_at=ended,
            ),
            latency=latency,
            criteria=criteria.judge_criteria(given),
            approximation=summarize_approximation(results),
            repeated=summarize_repeated(results),
            runs=1 + len(self._repeats),
        )

    def _differs(self, index: int, result: TestCaseResult) -> bool:
        return any(runner.results[index].status is not result.status for runner in self._repeats)

    def _time_lookups(self, results: Sequence[TestCaseResult]) -> "_Lookups":
        """Measure how long it takes to fetch some of the returned chunks by their id."""
        if not self._plan.has_collection:
            return _Lookups(reason="no collection was given beside the retriever")
        times: list[float] = []
        for collection, chunk in _pick_chunks(results):
            request = {"chunk_id": chunk.chunk_id, "original_sha256": chunk.text_sha256}
            where = {"collection": collection} if collection else {}
            try:
                found = call_backend(self._backend.validate, request | where)
            except ChunkproofError as error:
                return _Lookups(reason=str(error), error_codes=(error.code,))
            times.append(found.retrieval_time_ms)
        return _Lookups(times, "no search returned a chunk to look up")


@dataclass(frozen=True)
class _Lookups:
    """Times of lookups by id; `reason` says why there are none."""

    times_ms: Sequence[float] = ()
    reason: str = ""
    error_codes: Sequence[str] = ()


def _error_codes(results: Sequence[TestCaseResult]) -> Iterator[str]:
    """Yield the code of each error in these results: of a case, or of its diagnosis."""
    for result in results:
        codes = (result.error_code, *(diagnosis.error_code for diagnosis in result.diagnosis))
        yield from (code for code in codes if code is not None)


def _connection_status(at_start: ConnectionStatus, results: Sequence[TestCaseResult]) -> ConnectionStatus:
    """Return the status at the start, unless every search since then failed to connect."""
    codes = {result.error_code for result in results if result.status is TestStatus.ERROR}
    if at_start != "connected" or not codes or any(result.status.is_judged for result in results):
        return at_start
    if codes == {VectorStoreTimeoutError.code}:
        return "timeout"
    return "failed" if codes & NO_CONNECTION else at_start


def _pick_chunks(results: Sequence[TestCaseResult]) -> Iterator[tuple[str | None, RetrievedChunk]]:
    best = {
        (result.collection_name, result.actual_results[0].chunk_id): result.actual_results[0]
        for result in results
        if result.actual_results
    }
    for (collection, _), chunk in list(best.items())[:LOOKUPS]:
        yield collection, chunk


def _mark_if_pending(case: TestCaseResult, down: ChunkproofError) -> TestCaseResult:
    return mark_as_error(case, down, tried=False) if case.status is TestStatus.PENDING else case


def _reset_if_running(result: TestCaseResult) -> TestCaseResult:
    """Return a case that was interrupted as pending."""
    if result.status is TestStatus.RUNNING:
        return result.model_copy(update={"status": TestStatus.PENDING})
    return result
