"""Qdrant's own client, for what only tests do with a collection."""

from functools import cache

from qdrant_client import QdrantClient

from chunkproof.clients.ports import VectorStore
from chunkproof.clients.qdrant.local import LocalStore
from chunkproof.clients.qdrant.server import ServerStore


def sdk(store: VectorStore) -> QdrantClient:
    """Return a client of the same server, or the client of a local store."""
    if isinstance(store, LocalStore):
        return store.client
    assert isinstance(store, ServerStore)
    return _client(store.url)


@cache
def _client(url: str) -> QdrantClient:
    return QdrantClient(url=url, check_compatibility=False)
