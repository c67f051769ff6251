"""The local model behind Cohere's embed API (v2), for functions that run in containers on this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
        """Embed texts as Cohere does."""
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v2/embed":
            return self._send(404, {"message": "not found"})
        if self.headers.get("authorization") != f"Bearer {KEY}":
            return self._send(401, {"message": "invalid api token"})
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
