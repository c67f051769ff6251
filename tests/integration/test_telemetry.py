"""What a request leaves behind on standard output: one line that tells of it, one set of metrics."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from chunkproof.base.errors import EmbeddingTimeoutError, SettingsError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline, RequestTrace
from chunkproof.base.settings import Settings
from chunkproof.collection.embedding import QueryEmbedder
from chunkproof.collection.services import Services
from chunkproof.contract.response import ErrorDetail
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.resilience import CircuitBreaker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container, telemetry
from chunkproof.service.api import Api
from chunkproof.stores.store_port import Point, StoreQuery
from chunkproof_cli.local import gateway
from chunkproof_cli.local.gateway import LambdaContext

from support import emf
from support.api import Event, Reply, get, invoke, new_process, post, request
from support.chunks import SECONDS_60, fill
from support.cohere_server import KEY, CohereServer, cohere_server
from support.log_lines import CapturedOutput, Line, capture_stdout
from support.recording_server import CannedResponse
from support.stores import MemoryStore

QUERY = "Where do the tapirs of Kłodzko sleep?"
SEARCH = post("/search", {"query_text": QUERY, "query_id": "q-1"})
VALIDATE = post("/validate-chunk", {"chunk_id": "1", "original_text": "one"})
INFO = get("/collections/docs")
HEALTH = get("/health")
PAYLOAD = {"url": "https://a.example", "document_title": "A"}
POINTS = (
    Point(1, {"text": "one", **PAYLOAD}, vector=(1.0, 0.0)),
    Point(2, {"text": "two", **PAYLOAD}, vector=(0.8, 0.6)),
)


class Store(MemoryStore):
    """In memory; a search of it can be made slow, or fail."""

    seconds = 0.0
    is_down = False

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        time.sleep(self.seconds)
        if self.is_down:
            raise VectorStoreUnavailableError("memory", "It is down")
        return super().search(queries, deadline)


@pytest.fixture(scope="module")
def api() -> Iterator[CohereServer]:
    """Every query lies in the east, where the first chunk is."""
    with cohere_server(lambda _: [1.0, 0.0]) as server:
        yield server


@pytest.fixture(scope="module")
def embedder(api: CohereServer) -> Iterator[CohereEmbedder]:
    transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
    made = CohereEmbedder(transport, model="m", base_url=api.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_store() -> Iterator[Store]:
    made = Store(words=True)
    fill(made, "docs", *POINTS)
    fill(made, "empty")
    fill(made, "unreadable", Point(1, {"title": "no text"}, vector=(1.0, 0.0)))
    fill(made, "large", Point(1, {"text": "\x00" * 1_100_000, **PAYLOAD}, vector=(1.0, 0.0)))
    yield made
    made.close()


@pytest.fixture
def store(shared_store: Store) -> Iterator[Store]:
    yield shared_store
    shared_store.seconds, shared_store.is_down = 0.0, False


Deploy = Callable[..., Any]


@pytest.fixture
def deployed(store: Store, embedder: CohereEmbedder) -> Deploy:
    """Makes the handlers work over the store, with these settings."""

    @contextmanager
    def deploy(**settings: str) -> Iterator[Services]:
        environ = {"CHUNKPROOF_COLLECTION": "docs", "CHUNKPROOF_DEADLINE_MS": str(SECONDS_60)}
        environ |= {f"CHUNKPROOF_{name}": value for name, value in settings.items()}
        circuits = {name: CircuitBreaker(name, max_failures=1) for name in ("qdrant", "cohere")}
        made = Services(Settings.from_env(environ), store, embedder, circuits)
        with container.override(made):
            yield made

    return deploy


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[CapturedOutput]:
    with capture_stdout(capsys) as made:
        yield made


def serve_and_read(event: Event, written: CapturedOutput) -> tuple[Reply, Line, dict[str, float]]:
    """The answer, the one line that tells of it, and its metrics."""
    written.clear()
    reply = invoke(event, LambdaContext())
    (line,) = written.requests
    (metrics,) = written.metrics
    assert emf.problems(metrics) == []
    return reply, line, emf.figures(metrics)


# one line, one set of metrics

OUTCOMES: dict[str, tuple[Event, int, str | None]] = {
    "search": (SEARCH, 200, None),
    "validate": (VALIDATE, 200, None),
    "collection": (INFO, 200, None),
    "health": (HEALTH, 200, None),
    "no body": (request("POST", "/search"), 400, "INVALID_REQUEST"),
    "a wrong field": (post("/search", {"query_text": QUERY, "top_k": 0}), 400, "INVALID_REQUEST"),
    "a wrong parameter": (get("/health", deep="maybe"), 400, "INVALID_REQUEST"),
    "an unknown chunk": (post("/validate-chunk", {"chunk_id": "9"}), 404, "CHUNK_NOT_FOUND"),
    "an unknown collection": (get("/collections/none"), 404, "COLLECTION_NOT_FOUND"),
    "an unknown route": (get("/nowhere"), 404, "NOT_FOUND"),
    "another method": (request("DELETE", "/search"), 405, "METHOD_NOT_ALLOWED"),
    "too large": (
        post("/search", {"query_text": QUERY, "collection": "large"}),
        413,
        "RESPONSE_TOO_LARGE",
    ),
    "unreadable": (
        post("/search", {"query_text": QUERY, "collection": "unreadable"}),
        500,
        "CORRUPT_CHUNK",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_request_leaves_one_line_and_one_set_of_metrics(
    deployed: Deploy, written: CapturedOutput, name: str
) -> None:
    event, status, code = OUTCOMES[name]
    with deployed():
        reply, line, figures = serve_and_read(event, written)
    assert reply.status == line["status"] == status
    assert line.get("code") == code
    assert line.get("reasons") == (reply.errors if code else None)
    assert line["level"] == ("ERROR" if status >= 500 else "INFO")
    assert (figures["Errors"], figures["Faults"]) == (status >= 400, status >= 500)
    assert {name for name in figures if name.startswith("Errors.")} == ({f"Errors.{code}"} if code else set())


def test_a_deployment_without_settings_leaves_them_too(written: CapturedOutput) -> None:
    with new_process():
        reply, line, figures = serve_and_read(SEARCH, written)
    assert (reply.status, line["code"], figures["Errors.NOT_CONFIGURED"]) == (503, "NOT_CONFIGURED", 1.0)
    assert line["reasons"] == ["QDRANT_URL is not set: it must be an http or https URL"]


def test_a_deployment_with_a_wrong_setting_leaves_them_too(
    written: CapturedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKPROOF_MAX_TOP_K", "many")
    with new_process():
        reply, line, _ = serve_and_read(SEARCH, written)
    assert (reply.status, line["code"], line["state"]) == (503, "NOT_CONFIGURED", "received")


@pytest.fixture
def backend() -> Api:
    """An API whose routes do what they should not."""
    app = Api()

    @app.post("/search")
    def _bug() -> dict[str, str]:
        raise RuntimeError("something is wrong")

    @app.get("/facts")
    def _facts(name: str, value: str) -> ErrorDetail:
        setattr(app.trace, name, json.loads(value))
        return ErrorDetail(code="NONE", message="well")

    return app


def test_a_bug_leaves_a_trace_one_line_and_one_set_of_metrics(backend: Api, written: CapturedOutput) -> None:
    context = LambdaContext(aws_request_id="5e0c0000-0000-4000-8000-000000000001")
    assert backend.handler(SEARCH, context)["statusCode"] == 500
    (line,) = written.requests
    assert (line["status"], line["code"], line["level"]) == (500, "INTERNAL", "ERROR")
    assert line["request_id"] == "5e0c0000-0000-4000-8000-000000000001", "the one that the caller may quote"
    (metrics,) = written.metrics
    assert emf.problems(metrics) == []
    assert emf.figures(metrics)["Faults"] == 1.0
    (trace,) = written.saying("unexpected failure")
    assert trace["exception"].endswith("RuntimeError")  # without its message, which could quote stored text


def test_a_line_names_the_request_as_lambda_and_the_gateway_do(deployed: Deploy, written: CapturedOutput) -> None:
    event = deepcopy(SEARCH)
    event["requestContext"]["requestId"] = "JKJaXmPLvHcESHA="
    with deployed():
        reply, line, _ = serve_and_read(event, written)
    assert line["request_id"] == reply.headers["x-request-id"]
    assert (line["correlation_id"], line["route"]) == ("JKJaXmPLvHcESHA=", "POST /search")
    assert (line["service"], line["query_id"], line["collection"]) == ("chunkproof", "q-1", "docs")


# metrics


def test_metrics_have_three_dimensions_and_no_other(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed(ENVIRONMENT="prod"):
        invoke(SEARCH, LambdaContext(function_name="chunkproof-search"))
    (metrics,) = written.metrics
    (directive,) = metrics["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Chunkproof"
    assert [sorted(names) for names in directive["Dimensions"]] == [["environment", "function", "service"]]
    assert (metrics["environment"], metrics["function"], metrics["service"]) == (
        "prod",
        "chunkproof-search",
        "chunkproof",
    )
    now = time.time() * 1000
    assert now - 60_000 < metrics["_aws"]["Timestamp"] <= now


def test_metrics_follow_the_settings_of_powertools(
    deployed: Deploy, written: CapturedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployed():
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Zoo")
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "tapirs")
        invoke(SEARCH)
        (metrics,) = written.metrics
        assert (metrics["_aws"]["CloudWatchMetrics"][0]["Namespace"], metrics["service"]) == ("Zoo", "tapirs")
        written.clear()
        monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
        invoke(SEARCH)
    assert (written.metrics, len(written.requests)) == ([], 1)


@pytest.mark.parametrize("environment", [" ", "prüfung"])
def test_an_environment_that_is_no_dimension_is_refused_at_start(environment: str) -> None:
    with pytest.raises(SettingsError, match="CHUNKPROOF_ENVIRONMENT"):
        Settings.from_env({"CHUNKPROOF_ENVIRONMENT": environment})


def good_metrics() -> dict[str, Any]:
    directive = {"Namespace": "N", "Dimensions": [["d"]], "Metrics": [{"Name": "m", "Unit": "Count"}]}
    return {"_aws": {"Timestamp": 1, "CloudWatchMetrics": [directive]}, "d": "x", "m": [1.0]}


WRONG: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "no timestamp": lambda document, _: document["_aws"].pop("Timestamp"),
    "no namespace": lambda _, directive: directive.update(Namespace=""),
    "101 metrics": lambda _, directive: directive.update(Metrics=[{"Name": f"m{n}"} for n in range(101)]),
    "31 dimensions": lambda _, directive: directive.update(Dimensions=[[f"d{n}" for n in range(31)]]),
    "an unknown unit": lambda _, directive: directive["Metrics"][0].update(Unit="Bananas"),
    "a metric without a value": lambda document, _: document.pop("m"),
    "a text for a value": lambda document, _: document.update(m="1.0"),
    "true for a value": lambda document, _: document.update(m=True),
    "101 values": lambda document, _: document.update(m=[1.0] * 101),
    "a dimension without a value": lambda document, _: document.pop("d"),
    "a number for a dimension": lambda document, _: document.update(d=1),
    "a blank dimension": lambda document, _: document.update(d=" "),
    "a metric that is a dimension": lambda _, directive: directive.update(Dimensions=[["m"]]),
    "a metric twice": lambda _, directive: directive["Metrics"].append({"Name": "m"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_metrics_that_cloudwatch_would_not_take_are_noticed(name: str) -> None:
    document = good_metrics()
    assert emf.problems(document) == []
    WRONG[name](document, document["_aws"]["CloudWatchMetrics"][0])
    assert emf.problems(document) != []


def test_a_search_is_measured_by_what_it_found(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        _, first, figures = serve_and_read(SEARCH, written)
        assert (figures["ResultCount"], figures["TopScore"], figures["EmbeddingCacheHit"]) == (2.0, 1.0, 0.0)
        assert (first["result_count"], first["top_score"], first["embedding_cached"]) == (2, 1.0, False)
        assert (first["skipped"], first["top_k"]) == (0, 5)
        _, _, figures = serve_and_read(SEARCH, written)
        assert figures["EmbeddingCacheHit"] == 1.0


def test_a_search_without_a_match_has_no_top_score(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        _, _, figures = serve_and_read(post("/search", {"query_text": QUERY, "collection": "empty"}), written)
    assert figures["ResultCount"] == 0.0
    assert "TopScore" not in figures


@pytest.mark.parametrize(
    ("original", "mismatch", "kinds"),
    [
        ("one", 0.0, set()),
        ("one two", 1.0, {"ChunkMismatch.truncated"}),
        ("One", 1.0, {"ChunkMismatch.case"}),
    ],
)
def test_a_validation_is_measured_by_what_it_found(
    deployed: Deploy, written: CapturedOutput, original: str, mismatch: float, kinds: set[str]
) -> None:
    event = post("/validate-chunk", {"chunk_id": "1", "original_text": original})
    with deployed():
        _, line, figures = serve_and_read(event, written)
    assert figures["ChunkMismatch"] == mismatch
    assert {name for name in figures if name.startswith("ChunkMismatch.")} == kinds
    assert (line["chunk_id"], line["matches"]) == ("1", not mismatch)


def test_circuits_are_logged(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed() as services:
        _, line, figures = serve_and_read(HEALTH, written)
        assert line["circuits"] == {"qdrant": "closed", "cohere": "closed", "embedder": "closed"}
        assert (figures["QdrantCircuitOpen"], figures["CohereCircuitOpen"]) == (0.0, 0.0)
        services.circuits["qdrant"].record(failed=True)
        _, line, figures = serve_and_read(HEALTH, written)
    assert line["circuits"] == {"qdrant": "open", "cohere": "closed", "embedder": "closed"}
    assert (figures["QdrantCircuitOpen"], figures["CohereCircuitOpen"]) == (1.0, 0.0)


def test_a_cold_start_is_logged_once_for_each_function(
    deployed: Deploy, written: CapturedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = {name: gateway.load_function.__wrapped__(name) for name in gateway.FUNCTIONS}
    monkeypatch.setattr(gateway, "load_function", functions.__getitem__)
    with deployed():
        seen = [serve_and_read(event, written) for event in (SEARCH, SEARCH, HEALTH, VALIDATE, VALIDATE)]
    assert [line["cold_start"] for _, line, _ in seen] == [True, False, False, True, False]
    assert [figures["ColdStart"] for *_, figures in seen] == [1.0, 0.0, 0.0, 1.0, 0.0]


# stages and states


@pytest.mark.parametrize(
    ("event", "stages"),
    [
        (SEARCH, {"validate", "search", "embed", "format", "total"}),
        (VALIDATE, {"validate", "search", "format", "total"}),
        (INFO, {"validate", "search", "format", "total"}),
        (HEALTH, {"validate", "format", "total"}),
    ],
    ids=["search", "validate", "collection", "health"],
)
def test_each_route_has_its_stages(deployed: Deploy, written: CapturedOutput, event: Event, stages: set[str]) -> None:
    with deployed():
        _, line, figures = serve_and_read(event, written)
    taken = line["stages_ms"]
    assert (set(taken), line["state"]) == (stages, "returned")
    assert all(ms >= 0 for ms in taken.values())
    # Of a first request: while the query is embedded, the collection is described.
    assert sum(ms for stage, ms in taken.items() if stage not in ("embed", "total")) <= taken["total"] + 1
    names = {
        "validate": "ValidationLatency",
        "embed": "EmbeddingLatency",
        "search": "QdrantLatency",
        "format": "FormatLatency",
        "total": "RequestLatency",
    }
    measured = {name: value for name, value in figures.items() if name.endswith("Latency")}
    of_mode = {"DenseLatency": taken["search"]} if event is SEARCH else {}
    assert measured == {names[stage]: ms for stage, ms in taken.items()} | of_mode


@pytest.mark.parametrize("mode", ["dense", "text", "hybrid"])
def test_each_mode_has_a_latency_of_its_own(deployed: Deploy, written: CapturedOutput, mode: str) -> None:
    names = {"dense": "DenseLatency", "text": "TextLatency", "hybrid": "HybridLatency"}
    queries = [{"query_text": QUERY}, {"query_text": "one", "mode": mode}]
    with deployed():
        _, line, figures = serve_and_read(post("/search", {"query_text": "one", "mode": mode}), written)
        assert (line["mode"], figures[names[mode]]) == (mode, line["stages_ms"]["search"])
        assert not (set(names.values()) - {names[mode]}) & set(figures)
        _, line, figures = serve_and_read(post("/search", {"queries": queries}), written)
    assert line.get("mode") == ("dense" if mode == "dense" else None)
    assert bool(set(names.values()) & set(figures)) == (mode == "dense")


def test_each_leg_of_an_explained_hybrid_search_is_a_stage_and_a_metric(
    deployed: Deploy, written: CapturedOutput
) -> None:
    legs = {"DenseLegLatency", "TextLegLatency"}
    body = {"query_text": "one", "mode": "hybrid"}
    with deployed():
        for event in (
            post("/search", {**body, "explain": True}),
            post("/search", {"queries": [body], "explain": True}),
        ):
            _, line, figures = serve_and_read(event, written)
            taken = line["stages_ms"]
            assert {name: figures[name] for name in legs} == {
                "DenseLegLatency": taken["dense"],
                "TextLegLatency": taken["text"],
            }
            overlapping = ("embed", "total")
            assert sum(ms for stage, ms in taken.items() if stage not in overlapping) <= taken["total"] + 1
        _, line, figures = serve_and_read(post("/search", body), written)
    assert not legs & set(figures)
    assert not {"dense", "text"} & set(line["stages_ms"])


def test_time_is_counted_to_the_stage_that_took_it(deployed: Deploy, written: CapturedOutput, store: Store) -> None:
    store.seconds = 0.2
    with deployed():
        _, line, _ = serve_and_read(SEARCH, written)
    taken = line["stages_ms"]
    assert taken["search"] >= 200 > max(taken["validate"], taken["embed"], taken["format"])
    assert taken["total"] >= 200


def failing_embedder(api: CohereServer, _: Store) -> None:
    api.responses.append(CannedResponse(400, b'{"message": "no"}', {"content-type": "application/json"}))


def failing_store(_: CohereServer, store: Store) -> None:
    store.is_down = True


def nothing(*_: object) -> None:
    """All is well."""


STATES: dict[str, tuple[Event, Callable[[CohereServer, Store], None], str, str]] = {
    "validation": (post("/search", {"query_text": ""}), nothing, "INVALID_REQUEST", "received"),
    "looking at the collection": (
        post("/search", {"query_text": QUERY, "collection": "none"}),
        nothing,
        "COLLECTION_NOT_FOUND",
        "received",
    ),
    "embedding": (SEARCH, failing_embedder, "EMBEDDING_FAILED", "received"),
    "searching": (SEARCH, failing_store, "QDRANT_UNAVAILABLE", "embedded"),
    "reading what was found": (OUTCOMES["unreadable"][0], nothing, "CORRUPT_CHUNK", "searched"),
    "returning": (OUTCOMES["too large"][0], nothing, "RESPONSE_TOO_LARGE", "formatted"),
    "looking a chunk up": (OUTCOMES["an unknown chunk"][0], nothing, "CHUNK_NOT_FOUND", "received"),
    "reading a chunk": (
        post("/validate-chunk", {"chunk_id": "1", "collection": "unreadable"}),
        nothing,
        "CORRUPT_CHUNK",
        "searched",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_failure_shows_how_far_the_request_came(
    deployed: Deploy, written: CapturedOutput, api: CohereServer, store: Store, name: str
) -> None:
    event, fail, code, state = STATES[name]
    fail(api, store)
    with deployed():
        _, line, _ = serve_and_read(event, written)
    assert (line["code"], line["state"]) == (code, state)


# what a failure knows


def test_a_failure_after_embedding_keeps_the_time_of_the_embedding(
    deployed: Deploy, written: CapturedOutput, store: Store
) -> None:
    store.is_down = True
    event = post("/search", {"query_text": QUERY, "top_k": 7})
    with deployed():
        reply, line, _ = serve_and_read(event, written)
    execution = reply.json["execution"]
    assert reply.code == "QDRANT_UNAVAILABLE"
    assert execution["embedding_time_ms"] == line["stages_ms"]["embed"] > 0
    assert datetime.fromisoformat(execution["query_embedded_at"]) == datetime.fromisoformat(line["query_embedded_at"])
    assert (execution["requested_top_k"], execution["collection"], execution["embedding_model"]) == (7, "docs", "m")
    assert reply.json["query_id"] == line["query_id"] is not None


def test_a_failure_to_embed_has_no_time_of_an_embedding(
    deployed: Deploy, written: CapturedOutput, api: CohereServer, store: Store
) -> None:
    failing_embedder(api, store)
    with deployed():
        reply, line, _ = serve_and_read(post("/search", {"query_text": "Do they snore?"}), written)
    execution = reply.json["execution"]
    assert (execution["embedding_time_ms"], execution["query_embedded_at"]) == (0.0, None)
    assert (execution["requested_top_k"], execution["collection"], execution["embedding_model"]) == (5, "docs", "m")
    assert reply.json["query_id"] == line["query_id"] is not None


@pytest.mark.parametrize(
    ("event", "top_k", "collection"),
    [
        (post("/search", {"query_text": QUERY, "top_k": 0}), 0, "docs"),
        (post("/search", {"query_text": QUERY, "top_k": "5", "collection": "zoo"}), None, "zoo"),
        (post("/search", {"query_text": QUERY, "top_k": 9, "collection": "none"}), 9, "none"),
        (request("POST", "/search", "{"), None, "docs"),
        (request("POST", "/search", "e30", isBase64Encoded=True), None, "docs"),
    ],
    ids=["a wrong number", "no number", "an unknown collection", "no JSON", "no base64"],
)
def test_a_refused_search_has_what_was_sent_and_an_id_that_the_log_has(
    deployed: Deploy, written: CapturedOutput, event: Event, top_k: int | None, collection: str
) -> None:
    with deployed(ALLOWED_COLLECTIONS="*"):
        reply, line, _ = serve_and_read(event, written)
    execution = reply.json["execution"]
    assert (execution["requested_top_k"], execution["collection"], execution["embedding_model"]) == (
        top_k,
        collection,
        "m",
    )
    assert UUID(reply.json["query_id"]) == UUID(line["query_id"])


def test_the_model_is_not_named_where_a_vector_was_given(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        reply, _, _ = serve_and_read(post("/search", {"query_vector": [1.0, 0.0, 0.0]}), written)
    assert (reply.code, reply.json["execution"]["embedding_model"]) == ("DIMENSION_MISMATCH", None)


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_answer_has_its_stages_in_server_timing(deployed: Deploy, written: CapturedOutput, name: str) -> None:
    with deployed():
        reply, line, _ = serve_and_read(OUTCOMES[name][0], written)
    timing = [part.split(";dur=") for part in reply.headers["server-timing"].split(", ")]
    stages = line["stages_ms"]
    order = [stage for stage in ("validate", "embed", "search", "format", "total") if stage in stages]
    assert [stage for stage, _ in timing] == order
    assert {stage: float(ms) for stage, ms in timing if stage != "total"} == {
        stage: ms for stage, ms in stages.items() if stage != "total"
    }
    assert 0 < float(dict(timing)["total"]) <= stages["total"]


# what was asked


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (SEARCH, None),
        (post("/search", {"query_text": QUERY, "collection": "none"}), "COLLECTION_NOT_FOUND"),
        (post("/search", {"query_text": QUERY, "collection": "unreadable"}), "CORRUPT_CHUNK"),
        (post("/search", {"query_text": QUERY, "top_k": 0}), "INVALID_REQUEST"),
    ],
    ids=["success", "failure", "fault", "refused"],
)
def test_the_text_of_a_query_is_not_logged(
    deployed: Deploy, written: CapturedOutput, event: Event, code: str | None
) -> None:
    with deployed():
        _, line, _ = serve_and_read(event, written)
    assert line.get("code") == code
    for word in ("tapirs", "odzko", "sleep"):
        assert word not in written.text
    if code != "INVALID_REQUEST":
        assert (line["query_chars"], line["query_sha256"]) == (37, sha256(QUERY.encode()).hexdigest()[:16])


def test_the_text_of_a_query_is_logged_where_that_is_wanted(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed(LOG_QUERIES="true"):
        _, line, _ = serve_and_read(SEARCH, written)
    assert line["query_text"] == QUERY
    assert QUERY not in json.dumps(written.metrics, ensure_ascii=False)


def test_ids_and_scores_of_results_are_logged_where_queries_are(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed(LOG_QUERIES="true"):
        _, line, _ = serve_and_read(SEARCH, written)
        assert line["results"] == [{"chunk_id": "1", "score": 1.0}, {"chunk_id": "2", "score": pytest.approx(0.8)}]
    with deployed():
        _, line, _ = serve_and_read(SEARCH, written)
        assert "results" not in line


def test_a_query_given_as_a_vector_has_no_text_to_log(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed(LOG_QUERIES="true"):
        _, line, figures = serve_and_read(post("/search", {"query_vector": [1.0, 0.0]}), written)
    assert not {"query_text", "query_chars", "query_sha256"} & set(line)
    assert "EmbeddingCacheHit" not in figures


@pytest.mark.parametrize("log_queries", ["false", "true"])
def test_neither_a_stored_nor_an_original_text_is_logged(
    deployed: Deploy, written: CapturedOutput, shared_store: Store, log_queries: str
) -> None:
    name = f"stored-{log_queries}"
    fill(shared_store, name, Point(1, {"text": "capybaras graze", **PAYLOAD}, vector=(1.0, 0.0)))
    asked = {"chunk_id": "1", "collection": name}
    with deployed(LOG_QUERIES=log_queries):
        invoke(post("/search", {"query_text": QUERY, "collection": name, "with_payload": True}))
        for original in ("capybaras graze", "capybaras doze"):
            invoke(post("/validate-chunk", {**asked, "original_text": original}))
        invoke(post("/validate-chunk", {**asked, "original_text": "capybaras doze", "top_k": 0}))
    assert [line["status"] for line in written.requests] == [200, 200, 200, 400]
    for word in ("capybaras", "graze", "doze"):
        assert word not in written.text


FORGED = '\n{"level":"INFO","message":"request","status":200}\r\n\u2028'


@pytest.mark.parametrize(
    "event",
    [
        post("/search", {"query_text": QUERY + FORGED, "query_id": FORGED}),
        post("/search", {"query_text": QUERY, "collection": FORGED}),
        post("/search", {"query_text": QUERY, FORGED: 1}),
        post("/validate-chunk", {"chunk_id": FORGED}),
        get(f"/nowhere{FORGED}"),
        get("/health", deep=FORGED),
    ],
    ids=["a query", "a collection", "a field", "a chunk", "a path", "a parameter"],
)
def test_nothing_that_a_caller_writes_begins_a_line(deployed: Deploy, written: CapturedOutput, event: Event) -> None:
    with deployed(LOG_QUERIES="true"):
        invoke(event)
    assert (len(written.requests), len(written.metrics)) == (1, 1)
    assert written.text.count("\n") == len(written.lines), "no line but of JSON"
    assert "\r" not in written.text


@pytest.mark.parametrize("place", ["routeKey", "requestId", "name"])
def test_a_lone_surrogate_in_an_event_does_not_lose_its_line(
    deployed: Deploy, written: CapturedOutput, place: str
) -> None:
    event = deepcopy(HEALTH)
    if place == "requestId":
        event["requestContext"]["requestId"] = ["\ud800", {"a": "\ud800"}]
    elif place == "name":
        event |= {"rawPath": "/collections/x", "pathParameters": {"name": "\ud800"}}
    else:
        event["routeKey"] = "GET /\ud800"
    with deployed():
        gateway.load_function("search").lambda_handler(event, LambdaContext())
    assert len(written.requests) == 1


# time since the gateway


def at(epoch: object) -> Event:
    event = deepcopy(SEARCH)
    event["requestContext"]["timeEpoch"] = epoch
    return event


def test_the_time_since_the_gateway_had_the_request_is_measured(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        _, line, figures = serve_and_read(at(int(time.time() * 1000) - 1_500), written)
    assert 1_499 <= figures["GatewayLatency"] < 10_000
    assert line["gateway_ms"] == figures["GatewayLatency"]


@pytest.mark.parametrize(
    "epoch",
    [1_762_853_400_000, 0, None, "1762853400000", 4_102_444_800_000, 1e300],
    ids=["of an old event", "zero", "null", "a text", "to come", "absurd"],
)
def test_a_time_that_no_gateway_just_gave_is_not_measured(
    deployed: Deploy, written: CapturedOutput, epoch: object
) -> None:
    with deployed():
        _, line, figures = serve_and_read(at(epoch), written)
    assert "GatewayLatency" not in figures
    assert line.get("gateway_ms") is None


# warnings


def test_a_request_like_any_other_warns_of_nothing(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        for event in (SEARCH, VALIDATE, INFO, HEALTH):
            serve_and_read(event, written)
            assert written.warnings == []


def test_a_slow_embedding_is_warned_of(deployed: Deploy, written: CapturedOutput, store: Store) -> None:
    def sleepy(_: str) -> list[float]:
        time.sleep(1.05)
        return [1.0, 0.0]

    with cohere_server(sleepy) as slow:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=slow.url)
        given = Settings.from_env({"CHUNKPROOF_COLLECTION": "docs", "CHUNKPROOF_DEADLINE_MS": "20000"})
        with container.override(Services(given, store, embedder)):
            reply, line, figures = serve_and_read(SEARCH, written)
        embedder.close()
    (warning,) = written.saying("Embedding took over 1000 ms")
    assert (warning["request_id"], warning["query_id"]) == (reply.headers["x-request-id"], "q-1")
    assert line["stages_ms"]["embed"] == figures["EmbeddingLatency"] >= 1_050


def test_a_slow_search_is_warned_of(deployed: Deploy, written: CapturedOutput, store: Store) -> None:
    store.seconds = 0.51
    with deployed():
        serve_and_read(SEARCH, written)
    assert "Search took over 500 ms" in written.warnings
    assert "Embedding took over 1000 ms" not in written.warnings


def test_an_answer_over_the_target_is_warned_of_and_counted(
    deployed: Deploy, written: CapturedOutput, store: Store
) -> None:
    store.seconds = 0.03
    with deployed(LATENCY_TARGET_MS="20"):
        _, _, figures = serve_and_read(SEARCH, written)
        assert written.warnings == ["Total time is over the target of 20 ms"]
        assert figures["TargetMissed"] == 1.0
    with deployed():
        _, _, figures = serve_and_read(SEARCH, written)
        assert figures["TargetMissed"] == 0.0


def test_a_fast_failure_is_neither_within_the_target_nor_beyond_it(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        _, line, figures = serve_and_read(post("/search", {"query_text": " "}), written)
    assert line["status"] == 400
    assert "TargetMissed" not in figures


def test_a_hung_embedder_in_the_first_search_of_a_container_shows_in_its_stage(
    deployed: Deploy, written: CapturedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_self: QueryEmbedder, _text: str, _deadline: Deadline) -> None:
        time.sleep(0.15)  # while the collection is looked at
        raise EmbeddingTimeoutError("no answer")

    monkeypatch.setattr(QueryEmbedder, "embed", hang)
    with deployed():
        reply, line, figures = serve_and_read(SEARCH, written)
    assert reply.code == "EMBEDDING_TIMEOUT", reply.text
    assert figures["TargetMissed"] == 1.0
    assert 150 <= line["stages_ms"]["embed"] < line["stages_ms"]["total"]


@pytest.mark.parametrize("path", ["/health", "/collections/docs"])
def test_the_objective_leaves_out_what_nobody_waits_for(deployed: Deploy, written: CapturedOutput, path: str) -> None:
    event = get(path)
    event["requestContext"]["timeEpoch"] = int(time.time() * 1000) - 2_100
    with deployed():
        _, _, figures = serve_and_read(event, written)
    assert "RequestLatency" in figures
    assert not {"TargetMissed", "GatewayLatency"} & set(figures)


def test_a_timeout_missed_the_target_however_soon_it_was_answered(deployed: Deploy, written: CapturedOutput) -> None:
    trace = RequestTrace()
    trace.status, trace.code, trace.stages_ms = 504, "QDRANT_TIMEOUT", {"total": 12.0}
    with deployed():
        figures = {name: value for name, _, value in telemetry._metrics(trace, container.settings())}
    assert figures["TargetMissed"] == 1


def test_a_timeout_of_one_of_several_queries_missed_the_target(
    deployed: Deploy, written: CapturedOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed_all(_self: QueryEmbedder, texts: Sequence[str], _deadline: Deadline) -> list[Exception]:
        return [EmbeddingTimeoutError("no answer") for _ in texts]

    monkeypatch.setattr(QueryEmbedder, "embed_all", embed_all)
    queries = [{"query_text": "slow"}, {"query_vector": [1.0, 0.0]}]
    with deployed():
        _, line, figures = serve_and_read(post("/search", {"queries": queries}), written)
    assert (line["status"], line["failed_queries"], line["timed_out_queries"]) == (200, 1, 1)
    assert figures["TargetMissed"] == 1.0


def test_the_target_holds_for_what_the_gateway_waited(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        _, _, figures = serve_and_read(at(int(time.time() * 1000) - 2_100), written)
    assert written.warnings == ["Total time is over the target of 2000 ms"]
    assert figures["TargetMissed"] == 1.0


@pytest.mark.parametrize(
    ("vector", "warnings"),
    [
        ([0.31, 0.95], []),
        ([0.29, 0.957], ["Top score is under 0.3"]),
        ([0.0, 1.0], ["Top score is under 0.3"]),
    ],
    ids=["0.31", "0.29", "0.0"],
)
def test_a_low_top_score_is_warned_of(
    deployed: Deploy, written: CapturedOutput, shared_store: Store, vector: list[float], warnings: list[str]
) -> None:
    name = f"one-{vector[0]}"
    fill(shared_store, name, POINTS[0])
    with deployed():
        serve_and_read(post("/search", {"query_vector": vector, "collection": name}), written)
    assert written.warnings == warnings


def test_low_scores_after_a_good_one_are_warned_of(
    deployed: Deploy, written: CapturedOutput, shared_store: Store
) -> None:
    far = [Point(n, {"text": f"far {n}", **PAYLOAD}, vector=(0.0, 1.0)) for n in (3, 4)]
    fill(shared_store, "mixed", *POINTS, *far)
    with deployed():
        serve_and_read(post("/search", {"query_vector": [1.0, 0.0], "collection": "mixed"}), written)
    (warning,) = written.saying("Some results score under 0.3")
    assert (warning["level"], warning["results"]) == ("WARNING", 2)


def test_no_match_is_no_low_score(deployed: Deploy, written: CapturedOutput) -> None:
    with deployed():
        serve_and_read(post("/search", {"query_text": QUERY, "collection": "empty"}), written)
    assert written.warnings == []


# when telemetry fails


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_score", '"high"'), ("result_count", '"many"')],
)
def test_a_telemetry_error_does_not_fail_the_request(
    backend: Api, written: CapturedOutput, name: str, value: str
) -> None:
    reply = Reply(backend.handler(get("/facts", name=name, value=value), LambdaContext()))
    assert (reply.status, reply.json) == (200, {"code": "NONE", "message": "well"})
    (line,) = written.saying("the request could not be recorded")
    assert "Traceback" in line["exception"]


def test_after_a_telemetry_error_the_next_request_is_logged(backend: Api, written: CapturedOutput) -> None:
    backend.handler(get("/facts", name="top_score", value='"high"'), LambdaContext())
    written.clear()
    backend.handler(get("/facts", name="top_score", value="0.5"), LambdaContext())
    (line,) = written.requests
    (metrics,) = written.metrics
    assert (line["top_score"], emf.figures(metrics)["TopScore"]) == (0.5, 0.5)
    assert line["cold_start"] is False
