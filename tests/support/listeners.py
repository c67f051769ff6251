"""Loopback servers that misbehave in one way each."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from support.qdrant_server import free_port
from support.recording_server import CannedResponse, recording_server


def refusing_address() -> str:
    """A URL where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


@contextmanager
def silent_server() -> Iterator[str]:
    """Accepts every connection and never responds."""
    with _listening(lambda _connection, stopped: stopped.wait()) as url:
        yield url


@contextmanager
def dripping_server(every_seconds: float, times: int) -> Iterator[str]:
    """Sends the head of a response at once, and then the body byte by byte."""

    def drip(connection: socket.socket, stopped: threading.Event) -> None:
        connection.recv(65_536)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {times}\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(times):
            if stopped.wait(every_seconds):
                return
            connection.sendall(b" ")

    with _listening(drip) as url:
        yield url


@contextmanager
def web_server(status: int, body: bytes, headers: Mapping[str, str]) -> Iterator[str]:
    """Sends the same response to every request."""
    with recording_server(lambda _: CannedResponse(status, body, dict(headers))) as server:
        yield server.url


@contextmanager
def _listening(serve: Callable[[socket.socket, threading.Event], object]) -> Iterator[str]:
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.02)

    def handle(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection, stopped)
            except OSError:  # the client disconnected, as it should
                return

    def accept() -> None:
        while not stopped.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        thread.join()
        listener.close()
        time.sleep(0.01)  # let the handlers close their connections
