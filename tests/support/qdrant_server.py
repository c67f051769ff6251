"""A real Qdrant server for tests: the one at `TEST_QDRANT_URL`, else one that is started.

`QDRANT_URL` is not used: tests write collections, and that variable may name a production server.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path

import httpx

from chunkproof_cli.local.sandbox_services import NoServerError, QdrantServer, free_port, run_qdrant

from support.recording_server import CannedResponse, RecordedRequest, RecordingServer, recording_server

__all__ = ["NoServerError", "QdrantServer", "free_port", "old_qdrant", "qdrant_server"]

# What a server of 1.14 does not take, and how it refuses that.
_NEWER = {
    b'"model":': (500, "Service internal error: InferenceService is not initialized."),
    b'"rrf":': (400, "Format error in JSON body: data did not match any variant of untagged enum QueryInterface"),
    b'"mmr":': (400, "Format error in JSON body: data did not match any variant of untagged enum QueryInterface"),
}


@contextmanager
def qdrant_server(host: str = "127.0.0.1") -> Iterator[QdrantServer]:
    """Run a server, and stop and remove it at the end."""
    if url := os.environ.get("TEST_QDRANT_URL"):
        yield QdrantServer(url, [], {}, Path(), None)
        return
    with run_qdrant(host) as server:
        yield server


@contextmanager
def old_qdrant(url: str, version: str = "1.14.0") -> Iterator[RecordingServer]:
    """Run a loopback server that passes requests on to this one, and refuses what came after 1.14."""
    json = {"content-type": "application/json"}
    with httpx.Client(base_url=url) as client:

        def respond(request: RecordedRequest) -> CannedResponse:
            if (request.method, request.path) == ("GET", "/"):
                return CannedResponse(200, dumps({"title": "qdrant", "version": version}).encode(), json)
            for part, (status, reason) in _NEWER.items():
                if part in request.body:
                    return CannedResponse(status, dumps({"status": {"error": reason}, "time": 0.0}).encode(), json)
            answer = client.request(request.method, request.path, content=request.body, headers=json)
            return CannedResponse(answer.status_code, answer.content, json)

        with recording_server(respond) as server:
            yield server
