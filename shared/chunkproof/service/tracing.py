"""OpenTelemetry: spans as they happen, and metrics over OTLP, where the standard `OTEL_*` variables ask for them.

Names follow the semantic conventions `VERSION`; their part on generative AI has the status Development.
docs/guides/tracing.md lists what is recorded. Without the variables, this module is not imported, and
`chunkproof.base.request.tracing.tracer` stays None.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError
from chunkproof.base.request import run_with_timeout
from chunkproof.collection.services import Collection, Services
from chunkproof.embedders.embedder_port import InputType, query_model

if TYPE_CHECKING:
    from chunkproof.contract import RetrievalResponse, SearchQuery
    from chunkproof.service.api import Call

VERSION = "1.44.0"
SERVICE = "chunkproof"
# The variable by which instrumentation of generative AI is allowed to record texts.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PROVIDERS = {"bedrock": "aws.bedrock"}
# Methods of a store that ask it something, and what Qdrant calls each.
OPERATIONS = {
    **{"search": "query", "sample_scores": "query", "fetch": "retrieve", "scroll": "scroll", "count": "count"},
    **{"facet": "facet", "describe": "describe", "layout": "describe", "collections": "list_collections"},
}
# Attributes by which durations are counted.
COUNTED = {
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.data_source.id"),
    *("db.system.name", "db.operation.name", "db.collection.name", "server.address", "server.port"),
}
# Buckets of durations: OpenTelemetry's defaults are for milliseconds. Those that it has for databases and for models.
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
UNITS = {"Milliseconds": "ms", "Percent": "%", "Count": "1", "None": "1"}

Result = TypeVar("Result")
log = logging.getLogger(__name__)
_is_inside: ContextVar[bool] = ContextVar("retrieval", default=False)


def configure() -> "Tracer | None":
    """Return the tracer of this process: with the provider that is set up already, else one of the variables'."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        if _exporter_names("traces") or _exporter_names("metrics"):
            log.warning(
                "OpenTelemetry is configured but not installed: pip install 'chunkproof[otel]', or add its Lambda layer"
            )
        return None
    # A program, or the wrapper of a Lambda layer, may have set up providers of its own.
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and (made := _load_exporters("traces")):
        _set_up_traces(made)
    meters = metrics.get_meter_provider()
    if not hasattr(meters, "force_flush") and (made := _load_exporters("metrics")):
        _set_up_metrics(made)
    providers = trace.get_tracer_provider(), metrics.get_meter_provider()
    return Tracer(*providers) if any(hasattr(provider, "force_flush") for provider in providers) else None


def _exporter_names(kind: str) -> list[str]:
    """Return the names of exporters as OTEL_TRACES_EXPORTER has them; `otlp` if only an endpoint is set."""
    upper = kind.upper()
    has_endpoint = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT") for part in ("", f"{upper}_"))
    given = os.environ.get(f"OTEL_{upper}_EXPORTER") or ("otlp" if has_endpoint else "none")
    return [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]


def _load_exporters(kind: str) -> list[Any]:
    """Make the exporters; a name that no installed package has is logged, and left out."""
    made = []
    for name in _exporter_names(kind):
        entry = name
        if name == "otlp":
            of_kind = os.environ.get(f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL")
            protocol = of_kind or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            entry = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
        installed = next(iter(entry_points(group=f"opentelemetry_{kind}_exporter", name=entry)), None)
        try:
            made += [installed.load()()] if installed else []
        except ImportError:
            installed = None
        if installed is None:
            log.warning("There is no exporter %s for %s: pip install 'chunkproof[otel]'", entry, kind)
    return made


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    name = {} if is_named else {"service.name": os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or SERVICE}
    return Resource.create({"service.version": __version__, **name})


def _set_up_traces(exporters: Sequence[Any]) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource())
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _set_up_metrics(exporters: Sequence[Any]) -> None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    readers = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    metrics.set_meter_provider(MeterProvider(readers, resource=_resource()))


class Tracer:
    """Makes the spans and metrics of Chunkproof with the providers of this process."""

    def __init__(self, traces: Any, metrics: Any) -> None:
        from opentelemetry import context, propagate, trace

        self._api, self._context, self._propagate = trace, context, propagate
        self._providers = (traces, metrics)
        schema = f"https://opentelemetry.io/schemas/{VERSION}"
        self._tracer = traces.get_tracer(SERVICE, __version__, schema_url=schema)
        self._meter = metrics.get_meter(SERVICE, __version__, schema_url=schema)
        self._instruments: dict[str, Any] = {}
        self._is_lambda = "AWS_LAMBDA_FUNCTION_NAME" in os.environ
        self._with_content = os.environ.get(CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")
        # The span of a command: threads of its own have no other parent.
        self._root: Any = None

    @property
    def is_inside(self) -> bool:
        """Whether a retrieval has its span already."""
        return _is_inside.get()

    # Spans

    @contextmanager
    def _span(
        self, name: str, kind: str, attributes: Mapping[str, Any], *, parent: Any = None, metric: str | None = None
    ) -> Iterator[Any]:
        """Make a span of the code inside. With a metric, also count its seconds."""
        given = {key: value for key, value in attributes.items() if value is not None}
        if parent is None and not self._api.get_current_span().get_span_context().is_valid:
            parent = self._root
        started, failed = time.monotonic(), {}
        span = self._tracer.start_span(name, parent, self._api.SpanKind[kind], given)
        try:
            with self._api.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            if getattr(error, "exit_code", getattr(error, "code", error)):  # a command may end by one that says 0
                failed = self._fail(span, error)
            raise
        finally:
            span.end()
            if metric is not None:
                counted = {key: value for key, value in given.items() if key in COUNTED} | failed
                self._instrument(metric, "s", "histogram").record(time.monotonic() - started, counted)

    def _fail(self, span: Any, error: BaseException) -> dict[str, str]:
        """Mark the span as failed; messages may quote texts, so that only the kind of the error is recorded."""
        kind = error.code if isinstance(error, ChunkproofError) else type(error).__qualname__
        span.set_attribute("error.type", kind)
        span.set_status(self._api.StatusCode.ERROR)
        return {"error.type": kind}

    def serve(self, serve: "Callable[[Call], dict[str, Any]]", call: "Call") -> dict[str, Any]:
        """Serve a request within its span; the parent is the caller's, unless Lambda's wrapper has made a span."""
        event = call.event
        headers, route = event.get("headers"), str(event.get("routeKey") or "request")
        sent = {str(key).lower(): str(value) for key, value in headers.items()} if isinstance(headers, Mapping) else {}
        method, _, path = route.partition(" ")
        facts = {"http.request.method": method, "http.route": path or None}
        facts |= {"faas.invocation_id": getattr(call.context, "aws_request_id", None) if self._is_lambda else None}
        parent = None if self._api.get_current_span().get_span_context().is_valid else self._propagate.extract(sent)
        with self._span(route, "SERVER", facts, parent=parent) as span:
            response = serve(call)
            span.set_attribute("http.response.status_code", response["statusCode"])
            if response["statusCode"] >= 500:
                span.set_attribute("error.type", call.trace.code or str(response["statusCode"]))
                span.set_status(self._api.StatusCode.ERROR)
            return response

    def retrieval(
        self, search: "Callable[..., RetrievalResponse]", query: "SearchQuery", collection: Collection, *, exact: bool
    ) -> "RetrievalResponse":
        """Search within a span `retrieval`."""
        embedder = collection.embedder
        facts = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": collection.name,
            "gen_ai.provider.name": _provider(embedder) if embedder else None,
            "gen_ai.request.model": query_model(embedder) if embedder else None,
            "gen_ai.request.top_k": query.top_k,
            "chunkproof.query_id": query.query_id,
            "chunkproof.mode": query.mode or "dense",
            **_address(collection.store),
        }
        if self._with_content:
            facts["gen_ai.retrieval.query.text"] = query.query_text
        token = _is_inside.set(True)
        try:
            metric = "gen_ai.client.operation.duration"
            with self._span(f"retrieval {collection.name}", "CLIENT", facts, metric=metric) as span:
                response = search(query, collection, exact=exact)
                span.set_attribute("chunkproof.result_count", response.execution.result_count)
                if self._with_content:
                    found = [{"id": one.metadata.chunk_id, "score": one.similarity_score} for one in response.results]
                    span.set_attribute("gen_ai.retrieval.documents", json.dumps(found))
                return response
        finally:
            _is_inside.reset(token)

    @contextmanager
    def command(self, name: str) -> Iterator[None]:
        """Make a span of a command; its parent is in the variable TRACEPARENT, if that is set."""
        carrier = {key.lower(): os.environ[key] for key in ("TRACEPARENT", "TRACESTATE") if key in os.environ}
        with self._span(name, "INTERNAL", {}, parent=self._propagate.extract(carrier)):
            self._root = self._context.get_current()
            try:
                yield
            finally:
                self._root = None

    def carry(self, call: Callable[[], Result]) -> Callable[[], Result]:
        """Return the call for another thread, where its spans have the same parent."""
        here = self._context.get_current()

        def carried() -> Result:
            token = self._context.attach(here)
            try:
                return call()
            finally:
                self._context.detach(token)

        return carried

    def with_traceparent(self, headers: Callable[[], Mapping[str, str]]) -> Callable[[], Mapping[str, str]]:
        """Return headers of a request together with those that name its trace."""

        def add() -> Mapping[str, str]:
            named: dict[str, str] = {}
            self._propagate.inject(named)
            return {**named, **headers()}

        return add

    # What calls of a store, an embedder and a reranker go through

    def instrument(self, services: Services) -> None:
        """Let the services call their store, embedder and reranker within spans."""
        services.store = self.wrap(services.store, self._store_span)
        if services.embedder is not None:
            services.embedder = self.embedder(services.embedder)
        if services.reranker is not None:
            services.reranker = self.wrap(services.reranker, self._rerank_span)

    def embedder(self, embedder: Any) -> Any:
        """Return the embedder with spans."""
        return self.wrap(embedder, self._embedder_span)

    def wrap(self, called: Any, span: "SpanOf") -> Any:
        """Return an object that calls this one within spans, once only."""
        return called if type(called) is Traced else Traced(called, span)

    def _store_span(self, store: Any, method: str, arguments: Sequence[Any]) -> Any:
        if method not in OPERATIONS:
            return None
        given: Any = arguments[0]
        queries = given if method == "search" else ()
        name = getattr((*queries, given)[0], "collection", given if isinstance(given, str) else None)
        operation = OPERATIONS[method]
        facts = {"db.system.name": "qdrant", "db.operation.name": operation, "db.collection.name": name}
        facts["db.operation.batch.size"] = len(queries) if len(queries) > 1 else None
        title = f"{operation} {name}" if name else operation
        return self._span(title, "CLIENT", {**facts, **_address(store)}, metric="db.client.operation.duration")

    def _embedder_span(self, embedder: Any, method: str, arguments: Sequence[Any]) -> Any:
        if method != "embed":
            return None
        is_query = len(arguments) < 2 or arguments[1] is InputType.QUERY
        facts = {
            "gen_ai.provider.name": _provider(embedder),
            "gen_ai.request.model": query_model(embedder) if is_query else embedder.model,
            "gen_ai.embeddings.dimension.count": embedder.dimension,
        }
        return self._model_span("embeddings", facts, len(arguments[0]))

    def _rerank_span(self, _reranker: Any, method: str, arguments: Sequence[Any]) -> Any:
        if method != "rerank":
            return None
        facts = {"gen_ai.provider.name": "cohere", "gen_ai.request.model": arguments[2]}
        return self._model_span("rerank", facts, len(arguments[1]))

    def _model_span(self, operation: str, facts: Mapping[str, Any], texts: int) -> Any:
        given = {"gen_ai.operation.name": operation, **facts, "chunkproof.texts": texts}
        name = f"{operation} {facts['gen_ai.request.model']}"
        return self._span(name, "CLIENT", given, metric="gen_ai.client.operation.duration")

    # Metrics

    def record(self, figures: Iterable[tuple[str, str, float]], dimensions: Mapping[str, str]) -> None:
        """Record what goes to CloudWatch over OTLP as well: `RequestLatency` as `chunkproof.request_latency`."""
        for name, unit, value in figures:
            title = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
            kind = "counter" if unit == "Count" else "histogram"
            instrument = self._instrument(f"{SERVICE}.{title}", UNITS[unit], kind)
            (instrument.add if kind == "counter" else instrument.record)(float(value), dict(dimensions))

    def _instrument(self, name: str, unit: str, kind: str) -> Any:
        if name not in self._instruments:
            buckets = {"explicit_bucket_boundaries_advisory": SECONDS} if unit == "s" else {}
            self._instruments[name] = getattr(self._meter, f"create_{kind}")(name, unit, **buckets)
        return self._instruments[name]

    def flush(self, seconds: float) -> None:
        """In Lambda, send what was recorded before the process is frozen, within this many seconds."""
        if not self._is_lambda or seconds <= 0:
            return
        flushes = [provider.force_flush for provider in self._providers if hasattr(provider, "force_flush")]
        with suppress(TimeoutError):  # what is left is sent with the next request
            run_with_timeout(lambda: [flush(int(seconds * 1000)) for flush in flushes], seconds)


SpanOf = Callable[[Any, str, Sequence[Any]], Any]


class Traced:
    """Stands for a store, an embedder or a reranker; its calls are spans. To `isinstance` it is what it stands for."""

    def __init__(self, called: Any, span: SpanOf) -> None:
        self._called, self._span_of = called, span

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of what it stands for."""
        return type(self._called)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._called, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            span = self._span_of(self._called, name, arguments)
            if span is None:
                return value(*arguments, **options)
            with span:
                return value(*arguments, **options)

        return call


def _provider(embedder: Any) -> str:
    service = getattr(embedder, "service", None) or "local"
    return PROVIDERS.get(service, service)


def _address(store: Any) -> dict[str, Any]:
    """Return host and port of a server; nothing for a store in this process."""
    host = str(getattr(store, "host", ""))
    if not re.fullmatch(r"(\[[^\s\]/]+\]|[^\s/:]+)(:\d+)?", host):
        return {}
    parts = urlsplit(f"//{host}")
    return {"server.address": parts.hostname, "server.port": parts.port}
