"""The local model behind Cohere's embed and rerank APIs (v2), for functions that run in containers on this machine.

There is no local reranker, so `/v2/rerank` scores a document by the cosine of its beginning with the query. That shows
how requests and responses look; it does not order results better than the search did.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import mul
from typing import Any

from chunkproof.clients.local_model import local_model
from chunkproof.clients.ports import InputType
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError

KEY = "sandbox"
EMBED_MS = 60_000
# The query of events/search.503-embedder-down.json, which shows what a caller gets while Cohere is down.
FAILING_QUERY = "Embed this while the service is down"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Embed or rerank texts as Cohere does."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path not in ("/v2/embed", "/v2/rerank"):
            return self._send(404, {"message": "not found"})
        if self.headers.get("authorization") != f"Bearer {KEY}":
            return self._send(401, {"message": "invalid api token"})
        return self._embed(content) if self.path == "/v2/embed" else self._rerank(content)

    def _rerank(self, content: bytes) -> None:
        try:
            request = json.loads(content)
            query, *vectors = local_model().embed(
                [_beginning(str(text)) for text in (request["query"], *request["documents"])],
                InputType.QUERY,
                Deadline(EMBED_MS),
            )
        except (ChunkproofError, ValueError, KeyError, TypeError):
            return self._send(400, {"message": "invalid request: query and documents must be strings"})
        scores = [sum(map(mul, query, vector)) for vector in vectors]
        best = sorted(range(len(scores)), key=lambda index: -scores[index])
        results = [{"index": index, "relevance_score": scores[index]} for index in best]
        return self._send(200, {"id": "sandbox", "results": results})

    def _embed(self, content: bytes) -> None:
        try:
            texts = [str(text) for text in json.loads(content)["texts"]]
            if FAILING_QUERY in texts:
                return self._send(503, {"message": "service unavailable"})
            vectors = local_model().embed(texts, InputType.QUERY, Deadline(EMBED_MS))
        except ChunkproofError as error:  # first: some are a ValueError
            return self._send(400, {"message": f"too many tokens: {error.message}"})
        except (ValueError, KeyError, TypeError):
            return self._send(400, {"message": "invalid request: texts must be a list of strings"})
        embedded = {"id": "sandbox", "embeddings": {"float": vectors}, "texts": texts}
        return self._send(200, {**embedded, "response_type": "embeddings_by_type"})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


def _beginning(text: str) -> str:
    """Return as much of the text as the model reads."""
    while local_model().excess(text) is not None:
        text = text[: len(text) * 3 // 4]
    return text


@contextmanager
def run_embed_api(host: str, port: int) -> Iterator[int]:
    """Run the API until the block ends; yield its port, a free one for 0."""
    server = ThreadingHTTPServer((host, port), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
