"""Spans and metrics of OpenTelemetry where its variables ask for them; where they do not, it is not even imported."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from chunkproof.base.request import tracing
from chunkproof.service import tracing as module
from chunkproof.service.tracing import Tracer

from support.api import invoke, new_process, post
from support.cohere_server import KEY, CohereServer
from support.handbook import COLLECTION, loaded_handbook
from support.listeners import silent_server
from support.otlp import received
from support.qdrant_server import QdrantServer
from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, recording_server

MISSING = "OpenTelemetry is configured but not installed: pip install 'chunkproof[otel]', or add its Lambda layer"
TEXT = "How do I take a backup?"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


class Recorded:
    """What a tracer has exported."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.metrics = MeterProvider([self.reader])
        self.tracer = Tracer(provider, self.metrics)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def parent_of(self, span: ReadableSpan) -> str:
        assert span.parent is not None
        return next((other.name for other in self.spans if other.context.span_id == span.parent.span_id), "outside")

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: list(metric.data.data_points) for metric in metrics}


def forward(request: RecordedRequest, target: str) -> CannedResponse:
    kept = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    kept["accept-encoding"] = "identity"
    reply = httpx.request(request.method, target + request.path, content=request.body, headers=kept, timeout=20)
    return CannedResponse(reply.status_code, reply.content, {"content-type": "application/json"})


@pytest.fixture(scope="module")
def services(served_qdrant: QdrantServer) -> Iterator[tuple[CohereServer, RecordingServer, RecordingServer]]:
    with (
        loaded_handbook(served_qdrant.url) as cohere,
        recording_server(lambda request: forward(request, served_qdrant.url)) as qdrant,
        recording_server(lambda request: forward(request, cohere.url)) as embedder,
    ):
        yield cohere, qdrant, embedder


@pytest.fixture
def recorded(
    services: tuple[CohereServer, RecordingServer, RecordingServer], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recorded]:
    """Handlers that trace, in front of a real Qdrant server and a stand-in of Cohere; both record their requests."""
    _, qdrant, embedder = services
    qdrant.requests.clear()
    embedder.requests.clear()
    variables = {"QDRANT_URL": qdrant.url, "COHERE_BASE_URL": embedder.url, "COHERE_API_KEY": KEY}
    variables |= {"CHUNKPROOF_COLLECTION": COLLECTION, "CHUNKPROOF_DEADLINE_MS": "20000"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = Recorded()
    monkeypatch.setattr(tracing, "tracer", found.tracer)
    with new_process():
        yield found


@pytest.mark.server
def test_a_search_is_a_trace_whose_spans_have_the_conventions_names(
    recorded: Recorded, services: tuple[CohereServer, RecordingServer, RecordingServer]
) -> None:
    _, qdrant, embedder = services
    assert invoke(post("/search", {"query_text": TEXT, "top_k": 3}, CALLER)).status == 200

    served = recorded.one("POST /search")
    assert (served.kind, served.attributes["http.response.status_code"]) == (SpanKind.SERVER, 200)
    assert f"{served.context.trace_id:032x}" == TRACE
    assert f"{served.parent.span_id:016x}" == SPAN
    retrieval = recorded.one(f"retrieval {COLLECTION}")
    assert retrieval.kind is SpanKind.CLIENT
    assert recorded.parent_of(retrieval) == "POST /search"
    port = int(qdrant.url.rpartition(":")[2])
    address = {"server.address": "127.0.0.1", "server.port": port}
    model = {"gen_ai.provider.name": "cohere", "gen_ai.request.model": "embed-english-v3.0"}
    found = dict(retrieval.attributes)
    assert found.pop("chunkproof.query_id")
    assert found == {
        **{"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": COLLECTION, "gen_ai.request.top_k": 3},
        **model,
        **address,
        **{"chunkproof.mode": "dense", "chunkproof.result_count": 3},
    }
    embeddings = recorded.one("embeddings embed-english-v3.0")
    assert dict(embeddings.attributes) == {"gen_ai.operation.name": "embeddings", **model, "chunkproof.texts": 1}
    queried = recorded.one(f"query {COLLECTION}")
    assert dict(queried.attributes) == {
        **{"db.system.name": "qdrant", "db.operation.name": "query", "db.collection.name": COLLECTION},
        **address,
    }
    for span in (embeddings, queried):
        assert (recorded.parent_of(span), span.kind) == (f"retrieval {COLLECTION}", SpanKind.CLIENT)
        assert retrieval.start_time <= span.start_time <= span.end_time <= retrieval.end_time
    # Each service gets the trace, and the span that its request belongs to.
    (sent,) = [request.headers["traceparent"] for request in embedder.requests]
    assert sent == f"00-{TRACE}-{embeddings.context.span_id:016x}-01"
    (asked,) = [request for request in qdrant.requests if "/points/query" in request.path]
    assert asked.headers["traceparent"] == f"00-{TRACE}-{queried.context.span_id:016x}-01"


@pytest.mark.server
def test_texts_and_documents_are_recorded_only_if_asked_for(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    own = Recorded()
    monkeypatch.setattr(tracing, "tracer", own.tracer)
    reply = invoke(post("/search", {"query_text": TEXT, "top_k": 2}))

    attributes = own.one(f"retrieval {COLLECTION}").attributes
    assert attributes["gen_ai.retrieval.query.text"] == TEXT
    assert json.loads(attributes["gen_ai.retrieval.documents"]) == [
        {"id": result["metadata"]["chunk_id"], "score": result["similarity_score"]} for result in reply.json["results"]
    ]
    for points in own.points().values():
        assert not any(TEXT in str(dict(point.attributes)) for point in points)


@pytest.mark.server
def test_reranking_several_queries_and_a_validation_have_spans_too(recorded: Recorded) -> None:
    reply = invoke(post("/search", {"query_text": TEXT, "top_k": 2, "rerank": {"candidates": 4}}))
    assert reply.json["execution"]["rerank"]["status"] == "applied"
    rerank = next(span for span in recorded.spans if span.name.startswith("rerank "))
    assert recorded.parent_of(rerank) == f"retrieval {COLLECTION}"
    assert (rerank.attributes["gen_ai.operation.name"], rerank.attributes["chunkproof.texts"]) == ("rerank", 4)

    recorded.exporter.clear()
    invoke(post("/search", {"queries": ["one thing", "another thing"]}))
    assert recorded.one("embeddings embed-english-v3.0").attributes["chunkproof.texts"] == 2
    assert recorded.one(f"query {COLLECTION}").attributes["db.operation.batch.size"] == 2
    assert recorded.parent_of(recorded.one("embeddings embed-english-v3.0")) == f"retrieval {COLLECTION}"

    recorded.exporter.clear()
    chunk = reply.json["results"][0]["metadata"]["chunk_id"]
    assert invoke(post("/validate-chunk", {"chunk_id": chunk, "original_text": "x"})).status == 200
    assert recorded.parent_of(recorded.one(f"scroll {COLLECTION}")) == "POST /validate-chunk"


@pytest.mark.server
def test_a_failure_is_named_by_its_code_and_by_nothing_that_a_caller_sent(
    recorded: Recorded, services: tuple[CohereServer, RecordingServer, RecordingServer]
) -> None:
    cohere, _, _ = services
    cohere.responses.extend([CannedResponse(500, b"secret")] * 2)
    assert invoke(post("/search", {"query_text": TEXT})).status == 503
    cohere.responses.clear()

    for name in ("embeddings embed-english-v3.0", f"retrieval {COLLECTION}", "POST /search"):
        span = recorded.one(name)
        assert (span.attributes["error.type"], span.status.is_ok) == ("EMBEDDING_FAILED", False)
        assert span.events == ()
        assert "secret" not in str(span.status.description)
    recorded.exporter.clear()
    assert invoke(post("/search", {"top_k": 0})).status == 400
    refused = recorded.one("POST /search")
    assert (refused.attributes["http.response.status_code"], "error.type" in refused.attributes) == (400, False)


@pytest.mark.server
def test_metrics_go_over_otlp_as_well(recorded: Recorded) -> None:
    invoke(post("/search", {"query_text": TEXT, "top_k": 3}))
    points = recorded.points()
    (latency,) = points["chunkproof.request_latency"]
    assert (latency.count, latency.attributes["environment"]) == (1, "local")
    (results,) = points["chunkproof.result_count"]
    assert results.value == 3
    operations = {point.attributes["gen_ai.operation.name"] for point in points["gen_ai.client.operation.duration"]}
    # A search of some milliseconds and one of a second are in different buckets.
    assert sum(bound < 1 for bound in points["db.client.operation.duration"][0].explicit_bounds) > 5
    assert operations == {"retrieval", "embeddings"}
    assert {point.attributes["db.operation.name"] for point in points["db.client.operation.duration"]} >= {"query"}


# Whole processes, with the standard variables


HANDLER = """
import json, sys, time
sys.path[:0] = ["tests"]
from support.api import find_handler, invoke, post
find_handler("/search")
began = time.monotonic()
print(invoke(post("/search", {"query_text": "How do I take a backup?"})).status)
print(time.monotonic() - began, file=sys.stderr)
import os; os.kill(os.getpid(), 9)  # as Lambda ends a function: nothing runs at exit
"""


def run_handler(url: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    lambda_ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "AWS_LAMBDA_FUNCTION_NAME": "chunkproof-search"}
    env = {**os.environ, **lambda_, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", HANDLER], capture_output=True, text=True, env=env, check=False)


@pytest.mark.server
def test_a_function_sends_spans_and_metrics_before_it_is_frozen(
    services: tuple[CohereServer, RecordingServer, RecordingServer],
) -> None:
    _, qdrant, embedder = services
    variables = {"QDRANT_URL": qdrant.url, "COHERE_BASE_URL": embedder.url, "COHERE_API_KEY": KEY}
    variables |= {"CHUNKPROOF_COLLECTION": COLLECTION, "CHUNKPROOF_DEADLINE_MS": "20000"}
    with recording_server(lambda _: CannedResponse(200, b"")) as collector:
        run = run_handler(collector.url, variables)
        assert "200" in run.stdout, run.stderr
        spans, metrics = received(collector)
    names = {span.name for span in spans}
    assert {"POST /search", f"retrieval {COLLECTION}", f"query {COLLECTION}"} <= names
    assert {"chunkproof.request_latency", "gen_ai.client.operation.duration"} <= metrics.keys()

    with silent_server() as url:  # a collector that does not answer must not cost more than the request's own time
        run = run_handler(url, {**variables, "CHUNKPROOF_DEADLINE_MS": "3000"})
    assert "200" in run.stdout, run.stderr
    assert float(run.stderr.split()[-1]) < 5


def test_without_the_variables_opentelemetry_is_not_imported() -> None:
    code = "import sys, chunkproof.service.api as api; api.prepare.__globals__['start_tracing']() ; "
    code += "print([name for name in sys.modules if name.startswith(('opentelemetry', 'chunkproof.service.tracing'))])"
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, [MISSING]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, [MISSING]),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_SERVICE_NAME": "x"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_where_opentelemetry_is_missing_a_line_says_what_to_install(
    variables: dict[str, str],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert module.configure() is None
    assert caplog.messages == expected


def test_an_exporter_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp, carrier_pigeon")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert module._load_exporters("traces") == []
    assert caplog.messages == [
        "There is no exporter otlp_proto_grpc for traces: pip install 'chunkproof[otel]'",
        "There is no exporter carrier_pigeon for traces: pip install 'chunkproof[otel]'",
    ]
