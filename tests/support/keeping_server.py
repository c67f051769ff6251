"""A loopback HTTP/1.1 server that notes every request, and over which connection it came."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Backend:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class KeepingServer:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[Backend] = field(default_factory=list)


@contextmanager
def keeping_server(answer: Callable[[Backend], Said] = lambda _: Said()) -> Iterator[KeepingServer]:
    """Answers as told and keeps what it was asked; `connection: close` in an answer ends its connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            asked = Backend(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("content-length") or 0)),
                self.client_address,
            )
            server.asked.append(asked)
            said = answer(asked)
            self.send_response(said.status)
            for name, value in {**said.headers, "content-length": str(len(said.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with listening(Handler) as url:
        server = KeepingServer(url)
        yield server


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler, which ends with the block."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_address[1]}"
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
