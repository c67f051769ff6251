"""A loopback HTTP/1.1 server that records every request, and the connection that it used."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]


@dataclass(frozen=True)
class CannedResponse:
    """One response."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class RecordingServer:
    """The server's URL, and the requests so far."""

    url: str
    requests: list[RecordedRequest] = field(default_factory=list)


@contextmanager
def recording_server(
    respond: Callable[[RecordedRequest], CannedResponse] = lambda _: CannedResponse(),
) -> Iterator[RecordingServer]:
    """Run a server that records requests; `connection: close` in a response ends its connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _respond(self) -> None:
            request = RecordedRequest(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("content-length") or 0)),
                self.client_address,
            )
            server.requests.append(request)
            response = respond(request)
            self.send_response(response.status)
            for name, value in {**response.headers, "content-length": str(len(response.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)

        do_GET = do_POST = do_PUT = _respond  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with listening(Handler) as url:
        server = RecordingServer(url)
        yield server


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128  # the default backlog of five refuses connections under load
    daemon_threads = True


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Run a server with this handler until the block ends, and return its URL."""
    listener = _Listener((host, port), handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{listener.server_address[1]}"
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
