"""A retriever that is a tool of an MCP server: `mcp:TOOL@COMMAND` over standard input and output, or `mcp:TOOL@URL`.

JSON-RPC 2.0 as the Model Context Protocol defines it: initialize, tools/list, tools/call. A client of this size needs
no SDK.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from queue import Empty, Queue
from threading import Lock, Thread
from typing import IO, Any, Protocol, cast

import httpx

from chunkproof import __version__
from chunkproof.errors import InvalidParameterError
from chunkproof_cli.output import shorten
from chunkproof_cli.retrievers.errors import RetrieverError, RetrieverUnavailableError
from chunkproof_cli.retrievers.http_service import HttpRetriever, read_json
from chunkproof_cli.retrievers.mapping import Mapper
from chunkproof_cli.retrievers.python_object import QUERY_NAMES, TOP_K_NAMES

PROTOCOL = "2025-06-18"
SYNTAX = "mcp:TOOL@COMMAND or mcp:TOOL@https://…"
# How mcp-server-qdrant writes a result.
_ENTRY = re.compile(r"<entry><content>(?P<text>.*)</content><metadata>(?P<metadata>.*)</metadata></entry>", re.DOTALL)


class Channel(Protocol):
    """Sends a JSON-RPC message; a request returns the message that answers it."""

    def send(self, message: dict[str, Any]) -> Any:
        """Send a message. Return the answer to a request, None for a notification."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class McpRetriever:
    """Calls a tool with each query; the arguments are the mapping's request, or chosen by the tool's schema."""

    jobs = 1
    is_live = True
    is_served = False

    def __init__(self, target: str, mapper: Mapper) -> None:
        self._tool, _, server = target.partition("@")
        if not self._tool or not server:
            raise InvalidParameterError(f"--retriever mcp:{target}: write {SYNTAX}")
        self._mapper = mapper
        self._ids = 0
        self._lock = Lock()
        is_url = server.startswith(("http://", "https://"))
        self._channel: Channel = HttpChannel(server, mapper) if is_url else StdioChannel(server, mapper.timeout_s)
        self._schema: dict[str, Any] | None = None

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Call the tool, and return its structured content, else the JSON or the texts of its content."""
        with self._lock:
            if self._schema is None:
                self._schema = self._start()
            properties = self._schema.get("properties", {})
            self._mapper.check_filters(request, taken=self._mapper.request is None and "filters" in properties)
            given = self._mapper.fill(request) if self._mapper.request is not None else self._choose(request)
            answer = self._call("tools/call", {"name": self._tool, "arguments": given})
        texts = [part["text"] for part in answer.get("content") or [] if isinstance(part.get("text"), str)]
        if answer.get("isError"):
            raise RetrieverError(f"The tool {self._tool} failed: {shorten(' '.join(texts)) or 'no reason given'}")
        structured = answer.get("structuredContent")
        if structured is not None and not _holds_texts(structured):
            return structured
        if any(map(_ENTRY.fullmatch, texts)):  # the others are a heading
            texts = [text for text in texts if _ENTRY.fullmatch(text)]
        parsed = [_parse_content(text) for text in texts]
        return parsed[0] if len(parsed) == 1 and isinstance(parsed[0], list | dict) else list(_flatten(parsed))

    def _start(self) -> dict[str, Any]:
        """Open the session and return the tool's input schema."""
        client = {"name": "chunkproof", "version": __version__}
        self._call("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        self._channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = {tool["name"]: tool for tool in self._call("tools/list", {}).get("tools", [])}
        if self._tool not in tools:
            known = ", ".join(sorted(tools)) or "none"
            raise InvalidParameterError(f"--retriever: the MCP server has no tool {self._tool}; it has {known}")
        schema: dict[str, Any] = tools[self._tool].get("inputSchema") or {}
        return schema

    def _choose(self, request: Mapping[str, Any]) -> dict[str, Any]:
        properties = (self._schema or {}).get("properties", {})
        required = (self._schema or {}).get("required", [])
        query = next((name for name in QUERY_NAMES if name in properties), None) or next(iter(required), None)
        if query is None:
            raise RetrieverError(
                f"The tool {self._tool} has no parameter for the query; set request in --retriever-map"
            )
        given = {query: request["query_text"]}
        given |= {name: request["top_k"] for name in TOP_K_NAMES if name in properties}
        given |= {"filters": request["filters"]} if request.get("filters") else {}
        if "collection_name" in required and request.get("collection"):
            given["collection_name"] = request["collection"]
        return given

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._ids += 1
        answer = self._channel.send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            error = answer.get("error") if isinstance(answer, dict) else None
            reason = shorten(str(error.get("message"))) if isinstance(error, dict) else "the answer has no result"
            raise RetrieverError(f"The MCP server refused {method}: {reason}")
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """End the session."""
        self._channel.close()


class StdioChannel:
    """A server that this process starts; each message is a line of JSON."""

    def __init__(self, command: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the user's own
                shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidParameterError(f"--retriever: {command} cannot be started: {reason}") from None
        self._input, self._output = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._answers: Queue[dict[str, Any] | None] = Queue()
        Thread(target=self._read, daemon=True).start()

    def send(self, message: dict[str, Any]) -> Any:
        """Write the message, and wait for the answer with its id."""
        try:
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()
        except (OSError, ValueError):
            raise RetrieverUnavailableError("The MCP server has ended") from None
        while "id" in message:
            try:
                answer = self._answers.get(timeout=self._timeout_s)
            except Empty:
                limit = f"{self._timeout_s:g} s (timeout_s of --retriever-map)"
                raise RetrieverUnavailableError(f"The MCP server did not respond within {limit}") from None
            if answer is None:
                self._answers.put(None)
                raise RetrieverUnavailableError("The MCP server has ended")
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer
        return None

    def _read(self) -> None:
        for line in self._output:
            with suppress(ValueError):  # a server may print other lines
                message = json.loads(line)
                if isinstance(message, dict):
                    self._answers.put(message)
        self._answers.put(None)

    def close(self) -> None:
        """Close its input, which ends a server; kill it if it does not."""
        with suppress(OSError):
            self._input.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


class HttpChannel:
    """A server behind a URL (Streamable HTTP): each message is a POST, answered by JSON or by an event stream."""

    def __init__(self, url: str, mapper: Mapper) -> None:
        self._url = url
        self._http = HttpRetriever(url, mapper)
        self._session: dict[str, str] = {}

    def send(self, message: dict[str, Any]) -> Any:
        """Send the message, and return the answer with its id."""
        headers = {"accept": "application/json, text/event-stream", **self._session}
        response = self._http.send(self._url, {"json": message}, headers)
        if session := response.headers.get("mcp-session-id"):
            self._session = {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL}
        if "id" not in message:
            return None
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            return read_json(response)
        return next((found for found in _read_events(response) if found.get("id") == message["id"]), None)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _read_events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.text.splitlines():
        if line.startswith("data:"):
            with suppress(ValueError):
                message = json.loads(line.removeprefix("data:"))
                if isinstance(message, dict):
                    yield message


def _holds_texts(structured: Any) -> bool:
    """Whether the structured content only repeats the texts, as servers do for tools that return strings."""
    result = structured.get("result") if isinstance(structured, dict) else None
    return isinstance(result, str) or (isinstance(result, list) and all(isinstance(one, str) for one in result))


def _parse_content(text: str) -> Any:
    """Return the JSON of a text, the parts of an entry of mcp-server-qdrant, or the text as a result."""
    with suppress(ValueError):
        parsed = json.loads(text)
        if isinstance(parsed, list | dict):
            return parsed
    if (entry := _ENTRY.fullmatch(text)) is not None:
        metadata: Any = None
        with suppress(ValueError):
            metadata = json.loads(entry["metadata"] or "null")
        return {"text": entry["text"], "metadata": metadata if isinstance(metadata, dict) else {}}
    return {"text": text}


def _flatten(parsed: list[Any]) -> Iterator[Any]:
    for one in parsed:
        yield from one if isinstance(one, list) else [one]
