"""A server of the Model Context Protocol: search, validation and collection info as tools for agents.

An agent pays for every character: a tool describes its arguments and not its answer, which has neither nulls nor
indentation.
"""

import json
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError
from chunkproof.base.request import Deadline
from chunkproof.contract import ChunkValidation, Model, SearchQuery
from chunkproof.proof.backend import Backend
from chunkproof.why.explainer import make_explainer
from chunkproof.why.probe import Question
from chunkproof_cli.request_options import make_argument, tool_argument

INSTRUCTIONS = (
    "Search a collection of text chunks by meaning, check that a stored chunk equals its original byte for byte, "
    "and find out why an expected chunk is not among the results. All tools only read."
)
WHY_MS = 5_000  # after that, changes are no longer combined
READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
# What an agent has no documentation for.
NOTES = {
    "filters": ': {"field": value}, {"field": [any, of]}, {"field": {"gte": 1}}, {"not": {...}}',
    "similarity_threshold": ", 0 to 1",
    "neighbours": ", 0 to 5",
    "group_size": ", 100 at most",
    "fusion": ': {"method": "dbsf"}, or {"k": 60, "weights": {"dense": 1, "text": 2}}',
}
QUERY = make_argument("query", str, "The question, as a user would ask it.")
QUERIES = make_argument("queries", list[str], "Up to 32 questions, which are searched for at once.")
EXPECTED = make_argument("expected", str, "Id of the chunk or document, its URL, or a text that it has.")


def _fields(*names: str) -> list[Parameter]:
    return [tool_argument(SearchQuery, name, NOTES.get(name, "")) for name in names]


def build_server(backend: Backend, list_collections: Callable[[], list[str]]) -> MCPServer[Any]:
    """Make a server whose tools run against this backend, with its limits, errors and deadline."""
    server: MCPServer[Any] = MCPServer(
        "chunkproof", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )

    def search(request: dict[str, Any]) -> Model:
        """Find the stored chunks nearest in meaning to a query, best first, with score, source and the stored text."""
        return backend.search(_name_query(request))

    def search_many(request: dict[str, Any]) -> Model:
        """Answer several queries at once: `responses` has a result or an error for each, in their order."""
        return backend.search(request)

    def validate_chunk(request: dict[str, Any]) -> Model:
        """Check that a stored chunk equals its original byte for byte; if not, say what differs and why.

        Without an original, the hash in the chunk's own payload is checked.
        """
        return backend.validate(request)

    def describe_collection(request: dict[str, Any]) -> Model:
        """Describe a collection: vector size, number of points, payload fields and how they are read."""
        return backend.collection(request.get("collection"))

    def why(request: dict[str, Any]) -> Model:
        """Find out why an expected chunk is not among the results: deleted, changed, filtered out, ranked too low, …

        The search is repeated without each filter, without the threshold, without the index, with the chunk's text
        embedded anew and with near-duplicates collapsed, one by one and in pairs: the smallest change that brings the
        chunk back names the cause. Behind an API, only what it shows is looked at. Nothing is written.
        """
        expected = request.pop("expected")
        question = Question(_name_query(request), expected, deadline=Deadline(WHY_MS))
        return make_explainer(backend).explain(question).report

    collection = _fields("collection")
    ranking = _fields("top_k", "filters", "mode", "group_by")
    more = _fields("similarity_threshold", "rerank", "highlight", "neighbours", "explain", "cursor", "group_size")
    more += _fields("require_integrity", "receipt")
    chunk = [tool_argument(ChunkValidation, name) for name in ("chunk_id", "original_text", "original_sha256")]
    limits = _fields("top_k", "similarity_threshold", "filters", "mode")
    _add(server, search, [QUERY, *ranking, *more, *_fields("diversity", "fusion"), *collection])
    _add(server, search_many, [QUERIES, *ranking, *collection])
    _add(server, validate_chunk, [*chunk, *collection])
    _add(server, describe_collection, collection)
    _add(server, why, [QUERY, EXPECTED, *limits, *collection])

    def list_names(_request: dict[str, Any]) -> dict[str, Any]:
        """List the collections that can be searched."""
        return {"result": list_collections()}

    _add(server, list_names, [], name="list_collections")
    return server


def _name_query(request: dict[str, Any]) -> dict[str, Any]:
    return {"query_text": request.pop("query"), **request}


def _add(
    server: MCPServer[Any],
    function: Callable[[dict[str, Any]], Model | dict[str, Any]],
    arguments: list[Parameter],
    name: str | None = None,
) -> None:
    """Add a tool with these arguments.

    The function gets those that differ from their defaults: an older stack knows no other fields. An error of the
    contract reaches the agent with its code and messages.
    """
    defaults = {each.name: each.default for each in arguments}

    def call(**values: Any) -> CallToolResult:
        try:
            answer = function({name: value for name, value in values.items() if value != defaults[name]})
        except ChunkproofError as error:
            raise ToolError(f"{error.code}: {error}") from None
        document = drop_nulls(answer.model_dump(mode="json") if isinstance(answer, Model) else answer)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return CallToolResult(content=[TextContent(text=text)], structured_content=document)

    call.__doc__ = function.__doc__
    call.__signature__ = Signature(arguments, return_annotation=CallToolResult)  # type: ignore[attr-defined]
    server.add_tool(call, name or function.__name__, annotations=READ_ONLY)


def drop_nulls(value: Any) -> Any:
    """Return a JSON value without the fields that are null."""
    if isinstance(value, dict):
        return {name: drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return [drop_nulls(inner) for inner in value] if isinstance(value, list) else value
