"""An API that answers every search with chunk `a`, and can delay one of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any

from support.recording_server import listening
from support.suites import Backend, answer, chunk, collection_info


@dataclass
class StubApi:
    """Its URL, the queries it received, and the query that waits until `let_go` is set."""

    url: str = ""
    waits_at: str | None = None
    queries: list[str] = field(default_factory=list)
    reached: Event = field(default_factory=Event)
    let_go: Event = field(default_factory=Event)


@contextmanager
def stub_api() -> Iterator[StubApi]:
    """Serve until the block ends."""
    api = StubApi()
    backend = Backend(lambda _: answer(chunk("a", 0.9)))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(collection_info().model_dump(mode="json"))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/search":
                return self._answer(backend.validate(request).model_dump(mode="json"))
            api.queries.append(request["query_text"])
            if request["query_text"] == api.waits_at:
                api.reached.set()
                api.let_go.wait(30)
            return self._answer(backend.search(request).model_dump(mode="json"))

        def _answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with listening(Handler) as api.url:
        try:
            yield api
        finally:
            api.let_go.set()
