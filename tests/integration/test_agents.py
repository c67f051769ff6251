"""`POST /mcp` as API Gateway calls the function, with the protocol's own client and by hand."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.service.agent_tools import STATELESS, WITH_HANDSHAKE
from chunkproof.stores.store_port import Point

from support.api import Reply, committed_event, invoke, request
from support.chunks import fill, make_services
from support.cohere_server import KEY, cohere_server
from support.log_lines import capture_stdout
from support.stores import MemoryStore

URL = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/mcp"
TEXTS = {1: ("a", "how to take a backup"), 2: ("b", "how to rotate a key"), 3: ("a", "how to restore")}
TENANTS = {"TENANT_CLAIM": "org", "TENANT_FIELD": "tenant"}
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
Use = Callable[[Client], Awaitable[Any]]
Serve = Callable[..., None]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Let the handlers use three chunks in memory, with these settings."""
    store = MemoryStore()
    points = [
        Point(n, {"text": text, "url": "u", "tenant": tenant, "chunk_id": f"c{n}"}, vector=(1.0, n / 10))
        for n, (tenant, text) in TEXTS.items()
    ]
    fill(store, "docs", *points)
    fill(store, "secret", Point(1, {"text": "not for agents"}, vector=(1.0, 0.0)))
    with cohere_server(lambda _text: [1.0, 0.1]) as api:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=api.url)
        overriding: list[Any] = []

        def start(**settings: str) -> None:
            settings = {"ALLOWED_COLLECTIONS": "docs", "DEADLINE_MS": "20000", **settings}
            overriding.append(container.override(make_services(store, "docs", embedder, **settings)))
            overriding[-1].__enter__()

        yield start
        for entered in reversed(overriding):
            entered.__exit__(None, None, None)
        embedder.close()
    store.close()


def talk(use: Use, claims: dict[str, str] | None = None, **options: Any) -> Any:
    """Let the SDK's client talk to the function behind a gateway that has verified these claims."""

    def gateway(sent: httpx2.Request) -> httpx2.Response:
        made = request(sent.method, sent.url.path, sent.content.decode() or None, dict(sent.headers))
        made["requestContext"]["authorizer"] = {"jwt": {"claims": claims or {}, "scopes": None}}
        reply = invoke(made)
        return httpx2.Response(reply.status, headers=reply.headers, text=reply.text)

    @asynccontextmanager
    async def transport() -> Any:
        async with (
            httpx2.AsyncClient(transport=httpx2.MockTransport(gateway)) as http,
            streamable_http_client(URL, http_client=http) as streams,
        ):
            yield streams

    async def run() -> Any:
        async with Client(transport(), **options) as client:
            return await use(client)

    return asyncio.run(asyncio.wait_for(run(), 60))


def send(method: str, params: dict[str, Any] | None = None, **headers: str) -> Reply:
    """Send a message of the revision without sessions, written by hand."""
    given = {"mcp-protocol-version": STATELESS, "mcp-method": method, **headers}
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"_meta": META, **(params or {})}}
    return invoke(request("POST", "/mcp", json.dumps(body), {name.replace("_", "-"): v for name, v in given.items()}))


async def use_every_tool(client: Client) -> tuple[set[str], Any, Any, Any, Any]:
    names = {tool.name for tool in (await client.list_tools()).tools}
    found = await client.call_tool("search", {"query": "backup", "top_k": 1, "mode": None})
    valid = await client.call_tool("validate_chunk", {"chunk_id": "c1", "original_text": TEXTS[1][1]})
    lost = await client.call_tool("why", {"query": "backup", "expected": "c2", "top_k": 1})
    listed = await client.call_tool("list_collections", {})
    return names, found.structured_content, valid.structured_content, lost.structured_content, listed.structured_content


@pytest.mark.parametrize("options", [{}, {"mode": "legacy"}], ids=["stateless", "with-handshake"])
def test_the_sdks_client_uses_every_tool_through_an_event(serve: Serve, options: dict[str, Any]) -> None:
    serve()
    names, found, valid, lost, listed = talk(use_every_tool, **options)
    assert names == {"search", "search_many", "validate_chunk", "describe_collection", "list_collections", "why"}
    assert [result["text"] for result in found["results"]] == [TEXTS[1][1]]
    assert valid["matches"] is True
    assert lost["verdict"]["causes"] == ["beyond top_k"]
    assert listed == {"result": ["docs"]}


def test_the_committed_event_is_answered(serve: Serve) -> None:
    serve()
    reply = invoke(committed_event("mcp.200.json"))
    assert reply.status == 200
    result = reply.json["result"]
    assert (result["resultType"], len(result["structuredContent"]["results"])) == ("complete", 3)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_callers_see_the_chunks_of_their_own_tenant(serve: Serve) -> None:
    serve(**TENANTS)

    async def search(client: Client) -> Any:
        return await client.call_tool("search", {"query": "key"})

    found = talk(search, claims={"org": "b"}).structured_content["results"]
    assert [result["text"] for result in found] == [TEXTS[2][1]]
    refused = talk(search)
    assert refused.is_error
    assert refused.content[0].text.startswith("FORBIDDEN: The token has no claim org")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("search", {"query": "x", "top_k": 0}, "INVALID_REQUEST: top_k must be between 1 and 1000"),
        ("search", {"query": ""}, "INVALID_REQUEST: query"),
        ("search", {}, "INVALID_REQUEST: query_text"),
        ("search", {"query_text": "x", "topk": 3}, "INVALID_REQUEST: topk"),
        ("search", {"query": "x", "collection": "secret"}, "COLLECTION_NOT_FOUND"),
        ("describe_collection", {"collection": 3}, "INVALID_REQUEST: collection must be a string"),
        ("why", {"query": "x", "expected": ["c1"]}, "INVALID_REQUEST: expected is required"),
        ("validate_chunk", {"chunk_id": "c9", "original_text": "x"}, "CHUNK_NOT_FOUND: Chunk c9 not found"),
    ],
)
def test_a_failing_tool_gives_the_code_and_message_of_the_api(
    serve: Serve, tool: str, arguments: dict[str, Any], said: str
) -> None:
    serve()
    reply = send("tools/call", {"name": tool, "arguments": arguments}, mcp_name=tool)
    assert reply.status == 200
    assert reply.json["result"]["isError"] is True
    assert reply.json["result"]["content"][0]["text"].startswith(said)


def test_a_failing_tool_is_counted_and_logged_as_in_the_api(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    serve(DEADLINE_MS="1")
    with capture_stdout(capsys) as output:
        reply = send("tools/call", {"name": "search", "arguments": {"query": "backup"}}, mcp_name="search")
    code = reply.json["result"]["content"][0]["text"].partition(":")[0]
    (line,) = output.requests
    assert (line["route"], line["code"], line["status"] >= 500) == ("POST /mcp", code, True)
    (metrics,) = output.metrics
    assert (metrics["Faults"], metrics[f"Errors.{code}"], metrics["TargetMissed"]) == ([1.0], [1.0], [1.0])


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        ("{", {}, 400, -32700),
        ("[]", {}, 400, -32600),
        ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', {}, 400, -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}', {}, 200, -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "drop"}}', {}, 200, -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}', {}, 200, -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "ping"}', {"mcp-protocol-version": "1999-01-01"}, 400, -32022),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {"mcp-protocol-version": STATELESS}, 200, -32602),
        ("", {}, 400, -32700),
        (r'{"jsonrpc": "2.0", "id": "\ud800", "method": "ping"}', {}, 400, -32600),
        (r'{"jsonrpc": "2.0", "id": 1, "method": "\ud800"}', {}, 200, -32601),
        (r'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\ud800"}}', {}, 200, -32602),
    ],
)
def test_a_message_that_breaks_the_protocol_is_refused_as_the_protocol_says(
    serve: Serve, body: str, headers: dict[str, str], status: int, code: int
) -> None:
    serve()
    reply = invoke(request("POST", "/mcp", body, headers))
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert reply.text.encode()  # a lone surrogate could not be sent


def test_a_message_names_odd_arguments_in_a_few_characters(serve: Serve) -> None:
    serve()
    params = {"name": "list_collections", "arguments": {"\ud800" * 90_000: 1, "b": 2}}
    reply = invoke(
        request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call"} | {"params": params}))
    )
    assert len(reply.text.encode()) < 500


@pytest.mark.parametrize(
    ("method", "headers", "status", "code"),
    [
        ("prompts/list", {}, 404, -32601),
        ("initialize", {}, 404, -32601),
        ("tools/list", {"mcp_method": "tools/call"}, 400, -32020),
        ("tools/list", {"mcp_protocol_version": WITH_HANDSHAKE[0]}, 400, -32020),
        ("tools/call", {"mcp_name": "search"}, 400, -32020),
    ],
)
def test_headers_and_methods_of_a_stateless_request_are_checked(
    serve: Serve, method: str, headers: dict[str, str], status: int, code: int
) -> None:
    serve()
    reply = send(method, {"name": "why"}, **headers)
    assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (status, code, 7)


def test_a_notification_is_accepted_without_an_answer(serve: Serve) -> None:
    serve()
    reply = invoke(request("POST", "/mcp", '{"jsonrpc": "2.0", "method": "notifications/initialized"}'))
    assert (reply.status, reply.text) == (202, "")


def test_there_is_no_stream_to_open(serve: Serve) -> None:
    serve()
    reply = invoke(request("GET", "/mcp"))
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_a_setting_leaves_it_out(serve: Serve) -> None:
    serve(MCP="false")
    reply = send("tools/list")
    assert (reply.status, reply.errors) == (404, ["There is nothing at /mcp: CHUNKPROOF_MCP is false"])


def test_an_answer_that_lambda_cannot_return_is_an_error_with_advice(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()
    monkeypatch.setattr("chunkproof.service.oversized.MAX_RESPONSE_BYTES", 1_000)
    monkeypatch.setattr("chunkproof.service.agent_tools.SURELY_FITS", 100)
    reply = send("tools/call", {"name": "search", "arguments": {"query": "key"}}, mcp_name="search")
    text = reply.json["result"]["content"][0]["text"]
    assert text.startswith("RESPONSE_TOO_LARGE: The response has ")
    assert text.endswith("lower top_k, or send fewer queries at a time")
