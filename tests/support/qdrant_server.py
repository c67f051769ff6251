"""A real Qdrant server for tests: the one at `TEST_QDRANT_URL`, else one that is started.

`QDRANT_URL` is not used: tests write collections, and that variable may name a production server.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chunkproof_cli.local.qdrant_server import NoServerError, QdrantServer, free_port, run_qdrant

__all__ = ["NoServerError", "QdrantServer", "free_port", "qdrant_server"]


@contextmanager
def qdrant_server(host: str = "127.0.0.1") -> Iterator[QdrantServer]:
    """Run a server, and stop and remove it at the end."""
    if url := os.environ.get("TEST_QDRANT_URL"):
        yield QdrantServer(url, [], {}, Path(), None)
        return
    with run_qdrant(host) as server:
        yield server
