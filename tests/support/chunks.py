"""Short ways to fill a store, to build services on it and to ask the use cases."""

from typing import Any

from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import ChunkValidation, RetrievalResponse, SearchQuery, ValidationResult
from chunkproof.embedders.embedder_port import Embedder
from chunkproof.proof.chunk_checks import validate_chunk
from chunkproof.search.single import search
from chunkproof.stores.store_port import DenseLeg, Point, StoreQuery, Vector, VectorConfig, VectorStore, WritableStore

SECONDS_60 = 60_000
UNNAMED = VectorConfig("", 2, "Cosine")


def make_services(store: VectorStore, collection: str, embedder: Embedder | None = None, **settings: str) -> Services:
    """Services whose own collection is this one; settings by their names without the prefix."""
    environ = {f"CHUNKPROOF_{name}": value for name, value in settings.items()}
    return Services(Settings.from_env({"CHUNKPROOF_COLLECTION": collection, **environ}), store, embedder)


def fill(store: WritableStore, collection: str, *points: Point, size: int = 2) -> None:
    """A new cosine collection with these points."""
    store.create(collection, size, Deadline(SECONDS_60))
    if points:
        store.upsert(collection, points, "", Deadline(SECONDS_60))


def nearest(
    store: VectorStore,
    collection: str,
    vector: Vector,
    *,
    config: VectorConfig = UNNAMED,
    limit: int = 10,
    score_threshold: float = 0.0,
    deadline: Deadline | None = None,
    **rest: Any,
) -> list[Point]:
    """The points nearest to a vector."""
    leg = DenseLeg(config, vector, score_threshold)
    return store.search([StoreQuery(collection, limit, leg, **rest)], deadline or Deadline(SECONDS_60))[0]


def ask(services: Services, **request: Any) -> RetrievalResponse:
    """A search, its request written as a caller writes it."""
    query = SearchQuery.parse(request)
    return search(query, services.collection(query.collection, Deadline(SECONDS_60)))


def check(services: Services, chunk_id: str, **request: Any) -> ValidationResult:
    """A validation, its request written as a caller writes it."""
    asked = ChunkValidation.parse({"chunk_id": chunk_id, **request})
    return validate_chunk(asked, services.collection(asked.collection, Deadline(SECONDS_60)))
