"""Run cases: each is searched once and judged; results keep the suite's order however they are scheduled."""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from traceback import extract_tb
from typing import Any, TypeVar

from chunkproof.deadline import Stopwatch
from chunkproof.errors import ChunkproofError, InternalError, RateLimitedError, UnavailableError
from chunkproof.models import RetrievalResponse, SearchResult
from chunkproof.models.response import ForeignResult
from chunkproof.suite.cases import TestCase
from chunkproof.suite.judge import find_unmet, match_judged_ids, measure_case
from chunkproof.suite.outcome import (
    Approximation,
    CaseTiming,
    RetrievedChunk,
    TestCaseResult,
    TestStatus,
    Unmet,
)
from chunkproof.why.ids import ids_of

Search = Callable[[dict[str, Any]], RetrievalResponse]
OnResult = Callable[[TestCaseResult], None]
Answer = TypeVar("Answer")

# A service that failed this often in a row is down: the remaining cases do not wait for it.
GIVE_UP_AFTER = 5
# The pause after a 429 that names none, and the longest that is granted.
DEFAULT_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# More than the rounding of a 32-bit score: of equal results, an index may return any.
SAME_SCORE = 1e-6

logger = logging.getLogger(__name__)


class NotJudgeableError(ChunkproofError):
    """The results lack what the case is judged by."""

    code = "NOT_JUDGEABLE"


def call_backend(call: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call the backend; an exception that is not a `ChunkproofError` is raised as `InternalError`.

    Its message names the class and the line, never the exception's own text, which may hold what a report must not.
    """
    try:
        return call(*arguments)
    except ChunkproofError:
        raise
    except Exception as error:
        logger.debug("unexpected failure of the backend", exc_info=True)
        frame = extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise InternalError(f"Unexpected {type(error).__name__} ({where})") from error


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
    except ChunkproofError as error:
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
            "error_message": "; ".join(one.message for one in unmet) or None,
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


def mark_as_error(case: TestCase, error: ChunkproofError, *, tried: bool = True) -> TestCaseResult:
    """Return the case as one that could not be judged, with the reason."""
    reason = str(error) if tried else f"Not tried, as the service is down: {error}"
    return TestCaseResult.pending(case).model_copy(
        update={"status": TestStatus.ERROR, "error_message": reason, "error_code": error.code}
    )


class CaseRunner:
    """Runs the pending cases of a suite; `results` has all of them in order at any time, also when interrupted.

    Once `should_stop` returns true, no further case is started: the rest stay pending.
    """

    def __init__(
        self,
        cases: Iterable[TestCase],
        search: Search,
        *,
        exact_search: Search | None = None,
        jobs: int = 1,
        on_result: OnResult | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self.results = [case if isinstance(case, TestCaseResult) else TestCaseResult.pending(case) for case in cases]
        self._search = search
        self._exact_search = exact_search
        self._jobs = jobs
        self._on_result = on_result
        self._should_stop = should_stop
        self._lock = Lock()
        self._failures = 0
        self._down: ChunkproofError | None = None
        self._not_before = 0.0

    def execute(self) -> Sequence[TestCaseResult]:
        """Run what is pending. The first case of each collection runs alone: it is the cold one."""
        waiting = [n for n, result in enumerate(self.results) if result.status is TestStatus.PENDING]
        first = {self.results[n].collection_name: n for n in reversed(waiting)}.values()
        for index in sorted(first):
            self.run(index, cold=True)
        self._run_all([n for n in waiting if n not in first])
        return self.results

    def _run_all(self, indexes: Sequence[int]) -> None:
        if self._jobs == 1:
            for index in indexes:
                self.run(index)
            return
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for finished in as_completed([pool.submit(self.run, index) for index in indexes]):
                    finished.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def run(self, index: int, *, cold: bool = False) -> None:
        """Run one case, unless the service is down."""
        if self._should_stop is not None and self._should_stop():
            return
        case = self.results[index]
        if self._down is not None:
            result = mark_as_error(case, self._down, tried=False)
        else:
            self._wait_for_rate_limit()
            self.results[index] = case.model_copy(update={"status": TestStatus.RUNNING})
            result = run_case(case, self._search_and_count, exact_search=self._exact_search, cold=cold)
        self.results[index] = result
        if self._on_result:
            self._on_result(result)

    def _search_and_count(self, request: dict[str, Any]) -> RetrievalResponse:
        """Search, and note what concerns the next cases: a rate limit, and failures in a row."""
        try:
            response = self._search(request)
        except RateLimitedError as error:
            with self._lock:
                pause = min(error.retry_after or DEFAULT_PAUSE_S, LONGEST_PAUSE_S)
                self._not_before = max(self._not_before, monotonic() + pause)
            raise
        except UnavailableError as error:
            with self._lock:
                self._failures += 1
                if self._failures >= GIVE_UP_AFTER:
                    self._down = error
            raise
        with self._lock:
            self._failures = 0
        return response

    def _wait_for_rate_limit(self) -> None:
        """Wait as long as a 429 asked for before the next case; the case that was refused stays in error."""
        if (pause := self._not_before - monotonic()) > 0:
            sleep(pause)


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
