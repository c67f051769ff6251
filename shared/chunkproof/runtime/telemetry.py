"""A request that is over → one log line and one set of metrics (docs/reference/logs.md tells their fields)."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from chunkproof.runtime import emf
from chunkproof.runtime.emf import SERVICE
from chunkproof.settings import Settings
from chunkproof.trace import Record

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker

# The source documents' limits: an operator is warned of what passes them.
SLOW_EMBEDDING_MS = 1_000
SLOW_SEARCH_MS = 500
LOW_SCORE = 0.3
# No function runs longer: a request that seems older was not sent by a gateway just now.
OLDEST_REQUEST_MS = 900_000

STAGE_METRICS = {
    "validate": "ValidationLatency",
    "embed": "EmbeddingLatency",
    "search": "QdrantLatency",
    "format": "FormatLatency",
}
CIRCUIT_METRICS = {"qdrant": "QdrantCircuitOpen", "cohere": "CohereCircuitOpen"}

logger = Logger(service=SERVICE)


class Telemetry:
    """Tells logs and metrics about each request of one function. A failure to tell never fails a request."""

    def __init__(self) -> None:
        self._is_cold = True

    def tell(
        self,
        record: Record,
        event: Mapping[str, Any],
        context: Any,
        settings: Settings,
        circuits: Mapping[str, "CircuitBreaker"],
    ) -> None:
        """Write the line and the metrics."""
        try:
            facts = record.facts
            facts |= {"cold_start": self._is_cold, "gateway_ms": _gateway_ms(event)}
            facts["circuits"] = {name: breaker.state.value for name, breaker in circuits.items()}
            self._is_cold = False
            _log(record, event, settings)
            _measure(record, context, settings)
        except Exception:  # whatever it is, the answer is ready and must not be lost
            logger.exception("the request could not be recorded")


@cache
def spans() -> Callable[[str, float], None] | None:
    """How a stage becomes a span of OpenTelemetry, which a Lambda layer brings; None without it."""
    try:
        from opentelemetry.trace import get_tracer
    except ImportError:
        logger.warning("CHUNKPROOF_TRACING is true, but there is no OpenTelemetry: add its Lambda layer")
        return None
    tracer = get_tracer(SERVICE)

    def add(stage: str, ms: float) -> None:
        ended = time.time_ns()
        tracer.start_span(stage, start_time=ended - int(ms * 1e6)).end(ended)

    return add


def _gateway_ms(event: Mapping[str, Any]) -> float | None:
    """Milliseconds since API Gateway had the request: a cold start is in it."""
    arrived = (event.get("requestContext") or {}).get("timeEpoch")
    if not isinstance(arrived, int | float):
        return None
    age = time.time() * 1000 - arrived
    return round(age, 3) if 0 <= age < OLDEST_REQUEST_MS else None


def _log(record: Record, event: Mapping[str, Any], settings: Settings) -> None:
    line = {
        "correlation_id": (event.get("requestContext") or {}).get("requestId"),
        "route": event.get("routeKey"),
        "state": record.state.value,
        "stages_ms": record.stages,
        **record.facts,
    }
    for warning in _warnings(record, settings):
        logger.warning(warning, query_id=record.facts.get("query_id"))
    write = logger.error if record.facts["status"] >= 500 else logger.info
    write("request", **line)


def _warnings(record: Record, settings: Settings) -> Iterator[str]:
    if record.stages.get("embed", 0.0) > SLOW_EMBEDDING_MS:
        yield f"Embedding took over {SLOW_EMBEDDING_MS} ms"
    if record.stages.get("search", 0.0) > SLOW_SEARCH_MS:
        yield f"Search took over {SLOW_SEARCH_MS} ms"
    if _missed(record, settings):
        yield f"Total time is over the target of {settings.latency_target_ms} ms"
    top_score = record.facts.get("top_score")
    if top_score is not None and top_score < LOW_SCORE:
        yield f"Top score is under {LOW_SCORE}"


def _missed(record: Record, settings: Settings) -> bool:
    since_arrival = record.facts["gateway_ms"]
    taken = record.stages["total"] if since_arrival is None else since_arrival
    return bool(taken > settings.latency_target_ms)


def _measure(record: Record, context: Any, settings: Settings) -> None:
    function = getattr(context, "function_name", "unknown")
    emf.write(_figures(record, settings), {"environment": settings.environment, "function": function})


def _figures(record: Record, settings: Settings) -> Iterator[emf.Figure]:
    facts, stages = record.facts, record.stages
    yield "RequestLatency", "Milliseconds", stages["total"]
    for stage, name in STAGE_METRICS.items():
        if stage in stages:
            yield name, "Milliseconds", stages[stage]
    if facts["gateway_ms"] is not None:
        yield "GatewayLatency", "Milliseconds", facts["gateway_ms"]
    yield "TargetMissed", "Count", _missed(record, settings)
    yield "ColdStart", "Count", facts["cold_start"]
    yield "Errors", "Count", facts["status"] >= 400
    yield "Faults", "Count", facts["status"] >= 500
    if code := facts.get("code"):
        yield f"Errors.{code}", "Count", 1
    for circuit, name in CIRCUIT_METRICS.items():
        if circuit in facts["circuits"]:
            yield name, "Count", facts["circuits"][circuit] != "closed"
    if "result_count" in facts:
        yield "ResultCount", "Count", facts["result_count"]
    if facts.get("top_score") is not None:
        yield "TopScore", "None", facts["top_score"]
    if facts.get("embedding_cached") is not None:
        yield "EmbeddingCacheHit", "Count", facts["embedding_cached"]
    if "matches" in facts:
        yield "ChunkMismatch", "Count", not facts["matches"]
    if kind := facts.get("mismatch_kind"):
        yield f"ChunkMismatch.{kind}", "Count", 1
