"""`chunkproof serve`."""

import io
import logging
import os
import socket
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM
from threading import Thread
from typing import Any

import click
import uvicorn

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.settings import Settings
from chunkproof.service import container
from chunkproof.service.api import Api
from chunkproof.service.terminal import Connection
from chunkproof_cli.connections import connect
from chunkproof_cli.exits import discard_stdout
from chunkproof_cli.local.console import build_console, check_suite_file
from chunkproof_cli.local.gateway import FUNCTIONS, Gateway, load_function
from chunkproof_cli.options import embedder_option, option, parse_options, port_option, reject_api, store_options
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
@option("--host TEXT", "Address to listen on.", "127.0.0.1")
@port_option("--port", 8080, "Port to listen on; 0 for any free one.", least=0)
@option("--workers N", "Processes that serve requests, best one for each core; more than one need a Qdrant server.", 1)
@option("--logs", "Print the functions' log lines on a terminal too; a pipe or a file always gets them.")
@option("--open open_browser", "Open the console in a browser.")
@option("--suite FILE", "Save what is judged in the console to FILE, as a suite that chunkproof suite run reads.")
@option(
    "--reports FOLDER",
    "Offer the reports (.json) in FOLDER in the console, each with an address of its own.",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@store_options
@embedder_option
@reject_api("serve is itself an API, for QDRANT_URL or the embedded store")
def serve(
    *, host: str, port: int, workers: int, logs: bool, open_browser: bool, suite: Path | None, **common: Any
) -> None:
    """Run the Lambda handlers behind a local HTTP gateway, with a console for the browser at /.

    The console searches, compares, proves and judges (docs/guides/console.md); Swagger UI is at /docs.

    It checks no authorization: use it for development, not on an open network. Standard output has the
    functions' log: a line of JSON for each request and one for its metrics (docs/reference/logs.md). Standard
    error has an access log.
    """
    reports: Path | None = common.pop("reports")
    options = parse_options(**common)
    if suite is not None:
        check_suite_file(suite)
    settings = Settings.from_env()
    if options.collection is not None:
        settings = settings.model_copy(update={"collection": options.collection})
    if sys.stdout.isatty() and not logs:
        discard_stdout()
    listener, is_first = None, True
    if workers > 1:
        _check_workers(settings, suite)
        listener = open_listener(host, port, is_shared=True)
        is_first = _start_workers(workers - 1)
        if not is_first:  # the system spreads connections over the listeners of a port
            own = open_listener(host, listener.getsockname()[1], is_shared=True)
            listener.close()
            listener = own
    with connect(options, settings) as connection:
        listener = listener or open_listener(host, port)
        console = build_console(suite, reports)
        run_server(connection, host, listener, console, open_browser=open_browser, is_first=is_first)


def _check_workers(settings: Settings, suite: Path | None) -> None:
    if settings.qdrant_url is None:
        raise InvalidParameterError(
            "--workers needs QDRANT_URL: one process at a time opens the collections of a folder"
        )
    if suite is not None:
        raise InvalidParameterError("--suite is written by one process: leave out --workers")
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidParameterError("--workers needs a system with fork and SO_REUSEPORT, such as Linux or macOS")


def _start_workers(count: int) -> bool:
    """Fork this many workers; return True in the parent, False in a worker.

    Workers end with the parent, which copies their log lines to its own log.
    """
    alive, ends_with_this = os.pipe()
    logs = []
    for _ in range(count):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(ends_with_this)
            os.dup2(writing, 1)
            Thread(target=_end_with, args=(alive,), daemon=True).start()
            return False
        os.close(writing)
        logs.append(reading)
    for reading in logs:  # after all forks, which take no thread with them
        Thread(target=_copy_lines, args=(reading,), daemon=True).start()
    return True


def _end_with(alive: int) -> None:
    """Wait until the parent process has ended, however that happened, then end as on Ctrl-C."""
    os.read(alive, 1)
    os.kill(os.getpid(), SIGTERM)


def _copy_lines(reading: int) -> None:
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines, suppress(OSError):
        sys.stdout.writelines(lines)


def run_server(
    connection: Connection,
    host: str,
    listener: socket.socket,
    console: Api,
    *,
    open_browser: bool = False,
    is_first: bool = True,
) -> None:
    """Serve the API and the console on this store until Ctrl-C.

    Only the first of several processes says where, and opens the browser.
    """
    allow_many_connections()
    if isinstance(sys.stdout, io.TextIOWrapper):  # Powertools does not flush metrics; a log should have them at once
        sys.stdout.reconfigure(line_buffering=True)
    # Requests are still answered when the reader of the log lines is gone.
    logging.raiseExceptions = False
    logging.getLogger("gateway").setLevel(logging.INFO)
    with container.override(connection.services):
        for name in FUNCTIONS:
            load_function(name)
        address = f"http://{host}:{listener.getsockname()[1]}"
        aborted = ("Cancel ", "Invalid HTTP request")  # a client did not finish its request
        logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith(aborted))
        config = uvicorn.Config(
            Gateway(host, console),
            log_level="warning",
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        tools = ", tools for agents at /mcp" if connection.services.settings.mcp else ""
        if is_first:
            print_note(f"Serving {connection.store.host} at {address}, documentation at /docs{tools}; stop with Ctrl-C")
        if open_browser and is_first:  # in a thread: a browser in the terminal returns when it is closed
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(config).run(sockets=[listener])


def allow_many_connections() -> None:
    """Let this process have as many open connections as the system allows it: often four times the usual limit."""
    with suppress(ImportError, ValueError, OSError):  # not on Windows, or forbidden
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_listener(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Listen at this address, which several processes may share."""
    try:
        socket.getaddrinfo(host, port)
    except (OSError, UnicodeError):
        raise InvalidParameterError(f"Cannot listen on {host}:{port}: unknown host; set another with --host") from None
    try:
        listener = socket.create_server((host, port), reuse_port=is_shared)
    except OSError as error:
        raise InvalidParameterError(
            f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; set another with --port or --host"
        ) from None
    # Connections inherit it. asyncio sets it only on sockets that name their protocol; without it, the body of a
    # response waits until its headers are acknowledged, which takes 40 ms on Linux.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
