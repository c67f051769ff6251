"""The handlers on a store in memory and a stub of Cohere's API."""

from collections.abc import Iterator
from contextlib import contextmanager

from chunkproof.clients.cohere import CohereEmbedder
from chunkproof.clients.cohere_rerank import CohereReranker
from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.transport import DeadlineTransport
from chunkproof.runtime import container

from support.chunks import fill, make_services
from support.cohere_server import KEY, cohere_server, hashed

SIZE = 8


@contextmanager
def in_memory_handlers() -> Iterator[None]:
    """Let the handlers use three chunks in memory."""
    store, embed = QdrantStore.open_local(None), hashed(SIZE)
    texts = ("one", "two", "three")
    points = [Point(n, {"text": t, "url": "u"}, vector=tuple(embed(t))) for n, t in enumerate(texts, 1)]
    fill(store, "docs", *points, size=SIZE)
    with cohere_server(embed) as api:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=api.url)
        services = make_services(store, "docs", embedder, DEADLINE_MS="60000")
        services.reranker = CohereReranker(transport, base_url=api.url)
        with container.override(services):
            yield
        embedder.close()
    store.close()
