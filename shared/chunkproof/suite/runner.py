"""Run a suite: inspect its collections, search and judge its cases, judge the criteria, write the report.

Each case is searched once; results keep the suite's order however they are scheduled.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from chunkproof.base import errors
from chunkproof.base.request import Stopwatch, start
from chunkproof.collection.embedding import AHEAD
from chunkproof.collection.lookup import ids_of
from chunkproof.contract import CollectionInfo, RetrievalResponse, SearchResult
from chunkproof.contract.response import ForeignResult
from chunkproof.proof.backend import Backend, LocalBackend, call_backend
from chunkproof.suite.cases import Suite, TestCase
from chunkproof.suite.criteria import LATENCY_TARGET_MS, STAGES, CriteriaInput, judge_criteria, summarize_stages
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.judge import find_unmet, match_judged_ids, measure_case
from chunkproof.suite.outcome import Approximation, CaseTiming, RetrievedChunk, TestCaseResult, TestStatus, Unmet
from chunkproof.suite.suite_report import (
    CollectionStats,
    ConnectionStatus,
    SuiteIdentity,
    SuiteReport,
    TestSuiteResult,
    build_validation_report,
    fingerprint,
    summarize_approximation,
    summarize_repeated,
)

Search = Callable[[dict[str, Any]], RetrievalResponse]
OnResult = Callable[[TestCaseResult], None]

# A service that failed this often in a row is down: the remaining cases do not wait for it.
GIVE_UP_AFTER = 5
# The pause after a 429 that names none, and the longest that is granted.
DEFAULT_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# More than the rounding of a 32-bit score: of equal results, an index may return any.
SAME_SCORE = 1e-6

LOOKUPS = 10
# Cases whose queries are embedded one by one, as users' are: the 95th percentile of fewer is their maximum.
MEASURED = 20
SERVER_JOBS = 4  # searches at a time
# Of the store, and of a stack in front of it.
NO_CONNECTION = {errors.VectorStoreUnavailableError.code, errors.VectorStoreTimeoutError.code, "API_UNAVAILABLE"}
WRONG_INPUT = (errors.InvalidParameterError, errors.NotFoundError, errors.ForbiddenError)


class NotJudgeableError(errors.ChunkproofError):
    """The results lack the texts or scores that the case needs."""

    code = "NOT_JUDGEABLE"


def run_case(
    case: TestCase, search: Search, *, exact_search: Search | None = None, cold: bool = False
) -> TestCaseResult:
    """Search once and judge the results; an error of the backend gives status `error`, never `failed`."""
    watch = Stopwatch()
    try:
        response = call_backend(search, case.request())
        latency_ms = watch.ms()
        check_judgeable(case, response.results)
        exact = call_backend(exact_search, case.request()) if exact_search else None
    except errors.ChunkproofError as error:
        return mark_as_error(case, error)
    labels = match_judged_ids(response.results, case.grades)
    unmet = [
        Unmet(kind=type(problem).__name__, message=str(problem), keyword=problem.keyword)
        for problem in find_unmet(case, response.results, latency_ms)
    ]
    return TestCaseResult.pending(case).model_copy(
        update={
            "collection_name": case.collection_name or response.execution.collection,
            "status": TestStatus.FAILED if unmet else TestStatus.PASSED,
            "actual_results": tuple(map(RetrievedChunk.of, response.results, labels)),
            "error_message": "; ".join(reason.message for reason in unmet) or None,
            "unmet": tuple(unmet),
            "metrics": measure_case(case, labels),
            "timing": _read_timing(response, latency_ms, cold),
            "approximation": _compare_with_exact(case, response.results, exact.results) if exact else None,
        }
    )


def check_judgeable(case: TestCase, results: Sequence[SearchResult]) -> None:
    """Raise `NotJudgeableError` when the case needs texts or scores that a retriever does not return."""
    foreign = [result for result in results if isinstance(result, ForeignResult)]
    if case.expected_keywords and any(not result.has_text for result in foreign):
        raise NotJudgeableError("The retriever returns no texts, so expected_keywords cannot be judged")
    if case.relevance_threshold and any(not result.has_score for result in foreign):
        raise NotJudgeableError("The retriever returns no scores, so relevance_threshold cannot be judged")
    if case.expect_integrity and foreign:
        raise NotJudgeableError("The retriever does not verify texts, so expect_integrity cannot be judged")


def mark_as_error(case: TestCase, error: errors.ChunkproofError, *, tried: bool = True) -> TestCaseResult:
    """Return the case as one that could not be judged, with the reason."""
    reason = str(error) if tried else f"Not tried, as the service is down: {error}"
    return TestCaseResult.pending(case).model_copy(
        update={"status": TestStatus.ERROR, "error_message": reason, "error_code": error.code}
    )


@dataclass
class CaseRunner:
    """Runs the pending cases of a suite; `results` has all of them in order at any time, also when interrupted.

    Once `should_stop` returns true, no further case is started: the rest stay pending. With `embed_ahead`, latency is
    measured on the first case of each collection, on `MEASURED` others of all shards, and on those that limit it. The
    queries of the rest are embedded together, while those before are searched.
    """

    cases: InitVar[Iterable[TestCase]]
    search: Search
    exact_search: Search | None = None
    jobs: int = 1
    on_result: OnResult | None = None
    should_stop: Callable[[], bool] = lambda: False
    embed_ahead: Callable[[Sequence[dict[str, Any]]], None] | None = None
    shards: int = 1
    results: list[TestCaseResult] = field(init=False)
    _lock: Lock = field(init=False, default_factory=Lock)
    _failures: int = field(init=False, default=0)
    _down: errors.ChunkproofError | None = field(init=False, default=None)
    _not_before: float = field(init=False, default=0.0)

    def __post_init__(self, cases: Iterable[TestCase]) -> None:
        self.results = [case if isinstance(case, TestCaseResult) else TestCaseResult.pending(case) for case in cases]

    def execute(self) -> Sequence[TestCaseResult]:
        """Run what is pending. The first case of each collection runs alone: it is the cold one."""
        waiting = [n for n, result in enumerate(self.results) if result.status is TestStatus.PENDING]
        first = {self.results[n].collection_name: n for n in reversed(waiting)}.values()
        for index in sorted(first):
            self.run(index, cold=True)
        rest = [n for n in waiting if n not in first]
        measured = -(-MEASURED // self.shards)
        alone = {rest[n * len(rest) // measured] for n in range(measured) if rest}
        ahead = [n for n in rest if self.embed_ahead and n not in alone and not self.results[n].max_latency_ms]
        self._run_all(sorted({*rest} - {*ahead}))
        embedding = start(partial(self._embed, ahead[:AHEAD]))
        for n in range(0, len(ahead), AHEAD):
            embedding.result()
            embedding = start(partial(self._embed, ahead[n + AHEAD : n + 2 * AHEAD]))
            self._run_all(ahead[n : n + AHEAD])
        return self.results

    def _run_all(self, indexes: Sequence[int]) -> None:
        if self.jobs == 1:
            for index in indexes:
                self.run(index)
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for finished in as_completed([pool.submit(self.run, index) for index in indexes]):
                    finished.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _embed(self, indexes: Sequence[int]) -> None:
        """Embed the queries of these cases; where that fails, each search embeds its own and has its own error."""
        if indexes and self.embed_ahead and self._down is None and not self.should_stop():
            with suppress(errors.ChunkproofError):
                call_backend(self.embed_ahead, [self.results[n].request() for n in indexes])

    def mark_pending_as_error(self, error: errors.ChunkproofError) -> None:
        """Leave what is pending in error, untried."""
        for index, case in enumerate(self.results):
            if case.status is TestStatus.PENDING:
                self.results[index] = mark_as_error(case, error, tried=False)

    def run(self, index: int, *, cold: bool = False) -> None:
        """Run one case, unless the service is down."""
        if self.should_stop():
            return
        case = self.results[index]
        if self._down is not None:
            result = mark_as_error(case, self._down, tried=False)
        else:
            # As long as a 429 asked for; the case that was refused stays in error.
            if (pause := self._not_before - monotonic()) > 0:
                sleep(pause)
            self.results[index] = case.model_copy(update={"status": TestStatus.RUNNING})
            result = run_case(case, self._search_and_count, exact_search=self.exact_search, cold=cold)
        self.results[index] = result
        if self.on_result:
            self.on_result(result)

    def _search_and_count(self, request: dict[str, Any]) -> RetrievalResponse:
        """Search, and note what concerns the next cases: a rate limit, and failures in a row."""
        try:
            response = self.search(request)
        except errors.RateLimitedError as error:
            with self._lock:
                pause = min(error.retry_after or DEFAULT_PAUSE_S, LONGEST_PAUSE_S)
                self._not_before = max(self._not_before, monotonic() + pause)
            raise
        except errors.UnavailableError as error:
            with self._lock:
                self._failures += 1
                if self._failures >= GIVE_UP_AFTER:
                    self._down = error
            raise
        with self._lock:
            self._failures = 0
        return response


def _read_timing(response: RetrievalResponse, latency_ms: float, cold: bool) -> CaseTiming:
    execution = response.execution
    search_ms = float(execution.qdrant_query_time_ms or 0)
    rest = execution.latency_ms - execution.embedding_time_ms - search_ms
    return CaseTiming(
        latency_ms=latency_ms,
        embedding_ms=execution.embedding_time_ms,
        search_ms=search_ms,
        format_ms=round(max(0.0, rest), 3),
        embedding_cached=execution.embedding_cached,
        cold=cold,
    )


def _compare_with_exact(
    case: TestCase, approximate: Sequence[SearchResult], exact: Sequence[SearchResult]
) -> Approximation:
    nearest = {result.metadata.chunk_id for result in exact}
    last = exact[-1].similarity_score if exact else 0.0
    right = sum(
        result.metadata.chunk_id in nearest or abs(result.similarity_score - last) <= SAME_SCORE
        for result in approximate
    )
    found = {key for result in approximate for key in ids_of(result.metadata)}
    found_exactly = {key for result in exact for key in ids_of(result.metadata)}
    return Approximation(
        ann_recall=min(1.0, right / len(exact)) if exact else 1.0,
        missed_by_index=tuple(k for k in case.expected_doc_ids if k in found_exactly and k not in found),
    )


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
    latency_target_ms: float = LATENCY_TARGET_MS
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
    down: errors.ChunkproofError | None = None


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
    except errors.ChunkproofError as error:
        status: ConnectionStatus = "timeout" if isinstance(error, errors.VectorStoreTimeoutError) else "failed"
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
    ahead = backend.embed_ahead if isinstance(backend, LocalBackend) else None
    first = CaseRunner(plan.cases, backend.search, exact_search, plan.jobs, on_result, embed_ahead=ahead)
    return _SuiteRun(plan, backend, first, diagnoser).report(on_complete)


@dataclass
class _SuiteRun:
    """A run in progress: its first round of cases, and the rounds that repeat it."""

    plan: RunPlan
    backend: Backend
    first: CaseRunner
    diagnoser: Diagnoser | None
    repeats: list[CaseRunner] = field(default_factory=list)
    inspection: Inspection = field(default_factory=lambda: Inspection("failed", CollectionStats()))
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def report(self, on_complete: Callable[[], None]) -> SuiteReport:
        plan, first = self.plan, self.first
        try:
            self.inspection = inspect_collections(plan.cases if plan.has_collection else (), self.backend)
            if self.inspection.down is not None:
                first.mark_pending_as_error(self.inspection.down)
            else:
                first.execute()
                for _ in range(1, plan.repeat):
                    fresh = map(TestCaseResult.pending, plan.cases)
                    self.repeats.append(replace(first, cases=fresh, exact_search=None, on_result=None))
                    self.repeats[-1].execute()
                if self.diagnoser:
                    first.results = self.diagnoser.diagnose(first.results)
            report = self._build_report(complete=True)
            on_complete()
            return report
        except KeyboardInterrupt:
            raise InterruptedRun(self._build_report(complete=False)) from None

    def _build_report(self, *, complete: bool) -> SuiteReport:
        plan, suite, stats, down = self.plan, self.plan.suite, self.inspection.stats, self.inspection.down
        started, ended = plan.started_at or self.began, datetime.now(UTC)
        results = list(self.first.results)
        for place, result in enumerate(results):
            if result.status is TestStatus.RUNNING:  # it was interrupted
                results[place] = result.model_copy(update={"status": TestStatus.PENDING})
        latency = summarize_stages(results, plan.stages)
        lookups_ms, why_none, codes = self._time_lookups(results) if complete else ([], "the run was interrupted", [])
        repeated = [result for runner in self.repeats for result in runner.results]
        states = [{runner.results[n].status for runner in (self.first, *self.repeats)} for n in range(len(results))]
        given = CriteriaInput(
            results=results,
            latency=latency,
            lookups_ms=lookups_ms,
            lookups_reason=why_none,
            error_codes=[*([down.code] if down else []), *_error_codes([*results, *repeated]), *codes],
            runs=1 + len(self.repeats),
            differing=[result.name for n, result in enumerate(results) if len(states[n]) > 1],
            latency_target_ms=plan.latency_target_ms,
            limits=suite.limits,
            judge_latency=plan.judge_latency,
        )
        return SuiteReport(
            suite=SuiteIdentity(
                name=suite.name,
                source=plan.source,
                fingerprint=fingerprint(suite),
                collection=stats.collection_name if stats.collection_exists else None,
                cases=len(suite.cases),
                retriever=plan.retriever,
                versions=dict(plan.versions) or None,
            ),
            complete=complete,
            result=TestSuiteResult.of(
                results,
                execution_time_ms=round((ended - started).total_seconds() * 1000, 3),
                timestamp=started.isoformat(),
            ),
            validation=build_validation_report(
                results,
                run_id=str(uuid4()),
                connection=_connection_status(self.inspection.connection, results),
                stats=stats,
                started_at=started,
                completed_at=ended,
            ),
            latency=latency,
            criteria=judge_criteria(given),
            approximation=summarize_approximation(results),
            repeated=summarize_repeated(results),
            runs=1 + len(self.repeats),
        )

    def _time_lookups(self, results: Sequence[TestCaseResult]) -> tuple[list[float], str, list[str]]:
        """Fetch some of the returned chunks by id; return the times, the reason if there are none, and error codes."""
        if not self.plan.has_collection:
            return [], "no collection was given beside the retriever", []
        firsts = [(result.collection_name, result.actual_results[0]) for result in results if result.actual_results]
        best = {(collection, chunk.chunk_id): chunk for collection, chunk in firsts}
        times: list[float] = []
        for (collection, _), chunk in list(best.items())[:LOOKUPS]:
            request = {"chunk_id": chunk.chunk_id, "original_sha256": chunk.text_sha256}
            where = {"collection": collection} if collection else {}
            try:
                found = call_backend(self.backend.validate, request | where)
            except errors.ChunkproofError as error:
                return [], str(error), [error.code]
            times.append(found.retrieval_time_ms)
        return times, "no search returned a chunk to look up", []


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
    if codes == {errors.VectorStoreTimeoutError.code}:
        return "timeout"
    return "failed" if codes & NO_CONNECTION else at_start
