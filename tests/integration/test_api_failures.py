"""What a caller sees when the deployment, a dependency or the code itself is at fault."""

from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof.base.errors import RateLimitedError
from chunkproof.base.request import Deadline
from chunkproof.service.api import Api
from chunkproof_cli.local.gateway import LambdaContext, find_handler

from support import openapi
from support.api import Reply, get, invoke, new_process, post, request
from support.cohere_server import KEY, CohereServer
from support.listeners import refusing_address, web_server
from support.recording_server import CannedResponse

ROUTES = [
    post("/search", {"query_text": "backups"}),
    post("/validate-chunk", {"chunk_id": "a"}),
    post("/validate-chunks", {"chunks": [{"chunk_id": "a"}]}),
    get("/collections/docs"),
]


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    with new_process():
        yield


def of_route(event: dict[str, Any]) -> str:
    return str(event["rawPath"])


# settings


@pytest.mark.parametrize("event", ROUTES, ids=of_route)
def test_without_an_address_of_qdrant_nothing_is_configured(event: dict[str, Any]) -> None:
    reply = invoke(event)
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    assert reply.errors == ["QDRANT_URL is not set: it must be an http or https URL"]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CHUNKPROOF_MAX_TOP_K", "many", "CHUNKPROOF_MAX_TOP_K must be 1 to 1000"),
        ("QDRANT_URL", "localhost:6333", "QDRANT_URL must be an http or https URL"),
        ("CHUNKPROOF_DEADLINE_MS", "0", "CHUNKPROOF_DEADLINE_MS must be 1 to 900000"),
    ],
)
@pytest.mark.parametrize("event", ROUTES, ids=of_route)
def test_a_bad_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, event: dict[str, Any], variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    reply = invoke(event)
    assert (reply.status, reply.code, reply.errors) == (503, "NOT_CONFIGURED", [message])
    assert reply.headers["x-request-id"]
    assert openapi.problems(event["requestContext"]["http"]["method"], of_route(event), 503, reply.json) == []


FORMAT_1 = {
    "version": "1.0",
    "resource": "/search",
    "path": "/search",
    "httpMethod": "POST",
    "headers": {"content-type": "application/json"},
    "requestContext": {"httpMethod": "POST", "path": "/search", "requestId": "r"},
    "body": '{"query_text": "backups"}',
    "isBase64Encoded": False,
}


@pytest.mark.parametrize("event", [FORMAT_1, {}, {"key1": "value1"}, {"body": {"query_text": "backups"}}])
def test_an_event_of_another_kind_says_what_to_set(event: dict[str, Any]) -> None:
    reply = Reply(find_handler("/search")(event, LambdaContext()))
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    assert "payload format 2.0" in reply.errors[0]


def test_a_body_that_is_no_text_is_refused() -> None:
    reply = invoke({**post("/search", {}), "body": {"query_text": "backups"}})
    assert (reply.status, reply.code) == (400, "INVALID_REQUEST")


def test_the_local_model_is_no_embedder_of_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("CHUNKPROOF_EMBEDDER", "local")
    reply = invoke(ROUTES[0])
    assert (reply.status, reply.code) == (503, "NOT_CONFIGURED")
    assert reply.errors[0].startswith("CHUNKPROOF_EMBEDDER is local")


def test_health_without_depth_needs_no_configuration() -> None:
    assert invoke(get("/health")).json == {"status": "ok", "contract_version": "1.0"}


@pytest.mark.parametrize(("variable", "value"), [("QDRANT_URL", ""), ("CHUNKPROOF_MAX_TOP_K", "many")])
def test_health_of_a_misconfigured_deployment_is_what_the_openapi_document_promises(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    reply = invoke(get("/health", deep="true"))
    assert reply.status == 503
    assert openapi.problems("GET", "/health", 503, reply.json) == []


# dependencies


def test_deep_health_is_refused_where_no_authorizer_has_checked_the_caller() -> None:
    public = get("/health", deep="true")
    del public["requestContext"]["authorizer"]
    reply = invoke(public)
    assert (reply.status, reply.code) == (403, "FORBIDDEN")
    assert reply.errors == [
        "GET /health?deep=true needs authorization, which a public route does not check: GET /health/deep"
    ]
    plain = get("/health")
    del plain["requestContext"]["authorizer"]
    assert invoke(plain).status == 200
    assert invoke(get("/health", deep="true")).json.keys() == invoke(get("/health/deep")).json.keys()


def test_deep_health_says_what_is_down_and_why(monkeypatch: pytest.MonkeyPatch, cohere_api: CohereServer) -> None:
    address = refusing_address()
    monkeypatch.setenv("QDRANT_URL", address)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    reply = invoke(get("/health", deep="true"))
    body = reply.json
    assert (reply.status, body["status"]) == (503, "down")
    assert (body["qdrant"]["status"], body["embedder"]["status"]) == ("down", "ok")
    host = address.removeprefix("http://")
    assert body["qdrant"]["message"] == f"Qdrant service unavailable at {host}; The connection failed; check QDRANT_URL"
    assert openapi.problems("GET", "/health", 503, body) == []


@pytest.mark.parametrize("event", ROUTES, ids=of_route)
def test_an_absent_qdrant_is_named_by_host_and_port(monkeypatch: pytest.MonkeyPatch, event: dict[str, Any]) -> None:
    address = refusing_address()
    monkeypatch.setenv("QDRANT_URL", f"{address}/a/path")
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    reply = invoke(event)
    assert (reply.status, reply.code) == (503, "QDRANT_UNAVAILABLE")
    assert reply.errors[0] == f"Qdrant service unavailable at {address.removeprefix('http://')}"
    assert "/a/path" not in reply.text.replace(of_route(event), "")


def test_a_limit_of_qdrant_is_passed_on_with_the_time_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(429, b"{}", {"retry-after": "7"}) as url:
        monkeypatch.setenv("QDRANT_URL", url)
        monkeypatch.setenv("COHERE_API_KEY", KEY)
        reply = invoke(ROUTES[0])
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (429, "RATE_LIMITED", "7")


@pytest.mark.server
def test_a_limit_of_the_embedder_is_passed_on_with_the_time_to_wait(
    monkeypatch: pytest.MonkeyPatch,
    served_qdrant: Any,
    server_store: Any,
    collection: str,
    cohere_api: CohereServer,
    deadline: Deadline,
) -> None:
    server_store.create(collection, 1024, deadline)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", collection)
    cohere_api.responses.append(CannedResponse(429, b'{"message": "slow down"}', {"retry-after": "2.4"}))
    limited, well = invoke(ROUTES[0]), invoke(ROUTES[0])
    assert (limited.status, limited.code) == (429, "RATE_LIMITED")
    assert limited.headers["retry-after"] == "3", "whole seconds, and never too early"
    assert limited.json["query"] == "backups"
    assert "slow down" not in limited.text
    assert well.status == 200


# bugs


@pytest.fixture
def broken() -> Api:
    """An API whose routes fail in their own ways."""
    app = Api()

    @app.post("/search")
    def _bug() -> dict[str, str]:
        raise RuntimeError("secret-detail")

    @app.get("/limited")
    def _limited() -> dict[str, str]:
        raise RateLimitedError("Slow down", retry_after=2.6)

    return app


def test_a_bug_is_an_internal_error_with_an_id_to_quote(broken: Api) -> None:
    context = LambdaContext(aws_request_id="5e0c0000-0000-4000-8000-000000000001")
    reply = Reply(broken.handler(post("/search", {"query_text": "q é\u0301", "query_id": "id-1"}), context))
    assert (reply.status, reply.code) == (500, "INTERNAL")
    assert reply.errors == ["Internal server error", "Quote request id 5e0c0000-0000-4000-8000-000000000001"]
    assert reply.headers["x-request-id"] == "5e0c0000-0000-4000-8000-000000000001"
    assert (reply.json["query"], reply.json["query_id"]) == ("q é\u0301", "id-1")
    for detail in ("secret-detail", "RuntimeError", "Traceback", ".py"):
        assert detail not in reply.text


def test_the_time_to_wait_is_in_whole_seconds(broken: Api) -> None:
    reply = Reply(broken.handler(get("/limited"), LambdaContext()))
    assert (reply.status, reply.headers["retry-after"]) == (429, "3")


# routes


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/search", "POST"),
        ("HEAD", "/search", "POST"),
        ("OPTIONS", "/search", "POST"),
        ("PUT", "/search", "POST"),
        ("GET", "/validate-chunk", "POST"),
        ("DELETE", "/validate-chunk", "POST"),
        ("GET", "/validate-chunks", "POST"),
        ("POST", "/health", "GET"),
        ("HEAD", "/health", "GET"),
        ("DELETE", "/collections/docs", "GET"),
    ],
)
def test_another_method_gets_the_allowed_ones(method: str, path: str, allowed: str) -> None:
    reply = invoke(request(method, path))
    assert (reply.status, reply.code) == (405, "METHOD_NOT_ALLOWED")
    assert reply.headers["allow"] == allowed
    assert reply.errors == [f"{method} is not allowed at {path}"]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/searches", "/collections", "/validate-chunk/s", "/health/deeper"])
def test_an_unknown_route_is_not_found(method: str, path: str) -> None:
    reply = invoke(request(method, path))
    assert (reply.status, reply.code) == (404, "NOT_FOUND")
    assert reply.errors == [f"There is nothing at {path}"]
    assert reply.headers["x-request-id"]


@pytest.mark.parametrize("value", ["maybe", "", "2"])
def test_a_depth_that_is_no_boolean_is_refused(value: str) -> None:
    reply = invoke(get("/health", deep=value))
    assert (reply.status, reply.code, reply.errors) == (
        400,
        "INVALID_REQUEST",
        ["deep must be true or false"],
    )
