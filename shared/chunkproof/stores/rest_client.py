"""The REST client of Qdrant's SDK: its import without the rest of the SDK, and failures.

`import qdrant_client` builds a thousand models, gRPC stubs and a store in Python, and needs numpy and grpc: 0.7 s and
75 MB (docs/guides/performance.md). Calling a server takes only `ApiClient` and its exceptions, but importing their
module imports the packages around it first. So these packages are replaced by empty ones during that import.

This runs wherever a server is used: in Lambda, where the layer has neither numpy nor grpc, and in the CLI with
QDRANT_URL. There is no fallback: the layer pins the SDK, and tests/integration/test_light_sdk_imports.py fails when a
release no longer fits. See docs/decisions/light-sdk-imports.md.
"""

import json
import logging
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    RateLimitedError,
    ResponseTooLargeError,
    StrictModeError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.net.resilience import CircuitOpenError, UpstreamResponseTooLargeError, retry_after
from chunkproof.net.transport import DirectClient

SDK = "qdrant_client"
CLIENT = "qdrant_client.http.api_client"

# What reading a response raises that is not Qdrant's.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


@cache
def load_rest_client() -> Any:
    """Import and return the module that defines `ApiClient` and its exceptions, with a lighter HTTP client in it.

    `sys.modules` is left as it was, so a later `import qdrant_client` gets the whole SDK. Its classes are then not
    the ones of this module: take `ApiClient` and the exceptions to catch from here.
    """
    spec = find_spec(SDK)
    if spec is None or spec.origin is None:
        raise ImportError(f"{SDK} is not installed")
    folder = Path(spec.origin).parent
    imported = _remove_sdk_modules()
    try:
        for package in (folder, folder / "http", folder / "http" / "api"):
            _replace_by_empty(folder, package)
        for file in (folder / "http" / "api").glob("*_api.py"):
            _replace_by_empty(folder, file.with_suffix(""))
        module = import_module(CLIENT)
        module.Client = DirectClient  # type: ignore[attr-defined]
        return module
    finally:
        _remove_sdk_modules()
        sys.modules.update(imported)


def _remove_sdk_modules() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == SDK]
    return {name: sys.modules.pop(name) for name in names}


def _replace_by_empty(folder: Path, package: Path) -> None:
    name = ".".join((SDK, *package.relative_to(folder).parts))
    sys.modules[name] = _EmptyPackage(name, package)


class _EmptyPackage(ModuleType):
    """A package that runs no code of its own, while modules in its folder can be imported.

    `api_client` imports about twenty classes from these packages, only to list them as attributes of clients that
    are not used here. An empty class satisfies each of those imports.
    """

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def is_from_qdrant(content: bytes) -> bool:
    """Whether a response comes from Qdrant, and not from another server at that address."""
    try:
        return "status" in json.loads(content)
    except (ValueError, TypeError, RecursionError):
        return False


class UnknownRouteError(VectorStoreUnavailableError):
    """The server is older than the request, or is not Qdrant."""


def response_error(host: str, response: Any, collection: str) -> ChunkproofError:
    """Return the error for the SDK's `UnexpectedResponse`, whose status is not a success."""
    status, wait = response.status_code or 0, retry_after(response.headers)
    if status == 404 and collection and is_from_qdrant(response.content):
        return CollectionNotFoundError(collection)
    if status == 429:
        return rate_limit_error(host, wait)
    if status in (401, 403):
        return VectorStoreUnavailableError(host, "Qdrant refused the key; check QDRANT_API_KEY")
    if status in (408, 504):
        return VectorStoreTimeoutError(host, f"Qdrant timed out ({status})", retry_after=wait)
    if status in (400, 422):
        is_strict = b"exceeded" in response.content or b"disabled" in response.content  # it has no code of its own
        refused = StrictModeError if is_strict else VectorStoreRefusedError
        return refused(host, f"Qdrant refused the request ({status})")
    kind = UnknownRouteError if status in (404, 405) else VectorStoreUnavailableError
    return kind(host, f"Qdrant answered {status}", retry_after=wait)


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
