"""Cohere's embed endpoint, through the HTTP client of Cohere's SDK and without the start-up of the rest of it.

Building a `cohere.ClientV2` imports a model for every chat event and a tokenizer: 0.4 s and 25 MB
(docs/guides/performance.md), and its `embed` looks at each number of a vector in Python. What `embed` stands on is the
SDK's client wrapper, which knows headers and addresses. Should a release of the SDK not fit, its front door is
used.
"""

from collections.abc import Callable
from typing import Any

import httpx
from cohere.core.api_error import ApiError
from pydantic_core import from_json

Embed = Callable[[dict[str, Any]], list[list[float]]]
DEFAULT_URL = "https://api.cohere.com"
# The SDK insists on a key of its own; the transport puts the real one over it.
NO_KEY = "unset"


def embed_endpoint(base_url: str | None, client: httpx.Client) -> Embed:
    """What takes the body of a request for embeddings and answers with them, or raises the SDK's `ApiError`."""
    try:
        return _wrapped(base_url or DEFAULT_URL, client)
    except (ImportError, AttributeError, TypeError):
        return _front(base_url, client)


def _wrapped(base_url: str, client: httpx.Client) -> Embed:
    from cohere.core.client_wrapper import SyncClientWrapper

    wrapper = SyncClientWrapper(token=NO_KEY, base_url=base_url, max_retries=0, httpx_client=client)
    request = wrapper.httpx_client.request

    def embed(body: dict[str, Any]) -> list[list[float]]:
        answer = request("v2/embed", method="POST", json=body, headers={"content-type": "application/json"})
        if not answer.is_success:
            raise ApiError(status_code=answer.status_code, headers=dict(answer.headers), body=answer.text)
        return list(from_json(answer.content)["embeddings"]["float"])

    return embed


def _front(base_url: str | None, client: httpx.Client) -> Embed:
    from cohere import ClientV2

    sdk = ClientV2(NO_KEY, base_url=base_url, max_retries=0, httpx_client=client)

    def embed(body: dict[str, Any]) -> list[list[float]]:
        return list(sdk.embed(**body).embeddings.float_ or [])

    return embed
