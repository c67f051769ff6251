"""One log line and one set of metrics for each request; docs/reference/logs.md lists their fields."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from chunkproof.base.errors import make_logs_safe
from chunkproof.base.request import LOW_SCORE, RequestTrace, tracing
from chunkproof.base.settings import Settings

if TYPE_CHECKING:
    from chunkproof.net.resilience import CircuitBreaker

NAMESPACE = "Chunkproof"
SERVICE = "chunkproof"

Figure = tuple[str, str, float]
"""A metric's name, unit and value."""
MS, COUNT, PERCENT, NO_UNIT = "Milliseconds", "Count", "Percent", "None"

# Limits of the contract (docs/contract.md) beyond which a warning is logged.
SLOW_EMBEDDING_MS = 1_000
SLOW_SEARCH_MS = 500
# No function runs longer: an older time of arrival was not set by a gateway just now.
OLDEST_REQUEST_MS = 900_000
# Routes for monitors and set-up: no user waits for them, so the latency objective leaves them out.
UNMEASURED_ROUTES = ("GET /health", "GET /collections/")

STAGE_METRICS = {
    "validate": "ValidationLatency",
    "embed": "EmbeddingLatency",
    "search": "QdrantLatency",
    "rerank": "RerankLatency",
    "format": "FormatLatency",
}
# Besides QdrantLatency, which has the searches of all modes.
MODE_METRICS = {"dense": "DenseLatency", "text": "TextLatency", "hybrid": "HybridLatency"}
# The legs of a hybrid search that is explained, each searched by itself.
LEG_METRICS = {"dense": "DenseLegLatency", "text": "TextLegLatency"}
# Fields of the request line that are metrics as they are.
FIELD_METRICS = (
    ("result_count", "ResultCount", COUNT),
    ("changed", "ChangedChunks", COUNT),
    ("dense_results", "DenseResults", COUNT),
    ("text_results", "TextResults", COUNT),
    ("queries", "Queries", COUNT),
    ("top_score", "TopScore", NO_UNIT),
    ("embedding_cached", "EmbeddingCacheHit", COUNT),
)
CIRCUIT_METRICS = {"qdrant": "QdrantCircuitOpen", "rerank": "RerankCircuitOpen"}
# Of an embedder, whichever service it calls: alarms and dashboards have known the first one's name from the start.
EMBEDDER_CIRCUIT_METRIC = "CohereCircuitOpen"

make_logs_safe()
_LINE = json.JSONEncoder(default=str, separators=(",", ":"), ensure_ascii=False)
_METRICS = json.JSONEncoder(separators=(",", ":"))


def _serialize(line: dict[str, Any]) -> str:
    """Write a log line; a lone surrogate, which has no UTF-8, as its escape."""
    text = _LINE.encode(line)
    return text.encode("utf-8", "backslashreplace").decode()


# Messages are texts, so none is tried as JSON.
logger = Logger(service=SERVICE, json_serializer=_serialize, json_deserializer=str, use_rfc3339=True, utc=True)


class Telemetry:
    """Emits logs and metrics for the requests of one function. Its errors never fail a request."""

    def __init__(self) -> None:
        self._is_cold = True

    def emit(
        self,
        trace: RequestTrace,
        event: Mapping[str, Any],
        context: Any,
        settings: Settings,
        circuits: Mapping[str, "CircuitBreaker"],
    ) -> None:
        """Write the request line, warnings and metrics of a finished request."""
        try:
            trace.cold_start, self._is_cold = self._is_cold, False
            arrived = (event.get("requestContext") or {}).get("timeEpoch")
            if isinstance(arrived, int | float) and 0 <= (age := time.time() * 1000 - arrived) < OLDEST_REQUEST_MS:
                trace.gateway_ms = round(age, 3)  # since API Gateway received the request, a cold start included
            states = {name: breaker.state.value for name, breaker in circuits.items()}
            of_embedders = [state for name, state in states.items() if name not in CIRCUIT_METRICS]
            if of_embedders:  # for queries, whichever service embeds: an open one, if one is open
                states["embedder"] = max(of_embedders, key=lambda state: state != "closed")
            trace.circuits = states
            _log(trace, event, settings)
            function = getattr(context, "function_name", "unknown")
            is_measured = not str(event.get("routeKey")).startswith(UNMEASURED_ROUTES)
            emit_metrics(
                _metrics(trace, settings, is_measured=is_measured),
                {"environment": settings.environment, "function": function},
            )
        except Exception:  # the response is ready and must not be lost, whatever happened here
            logger.exception("the request could not be recorded")


def _log(trace: RequestTrace, event: Mapping[str, Any], settings: Settings) -> None:
    embed_ms, search_ms = trace.stages_ms.get("embed", 0.0), trace.stages_ms.get("search", 0.0)
    warnings = {
        f"Embedding took over {SLOW_EMBEDDING_MS} ms": embed_ms > SLOW_EMBEDDING_MS,
        f"Search took over {SLOW_SEARCH_MS} ms": search_ms > SLOW_SEARCH_MS,
        f"Total time is over the target of {settings.latency_target_ms} ms": _missed_target(trace, settings),
        f"Top score is under {LOW_SCORE}": trace.top_score is not None and trace.top_score < LOW_SCORE,
    }
    for warning, applies in warnings.items():
        if applies:
            logger.warning(warning, query_id=trace.query_id)
    write = logger.error if (trace.status or 0) >= 500 else logger.info
    write(
        "request",
        correlation_id=(event.get("requestContext") or {}).get("requestId"),
        route=event.get("routeKey"),
        **trace.log_fields(),
    )


def _missed_target(trace: RequestTrace, settings: Settings) -> bool:
    taken = trace.stages_ms["total"] if trace.gateway_ms is None else trace.gateway_ms
    return taken > settings.latency_target_ms


def emit_metrics(figures: Iterable[Figure], dimensions: Mapping[str, str]) -> None:
    """Emit one set of metrics in CloudWatch's embedded metric format; the service is a dimension of every one.

    With OpenTelemetry's variables, they are sent over OTLP as well.

    The environment variables are the ones that Powertools documents. The line and its end are one write, under the
    logger's lock, so that nothing comes between them.
    """
    variables, listed = os.environ, list(figures)
    if tracing.tracer is not None:
        tracing.tracer.record(listed, dimensions)
    if variables.get("POWERTOOLS_METRICS_DISABLED", "").lower() in ("1", "true", "yes", "on"):
        return
    named = {**dimensions, "service": variables.get("POWERTOOLS_SERVICE_NAME") or SERVICE}
    namespace = variables.get("POWERTOOLS_METRICS_NAMESPACE") or NAMESPACE
    directive = _describe_metrics(namespace, tuple(named), tuple((name, unit) for name, unit, _ in listed))
    values = _METRICS.encode(named | {name: [float(value)] for name, _, value in listed})
    about = f'{{"Timestamp":{int(time.time() * 1000)},"CloudWatchMetrics":[{directive}]}}'
    with logger.registered_handler.lock or nullcontext():
        sys.stdout.write(f'{{"_aws":{about},{values[1:]}\n')
        sys.stdout.flush()


@lru_cache
def _describe_metrics(namespace: str, dimensions: tuple[str, ...], metrics: tuple[tuple[str, str], ...]) -> str:
    """Write the definitions of the metrics for CloudWatch; most requests have the same ones."""
    listed = [{"Name": name, "Unit": unit} for name, unit in metrics]
    return _METRICS.encode({"Namespace": namespace, "Dimensions": [dimensions], "Metrics": listed})


def _metrics(trace: RequestTrace, settings: Settings, *, is_measured: bool = True) -> Iterator[Figure]:
    yield "RequestLatency", MS, trace.stages_ms["total"]
    for stage, name in (STAGE_METRICS | LEG_METRICS).items():
        if stage in trace.stages_ms:
            yield name, MS, trace.stages_ms[stage]
    if is_measured:
        yield from _objective_metrics(trace, settings)
    yield "ColdStart", COUNT, bool(trace.cold_start)
    yield "Errors", COUNT, (trace.status or 0) >= 400
    yield "Faults", COUNT, (trace.status or 0) >= 500
    if trace.code is not None:
        yield f"Errors.{trace.code}", COUNT, 1
    circuits = trace.circuits or {}
    for circuit, name in (*CIRCUIT_METRICS.items(), ("embedder", EMBEDDER_CIRCUIT_METRIC)):
        if circuit in circuits:
            yield name, COUNT, circuits[circuit] != "closed"
    if trace.mode in MODE_METRICS and "search" in trace.stages_ms:
        yield MODE_METRICS[trace.mode], MS, trace.stages_ms["search"]
    for field, name, unit in FIELD_METRICS:
        if (value := getattr(trace, field)) is not None:
            yield name, unit, value
    if trace.queries is not None:
        yield "FailedQueries", COUNT, trace.failed_queries or 0
    if trace.rerank is not None:
        yield "RerankSkipped", COUNT, trace.rerank == "skipped"
    if trace.result_count is None:
        yield from _validation_metrics(trace)


def _validation_metrics(trace: RequestTrace) -> Iterator[Figure]:
    if trace.matches is not None:
        yield "ChunkMismatch", COUNT, not trace.matches
    if trace.mismatch_kind is not None:
        yield f"ChunkMismatch.{trace.mismatch_kind}", COUNT, 1
    if trace.mismatch_kinds is not None:
        yield "ChunkMismatch", COUNT, sum(trace.mismatch_kinds.values())
        for kind, count in trace.mismatch_kinds.items():
            yield f"ChunkMismatch.{kind}", COUNT, count


def _objective_metrics(trace: RequestTrace, settings: Settings) -> Iterator[Figure]:
    if trace.gateway_ms is not None:
        yield "GatewayLatency", MS, trace.gateway_ms
    # A timeout missed the target, however soon it was answered; another fast failure neither kept nor missed it.
    timed_out = trace.timed_out_queries or (trace.code or "").endswith("_TIMEOUT")
    late = _missed_target(trace, settings) or bool(timed_out)
    if late or (trace.status or 0) < 400:
        yield "TargetMissed", COUNT, late
