"""Store and embedder as the settings name them, built once per process; SDKs are imported when one is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from chunkproof.clients.secrets import Keys, clear_secret_cache
from chunkproof.errors import NotConfiguredError
from chunkproof.retrieval.services import Services
from chunkproof.settings import Settings

if TYPE_CHECKING:
    from chunkproof.clients.cohere import CohereEmbedder
    from chunkproof.clients.qdrant.store import QdrantStore
    from chunkproof.clients.resilience import CircuitBreaker

_given: list[Services] = []


def services() -> Services:
    """The services of this process. Building them opens no connection and reads no secret: a snapshot may follow."""
    return _given[-1] if _given else _build_services()


def settings() -> Settings:
    """The settings of this process."""
    return _given[-1].settings if _given else _read_settings()


@contextmanager
def override(given: Services) -> Iterator[None]:
    """Make handlers work with these services: a local store, a local model."""
    _given.append(given)
    try:
        yield
    finally:
        _given.pop()


def reset() -> None:
    """Forget what was built, as a new process would have."""
    _build_services.cache_clear()
    _read_settings.cache_clear()
    clear_secret_cache()


@cache
def _read_settings() -> Settings:
    return Settings.from_env()


@cache
def _build_services() -> Services:
    from chunkproof.clients.resilience import CircuitBreaker

    circuits = {name: CircuitBreaker(name) for name in ("qdrant", "cohere")}
    return Services(
        _read_settings(),
        # Within a region a server takes longer to compress an answer than a network to carry it.
        qdrant_store(_read_settings(), circuits["qdrant"], compressed=False),
        cohere_embedder(_read_settings(), circuits["cohere"]),
        circuits,
    )


def qdrant_store(
    settings: Settings, breaker: "CircuitBreaker | None" = None, *, compressed: bool = True
) -> "QdrantStore":
    """The Qdrant server at `QDRANT_URL`."""
    from chunkproof.clients.qdrant.store import QdrantStore
    from chunkproof.clients.transport import DeadlineTransport

    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it must be an http or https URL")
    keys = Keys(settings)
    transport = DeadlineTransport(
        keys.for_qdrant, expire_key=keys.expire, breaker=breaker, compressed=compressed
    )
    return QdrantStore.open_server(settings.qdrant_url, transport)


def cohere_embedder(settings: Settings, breaker: "CircuitBreaker | None" = None) -> "CohereEmbedder":
    """Cohere's model, with the key from `COHERE_API_KEY` or the secret."""
    from chunkproof.clients.cohere import CohereEmbedder
    from chunkproof.clients.transport import DeadlineTransport

    if settings.embedder == "local":
        raise NotConfiguredError("CHUNKPROOF_EMBEDDER is local, which only a terminal has: set it to cohere")
    keys = Keys(settings)
    return CohereEmbedder(
        DeadlineTransport(keys.for_cohere, expire_key=keys.expire, breaker=breaker),
        model=settings.model,
        dimension=settings.dimension,
        base_url=settings.cohere_base_url,
    )
