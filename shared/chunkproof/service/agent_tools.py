"""Tools for agents over the Model Context Protocol, and `POST /mcp`, which needs no SDK of the protocol.

An agent pays for every character: a tool describes its arguments and not its answer, which has no nulls. Arguments
are fields of the requests, so what a tool does not list, such as `with_payload`, is understood too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from inspect import getdoc
from typing import Any

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError, InvalidParameterError, ResponseTooLargeError
from chunkproof.base.request import Deadline, RequestTrace
from chunkproof.contract import ChunkValidation, Model, SearchQuery, read_json
from chunkproof.contract.model import MAX_VALUES, display_name, has_lone_surrogate
from chunkproof.contract.validation import OfCollection
from chunkproof.proof.backend import Backend, LocalBackend, call_backend
from chunkproof.service.oversized import check_memory, fit_to_lambda_limit
from chunkproof.why.explainer import make_explainer
from chunkproof.why.probe import Question

INSTRUCTIONS = (
    "Search a collection of text chunks by meaning, check that a stored chunk equals its original byte for byte, "
    "and find out why an expected chunk is not among the results. All tools only read."
)
WHY_MS = 5_000  # after that, changes are no longer combined
Json = dict[str, Any]
# The revision without a session, and those whose `initialize` needs none either.
STATELESS = "2026-07-28"
WITH_HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
# How long a client may go on with the list of tools.
LIST_TTL_MS = 300_000
# An answer whose text has fewer characters fits into a response of Lambda, though it is there twice and escaped.
SURELY_FITS = 250_000
HEADER_BYTES = 1_000
META = "io.modelcontextprotocol/"
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, NO_VERSION = -32020, -32022
READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
SUBJECT = "The arguments"  # what messages call them
# What follows the description of a field, for a reader without documentation.
NOTES = {
    "filters": ': {"field": value}, {"field": [any, of]}, {"field": {"gte": 1}}, {"not": {...}}',
    "fusion": ': {"method": "dbsf"}, or {"k": 60, "weights": {"dense": 1, "text": 2}}',
}
OWN = {
    "query_text": {"type": "string", "description": "The question, as a user would ask it."},
    "queries": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Up to 32 questions, which are searched for at once.",
    },
    "expected": {"type": "string", "description": "Id of the chunk or document, its URL, or a text that it has."},
}
RANKING = (
    *("top_k", "similarity_threshold", "filters", "mode", "fusion", "rerank"),
    *("group_by", "group_size", "diversity"),
)
ADDED = ("highlight", "neighbours", "explain", "cursor", "require_integrity", "receipt")
# The arguments of each tool, those that are required first and with a star.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "search": ("query_text*", *RANKING, *ADDED, "collection"),
    "search_many": ("queries*", "top_k", "filters", "mode", "group_by", "collection"),
    "validate_chunk": ("chunk_id*", "original_text", "original_sha256", "collection"),
    "describe_collection": ("collection",),
    "why": ("query_text*", "expected*", *RANKING, "collection"),
    "list_collections": (),
}
# Names that tools had before, or have on the command line.
ALIASES = {"query": "query_text", "expect": "expected", "original": "original_text", "sha256": "original_sha256"}


class AgentTools:
    """The tools of one backend, with its limits, errors and deadline: each is a method of its name."""

    def __init__(self, backend: Backend, collections: Callable[[], list[str]], why_ms: float = WHY_MS) -> None:
        self._backend = backend
        self._collections = collections
        self._why_ms = why_ms

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool and return its answer as JSON without nulls; a `ChunkproofError` is for the agent to read."""
        if name not in ARGUMENTS:
            raise InvalidParameterError(f"There is no tool {display_name(name)}: the tools are {', '.join(ARGUMENTS)}")
        request: dict[str, Any] = {}
        for given, value in arguments.items():
            argument = ALIASES.get(given, given) if isinstance(value, str) else given
            if argument in request:
                raise InvalidParameterError(f"{display_name(argument)} is given twice: as {display_name(given)} too")
            if value is not None:
                request[argument] = value
        answer = call_backend(getattr(self, name), request)
        return _drop_nulls(answer.model_dump(mode="json") if isinstance(answer, Model) else answer)

    def search(self, request: dict[str, Any]) -> Model:
        """Find the stored chunks nearest in meaning to a query, best first, with score, source and the stored text."""
        return self._backend.search(request)

    def search_many(self, request: dict[str, Any]) -> Model:
        """Answer several queries at once: `responses` has a result or an error for each, in their order."""
        if "queries" not in request:
            raise InvalidParameterError("queries is required")
        return self._backend.search(request)

    def validate_chunk(self, request: dict[str, Any]) -> Model:
        """Check that a stored chunk equals its original byte for byte; if not, say what differs and why.

        Without an original, the hash in the chunk's own payload is checked.
        """
        return self._backend.validate(request)

    def describe_collection(self, request: dict[str, Any]) -> Model:
        """Describe a collection: vector size, number of points, payload fields and how they are read."""
        return self._backend.collection(OfCollection.parse(request, subject=SUBJECT).collection)

    def why(self, request: dict[str, Any]) -> Model:
        """Find out why an expected chunk is not among the results: deleted, changed, filtered out, ranked too low, …

        Give the arguments of the search that missed it. It is repeated with one change after another: the smallest
        change that brings the chunk back names the cause. Behind an API, only what it shows is looked at.
        """
        expected = request.pop("expected", None)
        if not isinstance(expected, str) or not expected.strip():
            raise InvalidParameterError("expected is required: an id, a URL, or a text that the chunk has")
        question = Question(request, expected, deadline=Deadline(self._why_ms))
        return make_explainer(self._backend).explain(question).report

    def list_collections(self, request: dict[str, Any]) -> dict[str, Any]:
        """List the collections that can be searched."""
        if request:
            raise InvalidParameterError(f"list_collections takes no arguments, not {display_name(next(iter(request)))}")
        return {"result": self._collections()}


@cache
def describe_tools() -> tuple[dict[str, Any], ...]:
    """Return the definitions of all tools, as `tools/list` of the protocol has them."""
    schemas = (SearchQuery.model_json_schema(), ChunkValidation.model_json_schema())
    wanted = {name.rstrip("*") for names in ARGUMENTS.values() for name in names}
    known = {name: _describe(schema, name) for schema in schemas for name in wanted & schema["properties"].keys()} | OWN
    return tuple(
        {
            "name": tool,
            "description": getdoc(getattr(AgentTools, tool)),
            "inputSchema": {
                "type": "object",
                "properties": {name.rstrip("*"): known[name.rstrip("*")] for name in names},
                "required": [name.rstrip("*") for name in names if name.endswith("*")],
            },
            "annotations": READ_ONLY,
        }
        for tool, names in ARGUMENTS.items()
    )


def _describe(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Describe a field as briefly as an agent needs it: of several types, the plain one."""
    field = schema["properties"][name]
    kinds = [
        schema["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
        for kind in field.get("anyOf", [field])
    ]
    plain = next((kind for kind in kinds if kind.get("type") not in (None, "object", "null")), {"type": "object"})
    kept = {key: plain[key] for key in ("type", "enum", "minimum", "maximum") if key in plain}
    shown = {"default": field["default"]} if field.get("default") else {}
    return {**kept, **shown, "description": f"{field['description']}{NOTES.get(name, '')}."}


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_drop_nulls(inner) for inner in value] if isinstance(value, list) else value


def tool_result(document: Json) -> Json:
    """Return the result of a call: the document, and its text for models that read no structure."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "structuredContent": document}


def tool_error(error: ChunkproofError) -> Json:
    """Return the result of a call that failed, with the code and the messages of the contract."""
    return {"content": [{"type": "text", "text": f"{error.code}: {error}"}], "isError": True}


class _ProtocolError(Exception):
    """A message that breaks the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The response to a message; None to a notification, which gets none."""

    status: HTTPStatus
    message: Json | None

    def to_json(self) -> str:
        """Return the body of the response."""
        return "" if self.message is None else json.dumps(self.message, ensure_ascii=False, separators=(",", ":"))


def answer_agent(
    body: str, headers: Mapping[str, str], open_backend: Callable[[], LocalBackend], trace: RequestTrace
) -> AgentReply:
    """Answer one message of the protocol.

    A tool that fails is a result with an error, as the protocol has it; the trace records its code, and the status
    that the API has for it.
    """
    request_id, is_stateless = None, False
    try:
        message = _read_message(body)
        if "id" not in message:
            return AgentReply(HTTPStatus.ACCEPTED, None)
        request_id = message["id"]
        is_stateless = _is_stateless(message, headers)
        result = _find_answer(message, is_stateless)
        if result is None:
            result = _call_tool(message["params"], headers, open_backend, trace)
    except _ProtocolError as problem:
        # Before that revision, 404 means that a session is over.
        is_known = is_stateless or request_id is None or problem.error["code"] in (HEADER_MISMATCH, NO_VERSION)
        status = HTTPStatus.NOT_FOUND if problem.error["code"] == NO_METHOD else HTTPStatus.BAD_REQUEST
        failed = {"jsonrpc": "2.0", "id": request_id, "error": problem.error}
        return AgentReply(status if is_known else HTTPStatus.OK, failed)
    if is_stateless:
        about = {f"{META}serverInfo": {"name": "chunkproof", "version": __version__}}
        result = {"resultType": "complete", **result, "_meta": about}
    return AgentReply(HTTPStatus.OK, {"jsonrpc": "2.0", "id": request_id, "result": result})


def _read_message(body: str) -> Json:
    try:
        message = read_json(body, max_values=MAX_VALUES)
    except InvalidParameterError as error:
        raise _ProtocolError(PARSE_ERROR, str(error)) from None
    is_request = (
        isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    )
    request_id = message.get("id", 0) if is_request else None
    if type(request_id) not in (str, int) or has_lone_surrogate(str(request_id)):
        raise _ProtocolError(
            INVALID_REQUEST, "The body must be one JSON-RPC 2.0 request with a method, and a string or number as id"
        )
    return dict(message)


def _is_stateless(message: Json, headers: Mapping[str, str]) -> bool:
    """Whether a request is of the revision without sessions, and says so in its headers and its body alike."""
    version = headers.get("mcp-protocol-version")
    meta = _read_object(message.get("params"), "params").get("_meta")
    named = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
    if named is None and version != STATELESS:
        if version is not None and version not in WITH_HANDSHAKE:
            raise _unsupported(version)
        return False
    needed = (f"{META}protocolVersion", f"{META}clientCapabilities")
    if not isinstance(meta, dict) or any(key not in meta for key in needed):
        raise _ProtocolError(INVALID_PARAMS, f"params._meta must have {' and '.join(needed)}")
    method = message["method"]
    wanted = {"mcp-protocol-version": named, "mcp-method": method}
    if method == "tools/call":
        wanted["mcp-name"] = message["params"].get("name")
    for header, value in wanted.items():
        if headers.get(header) != value:
            raise _ProtocolError(HEADER_MISMATCH, f"The header {header} does not match the body of the request")
    if named != STATELESS:
        raise _unsupported(named)
    return True


def _unsupported(version: Any) -> _ProtocolError:
    data = {"supported": [STATELESS, *WITH_HANDSHAKE], "requested": display_name(str(version), 100)}
    return _ProtocolError(NO_VERSION, "Unsupported protocol version", data)


def _find_answer(message: Json, is_stateless: bool) -> Json | None:
    """Return the answer to a request that is no call of a tool."""
    method, params = message["method"], _read_object(message.get("params"), "params")
    offered = {"capabilities": {"tools": {}}, "instructions": INSTRUCTIONS}
    lasting = {"ttlMs": LIST_TTL_MS, "cacheScope": "private"} if is_stateless else {}
    match method:
        case "server/discover" if is_stateless:
            return {"supportedVersions": [STATELESS, *WITH_HANDSHAKE], **offered, **lasting}
        case "initialize" if not is_stateless:
            asked = params.get("protocolVersion")
            version = asked if asked in WITH_HANDSHAKE else WITH_HANDSHAKE[0]
            return {"protocolVersion": version, **offered, "serverInfo": {"name": "chunkproof", "version": __version__}}
        case "ping" if not is_stateless:
            return {}
        case "tools/list":
            return {"tools": describe_tools(), **lasting}
        case "tools/call":
            if params.get("name") not in list(ARGUMENTS):
                name = display_name(str(params.get("name")))
                raise _ProtocolError(INVALID_PARAMS, f"There is no tool {name}; tools/list names them")
            return None
    raise _ProtocolError(NO_METHOD, "Method not found", display_name(method, 100))


def _call_tool(
    params: Json, headers: Mapping[str, str], open_backend: Callable[[], LocalBackend], trace: RequestTrace
) -> Json:
    arguments = _read_object(params.get("arguments"), "arguments")
    try:
        backend = open_backend()
        # `why` has half of the time for combining changes: each change that it has begun is still evaluated.
        tools = AgentTools(backend, backend.collections, min(WHY_MS, backend.new_deadline().remaining_ms() / 2))
        result = tool_result(tools.call(params["name"], arguments))
        if len(text := result["content"][0]["text"]) > SURELY_FITS:
            check_memory(text, copies=2)  # with the structure beside it
            body = json.dumps(result, ensure_ascii=False)
            whole = {"statusCode": 200, "headers": {"room": " " * HEADER_BYTES}, "body": body}
            fit_to_lambda_limit(whole, headers.get("accept-encoding", ""))
    except ChunkproofError as error:
        if isinstance(error, ResponseTooLargeError):
            size = error.message.partition(";")[0]
            error = ResponseTooLargeError(f"{size}: lower top_k, or send fewer queries at a time")
        trace.code, trace.reasons, trace.status = error.code, error.messages, error.status
        return tool_error(error)
    return result


def _read_object(value: Any, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _ProtocolError(INVALID_PARAMS, f"{name} must be an object")
    return value
