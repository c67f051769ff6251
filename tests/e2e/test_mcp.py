"""Agents use the tools over the protocol, with the SDK's own client."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from chunkproof.base.errors import NotConfiguredError
from chunkproof.base.settings import Settings
from chunkproof.service.terminal import local_backend, open_connection
from chunkproof_cli.commands.mcp import services_for
from chunkproof_cli.local.mcp_server import build_server

from support.cloud import Host, handbook_host
from support.qdrant_server import NoServerError
from tools.pages import _name_rows

ADDRESS = "127.0.0.1"
SERVER = [sys.executable, "-m", "chunkproof_cli", "mcp", "--collection", "handbook"]


@pytest.fixture(scope="module")
def host() -> Any:
    try:
        with handbook_host(ADDRESS) as host:
            yield host
    except NoServerError as error:
        pytest.skip(str(error))


def over_stdio(host: Host, call: Callable[[Client], Awaitable[Any]], *options: str) -> Any:
    """Start the command as an agent does, and let the client call it."""
    environment = {**os.environ, **host.variables(ADDRESS)}
    command = [*SERVER, *options]
    return talk(StdioServerParameters(command=command[0], args=command[1:], env=environment), call)


def talk(server: Any, call: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Client(server) as client:
            return await call(client)

    return asyncio.run(asyncio.wait_for(run(), 60))


def call(
    host: Host, tool: str, *, tenant: str | None = None, variables: dict[str, str] | None = None, **given: Any
) -> Any:
    """Call a tool of a server in this process."""
    settings = Settings.from_env({**host.variables(ADDRESS), **(variables or {})})
    with open_connection(settings, Path("unused")) as connection:
        backend = local_backend(services_for(connection.services, None, tenant))
        server = build_server(backend, backend.collections)
        return talk(server, lambda client: client.call_tool(tool, given))


def test_a_client_lists_the_tools_with_descriptions_an_agent_can_use(host: Host) -> None:
    tools = {tool.name: tool for tool in over_stdio(host, lambda client: client.list_tools()).tools}
    assert set(tools) == {
        "search", "search_many", "validate_chunk", "describe_collection", "list_collections", "why",
    }  # fmt: skip
    for tool in tools.values():
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"


def test_definitions_are_small_and_answers_have_neither_nulls_nor_indentation(host: Host) -> None:
    tools = over_stdio(host, lambda client: client.list_tools()).model_dump_json(by_alias=True, exclude_none=True)
    assert len(tools) < 12_000
    chunk = call(host, "search", query_text="backup").structured_content["results"][0]["metadata"]["chunk_id"]
    for tool, arguments in (
        ("search", {"query_text": "How do I take a backup?", "explain": True}),
        ("search_many", {"queries": ["How do I take a backup?", ""]}),
        ("validate_chunk", {"chunk_id": chunk}),
        ("describe_collection", {}),
        ("why", {"query_text": "How do I take a backup?", "expected": chunk}),
        ("list_collections", {}),
    ):
        (content,) = call(host, tool, **arguments).content
        assert content.text == json.dumps(json.loads(content.text), ensure_ascii=False, separators=(",", ":"))
        assert not list(nulls_in(json.loads(content.text))), tool


def nulls_in(value: Any, path: str = "") -> Iterator[str]:
    if value is None:
        yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from nulls_in(inner, f"{path}/{name}")


def test_words_and_several_queries_are_searched(host: Host) -> None:
    found = call(host, "search", query_text="hnsw_ef", mode="hybrid", group_by="document_id", top_k=3)
    assert not found.is_error, found
    results = found.structured_content["results"]
    assert all(result["scores"]["fused"] for result in results)
    assert len({result["group"] for result in results}) == len(results)
    several = call(host, "search_many", queries=["How do I take a backup?", ""], top_k=1)
    assert [one["status"] for one in several.structured_content["responses"]] == ["success", "error"]
    page = call(host, "search", query_text="backup", top_k=1, cursor="start").structured_content
    more = call(host, "search", query_text="backup", top_k=1, cursor=page["next_cursor"]).structured_content
    assert page["results"][0]["point_id"] != more["results"][0]["point_id"]


def test_groups_diversity_and_fusion_are_those_of_the_request(host: Host) -> None:
    grouped = call(host, "search", query_text="backups", group_by="document_id", group_size=2, top_k=6)
    groups = [result["group"] for result in grouped.structured_content["results"]]
    assert max(map(groups.count, groups)) == 2
    fused = call(host, "search", query_text="backups", mode="hybrid", fusion={"method": "dbsf"})
    assert fused.structured_content["execution"]["fusion"]["method"] == "dbsf"
    wrong = call(host, "search", query_text="backups", diversity=2.0)
    assert wrong.content[0].text.endswith("INVALID_REQUEST: diversity must be between 0.0 and 1.0")


def test_a_search_returns_ranked_chunks_of_the_server(host: Host) -> None:
    arguments = {"query_text": "How do I take a backup?", "top_k": 3}
    found = over_stdio(host, lambda client: client.call_tool("search", arguments))
    assert not found.is_error
    results = found.structured_content["results"]
    assert [result["rank"] for result in results] == [1, 2, 3]
    assert "backup" in results[0]["text"].lower()


def test_a_chunk_is_validated_and_a_wrong_original_named(host: Host) -> None:
    best = call(host, "search", query_text="How do I take a backup?", top_k=1).structured_content["results"][0]
    chunk = best["metadata"]["chunk_id"]
    good = call(host, "validate_chunk", chunk_id=chunk, original_text=best["text"])
    assert good.structured_content["matches"] is True
    cut = call(host, "validate_chunk", chunk_id=chunk, original_text=best["text"] + " more")
    assert cut.structured_content["mismatch"]["kind"] == "truncated"


def test_former_names_of_arguments_and_fields_that_no_tool_lists_are_understood(host: Host) -> None:
    best = call(host, "search", query="How do I take a backup?", threshold=0.1, with_payload=True, filters=None)
    result = best.structured_content["results"][0]
    assert result["payload"]["chunk_id"] == result["metadata"]["chunk_id"]
    assert call(host, "why", query="backup", expect="no-such-chunk").structured_content["verdict"]["found"] is False
    checked = call(host, "validate_chunk", chunk_id=result["metadata"]["chunk_id"], original=result["text"])
    assert checked.structured_content["matches"] is True


def test_why_a_chunk_is_not_found_is_explained(host: Host) -> None:
    found = call(host, "why", query_text="How do I take a backup?", expected="no-such-chunk")
    assert found.structured_content["verdict"]["causes"] == ["not in collection"]
    chunk = call(host, "search", query_text="How do I take a backup?").structured_content["results"][0]["metadata"][
        "chunk_id"
    ]
    lost = call(host, "why", query_text="How do I take a backup?", expected=chunk, similarity_threshold=0.99)
    assert lost.structured_content["verdict"]["causes"] == ["below threshold"]
    assert lost.structured_content["verdict"]["rank"] == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("search", {"query_text": "x", "top_k": 0}, "INVALID_REQUEST: top_k must be between 1 and 1000"),
        ("search", {"query_text": "x", "collection": "other"}, "COLLECTION_NOT_FOUND: Collection other not found"),
        ("validate_chunk", {"chunk_id": "none", "original_text": "x"}, "CHUNK_NOT_FOUND: Chunk none not found"),
        ("describe_collection", {"collection": "other"}, "COLLECTION_NOT_FOUND: Collection other not found"),
        ("describe_collection", {"colection": "x"}, "colection"),
        ("search", {"query_text": "x", "query": "y"}, "query_text is given twice: as query too"),
        ("search_many", {"query_text": "x"}, "queries is required"),
        ("why", {"query_text": "x"}, "expected is required"),
        ("find", {}, "There is no tool find: the tools are search,"),
        ("list_collections", {"all": True}, "takes no arguments, not all"),
    ],
)
def test_errors_have_the_codes_and_messages_of_the_api(
    host: Host, tool: str, arguments: dict[str, Any], code: str
) -> None:
    found = call(host, tool, **arguments)
    assert found.is_error
    assert code in found.content[0].text


def test_only_allowed_collections_are_listed_and_searched(host: Host) -> None:
    allowed = {"CHUNKPROOF_ALLOWED_COLLECTIONS": "another"}
    listed = call(host, "list_collections", variables=allowed)
    assert listed.structured_content == {"result": ["handbook"]}


def test_tenants_see_their_own_chunks_only(host: Host) -> None:
    tenants = {"CHUNKPROOF_TENANT_CLAIM": "org", "CHUNKPROOF_TENANT_FIELD": "tenant"}
    found = call(host, "search", tenant="acme", variables=tenants, query_text="How do I take a backup?")
    assert found.structured_content["results"] == []
    with pytest.raises(NotConfiguredError, match="--tenant"):
        call(host, "search", variables=tenants, query_text="How do I take a backup?")


def test_every_argument_of_a_tool_has_the_same_name_as_an_option_and_in_python() -> None:
    """The table of docs/guides/agents.md is made from the code; here are the rules that it must show."""
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in _name_rows()]
    assert len(rows) > 15
    for shown, flags, python, _case in rows:
        name = shown.split("`")[1]
        assert python == f"`{name}`", name
        assert f"`--{name.replace('_', '-')}`" in flags or flags in ("`TEXT`", "`CHUNK_ID`"), name
