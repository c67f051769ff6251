"""Qdrant's own client, for what a test does to a collection that the product never does."""

from functools import cache

from qdrant_client import QdrantClient

from chunkproof.clients.ports import VectorStore
from chunkproof.clients.qdrant.local import LocalStore
from chunkproof.clients.qdrant.server import ServerStore


def sdk(store: VectorStore) -> QdrantClient:
    """A client of the same server, or the embedded store's own."""
    if isinstance(store, LocalStore):
        return store.client
    assert isinstance(store, ServerStore)
    return _client(store.url)


@cache
def _client(url: str) -> QdrantClient:
    return QdrantClient(url=url, check_compatibility=False)
