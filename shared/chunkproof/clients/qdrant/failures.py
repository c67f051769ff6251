"""Translate a Qdrant server's failures into Chunkproof's errors."""

import json
import logging
from collections.abc import Mapping

import httpx

from chunkproof.clients.resilience import CircuitOpenError
from chunkproof.clients.transport import UpstreamResponseTooLargeError, retry_after
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    RateLimitedError,
    ResponseTooLargeError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)

log = logging.getLogger(__name__)


def response_error(
    host: str, status: int, content: bytes, headers: Mapping[str, str], collection: str
) -> ChunkproofError:
    """Return the error for a response whose status is not a success."""
    wait = retry_after(headers)
    if status == 404 and collection and is_from_qdrant(content):
        return CollectionNotFoundError(collection)
    if status == 429:
        return rate_limit_error(host, wait)
    if status in (401, 403):
        return VectorStoreUnavailableError(host, "Qdrant refused the key; check QDRANT_API_KEY")
    if status in (408, 504):
        return VectorStoreTimeoutError(host, f"Qdrant timed out ({status})", retry_after=wait)
    if status in (400, 422):
        return VectorStoreRefusedError(host, f"Qdrant refused the request ({status})")
    return VectorStoreUnavailableError(host, f"Qdrant answered {status}", retry_after=wait)


def rate_limit_error(host: str, wait: float | None) -> RateLimitedError:
    """Return the error for a 429."""
    return RateLimitedError(f"Qdrant at {host} limits the rate of requests", retry_after=wait)


def connection_error(host: str, cause: BaseException | None) -> ChunkproofError:
    """Return the error for a missing response, or for one that is not Qdrant's."""
    if isinstance(cause, ChunkproofError):  # the key could not be read
        return cause
    if isinstance(cause, CircuitOpenError):
        reason = "Qdrant failed repeatedly; calls to it are paused for a moment"
        return VectorStoreUnavailableError(host, reason, retry_after=cause.retry_after)
    if isinstance(cause, UpstreamResponseTooLargeError):
        return ResponseTooLargeError(f"Qdrant at {host} sent {cause}; request fewer results")
    if isinstance(cause, httpx.TimeoutException):
        return VectorStoreTimeoutError(host, "Qdrant did not answer in time")
    if isinstance(cause, httpx.ConnectError):
        return VectorStoreUnavailableError(host, "The connection failed; check QDRANT_URL")
    if isinstance(cause, httpx.TransportError):
        return VectorStoreUnavailableError(host, "The connection was closed before the response was complete")
    # Only the class: the message of a validation error quotes the response.
    log.warning("the response is not Qdrant's", extra={"cause": type(cause).__name__})
    return VectorStoreUnavailableError(host, "The server at this address does not speak Qdrant's API")


def is_from_qdrant(content: bytes) -> bool:
    """Whether a response comes from Qdrant, and not from another server at that address."""
    try:
        return "status" in json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return False
