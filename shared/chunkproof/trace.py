"""What is recorded about one request while it is served: how far it came, the time of each stage, what it was about.

The handler makes a `RequestTrace` and passes it to the use case, which fills it in; telemetry reads it at the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from chunkproof.deadline import Stopwatch

if TYPE_CHECKING:
    from chunkproof.clients.ports import Scores

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


@dataclass(slots=True)
class RequestTrace:
    """One request. A field that does not apply stays None.

    `stages_ms` has the sum for a stage that was entered twice. `on_stage` is called with the name and the
    milliseconds of every stage as it ends, for a tracer.
    """

    on_stage: Callable[[str, float], None] | None = None
    state: State = State.RECEIVED
    stages_ms: dict[str, float] = field(default_factory=dict)

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
    top_score: float | None = None
    dense_results: int | None = None
    text_results: int | None = None
    results: Sequence[Mapping[str, object]] | None = None
    embedding_cached: bool | None = None
    rerank: str | None = None
    rerank_reason: str | None = None
    matches: bool | None = None
    mismatch_kind: str | None = None
    passed: int | None = None
    unjudged: int | None = None
    failed_queries: int | None = None

    _stage_start: Stopwatch = field(default_factory=Stopwatch)

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
        if self.on_stage is not None:
            self.on_stage(name, ms)

    def record_query(self, text: str | None, *, in_full: bool) -> None:
        """Record a query's length and a hash that identifies it; its text only where the deployment logs queries."""
        if text is None:
            return
        self.query_chars = len(text)
        self.query_sha256 = sha256(text.encode()).hexdigest()[:16]
        if in_full:
            self.query_text = text

    def record_results(self, results: Sequence[tuple[str, float | None]], *, in_full: bool) -> None:
        """Record the cosines, best result first; the ids as well only where the deployment logs queries."""
        self.result_count = len(results)
        self.top_score = results[0][1] if results else None
        if in_full:
            logged = results[:MAX_LOGGED_RESULTS]
            self.results = [{"chunk_id": chunk_id, "score": score} for chunk_id, score in logged]

    def record_legs(self, scores: "Sequence[Scores]") -> None:
        """Record how many results each leg found, if there was a text leg."""
        if self.mode in ("text", "hybrid"):
            self.dense_results = sum(one.dense_rank is not None for one in scores)
            self.text_results = sum(one.text_rank is not None for one in scores)

    def server_timing(self, total_ms: float) -> str:
        """Return the stages so far as the value of a `Server-Timing` header."""
        taken = {**self.stages_ms, "total": total_ms}
        return ", ".join(f"{stage};dur={taken[stage]}" for stage in STAGES if stage in taken)

    def log_fields(self) -> dict[str, Any]:
        """The fields that have a value, as the request line shows them."""
        values = {name: getattr(self, name) for name in _LOGGED}
        return {name: value for name, value in values.items() if value is not None}


_LOGGED = tuple(f.name for f in fields(RequestTrace) if f.name not in ("on_stage", "_stage_start"))
