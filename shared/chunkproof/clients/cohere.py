"""Cohere's embedding models."""

from collections.abc import Hashable, Sequence
from typing import Any

import httpx

from chunkproof.clients.cohere_api import CohereApi
from chunkproof.clients.embedding_api import embed_endpoint, model_for, too_long
from chunkproof.clients.ports import InputType
from chunkproof.deadline import Deadline
from chunkproof.embedder_config import EmbedderConfig


class CohereEmbedder:
    """An `Embedder` that uses Cohere's API, and never lets it truncate a text.

    Queries may have a model of their own: `embed-v5.0-pro` and `embed-v5.0-fast` share one space.
    """

    service = "cohere"
    max_batch = 96

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        """Take a config, or its fields such as `model="embed-v4.0"`."""
        self._config = config = config or EmbedderConfig(provider="cohere", **fields)
        self.model = model_for(config, InputType.DOCUMENT)
        self.query_model = model_for(config, InputType.QUERY)
        self.dimension = config.dimension
        self.same_space = config.same_space
        self._transport = transport
        self._api = CohereApi(transport, config.base_url)
        self.identity: Hashable = ("cohere", self._api.url, self.model, self.query_model, self.dimension)
        key = config.key or "COHERE_API_KEY"
        self._endpoint = embed_endpoint("v2/embed", config, refused=f"the key; check {key}", address="COHERE_BASE_URL")

    def with_model(self, model: str) -> "CohereEmbedder":
        """Return an embedder of both queries and documents with another model of the same service."""
        fields = {"model": model, "query_model": None}
        return CohereEmbedder(self._transport, self._config.model_copy(update=fields))

    def excess(self, _text: str) -> str | None:
        """Return None: only Cohere can count its tokens, when it is called."""
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text."""
        model = model_for(self._config, input_type)
        size: dict[str, Any] = {} if self.dimension is None else {"output_dimension": self.dimension}
        body = {
            "model": model,
            "texts": list(texts),
            "input_type": input_type.value,
            "embedding_types": ["float"],
            "truncate": "NONE",
            **size,
        }
        return self._api.post(
            self._endpoint,
            body,
            deadline,
            lambda answer: list(answer["embeddings"]["float"]),
            refusal=lambda status, text: too_long(status, text, model) if status in (400, 422) else None,
        )

    def close(self) -> None:
        """Close the connections."""
        self._api.close()
