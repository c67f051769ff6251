"""Cohere's embedding models, through its SDK."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from cohere.core.api_error import ApiError

from chunkproof.clients.breaker import CircuitOpenError
from chunkproof.clients.cohere_endpoint import DEFAULT_URL, embed_endpoint
from chunkproof.clients.ports import InputType
from chunkproof.clients.transport import AnswerTooLargeError, DirectClient, host_of, retry_after
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    EmbeddingError,
    EmbeddingTimeoutError,
    QueryTooLongError,
    RateLimitedError,
)

# Cohere has no code for it, only words; seen: "too many tokens: …", "… exceeds the token limit".
_TOO_LONG = re.compile(
    r"too many tokens|token.{0,40}(limit|exceed|maximum)|exceed.{0,40}token|too long", re.I
)


class CohereEmbedder:
    """Embeds without the SDK's own retries, and never lets the service cut a text."""

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
        self._host = host_of(base_url or DEFAULT_URL)
        self._http = DirectClient(transport)
        self._embed = embed_endpoint(base_url, self._http)

    def excess(self, _text: str) -> str | None:
        """Only Cohere can count its tokens: a call tells."""
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """One vector per text."""
        size: dict[str, Any] = {} if self.dimension is None else {"output_dimension": self.dimension}
        with self._translated(deadline):
            return self._embed(
                {
                    "model": self.model,
                    "texts": list(texts),
                    "input_type": input_type.value,
                    "embedding_types": ["float"],
                    "truncate": "NONE",
                    **size,
                }
            )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    @contextmanager
    def _translated(self, deadline: Deadline) -> Iterator[None]:
        try:
            with deadline.applied():
                yield
        except ApiError as error:
            raise self._refusal(error) from None
        except CircuitOpenError as error:
            raise EmbeddingError(
                f"{self._host} failed repeatedly; it is asked again after a rest",
                retry_after=error.retry_after,
            ) from None
        except AnswerTooLargeError:
            raise EmbeddingError(f"{self._host} answered with more bytes than any embedding has") from None
        except httpx.TimeoutException:
            raise EmbeddingTimeoutError(f"{self._host} did not answer in time") from None
        except httpx.ConnectError:
            raise EmbeddingError(
                f"{self._host} could not be reached; check the network and COHERE_BASE_URL"
            ) from None
        except httpx.TransportError:
            raise EmbeddingError(f"{self._host} broke off before an answer was whole") from None
        except (
            httpx.HTTPError,
            ValueError,
            AttributeError,
            KeyError,
            TypeError,
            RecursionError,
        ):  # what the SDK raises on a body that is not its API's
            raise EmbeddingError(f"{self._host} answered with something that is not an embedding") from None

    def _refusal(self, error: ApiError) -> ChunkproofError:
        status = error.status_code or 0
        wait = retry_after(error.headers)
        if status in (400, 422) and _TOO_LONG.search(str(error.body)):
            return QueryTooLongError(f"query_text is longer than {self.model} reads; shorten it")
        if status in (401, 403):
            return EmbeddingError(f"{self._host} refused the key; check COHERE_API_KEY")
        if status == 404:
            return EmbeddingError(
                f"{self._host} does not know the model {self.model}; check CHUNKPROOF_MODEL"
            )
        if status == 429:
            return RateLimitedError(
                f"{self._host} limits the rate of embeddings; try again later", retry_after=wait
            )
        if status in (408, 504):
            return EmbeddingTimeoutError(f"{self._host} timed out ({status})", retry_after=wait)
        if status in (200, 201, 204):
            return EmbeddingError(f"{self._host} answered with something that is not an embedding")
        hint = "; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION" if 400 <= status < 500 else ""
        return EmbeddingError(f"{self._host} answered {status}{hint}", retry_after=wait)
