"""Store and embedder as the settings name them; SDKs are imported only when one is needed."""

from typing import TYPE_CHECKING

from chunkproof.errors import NotConfiguredError
from chunkproof.settings import Settings

if TYPE_CHECKING:
    from chunkproof.clients.cohere import CohereEmbedder
    from chunkproof.clients.qdrant import QdrantStore


def served_store(settings: Settings) -> "QdrantStore":
    """The Qdrant server at `QDRANT_URL`."""
    from chunkproof.clients.http import DeadlineTransport
    from chunkproof.clients.qdrant import QdrantStore

    if settings.qdrant_url is None:
        raise NotConfiguredError("QDRANT_URL is not set: it must be an http or https URL")
    key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
    return QdrantStore.at(settings.qdrant_url, key, DeadlineTransport())


def cohere_embedder(settings: Settings) -> "CohereEmbedder":
    """Cohere's model, with the key from `COHERE_API_KEY`."""
    from chunkproof.clients.cohere import CohereEmbedder
    from chunkproof.clients.http import DeadlineTransport

    if settings.cohere_api_key is None:
        raise NotConfiguredError("COHERE_API_KEY is not set, and CHUNKPROOF_EMBEDDER asks for Cohere")
    return CohereEmbedder(
        settings.cohere_api_key.get_secret_value(),
        model=settings.model,
        dimension=settings.dimension,
        base_url=settings.cohere_base_url,
        transport=DeadlineTransport(),
    )
