"""Cohere's embedding models."""

import re
from collections.abc import Sequence
from typing import Any

import httpx

from chunkproof.clients.cohere_api import CohereApi, Endpoint
from chunkproof.clients.ports import InputType
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    EmbeddingConnectionError,
    EmbeddingError,
    EmbeddingTimeoutError,
    QueryTooLongError,
)

EMBED = Endpoint(
    "v2/embed",
    returns="embedding",
    failed=EmbeddingError,
    timed_out=EmbeddingTimeoutError,
    disconnected=EmbeddingConnectionError,
    wrong_request="CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION",
)
# Cohere has no error code for it, only messages such as "too many tokens: …" and "… exceeds the token limit".
_TOO_LONG = re.compile(r"too many tokens|token.{0,40}(limit|exceed|maximum)|exceed.{0,40}token|too long", re.I)


class CohereEmbedder:
    """An `Embedder` that uses Cohere's API, and never lets it truncate a text."""

    max_batch = 96

    def __init__(
        self,
        transport: httpx.BaseTransport,
        *,
        model: str,
        dimension: int | None = None,
        base_url: str | None = None,
    ) -> None:
        self.model = model
        self.dimension = dimension
        self._api = CohereApi(transport, base_url)

    def excess(self, _text: str) -> str | None:
        """Return None: only Cohere can count its tokens, when it is called."""
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text."""
        size: dict[str, Any] = {} if self.dimension is None else {"output_dimension": self.dimension}
        body = {
            "model": self.model,
            "texts": list(texts),
            "input_type": input_type.value,
            "embedding_types": ["float"],
            "truncate": "NONE",
            **size,
        }
        return self._api.post(
            EMBED, body, deadline, lambda answer: list(answer["embeddings"]["float"]), refusal=self._refusal
        )

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _refusal(self, status: int, text: str) -> QueryTooLongError | None:
        if status in (400, 422) and _TOO_LONG.search(text):
            return QueryTooLongError(f"query_text is longer than {self.model} reads; shorten it")
        return None
