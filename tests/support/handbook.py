"""The sample handbook on a real server, embedded by the local model through Cohere's API."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from chunkproof.base.request import Deadline
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof_cli.loading import ChunkRecord, Loader
from chunkproof_cli.local.corpus import sample_chunks

from support.cohere_server import KEY, CohereServer, cohere_server
from support.sdk import sdk

COLLECTION = "handbook"
# The documents that the committed events search for, and one that they should not find.
DOCUMENTS = ("vectordb-hnsw", "vectordb-operations", "vectordb-text-hygiene", "robotics-control")


@cache
def minilm(text: str) -> list[float]:
    """Embed a text with the local model."""
    return local_model().embed([text], InputType.QUERY, Deadline(60_000))[0]


def chunks(*documents: str) -> list[ChunkRecord]:
    """Return the handbook's chunks of these documents."""
    return [ChunkRecord.parse(c) for c in sample_chunks() if c["document_id"] in (documents or DOCUMENTS)]


def all_chunks() -> list[ChunkRecord]:
    """Return all chunks of the handbook."""
    return [ChunkRecord.parse(chunk) for chunk in sample_chunks()]


@contextmanager
def loaded_handbook(url: str) -> Iterator[CohereServer]:
    """Load the handbook into the server at this URL until the block ends; yield its embedding API."""
    store = ServerStore(url, DeadlineTransport())
    sdk(store).delete_collection(COLLECTION)
    with cohere_server(minilm) as api:
        embedder = CohereEmbedder(
            DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"}),
            model="embed-english-v3.0",
            base_url=api.url,
        )
        Loader(store, embedder, COLLECTION, None, hybrid=True).load(chunks())
        embedder.close()
        api.requests.clear()
        yield api
        sdk(store).delete_collection(COLLECTION)
    store.close()
