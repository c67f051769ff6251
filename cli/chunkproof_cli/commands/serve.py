"""`chunkproof serve`."""

import io
import logging
import os
import socket
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import click
import uvicorn

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.service import container
from chunkproof.service.terminal import Connection, local_backend
from chunkproof_cli.commands.mcp import list_allowed
from chunkproof_cli.connections import connect
from chunkproof_cli.exits import discard_stdout
from chunkproof_cli.local.console import build_console, check_suite_file
from chunkproof_cli.local.gateway import FUNCTIONS, MCP_PATH, AsgiApp, Gateway, load_function
from chunkproof_cli.options import (
    embedder_option,
    file_option,
    parse_options,
    port_option,
    reject_api,
    store_options,
)
from chunkproof_cli.output import print_note

EXAMPLES = """\b
Examples:
  chunkproof serve --collection handbook --open --suite judged.yaml
  curl -s localhost:8080/search -d '{"query_text": "how do I tune a PID loop"}'
  chunkproof serve > requests.jsonl    # then: chunkproof latency --logs requests.jsonl
"""


# Ctrl-C waits for requests that are being served, and not for the rest of a request that never comes.
SHUTDOWN_SECONDS = 3


@click.command(epilog=EXAMPLES)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@port_option("--port", 8080, "Port to listen on; 0 for any free one.", least=0)
@click.option(
    "--logs",
    is_flag=True,
    help="Print the functions' log lines on a terminal too; a pipe or a file always gets them.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the console in a browser.")
@file_option("--suite", help="Save what is judged in the console to FILE, as a suite that chunkproof suite run reads.")
@store_options
@embedder_option
@reject_api("serve is itself an API, for QDRANT_URL or the embedded store")
def serve(host: str, port: int, logs: bool, open_browser: bool, suite: Path | None, **common: Any) -> None:
    """Run the Lambda handlers behind a local HTTP gateway, with a console for the browser at /.

    The console searches, compares, proves and judges (docs/guides/console.md); Swagger UI is at /docs.

    It checks no authorization: use it for development, not on an open network. Standard output has the
    functions' log: a line of JSON for each request and one for its metrics (docs/reference/logs.md). Standard
    error has an access log.
    """
    options = parse_options(**common)
    if suite is not None:
        check_suite_file(suite)
    settings = Settings.from_env()
    if options.collection is not None:
        settings = settings.model_copy(update={"collection": options.collection})
    with connect(options, settings) as connection:
        run_server(connection, host, port, suite, logs=logs, open_browser=open_browser)


def run_server(
    connection: Connection, host: str, port: int, suite: Path | None, *, logs: bool = False, open_browser: bool = False
) -> None:
    """Serve the API and the console on this store until Ctrl-C; judgments are saved to `suite`, if it is named."""
    if sys.stdout.isatty() and not logs:
        discard_stdout()
    if isinstance(sys.stdout, io.TextIOWrapper):  # Powertools does not flush metrics; a log should have them at once
        sys.stdout.reconfigure(line_buffering=True)
    # Requests are still answered when the reader of the log lines is gone.
    logging.raiseExceptions = False
    logging.getLogger("gateway").setLevel(logging.INFO)
    with container.override(connection.services):
        for name in FUNCTIONS:
            load_function(name)
        listener = _open_listener(host, port)
        address = f"http://{host}:{listener.getsockname()[1]}"
        mcp_app = _build_mcp_app(connection.services, host)
        lifespan: Literal["on", "off"] = "on" if mcp_app else "off"
        logging.getLogger("uvicorn.error").addFilter(_is_worth_reading)
        config = uvicorn.Config(
            Gateway(mcp_app, host, build_console(suite)),
            log_level="warning",
            lifespan=lifespan,
            access_log=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        tools = ", tools for agents at /mcp" if mcp_app else ""
        print_note(f"Serving {connection.store.host} at {address}, documentation at /docs{tools}; stop with Ctrl-C")
        if open_browser:  # in a thread: a browser in the terminal returns when it is closed
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(config).run(sockets=[listener])


def _is_worth_reading(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn says more than that a client did not finish its request."""
    return not record.getMessage().startswith(("Cancel ", "Invalid HTTP request"))


def _build_mcp_app(services: Services, host: str) -> AsgiApp | None:
    """Make the application behind `/mcp`, where the protocol's SDK is installed and callers need no tenant."""
    if services.settings.tenant_field is not None or find_spec("mcp") is None:
        return None
    from chunkproof_cli.local.mcp_server import build_server

    server = build_server(local_backend(services), lambda: list_allowed(services))
    return server.streamable_http_app(streamable_http_path=MCP_PATH, host=host, stateless_http=True)


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        socket.getaddrinfo(host, port)
    except (OSError, UnicodeError):
        raise InvalidParameterError(f"Cannot listen on {host}:{port}: unknown host; set another with --host") from None
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise InvalidParameterError(
            f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; set another with --port or --host"
        ) from None
    # Connections inherit it. asyncio sets it only on sockets that name their protocol; without it, the body of a
    # response waits until its headers are acknowledged, which takes 40 ms on Linux.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
