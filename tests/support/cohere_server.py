"""A loopback HTTP server with Cohere's embed and rerank APIs (v2), so that tests run the SDK's own code."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from chunkproof_cli.local.sandbox_services import FAILING_QUERY

from support.recording_server import CannedResponse, listening

Embed = Callable[[str], list[float]]
Relevance = Callable[[str, str], float]
KEY = "test-cohere-s3cr3t-3f1c9a"
MAX_TOKENS = 512
RERANK_PATH = "/v2/rerank"


def hashed(size: int) -> Embed:
    """Return a function that maps each text to a deterministic unit vector without meaning."""

    def embed(text: str) -> list[float]:
        stream = hashlib.shake_256(text.encode()).digest(size * 2)
        raw = [int.from_bytes(stream[i : i + 2], "big") / 65535 - 0.5 for i in range(0, size * 2, 2)]
        length = sum(value * value for value in raw) ** 0.5
        return [value / length for value in raw]

    return embed


def shared_words(query: str, document: str) -> float:
    """Return the share of the query's words that the document has."""
    words = set(query.lower().split())
    return len(words & set(document.lower().split())) / len(words)


@dataclass
class CohereServer:
    """The server's URL, the requests so far, and the responses to send next instead of its own.

    `rerank_responses` are those to requests for reranking only.
    """

    url: str
    key: str = KEY
    requests: list[dict[str, Any]] = field(default_factory=list)
    responses: list[CannedResponse] = field(default_factory=list)
    rerank_responses: list[CannedResponse] = field(default_factory=list)

    def reranks(self) -> list[dict[str, Any]]:
        """Return the requests for reranking so far."""
        return [request for request in self.requests if request["path"] == RERANK_PATH]


@contextmanager
def cohere_server(
    embed: Embed | None = None, host: str = "127.0.0.1", port: int = 0, relevance: Relevance = shared_words
) -> Iterator[CohereServer]:
    """Run a server that embeds each text in 1024 values by default, and counts words as tokens."""
    vector_of = embed or hashed(1024)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.requests.append({"path": self.path, **request})
            canned = server.rerank_responses if self.path == RERANK_PATH else server.responses
            self._send(canned.pop(0) if canned else self._respond(request))

        def _respond(self, request: dict[str, Any]) -> CannedResponse:
            if self.path not in ("/v2/embed", RERANK_PATH):
                return _error(404, "not found")
            if self.headers.get("authorization") != f"Bearer {KEY}":
                return _error(401, "invalid api token")
            return self._embed(request) if self.path == "/v2/embed" else self._rerank(request)

        def _rerank(self, request: dict[str, Any]) -> CannedResponse:
            if not request["model"].startswith("rerank-"):
                return _error(404, f"model '{request['model']}' not found")
            scores = [relevance(request["query"], document) for document in request["documents"]]
            best = sorted(range(len(scores)), key=lambda index: -scores[index])
            body = {
                "id": "9b3e",
                "results": [{"index": index, "relevance_score": scores[index]} for index in best],
                "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
            }
            return CannedResponse(200, json.dumps(body).encode(), {"content-type": "application/json"})

        def _embed(self, request: dict[str, Any]) -> CannedResponse:
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
