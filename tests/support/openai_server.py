"""A loopback HTTP server with OpenAI's embeddings API, and the habits of the services that speak it."""

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.cohere_server import Embed, hashed
from support.recording_server import CannedResponse, listening

KEY = "sk-test-openai-s3cr3t-8a21"
MAX_TOKENS = 512


@dataclass
class OpenAiServer:
    """The server's URL up to `/v1`, the requests so far, and the responses to send next instead of embeddings.

    `cuts` embeds the beginning of a text that is too long, as Ollama does, instead of refusing it.
    """

    url: str
    key: str | None = KEY
    cuts: bool = False
    max_batch: int = 2048
    in_reverse: bool = False
    length: float = 1.0
    ignores_dimensions: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    responses: list[CannedResponse] = field(default_factory=list)


@contextmanager
def openai_server(embed: Embed | None = None, **habits: Any) -> Iterator[OpenAiServer]:
    """Run a server that embeds each text in 1536 values by default, and counts words as tokens."""
    vector_of = embed or hashed(1536)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            authorization = self.headers.get("authorization")
            server.requests.append({"path": self.path, "authorization": authorization, **request})
            self._send(server.responses.pop(0) if server.responses else self._respond(request, authorization))

        def _respond(self, request: dict[str, Any], authorization: str | None) -> CannedResponse:
            if self.path != "/v1/embeddings":
                return _error(404, "Not Found")
            if server.key is not None and authorization != f"Bearer {server.key}":
                return _error(401, f"Incorrect API key provided: {str(authorization)[7:13]}***")
            texts = request["input"]
            if len(texts) > server.max_batch:
                return _error(422, f"batch size {len(texts)} > maximum allowed batch size {server.max_batch}")
            counts = [len(text.split()) for text in texts]
            if max(counts) > MAX_TOKENS and not server.cuts:
                return _error(
                    400,
                    f"This model's maximum context length is {MAX_TOKENS} tokens, however you requested {max(counts)} "
                    "tokens",
                )
            data = [
                {"object": "embedding", "index": n, "embedding": _encode(self._vector(text, request), request)}
                for n, text in enumerate(texts)
            ]
            body = {
                "object": "list",
                "data": data[::-1] if server.in_reverse else data,
                "model": request["model"],
                "usage": {"prompt_tokens": sum(counts), "total_tokens": sum(counts)},
            }
            return CannedResponse(200, json.dumps(body).encode(), {"content-type": "application/json"})

        def _vector(self, text: str, request: dict[str, Any]) -> list[float]:
            read = text if len(text.split()) <= MAX_TOKENS else " ".join(text.split()[:MAX_TOKENS])
            vector = vector_of(read)
            if not server.ignores_dimensions:
                vector = vector[: request.get("dimensions", request.get("output_dimension", len(vector)))]
            return [value * server.length for value in vector]

        def _send(self, response: CannedResponse) -> None:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with listening(Handler, "127.0.0.1", 0) as url:
        server = OpenAiServer(f"{url}/v1", **habits)
        yield server


def _encode(vector: list[float], request: dict[str, Any]) -> list[float] | str:
    if request.get("encoding_format") != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _error(status: int, message: str) -> CannedResponse:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
    return CannedResponse(status, json.dumps(body).encode(), {"content-type": "application/json"})
