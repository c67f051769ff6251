"""The handlers on a store in memory and a stub of Cohere's API."""

from collections.abc import Iterator
from contextlib import contextmanager

from chunkproof.embedders.cohere import CohereEmbedder, CohereReranker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.store_port import Point

from support.chunks import fill, make_services
from support.cohere_server import KEY, CohereServer, cohere_server, hashed
from support.stores import MemoryStore

SIZE = 8


@contextmanager
def in_memory_handlers() -> Iterator[CohereServer]:
    """Let the handlers use three chunks in memory, and yield the server that embeds."""
    store, embed = MemoryStore(), hashed(SIZE)
    texts = ("one", "two", "three")
    points = [Point(n, {"text": t, "url": "u"}, vector=tuple(embed(t))) for n, t in enumerate(texts, 1)]
    fill(store, "docs", *points, size=SIZE)
    with cohere_server(embed) as api:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=api.url)
        services = make_services(store, "docs", embedder, DEADLINE_MS="60000")
        services.reranker = CohereReranker(transport, base_url=api.url)
        with container.override(services):
            yield api
        embedder.close()
    store.close()
