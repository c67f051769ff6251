"""Dashboard and alarms look at what the handlers emit, and the handlers emit what these look at; log fields too."""

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.cohere import CohereEmbedder, CohereReranker
from chunkproof.net.resilience import CircuitBreaker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.proof.canaries import Canary
from chunkproof.service import container
from chunkproof.service.api import Api
from chunkproof.service.job_metrics import emit_audit, emit_canaries, emit_suite
from chunkproof.stores.store_port import Point
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof_cli.local.gateway import LambdaContext

from support.api import Event, get, invoke, post
from support.chunks import SECONDS_60, fill
from support.cohere_server import KEY, cohere_server
from support.log_lines import CapturedOutput, capture_stdout
from support.observability import (
    AUDIT_FUNCTION,
    NAMESPACE,
    SUITE_FUNCTION,
    Metric,
    differences,
    emitted_metrics,
    error_codes,
    fields_of,
    flatten_fields,
    graphed_metrics,
    metrics_by_rule,
    observability_stack,
    queries,
    watched_metrics,
)
from support.stores import MemoryStore
from support.suites import Backend, answer, chunk, suite
from support.template import Stack, stack

# A deployment's functions have these names, which the template refers to; so dimensions can be compared as they are.
SEARCH, VALIDATION = "${SearchFunction}", "${ValidateChunkFunction}"
TEXT = "The tapir sleeps."
QUESTION = {"query_text": "Where does the tapir sleep?", "query_id": "q-1"}
REQUESTS: list[tuple[Event, str]] = [
    (post("/search", QUESTION), SEARCH),
    (post("/search", QUESTION), SEARCH),
    (post("/search", {**QUESTION, "rerank": True, "highlight": True, "explain": True}), SEARCH),
    (post("/search", {**QUESTION, "mode": "hybrid", "explain": True}), SEARCH),
    (post("/search", {**QUESTION, "mode": "text"}), SEARCH),
    (post("/search", {"queries": [QUESTION, {"query_text": "And the okapi?", "query_id": "q-2"}]}), SEARCH),
    (post("/search", {"query_text": " ", "top_k": 0}), SEARCH),
    (post("/search", {**QUESTION, "collection": "none"}), SEARCH),
    (post("/search", {**QUESTION, "collection": "unreadable"}), SEARCH),
    (get("/collections/docs"), SEARCH),
    (get("/health"), SEARCH),
    (get("/nowhere"), SEARCH),
    (post("/validate-chunk", {"chunk_id": "1", "original_text": TEXT}), VALIDATION),
    (post("/validate-chunk", {"chunk_id": "1", "original_text": TEXT.upper()}), VALIDATION),
    (post("/validate-chunk", {"chunk_id": "1", "original_text": f"{TEXT} It snores."}), VALIDATION),
    (post("/validate-chunk", {"chunk_id": "1", "original_text": "The  tapir sleeps."}), VALIDATION),
    (post("/validate-chunk", {"chunk_id": "9"}), VALIDATION),
    (post("/validate-chunks", {"chunks": [{"chunk_id": "1", "original_text": "Tapirs?"}]}), VALIDATION),
    (post("/validate-chunk", {"chunk_id": "1", "original_sha256": "x"}), VALIDATION),
]
RULED = {
    SEARCH: {
        "Errors.INVALID_REQUEST",
        "Errors.COLLECTION_NOT_FOUND",
        "Errors.CORRUPT_CHUNK",
        "Errors.NOT_FOUND",
    },
    VALIDATION: {
        "Errors.INVALID_REQUEST",
        "Errors.CHUNK_NOT_FOUND",
        "ChunkMismatch.case",
        "ChunkMismatch.different",
        "ChunkMismatch.truncated",
        "ChunkMismatch.whitespace",
    },
}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Services]:
    """Services with the settings that the template gives a function, over a store in memory."""
    variables = stack(Settings='{"CHUNKPROOF_LOG_QUERIES": true, "CHUNKPROOF_ALLOWED_COLLECTIONS": "*"}').of_type(
        "Lambda::Function"
    )["SearchFunction"]
    settings = Settings.from_env(variables["Environment"]["Variables"])
    settings = settings.model_copy(update={"collection": "docs", "deadline_ms": SECONDS_60})
    store = MemoryStore(words=True)
    payload = {"url": "https://a.example", "document_title": "A"}
    fill(
        store,
        "docs",
        Point(1, {"text": TEXT, "content_hash": sha256(TEXT.encode()).hexdigest(), **payload}, vector=(1.0, 0.0)),
    )
    fill(store, "unreadable", Point(1, payload, vector=(1.0, 0.0)))
    circuits = {name: CircuitBreaker(name) for name in ("qdrant", "cohere", "rerank")}
    with cohere_server(lambda _: [1.0, 0.0]) as api:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=api.url)
        reranker = CohereReranker(transport, base_url=api.url)
        yield Services(settings, store, embedder, circuits, reranker=reranker)
        embedder.close()
        store.close()


@pytest.fixture
def written(deployed: Services, capsys: pytest.CaptureFixture[str]) -> Iterator[CapturedOutput]:
    """What the handlers wrote of all these requests."""
    with capture_stdout(capsys) as output, container.override(deployed):
        for event, function in REQUESTS:
            sent = deepcopy(event)
            sent["requestContext"]["timeEpoch"] = time.time() * 1000
            invoke(sent, LambdaContext(function_name=function))
        assert len(output.metrics) == len(output.requests) == len(REQUESTS)
        yield output


@pytest.fixture
def of_a_run(capsys: pytest.CaptureFixture[str]) -> set[Metric]:
    """What a run of a suite emits, of one case that found what it expected, a check of canaries, and an audit."""
    asked = suite({"name": "a", "query_text": "q", "expected_doc_ids": ["a"]})
    report = run_suite(RunPlan(asked, "s.json", asked.cases), Backend(lambda _: answer(chunk("a"))))
    canary = Canary(collections=("docs",), model="m", query_model="m", state="same", dimension=2, drift=0.0)
    audited: Any = SimpleNamespace(
        collection="docs", version=None, findings_total=3, faults=2, audited=9, coverage=1.0, kinds={"altered": 2}
    )
    with capture_stdout(capsys) as output:
        emit_suite(report, "dev", SUITE_FUNCTION)
        emit_canaries([canary], "dev", SUITE_FUNCTION)
        emit_audit(audited, "dev", AUDIT_FUNCTION)
        return emitted_metrics(output.metrics)


@pytest.fixture
def emits(of_a_run: set[Metric], written: CapturedOutput) -> set[Metric]:
    """What was emitted, and what is emitted for codes and kinds that no request here provoked."""
    return emitted_metrics(written.metrics) | of_a_run | metrics_by_rule("dev", SEARCH, VALIDATION)


# Metrics


def test_what_is_emitted_is_on_the_dashboard_and_what_is_on_it_is_emitted(emits: set[Metric]) -> None:
    assert differences(emits, graphed_metrics(observability_stack(), emits)) == []


def test_alarms_watch_what_is_emitted(emits: set[Metric]) -> None:
    found = observability_stack()
    assert differences(emits, graphed_metrics(found, emits) | watched_metrics(found)) == []
    assert {metric for metric in watched_metrics(found) if metric.namespace == NAMESPACE} <= graphed_metrics(found)


def test_codes_and_kinds_are_emitted_by_the_rule(written: CapturedOutput) -> None:
    found = {metric for metric in emitted_metrics(written.metrics) if "." in metric.name}
    assert found <= metrics_by_rule("dev", SEARCH, VALIDATION)
    for function, names in RULED.items():
        assert {m.name for m in found if ("function", function) in m.dimensions} == names


def test_the_codes_are_those_of_the_functions() -> None:
    assert {"INTERNAL", "QDRANT_TIMEOUT", "INVALID_REQUEST"} <= set(error_codes())
    assert "AWS_FAILED" not in error_codes(), "only the CLI calls AWS"


def test_another_environment_has_metrics_of_its_own(emits: set[Metric]) -> None:
    found = differences(emits, graphed_metrics(observability_stack(EnvironmentName="prod"), emits))
    assert {f"{metric} is emitted, but nothing shows it" for metric in emits} <= set(found)


def test_a_metric_misnamed_on_the_dashboard_is_found_both_ways(emits: set[Metric]) -> None:
    spoiled = changed("Dashboard", "QdrantLatency", "QdrantTime")
    assert differences(emits, graphed_metrics(spoiled, emits)) == [
        f"QdrantLatency of {SEARCH} is emitted, but nothing shows it",
        f"QdrantLatency of {VALIDATION} is emitted, but nothing shows it",
        f"QdrantTime of {SEARCH} is shown, but nothing emits it",
        f"QdrantTime of {VALIDATION} is shown, but nothing emits it",
    ]


def test_a_metric_misnamed_in_an_alarm_is_found(emits: set[Metric]) -> None:
    spoiled = changed("FastBurnHour", "TargetMissed", "TargetsMissed")
    assert differences(emits, graphed_metrics(spoiled, emits) | watched_metrics(spoiled)) == [
        f"TargetsMissed of {SEARCH} is shown, but nothing emits it",
        f"TargetsMissed of {VALIDATION} is shown, but nothing emits it",
    ]


def test_a_metric_misnamed_in_a_handler_is_found_both_ways(emits: set[Metric]) -> None:
    renamed = {replace(m, name="BestScore") if m.name == "TopScore" else m for m in emits}
    assert differences(renamed, graphed_metrics(observability_stack(), renamed)) == [
        f"BestScore of {SEARCH} is emitted, but nothing shows it",
        f"TopScore of {SEARCH} is shown, but nothing emits it",
    ]


def test_a_metric_of_a_function_that_does_not_emit_it_is_found(emits: set[Metric]) -> None:
    shown = graphed_metrics(observability_stack(), emits)
    (embedding,) = (metric for metric in shown if metric.name == "EmbeddingLatency")
    dimensions = {**dict(embedding.dimensions), "function": VALIDATION}
    assert differences(emits, shown | {Metric.of(NAMESPACE, embedding.name, dimensions)}) == [
        f"EmbeddingLatency of {VALIDATION} is shown, but nothing emits it"
    ]


def test_a_run_of_a_suite_a_check_of_canaries_and_an_audit_emit_their_figures(of_a_run: set[Metric]) -> None:
    assert sorted(metric.name for metric in of_a_run) == [
        "AuditCoverage",
        "AuditFindings",
        "AuditFindings.altered",
        "CanaryChanged",
        "CanaryDrift",
        "ChunkMismatch",
        "ChunksAudited",
        "MrrAt10",
        "PassRate",
        "RecallAt5",
        "SuiteP95Latency",
    ]


def test_a_suite_metric_of_another_function_is_found(emits: set[Metric]) -> None:
    dimensions = {"service": "chunkproof", "environment": "dev", "function": SEARCH}
    shown = graphed_metrics(observability_stack(), emits) | {Metric.of(NAMESPACE, "PassRate", dimensions)}
    assert differences(emits, shown) == [f"PassRate of {SEARCH} is shown, but nothing emits it"]


def changed(resource: str, old: str, new: str) -> Stack:
    """The application's stack with a word of one resource replaced."""
    found = observability_stack()
    resources = dict(found.resources)
    before = json.dumps(resources[resource])
    assert old in before
    resources[resource] = json.loads(before.replace(old, new))
    return Stack(resources, found.outputs)


# Log fields


def known_fields(written: CapturedOutput) -> set[str]:
    return {field for line in written.lines if "_aws" not in line for field in flatten_fields(line)}


def access_fields() -> set[str]:
    return set(json.loads(stack().only("ApiGatewayV2::Stage")["AccessLogSettings"]["Format"]))


def unknown_fields(found: Stack, known: set[str]) -> dict[str, set[str]]:
    """Fields that a query reads and no line has, by query."""
    every = {
        name: fields_of(query) - (access_fields() if name.endswith("/Turned away before a function") else known)
        for name, query in queries(found).items()
    }
    return {name: fields for name, fields in every.items() if fields}


def test_every_field_that_a_query_reads_is_in_the_log(written: CapturedOutput) -> None:
    assert unknown_fields(observability_stack(), known_fields(written)) == {}


def test_the_trace_of_a_bug_is_found_by_the_request_id(deployed: Services, capsys: pytest.CaptureFixture[str]) -> None:
    app = Api()

    @app.get("/bug")
    def _bug() -> None:
        raise RuntimeError("something is wrong")

    with capture_stdout(capsys) as output, container.override(deployed):
        app.handler(get("/bug"), LambdaContext(aws_request_id="r-1"))
    assert [line["message"] for line in output.lines if line.get("request_id") == "r-1"] == [
        "unexpected failure",
        "request",
    ]


def test_a_field_that_no_log_line_has_is_found(written: CapturedOutput) -> None:
    spoiled = changed("LatestErrors", "stages_ms.total", "stages_ms.whole")
    assert unknown_fields(spoiled, known_fields(written)) == {"${AWS::StackName}/Latest errors": {"stages_ms.whole"}}


def test_fields_are_distinguished_from_keywords_strings_and_aliases() -> None:
    query = """filter a = "b c" and d.e like /f g/ or h >= 400
        | fields coalesce(i, j.k) as l
        | stats count(*) as m, pct(n.o, 95) as p by q, bin(5m)
        | sort l desc | limit 50 | display @timestamp, l, reasons.0"""
    assert fields_of(query) == {"a", "d.e", "h", "i", "j.k", "n.o", "q", "reasons.0"}


def test_fields_are_named_as_logs_insights_names_them() -> None:
    line = {"a": {"b": 1, "c": {"d": None}}, "e": ["x", "y"], "f": []}
    assert flatten_fields(line) == {"a.b", "a.c.d", "e.0", "e.1", "f"}
