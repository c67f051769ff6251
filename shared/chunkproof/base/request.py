"""What travels with a request: its deadline, and its trace.

The deadline is created when the request arrives, passed down, and enforced on every call. The handler makes a
`RequestTrace` and passes it to the use case, which fills it in; telemetry reads it at the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from chunkproof.contract.query import SearchQuery
    from chunkproof.contract.response import SearchResult
    from chunkproof.service.tracing import Tracer
    from chunkproof.stores.store_port import Scores

Result = TypeVar("Result")

# Of a response of a service. Ten times what Lambda can return, and far below a function's memory.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_current: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Tracing:
    """The tracer of this process (service/tracing.py); None unless OpenTelemetry is configured."""

    tracer: "Tracer | None" = None


tracing = Tracing()


class Deadline:
    """How long a request has taken and may still take."""

    def __init__(self, budget_ms: float) -> None:
        self.budget_ms = budget_ms
        self.max_response_bytes = MAX_RESPONSE_BYTES
        # Whether a call asks for so much data that its failure says nothing about the health of the service.
        self.is_heavy = False
        self._started = monotonic()

    @property
    def started_at(self) -> float:
        """When the request arrived, on the clock of `time.monotonic`."""
        return self._started

    def limit_responses(self, max_bytes: int, *, is_heavy: bool = False) -> "Deadline":
        """Return a copy that also caps the response size.

        Reading a response costs processor time in proportion to its size, which no timeout of a socket limits.
        """
        limited = Deadline(self.budget_ms)  # a plain search makes one: `copy` takes many times as long
        limited._started = self._started
        limited.max_response_bytes = min(max_bytes, self.max_response_bytes)
        limited.is_heavy = is_heavy
        return limited

    def less(self, ms: float) -> "Deadline":
        """Return a copy that ends this many milliseconds earlier, to leave time for what follows a call."""
        earlier = copy(self)
        earlier.budget_ms = self.budget_ms - ms
        return earlier

    def elapsed_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return (monotonic() - self._started) * 1000

    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, self.budget_ms - self.elapsed_ms())

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Limit every HTTP call inside the block to the time that is left.

        Only clients use it, around a call of an SDK. Everywhere else the deadline is an argument. It exists because
        the SDKs of Qdrant and Cohere take no deadline per call: the transport below them reads it with `current`.
        """
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


current = _current.get
"""Returns the deadline that is enforced here, if any."""


def run_with_timeout(call: Callable[[], Result], seconds: float) -> Result:
    """Run a call that takes no timeout, and raise `TimeoutError` after this many seconds.

    The call runs in a thread of its own, where no deadline is enforced. A call that takes longer goes on in its
    thread, and its result is dropped.
    """
    return start(call).result(seconds)


def start(call: Callable[[], Result]) -> "Future[Result]":
    """Run a call in a thread of its own, where no deadline is enforced yet."""
    outcome: Future[Result] = Future()
    if tracing.tracer is not None:
        call = tracing.tracer.carry(call)

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return outcome


class Stopwatch:
    """Milliseconds since it was created; every stage of a request is timed with one."""

    def __init__(self) -> None:
        self._started = monotonic()

    def ms(self) -> float:
        """Elapsed milliseconds, to the microsecond."""
        return round((monotonic() - self._started) * 1000, 3)


# Stages in the order of a request, as `Server-Timing` shows them.
STAGES = ("validate", "embed", "search", "rerank", "highlight", "dense", "text", "format", "total")
# A result under this score is probably not relevant (docs/contract.md).
LOW_SCORE = 0.3
# With more results than this, a log line could become longer than CloudWatch takes.
MAX_LOGGED_RESULTS = 100


class State(StrEnum):
    """How far a request came."""

    RECEIVED = "received"
    EMBEDDED = "embedded"
    SEARCHED = "searched"
    FILTERED = "filtered"
    FORMATTED = "formatted"
    RETURNED = "returned"


class RequestTrace:
    """One request. A field that does not apply stays None.

    `stages_ms` has the sum for a stage that was entered twice.
    """

    state: State
    stages_ms: dict[str, float]

    # The response
    status: int | None = None
    code: str | None = None
    reasons: Sequence[str] | None = None

    # The process and the gateway
    cold_start: bool | None = None
    gateway_ms: float | None = None
    circuits: Mapping[str, str] | None = None

    # The request
    collection: str | None = None
    query_id: str | None = None
    created_at: datetime | None = None
    query_chars: int | None = None
    query_sha256: str | None = None
    query_text: str | None = None
    top_k: int | None = None
    mode: str | None = None
    queries: int | None = None
    embedding_model: str | None = None
    query_embedded_at: datetime | None = None
    chunk_id: str | None = None
    chunks: int | None = None

    # The results
    result_count: int | None = None
    skipped: int | None = None
    changed: int | None = None
    top_score: float | None = None
    dense_results: int | None = None
    text_results: int | None = None
    results: Sequence[Mapping[str, object]] | None = None
    embedding_cached: bool | None = None
    rerank: str | None = None
    rerank_reason: str | None = None
    matches: bool | None = None
    mismatch_kind: str | None = None
    mismatch_kinds: Mapping[str, int] | None = None
    passed: int | None = None
    unjudged: int | None = None
    failed_queries: int | None = None
    timed_out_queries: int | None = None

    # Not logged: the last round trip to the store; the response rounds it to whole milliseconds.
    round_trip_ms: float | None = None

    def __init__(self) -> None:
        self.state = State.RECEIVED
        self.stages_ms = {}
        self._stage_start = Stopwatch()

    @contextmanager
    def stage(self, name: str, reached: State | None = None) -> Iterator[Stopwatch]:
        """Time a stage; when it ends without an error, the request has reached that state."""
        watch = self._stage_start = Stopwatch()
        try:
            yield watch
            if reached is not None:
                self.state = reached
        finally:
            self.end_stage(name)

    def end_stage(self, name: str) -> None:
        """Count everything since the last stage ended, or this one began, as this stage."""
        ms = self._stage_start.ms()
        self.stages_ms[name] = round(self.stages_ms.get(name, 0.0) + ms, 3)
        self._stage_start = Stopwatch()

    def record_query(self, query: "SearchQuery", *, in_full: bool) -> None:
        """Record a query, its text by length and a hash; the text itself only where the deployment logs queries."""
        self.query_id, self.created_at = query.query_id, query.created_at
        self.top_k, self.mode = query.top_k, query.mode or "dense"
        text = query.query_text
        if text is None:
            return
        self.query_chars = len(text)
        self.query_sha256 = sha256(text.encode()).hexdigest()[:16]
        if in_full:
            self.query_text = text

    def record_results(self, results: "Sequence[SearchResult]", *, in_full: bool) -> None:
        """Record the cosines, best result first; the ids as well only where the deployment logs queries."""
        self.result_count = len(results)
        cosines = [result.scores.dense if result.scores else result.similarity_score for result in results]
        self.top_score = cosines[0] if cosines else None
        if in_full:
            logged = zip(results[:MAX_LOGGED_RESULTS], cosines, strict=False)
            self.results = [{"chunk_id": result.metadata.chunk_id, "score": cosine} for result, cosine in logged]

    def record_legs(self, scores: "Sequence[Scores]") -> None:
        """Record how many results each leg found, where there is a text leg."""
        self.dense_results = sum(score.dense_rank is not None for score in scores)
        self.text_results = sum(score.text_rank is not None for score in scores)

    def server_timing(self, total_ms: float) -> str:
        """Return the stages so far as the value of a `Server-Timing` header."""
        taken = {**self.stages_ms, "total": total_ms}
        return ", ".join(f"{stage};dur={taken[stage]}" for stage in STAGES if stage in taken)

    def log_fields(self) -> dict[str, Any]:
        """The fields that have a value, as the request line shows them."""
        given = vars(self)
        return {name: given[name] for name in _LOGGED if given.get(name) is not None}


_LOGGED = tuple(name for name in RequestTrace.__annotations__ if name != "round_trip_ms")
