"""A page of another site calls a stack with tokens: in Chromium, with the template's CORS settings and the handlers."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof_cli.local.gateway import LambdaContext, find_handler

from support.chromium import Chromium, Page
from support.cohere_server import CohereServer
from support.http_api import http_apis, unsigned_token
from support.memory_handlers import in_memory_handlers
from support.recording_server import CannedResponse, recording_server
from support.template import stack

ISSUER, AUDIENCE = "https://issuer.example", "app"
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 3600, "sub": "reader"}
QUESTION = {"query_text": "one", "top_k": 1}


class DeployedApi:
    """The API of a stack that allows one origin; its functions are the real handlers."""

    def __init__(self, origin: str) -> None:
        self._definition = stack(JwtIssuer=ISSUER, JwtAudience=AUDIENCE, CorsOrigins=origin).api

    def api(self, _id: str) -> dict[str, Any]:
        return self._definition

    def invoke(self, _arn: str, event: dict[str, Any]) -> dict[str, Any]:
        return find_handler(event["rawPath"])(event, LambdaContext())


class Site:
    """A page in a browser, and the API that it calls."""

    def __init__(self, page: Page, api: str) -> None:
        self._page = page
        self._api = api

    def fetch(self, path: str, body: Any = None, token: str | None = "", **headers: str) -> Any:
        """What the page can read: [status, body, headers]; the browser's error if it can read nothing."""
        if token is not None:
            headers["authorization"] = f"Bearer {token or unsigned_token(**CLAIMS)}"
        options: dict[str, Any] = {"headers": headers}
        if body is not None:
            options |= {"method": "POST", "body": json.dumps(body)}
            headers["content-type"] = "application/json"
        call = f"fetch({json.dumps(self._api + path)}, {json.dumps(options)})"
        read = "async r => [r.status, await r.json().catch(() => null), Object.fromEntries(r.headers)]"
        return self._page.run(f"{call}.then({read}, error => String(error))")


@pytest.fixture(scope="module")
def cohere() -> Iterator[CohereServer]:
    with in_memory_handlers() as server:
        yield server


@pytest.fixture(scope="module")
def sites(browser: Chromium, cohere: CohereServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """The site that the stack allows, and another one."""
    empty = CannedResponse(200, b"<!doctype html>", {"content-type": "text/html"})
    folder = tmp_path_factory.mktemp("authority")
    with (
        recording_server(lambda _: empty) as own,
        recording_server(lambda _: empty) as other,
        http_apis(DeployedApi(own.url), {}, folder) as apis,
    ):
        api = apis.proxy.replace("127.0.0.1", "api.localhost")
        yield [Site(browser.open(server.url + "/"), api) for server in (own, other)]


def test_a_page_of_an_allowed_origin_searches_and_validates_with_a_token(sites: list[Site]) -> None:
    status, found, headers = sites[0].fetch("/search", QUESTION)
    assert (status, found["results"][0]["text"]) == (200, "one")
    assert headers["x-request-id"]
    assert "total;dur=" in headers["server-timing"]
    chunk = {"chunk_id": found["results"][0]["metadata"]["chunk_id"], "original_text": "one"}
    assert sites[0].fetch("/validate-chunk", chunk)[1]["matches"] is True
    assert sites[0].fetch("/validate-chunks", {"chunks": [chunk]})[0] == 200
    assert sites[0].fetch("/collections/docs")[1]["points_count"] == 3


def test_a_page_may_send_the_headers_of_agents_and_of_tracing(sites: list[Site]) -> None:
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in
            (("protocolVersion", "2026-07-28"), ("clientCapabilities", {}))}  # fmt: skip
    called = {"name": "search", "arguments": {"query_text": "one"}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "search"}
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    status, reply, _ = sites[0].fetch("/mcp", message, **headers, **traced)
    assert (status, reply["result"]["structuredContent"]["results"][0]["text"]) == (200, "one")


@pytest.mark.parametrize(
    "token",
    [
        None,
        "no.token",
        unsigned_token(**CLAIMS | {"aud": "another"}),
        unsigned_token(**CLAIMS | {"iss": "https://other.example"}),
        unsigned_token(**CLAIMS | {"exp": 1}),
    ],
    ids=["none", "malformed", "audience", "issuer", "expired"],
)
def test_a_page_can_read_that_its_token_is_refused(sites: list[Site], token: str | None) -> None:
    status, body, _ = sites[0].fetch("/search", QUESTION, token)
    assert (status, body) == (401, {"message": "Unauthorized"})


def test_a_page_can_read_when_to_try_again(sites: list[Site], cohere: CohereServer) -> None:
    cohere.responses.append(CannedResponse(429, b"{}", {"retry-after": "90"}))
    status, body, headers = sites[0].fetch("/search", QUESTION | {"query_text": "not yet embedded"})
    assert (status, body["error"]["code"]) == (429, "RATE_LIMITED")
    assert headers["retry-after"] == "90"


def test_a_page_of_another_origin_can_read_nothing(sites: list[Site]) -> None:
    for path, body in (("/search", QUESTION), ("/collections/docs", None), ("/health", None)):
        assert sites[1].fetch(path, body) == "TypeError: Failed to fetch"
        assert sites[0].fetch(path, body)[0] == 200
