"""A retriever that is a tool of an MCP server: `mcp:TOOL@COMMAND` over standard input and output, or `mcp:TOOL@URL`."""

import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import httpx2
from anyio.from_thread import start_blocking_portal
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Implementation

from chunkproof import __version__
from chunkproof.base.embedder_config import is_http_url
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.net.transport import tls_context
from chunkproof_cli.output import add_secrets, shorten
from chunkproof_cli.retrievers.http_service import status_error, timeout_error, unreachable_error
from chunkproof_cli.retrievers.mapping import (
    Mapper,
    Retriever,
    RetrieverError,
    RetrieverUnavailableError,
    fill_template,
)
from chunkproof_cli.retrievers.opening import QUERY_NAMES, TOP_K_NAMES

SYNTAX = "mcp:TOOL@COMMAND or mcp:TOOL@https://…"
# How mcp-server-qdrant writes a result.
_ENTRY = re.compile(r"<entry><content>(?P<text>.*)</content><metadata>(?P<metadata>.*)</metadata></entry>", re.DOTALL)


class McpRetriever(Retriever):
    """Calls a tool with each query; the arguments are the mapping's request, or chosen by the tool's schema."""

    def __init__(self, target: str, mapper: Mapper) -> None:
        self._tool, _, self._server = target.partition("@")
        if not self._tool or not self._server:
            raise InvalidParameterError(f"--retriever mcp:{target}: write {SYNTAX}")
        self._mapper = mapper
        self._command = [] if self._server.startswith(("http://", "https://")) else _split_command(self._server)
        if not self._command and not is_http_url(self._server):
            raise InvalidParameterError(f"--retriever {self._server}: not an http or https URL")
        self._headers = {"user-agent": "chunkproof", **mapper.fill_headers()}
        self._lock = Lock()
        self._open = ExitStack()
        self._call: Callable[..., CallToolResult] | None = None
        self._schema: Mapping[str, Any] = {}
        self._status: ChunkproofError | None = None
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # a server may print other lines than messages

    def retrieve(self, request: Mapping[str, Any]) -> Any:
        """Call the tool, and return its structured content, else the JSON or the texts of its content."""
        with self._lock:
            try:
                self._call = self._call or self._connect()
                answer = self._call(self._tool, self._choose(request))
            except ChunkproofError:
                raise
            except Exception as error:
                raise self._to_error(error) from error
        texts = [part.text for part in answer.content if part.type == "text"]
        if answer.is_error:
            raise RetrieverError(f"The tool {self._tool} failed: {shorten(' '.join(texts)) or 'no reason given'}")
        structured = answer.structured_content
        if structured is not None and not _holds_texts(structured):
            return structured
        if any(map(_ENTRY.fullmatch, texts)):  # the others are a heading
            texts = [text for text in texts if _ENTRY.fullmatch(text)]
        parsed = [_parse_content(text) for text in texts]
        if len(parsed) == 1 and isinstance(parsed[0], list | dict):
            return parsed[0]
        return [item for part in parsed for item in (part if isinstance(part, list) else [part])]

    def close(self) -> None:
        """End the session."""
        self._call = None
        self._open.close()

    def _connect(self) -> Callable[..., CallToolResult]:
        """Open the session, read the tool's input schema, and return a function that calls a tool."""
        info = Implementation(name="chunkproof", version=__version__)
        # By the handshake: a probe for later versions waits ten seconds, whatever the timeout.
        timeout_s = self._mapper.timeout_s
        client = Client(self._transport(), read_timeout_seconds=timeout_s, client_info=info, mode="legacy")
        portal = self._open.enter_context(start_blocking_portal())
        self._open.enter_context(portal.wrap_async_context_manager(client))
        tools = {tool.name: tool for tool in portal.call(client.list_tools).tools}
        if self._tool not in tools:
            names = ", ".join(sorted(tools)) or "none"
            raise InvalidParameterError(f"--retriever: the MCP server has no tool {self._tool}; it has {names}")
        self._schema = tools[self._tool].input_schema
        return lambda tool, arguments: portal.call(client.call_tool, tool, arguments)

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if self._command:
            # The server gets the whole environment, as a command in a shell does: its keys may be there.
            server = StdioServerParameters(command=self._command[0], args=self._command[1:], env=dict(os.environ))
            with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
                async with stdio_client(server, errlog=nowhere) as streams:
                    yield streams
            return
        limits = httpx2.Timeout(self._mapper.timeout_s, read=None)  # the session limits the wait for a response
        hooks = {"response": [self._note_status]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=limits, verify=tls_context(), event_hooks=hooks) as http,
            streamable_http_client(self._server, http_client=http) as streams,
        ):
            yield streams

    async def _note_status(self, response: httpx2.Response) -> None:
        """Keep the error of a status: the SDK replaces it by a general one."""
        if response.request.method == "POST":
            refused = status_error(response.status_code, response.headers)
            self._status = None if response.is_success else refused

    def _choose(self, request: Mapping[str, Any]) -> Any:
        """Return the arguments of a call."""
        properties, required = self._schema.get("properties", {}), self._schema.get("required", [])
        self._mapper.check_filters(request, taken=self._mapper.request is None and "filters" in properties)
        if self._mapper.request is not None:
            return fill_template(self._mapper.request, request)
        query = next((name for name in QUERY_NAMES if name in properties), None) or next(iter(required), None)
        if query is None:
            raise RetrieverError(
                f"The tool {self._tool} has no parameter for the query; set request in --retriever-map"
            )
        arguments = {query: request["query_text"]}
        arguments |= {name: request["top_k"] for name in TOP_K_NAMES if name in properties}
        arguments |= {"filters": request["filters"]} if request.get("filters") else {}
        if "collection_name" in required and request.get("collection"):
            arguments["collection_name"] = request["collection"]
        return arguments

    def _to_error(self, error: Exception) -> ChunkproofError:
        """Return the error of a failed call, and close the session: the next call opens another."""
        reason = _first_cause(error)
        code = reason.code if isinstance(reason, MCPError) else None
        try:
            self.close()
        except Exception as closing:  # noqa: BLE001 - why the call failed, if the transport ended the session
            reason = _first_cause(closing)
        if self._status is not None:
            return self._status
        if isinstance(reason, httpx2.TimeoutException) or code == REQUEST_TIMEOUT:
            return timeout_error("The MCP server" if self._command else "The retriever", self._mapper.timeout_s)
        if isinstance(reason, httpx2.HTTPError):
            return unreachable_error(reason)
        if code == CONNECTION_CLOSED and self._command:
            return RetrieverUnavailableError("The MCP server has ended")
        return RetrieverError(f"The MCP server refused the call: {shorten(str(reason)) or type(reason).__name__}")


def _split_command(command: str) -> list[str]:
    """Split a command into its words; `InvalidParameterError` if it cannot be started."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidParameterError(f"--retriever: the command after @ cannot be started: {error}") from None
    if not words or shutil.which(words[0]) is None:
        reason = "Permission denied" if words and Path(words[0]).exists() else "No such file or directory"
        raise InvalidParameterError(f"--retriever: {words[0] if words else SYNTAX} cannot be started: {reason}")
    add_secrets((*pairwise(words), *(word.partition("=")[::2] for word in words)))
    return words


def _first_cause(error: BaseException) -> BaseException:
    """Return the first exception inside of nested groups."""
    return _first_cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _holds_texts(structured: Any) -> bool:
    """Whether the structured content only repeats the texts, as servers do for tools that return strings."""
    result = structured.get("result") if isinstance(structured, dict) else None
    return isinstance(result, str) or (isinstance(result, list) and all(isinstance(text, str) for text in result))


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
