"""The composition root: settings, store and embedder of this process, built once; SDKs are imported when needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from chunkproof.clients.ports import VersionedStore
from chunkproof.clients.secrets import Keys, clear_secret_cache
from chunkproof.deadline import Deadline
from chunkproof.errors import NotConfiguredError
from chunkproof.retrieval.services import Services
from chunkproof.runtime.embedders import CollectionEmbedders, EmbedderBuilder
from chunkproof.settings import Settings

if TYPE_CHECKING:
    from chunkproof.clients.cohere_rerank import CohereReranker
    from chunkproof.clients.qdrant.published_store import PublishedStore
    from chunkproof.clients.qdrant.store import QdrantStore
    from chunkproof.clients.resilience import CircuitBreaker

LAMBDA_DEADLINE_MS = 2_000
# Kept back for turning a failure into a response before Lambda stops the function.
RESERVE_MS = 100
# Lambda gives the start of a function 10 seconds; what is not fetched by then goes on during requests.
INIT_WAIT_S = 8.0

_overrides: list[Services] = []


def services() -> Services:
    """Return the services of this process. Building them opens no connection and reads no secret (SnapStart)."""
    return _overrides[-1] if _overrides else _build_services()


def prepare() -> None:
    """Build the services, and fetch the default collection if it is a published one: callers wait for neither."""
    found = services()
    if isinstance(found.store, VersionedStore):
        found.store.prepare(found.settings.collection, INIT_WAIT_S)


def settings() -> Settings:
    """Return the settings of this process."""
    return _overrides[-1].settings if _overrides else _read_settings()


def lambda_deadline(context: Any) -> Deadline:
    """Return the deadline of a Lambda invocation, which is never later than Lambda's own less a reserve."""
    budget = settings().deadline_ms or LAMBDA_DEADLINE_MS
    left = context.get_remaining_time_in_millis() - RESERVE_MS
    return Deadline(max(0, min(budget, left)))


@contextmanager
def override(given: Services) -> Iterator[None]:
    """Let handlers use these services instead: a local store and model, or those of a test."""
    _overrides.append(given)
    try:
        yield
    finally:
        _overrides.pop()


def reset() -> None:
    """Drop what was built, so that tests can start as a new process would."""
    _build_services.cache_clear()
    _read_settings.cache_clear()
    clear_secret_cache()


@cache
def _read_settings() -> Settings:
    return Settings.from_env()


@cache
def _build_services() -> Services:
    from chunkproof.clients.resilience import CircuitBreaker

    Keys(_read_settings()).prepare()
    circuits = {"qdrant": CircuitBreaker("qdrant")}
    # Within a region, compressing a response takes longer than transferring it.
    store = published_store(_read_settings()) or qdrant_store(_read_settings(), circuits["qdrant"], compressed=False)
    builder = EmbedderBuilder(_read_settings(), circuits)
    embedder = builder.default(_read_settings().embedder or "cohere")
    embedders = CollectionEmbedders(_read_settings().models, builder)
    embedders.build_all()
    circuits["rerank"] = CircuitBreaker("rerank")
    reranker = cohere_reranker(_read_settings(), circuits["rerank"])
    return Services(_read_settings(), store, embedder, circuits, embedders, reranker=reranker)


def published_store(settings: Settings) -> "PublishedStore | None":
    """The collections in `CHUNKPROOF_PUBLISHED_BUCKET`, if it is set."""
    if settings.published_bucket is None:
        return None
    from pathlib import Path
    from tempfile import gettempdir

    from chunkproof.clients.published import PublishedCollections
    from chunkproof.clients.qdrant.published_store import PublishedStore
    from chunkproof.clients.s3 import Bucket

    if settings.qdrant_url is not None:
        raise NotConfiguredError("QDRANT_URL and CHUNKPROOF_PUBLISHED_BUCKET are both set: set one of them")
    published = PublishedCollections(Bucket(settings.published_bucket))
    return PublishedStore(published, Path(gettempdir()) / "chunkproof-published")


def qdrant_store(
    settings: Settings, breaker: "CircuitBreaker | None" = None, *, compressed: bool = True
) -> "QdrantStore":
    """The Qdrant server at `QDRANT_URL`."""
    from chunkproof.clients.qdrant.store import QdrantStore
    from chunkproof.clients.transport import DeadlineTransport

    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it must be an http or https URL")
    keys = Keys(settings)
    transport = DeadlineTransport(keys.for_qdrant, expire_key=keys.expire, breaker=breaker, compressed=compressed)
    return QdrantStore.open_server(settings.qdrant_url, transport)


def cohere_reranker(settings: Settings, breaker: "CircuitBreaker | None" = None) -> "CohereReranker":
    """Cohere's reranking models, with the same key; its failures do not stop embeddings."""
    from chunkproof.clients.cohere_rerank import CohereReranker
    from chunkproof.clients.transport import DeadlineTransport

    keys = Keys(settings)
    transport = DeadlineTransport(keys.for_cohere, expire_key=keys.expire, breaker=breaker)
    return CohereReranker(transport, base_url=settings.cohere_base_url)
