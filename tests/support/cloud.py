"""Services for a Lambda container: Qdrant with the handbook, and the local model behind Cohere's API."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from chunkproof.clients.local_model import local_model
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.transport import DeadlineTransport
from chunkproof_cli.files.chunks import ChunkRecord
from chunkproof_cli.loading import Loader
from chunkproof_cli.local.corpus import sample_chunks

from support.cohere_server import KEY, cohere_server
from support.handbook import COLLECTION, minilm
from support.qdrant_server import qdrant_server


@dataclass(frozen=True)
class Host:
    """The URLs of both; `seen_from` is the host name by which a container reaches them."""

    qdrant_url: str
    cohere_url: str

    def variables(self, seen_from: str = "127.0.0.1") -> dict[str, str]:
        return {
            "QDRANT_URL": f"http://{seen_from}:{urlsplit(self.qdrant_url).port}",
            "COHERE_BASE_URL": f"http://{seen_from}:{urlsplit(self.cohere_url).port}",
            "COHERE_API_KEY": KEY,
            "CHUNKPROOF_COLLECTION": COLLECTION,
            "CHUNKPROOF_ALLOWED_COLLECTIONS": "",
            # These runs do not test how fast a cold container is on a busy machine.
            "CHUNKPROOF_DEADLINE_MS": "20000",
        }


@contextmanager
def handbook_host(listen: str = "127.0.0.1") -> Iterator[Host]:
    """Start both services and load the whole handbook."""
    with qdrant_server(listen) as qdrant, cohere_server(minilm, host=listen) as cohere:
        store = QdrantStore.open_server(qdrant.url, DeadlineTransport())
        records = [ChunkRecord.parse(chunk) for chunk in sample_chunks()]
        Loader(store, local_model(), COLLECTION, None).load(records)
        store.close()
        yield Host(qdrant.url, cohere.url)
