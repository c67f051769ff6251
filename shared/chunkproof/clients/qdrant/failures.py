"""What a Qdrant server's failures mean to a caller."""

import json
import logging
from collections.abc import Mapping

import httpx

from chunkproof.clients.breaker import CircuitOpenError
from chunkproof.clients.transport import AnswerTooLargeError, retry_after
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


def refused(
    host: str, status: int, content: bytes, headers: Mapping[str, str], collection: str
) -> ChunkproofError:
    """An answer with a status that is no success."""
    wait = retry_after(headers)
    if status == 404 and collection and _is_qdrants(content):
        return CollectionNotFoundError(collection)
    if status == 429:
        return rate_limited(host, wait)
    if status in (401, 403):
        return VectorStoreUnavailableError(host, "Qdrant refused the key; check QDRANT_API_KEY")
    if status in (408, 504):
        return VectorStoreTimeoutError(host, f"Qdrant timed out ({status})", retry_after=wait)
    if status in (400, 422):
        return VectorStoreRefusedError(host, f"Qdrant refused the request ({status})")
    return VectorStoreUnavailableError(host, f"Qdrant answered {status}", retry_after=wait)


def rate_limited(host: str, wait: float | None) -> RateLimitedError:
    """A 429."""
    return RateLimitedError(f"Qdrant at {host} limits the rate of requests", retry_after=wait)


def unreachable(host: str, cause: BaseException | None) -> ChunkproofError:
    """No answer, or one that is not Qdrant's."""
    if isinstance(cause, ChunkproofError):  # the key could not be had
        return cause
    if isinstance(cause, CircuitOpenError):
        reason = "Qdrant failed repeatedly; it is asked again after a rest"
        return VectorStoreUnavailableError(host, reason, retry_after=cause.retry_after)
    if isinstance(cause, AnswerTooLargeError):
        return ResponseTooLargeError(f"Qdrant at {host} answered with {cause}; ask for fewer results")
    if isinstance(cause, httpx.TimeoutException):
        return VectorStoreTimeoutError(host, "Qdrant did not answer in time")
    if isinstance(cause, httpx.ConnectError):
        return VectorStoreUnavailableError(host, "The connection failed; check QDRANT_URL")
    if isinstance(cause, httpx.TransportError):
        return VectorStoreUnavailableError(host, "The connection broke off before an answer was whole")
    log.warning("an answer that is not Qdrant's", exc_info=cause)
    return VectorStoreUnavailableError(host, "What answered there does not speak Qdrant's API")


def _is_qdrants(content: bytes) -> bool:
    """Whether an answer is Qdrant's, and not some other server's at that address."""
    try:
        return "status" in json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return False
