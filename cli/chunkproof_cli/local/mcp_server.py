"""A server of the Model Context Protocol: the tools of `chunkproof.service.agent_tools` behind the protocol's SDK."""

from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, Tool

from chunkproof import __version__
from chunkproof.base.errors import ChunkproofError
from chunkproof.proof.backend import Backend
from chunkproof.service.agent_tools import INSTRUCTIONS, AgentTools, describe_tools, tool_error, tool_result


def build_server(backend: Backend, list_collections: Callable[[], list[str]]) -> Server[Any]:
    """Make a server whose tools run against this backend, each call in a thread."""
    tools = AgentTools(backend, list_collections)

    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool.model_validate(each) for each in describe_tools()])

    async def call_tool(_context: Any, given: CallToolRequestParams) -> CallToolResult:
        try:
            answer = await anyio.to_thread.run_sync(tools.call, given.name, given.arguments or {})
        except ChunkproofError as error:
            return CallToolResult.model_validate(tool_error(error))
        return CallToolResult.model_validate(tool_result(answer))

    return Server(
        "chunkproof", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def run_on_streams(server: Server[Any]) -> None:
    """Serve over standard input and output until the client leaves."""

    async def run() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(run)
