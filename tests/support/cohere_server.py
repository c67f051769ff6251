"""A loopback HTTP server that speaks Cohere's embed API (v2), so that the SDK's own code runs in tests."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Embed = Callable[[str], list[float]]
KEY = "test-cohere-s3cr3t-3f1c9a"
MAX_TOKENS = 512


def hashed(size: int) -> Embed:
    """A deterministic unit vector per text: enough where meaning does not matter."""

    def embed(text: str) -> list[float]:
        stream = hashlib.shake_256(text.encode()).digest(size * 2)
        raw = [int.from_bytes(stream[i : i + 2], "big") / 65535 - 0.5 for i in range(0, size * 2, 2)]
        length = sum(value * value for value in raw) ** 0.5
        return [value / length for value in raw]

    return embed


@dataclass
class Answer:
    """What to answer instead of embeddings."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class CohereServer:
    """Where it listens, what it was asked, and what it is to answer next."""

    url: str
    key: str = KEY
    requests: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Listener(ThreadingHTTPServer):
    """Takes a burst of connections: the usual backlog of five refuses some under load."""

    request_queue_size = 128
    daemon_threads = True


@contextmanager
def cohere_server(
    embed: Embed | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[CohereServer]:
    """A running server: 1024 values per text unless told otherwise, tokens counted as words."""
    vector_of = embed or hashed(1024)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.requests.append({"path": self.path, **asked})
            self._send(server.answers.pop(0) if server.answers else self._answer(asked))

        def _answer(self, asked: dict[str, Any]) -> Answer:
            if self.path != "/v2/embed":
                return _error(404, "not found")
            if self.headers.get("authorization") != f"Bearer {KEY}":
                return _error(401, "invalid api token")
            texts = asked["texts"]
            if len(texts) > 96:
                return _error(400, "invalid request: number of texts must be at most 96")
            counts = [len(text.split()) for text in texts]
            if asked.get("truncate") == "NONE" and max(counts) > MAX_TOKENS:
                return _error(400, f"too many tokens: max tokens per text is {MAX_TOKENS}, got {max(counts)}")
            body = {
                "id": "0d4d1a5e",
                "embeddings": {"float": [vector_of(text) for text in texts]},
                "texts": texts,
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": sum(counts)}},
                "response_type": "embeddings_by_type",
            }
            return Answer(200, json.dumps(body).encode(), {"content-type": "application/json"})

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    listener = Listener((host, port), Handler)
    server = CohereServer(f"http://{host}:{listener.server_address[1]}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _error(status: int, message: str) -> Answer:
    return Answer(status, json.dumps({"message": message}).encode(), {"content-type": "application/json"})
