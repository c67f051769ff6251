"""A loopback HTTP server with Cohere's embed API (v2), so that tests run the SDK's own code."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from chunkproof_cli.local.embed_api import FAILING_QUERY

from support.recording_server import CannedResponse, listening

Embed = Callable[[str], list[float]]
KEY = "test-cohere-s3cr3t-3f1c9a"
MAX_TOKENS = 512


def hashed(size: int) -> Embed:
    """Return a function that maps each text to a deterministic unit vector without meaning."""

    def embed(text: str) -> list[float]:
        stream = hashlib.shake_256(text.encode()).digest(size * 2)
        raw = [int.from_bytes(stream[i : i + 2], "big") / 65535 - 0.5 for i in range(0, size * 2, 2)]
        length = sum(value * value for value in raw) ** 0.5
        return [value / length for value in raw]

    return embed


@dataclass
class CohereServer:
    """The server's URL, the requests so far, and the responses to send next instead of embeddings."""

    url: str
    key: str = KEY
    requests: list[dict[str, Any]] = field(default_factory=list)
    responses: list[CannedResponse] = field(default_factory=list)


@contextmanager
def cohere_server(embed: Embed | None = None, host: str = "127.0.0.1", port: int = 0) -> Iterator[CohereServer]:
    """Run a server that embeds each text in 1024 values by default, and counts words as tokens."""
    vector_of = embed or hashed(1024)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.requests.append({"path": self.path, **request})
            self._send(server.responses.pop(0) if server.responses else self._respond(request))

        def _respond(self, request: dict[str, Any]) -> CannedResponse:
            if self.path != "/v2/embed":
                return _error(404, "not found")
            if self.headers.get("authorization") != f"Bearer {KEY}":
                return _error(401, "invalid api token")
            texts = request["texts"]
            if FAILING_QUERY in texts:
                return _error(503, "service unavailable")
            if len(texts) > 96:
                return _error(400, "invalid request: number of texts must be at most 96")
            counts = [len(text.split()) for text in texts]
            if request.get("truncate") == "NONE" and max(counts) > MAX_TOKENS:
                return _error(400, f"too many tokens: max tokens per text is {MAX_TOKENS}, got {max(counts)}")
            body = {
                "id": "0d4d1a5e",
                "embeddings": {"float": [vector_of(text) for text in texts]},
                "texts": texts,
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": sum(counts)}},
                "response_type": "embeddings_by_type",
            }
            return CannedResponse(200, json.dumps(body).encode(), {"content-type": "application/json"})

        def _send(self, response: CannedResponse) -> None:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with listening(Handler, host, port) as url:
        server = CohereServer(url)
        yield server


def _error(status: int, message: str) -> CannedResponse:
    return CannedResponse(status, json.dumps({"message": message}).encode(), {"content-type": "application/json"})
