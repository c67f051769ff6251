"""What the functions need, on this machine: Qdrant with the sample handbook, and the local model as Cohere's API."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from chunkproof.clients.local_model import MiniLm, local_model
from chunkproof.clients.ports import Point, WritableStore
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.transport import DeadlineTransport
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError
from chunkproof_cli.files.chunks import ChunkRecord
from chunkproof_cli.loading import Loader
from chunkproof_cli.local.corpus import sample_chunks
from chunkproof_cli.local.embed_api import KEY, run_embed_api
from chunkproof_cli.local.qdrant_server import run_qdrant

COLLECTION = "handbook"
# Its vectors have another size than the model's, so that a search by text fails: events/search.400-other-model.json.
OTHER_MODEL, OTHER_SIZE = "other-model", 8
QDRANT_PORT, EMBED_PORT = 16333, 16334
LOAD_MS = 60_000


@dataclass(frozen=True)
class Sandbox:
    """Both services, and the number of chunks in the collection."""

    qdrant_url: str
    cohere_url: str
    chunks: int

    def variables(self, seen_from: str = "127.0.0.1") -> dict[str, str]:
        """Return the settings of a function that reaches this machine by that name."""
        return {
            "QDRANT_URL": f"http://{seen_from}:{urlsplit(self.qdrant_url).port}",
            "COHERE_BASE_URL": f"http://{seen_from}:{urlsplit(self.cohere_url).port}",
            "COHERE_API_KEY": KEY,
            "CHUNKPROOF_MODEL": MiniLm.model,
            "CHUNKPROOF_COLLECTION": COLLECTION,
            "CHUNKPROOF_ALLOWED_COLLECTIONS": OTHER_MODEL,
            # A cold container on a busy machine takes longer than one in AWS.
            "CHUNKPROOF_DEADLINE_MS": "20000",
        }


@contextmanager
def run_sandbox(listen: str = "127.0.0.1", qdrant_port: int = 0, embed_port: int = 0) -> Iterator[Sandbox]:
    """Start both services, on free ports by default, and load the handbook; stop and remove them at the end."""
    for port, option in ((qdrant_port, "--qdrant-port"), (embed_port, "--embed-port")):
        _check_port(listen, port, option)
    with run_qdrant(listen, qdrant_port or None) as qdrant, run_embed_api(listen, embed_port) as port:
        store = QdrantStore.open_server(qdrant.url, DeadlineTransport())
        chunks = load_samples(store)
        store.close()
        yield Sandbox(qdrant.url, f"http://127.0.0.1:{port}", chunks)


def load_samples(store: WritableStore) -> int:
    """Load the handbook, and a collection of another model; return the number of chunks in the handbook."""
    records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
    Loader(store, local_model(), COLLECTION, None).load(records, hybrid=True)
    store.create(OTHER_MODEL, OTHER_SIZE, Deadline(LOAD_MS))
    payload = {"text": "This vector is another model's.", "url": "https://example.com"}
    store.upsert(OTHER_MODEL, [Point(1, payload, vector=(1.0,) * OTHER_SIZE)], "", Deadline(LOAD_MS))
    return len(records)


def _check_port(listen: str, port: int, option: str) -> None:
    try:
        socket.create_server((listen, port)).close()
    except OSError as error:
        raise InvalidParameterError(f"Cannot listen on {listen}:{port}: {error.strerror}; set {option}") from None
