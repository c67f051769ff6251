"""Cohere's embedding models, through the HTTP client of Cohere's SDK.

`cohere.ClientV2` is not used: building one imports a model for every chat event and a tokenizer (0.4 s and 25 MB,
docs/guides/performance.md), and its `embed` handles each number of a vector in Python. `SyncClientWrapper`, on which
`ClientV2` is built, adds the SDK's headers and builds its URLs; that is all that an embedding needs. The layer pins
the SDK, and tests/integration/test_light_sdk_imports.py fails when a release no longer fits.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from cohere.core.api_error import ApiError
from cohere.core.client_wrapper import SyncClientWrapper
from pydantic_core import from_json

from chunkproof.clients.ports import InputType
from chunkproof.clients.resilience import CircuitOpenError
from chunkproof.clients.transport import DirectClient, UpstreamResponseTooLargeError, host_of, retry_after
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    EmbeddingConnectionError,
    EmbeddingError,
    EmbeddingTimeoutError,
    QueryTooLongError,
    RateLimitedError,
)

DEFAULT_URL = "https://api.cohere.com"
# The SDK requires a key; the transport replaces this one by the real key.
PLACEHOLDER_KEY = "unset"
# What code raises that reads a response which is not one of Cohere's embed API.
MALFORMED = (httpx.HTTPError, ValueError, AttributeError, KeyError, TypeError, RecursionError)
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
        url = base_url or DEFAULT_URL
        self._host = host_of(url)
        self._http = DirectClient(transport)
        sdk = SyncClientWrapper(token=PLACEHOLDER_KEY, base_url=url, max_retries=0, httpx_client=self._http)
        self._request = sdk.httpx_client.request

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
        headers = {"content-type": "application/json"}
        with self._translate_errors(deadline):
            response = self._request("v2/embed", method="POST", json=body, headers=headers)
            if not response.is_success:
                raise ApiError(status_code=response.status_code, headers=dict(response.headers), body=response.text)
            return list(from_json(response.content)["embeddings"]["float"])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @contextmanager
    def _translate_errors(self, deadline: Deadline) -> Iterator[None]:
        """Enforce the deadline inside, and raise what goes wrong there as one of Chunkproof's errors."""
        try:
            with deadline.enforced():
                yield
        except ApiError as error:
            raise self._response_error(error) from None
        except CircuitOpenError as error:
            raise EmbeddingError(
                f"{self._host} failed repeatedly; calls to it are paused for a moment",
                retry_after=error.retry_after,
            ) from None
        except UpstreamResponseTooLargeError:
            raise EmbeddingError(f"{self._host} sent more bytes than any embedding has") from None
        except httpx.TimeoutException:
            raise EmbeddingTimeoutError(f"{self._host} did not answer in time") from None
        except httpx.ConnectError:
            raise EmbeddingConnectionError(
                f"{self._host} could not be reached; check the network and COHERE_BASE_URL"
            ) from None
        except httpx.TransportError:
            raise EmbeddingConnectionError(
                f"{self._host} closed the connection before the response was complete"
            ) from None
        except ChunkproofError:  # the key could not be read
            raise
        except MALFORMED:
            raise EmbeddingError(f"{self._host} sent a response that is not an embedding") from None

    def _response_error(self, error: ApiError) -> ChunkproofError:
        status = error.status_code or 0
        wait = retry_after(error.headers)
        if status in (400, 422) and _TOO_LONG.search(str(error.body)):
            return QueryTooLongError(f"query_text is longer than {self.model} reads; shorten it")
        if status in (401, 403):
            return EmbeddingError(f"{self._host} refused the key; check COHERE_API_KEY")
        if status == 404:
            return EmbeddingError(f"{self._host} does not know the model {self.model}; check CHUNKPROOF_MODEL")
        if status == 429:
            return RateLimitedError(f"{self._host} limits the rate of embeddings; try again later", retry_after=wait)
        if status in (408, 504):
            return EmbeddingTimeoutError(f"{self._host} timed out ({status})", retry_after=wait)
        hint = "; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION" if 400 <= status < 500 else ""
        return EmbeddingError(f"{self._host} answered {status}{hint}", retry_after=wait)
