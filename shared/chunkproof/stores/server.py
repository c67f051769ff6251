"""A Qdrant server or Qdrant Cloud, through the REST client of Qdrant's SDK, imported without the rest of the SDK.

`import qdrant_client` builds a thousand models, gRPC stubs and a store in Python, and needs numpy and grpc: 0.7 s and
75 MB (docs/guides/performance.md). Calling a server takes only `ApiClient` and its exceptions, but importing their
module imports the packages around it first. So these packages are replaced by empty ones during that import.

This runs wherever a server is used: in Lambda, where the layer has neither numpy nor grpc, and in the CLI with
QDRANT_URL. There is no fallback: the layer pins the SDK, and tests/integration/test_light_sdk_imports.py fails when a
release no longer fits. See docs/decisions/light-sdk-imports.md.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import from_json, to_json

from chunkproof import __version__
from chunkproof.base import errors
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import Condition
from chunkproof.net.resilience import CircuitOpenError, UpstreamResponseTooLargeError, retry_after
from chunkproof.net.transport import DirectClient, host_of
from chunkproof.stores.qdrant import (
    USABLE_INDEXES,
    QdrantStore,
    Result,
    UnknownRouteError,
    check_collection_name,
    check_list,
    has_edge,
    is_invalid_collection_name,
    required_indexes,
)
from chunkproof.stores.store_port import Features, Json, Layout, WritableStore

DEFAULT_PORT = 6333
# Qdrant's own limit; it drops the connection of a larger request.
MAX_REQUEST_BYTES = 32 * 1024 * 1024
HEADERS = {"user-agent": f"chunkproof/{__version__}", "content-type": "application/json"}
SDK = "qdrant_client"
CLIENT = "qdrant_client.http.api_client"
# What reading a response raises that is not Qdrant's.
NOT_QDRANT = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


class ServerStore(QdrantStore, WritableStore):
    """A store behind HTTP; the transport enforces the deadline and adds the key."""

    def __init__(self, url: str, transport: httpx.BaseTransport) -> None:
        super().__init__(host_of(url))
        parts = urlsplit(url)
        self.url = f"{parts.scheme}://{host_of(url)}{'' if parts.port else f':{DEFAULT_PORT}'}{parts.path}"
        self.transport = transport
        self._features: Features | None = None
        # Whether BM25 vectors are made here: the server is too old to make them.
        self._makes_vectors = False
        self._sdk = load_rest_client()
        self._client = self._sdk.ApiClient(self.url, transport=transport, headers=HEADERS)

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each."""

        def read(result: Any) -> dict[str, str]:
            return {str(alias["alias_name"]): str(alias["collection_name"]) for alias in check_list(result["aliases"])}

        return self.call("GET /aliases", deadline, read=read)

    def features(self, deadline: Deadline) -> Features:
        """Return what the server's version can do, and Qdrant Edge here in its place; it is asked once."""
        if self._features is None:
            features = self.call("GET /", deadline, read=lambda greeting: _features_of(greeting["version"]))
            self._makes_vectors = not features.bm25 and has_edge()
            self._features = replace(features, bm25=features.bm25 or self._makes_vectors)
        return self._features

    def makes_vectors(self, deadline: Deadline) -> bool:
        """Whether BM25 vectors are made in this process, because the server is too old to make them."""
        self.features(deadline)
        return self._makes_vectors

    def optimize(self, collection: str) -> None:
        """Do nothing: a server builds its indexes by itself."""

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""

        def read(info: Any) -> Layout:
            indexes = {
                field: {**(index.get("params") or {}), "type": index["data_type"]}
                for field, index in info["payload_schema"].items()
            }
            return Layout.from_config(info["config"], indexes)

        return self.call("GET", deadline, collection, read=read)

    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""
        check_collection_name(collection)
        only = layout.vectors[""] if set(layout.vectors) == {""} else layout.vectors
        config = {**layout.settings, "vectors": only, "sparse_vectors": layout.sparse_vectors or None}
        self.call("PUT", deadline, collection, config, read=_check_done)
        for field, schema in layout.indexes.items():
            index = {"field_name": field, "field_schema": schema if len(schema) > 1 else schema["type"]}
            self.call("PUT /index?wait=true", deadline, collection, index, read=_check_done)

    def write_points(self, collection: str, points: Sequence[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are searchable when it returns."""
        self.call("PUT /points?wait=true", deadline, collection, {"points": points}, read=_check_done)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def call(
        self,
        operation: str,
        deadline: Deadline,
        collection: str = "",
        body: Json | None = None,
        where: tuple[Condition, ...] = (),
        *,
        read: Callable[[Any], Result],
    ) -> Result:
        """Send a request and return what `read` takes from the `result` of the response.

        Every failure becomes an error of Chunkproof's, also one of `read`: the response is then not Qdrant's.
        `operation` is a method and a path, below the collection if one is named. `where` are the conditions that may
        need an index.
        """
        if collection and is_invalid_collection_name(collection):
            raise errors.CollectionNotFoundError(collection)
        method, _, path = operation.partition(" ")
        content = None if body is None else to_json(body)
        if content and len(content) > MAX_REQUEST_BYTES and method == "POST":
            raise errors.RequestTooLargeError(
                f"The request to Qdrant has {len(content) >> 20} MB, and Qdrant takes {MAX_REQUEST_BYTES >> 20}: send "
                "fewer queries at a time, or smaller filters"
            )
        try:
            with deadline.enforced():
                response = self._client.request(
                    type_=dict[str, Any],
                    method=method,
                    url="/collections/{name}" + path if collection else path,
                    path_params={"name": collection},
                    content=content,
                )
            return read(response.get("result", response))
        except self._sdk.UnexpectedResponse as error:
            missing = self._missing_index(collection, where, deadline) if error.status_code == 400 and where else None
            raise missing or response_error(self.host, error, collection) from None
        except self._sdk.ResponseHandlingException as error:
            raise connection_error(self.host, error.source) from None
        except self._sdk.ResourceExhaustedResponse as error:  # a 429
            raise rate_limit_error(self.host, error.retry_after_s) from None
        except errors.ChunkproofError:
            raise  # some are a ValueError
        except NOT_QDRANT as error:
            raise connection_error(self.host, error) from None

    def _missing_index(
        self, collection: str, where: tuple[Condition, ...], deadline: Deadline
    ) -> errors.IndexRequiredError | None:
        description = self.describe(collection, deadline)
        if not description.needs_indexes:
            return None
        for field, schema in required_indexes(where):
            if description.indexed_fields.get(field) not in USABLE_INDEXES[schema]:
                return errors.IndexRequiredError(collection, field, schema)
        return None


def _features_of(version: str) -> Features:
    """Return what a server of this version can do, or any recent one if it is not a version."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    release = tuple(map(int, numbers.groups())) if numbers else (1, 16, 0)
    return Features(
        store=f"Qdrant {version}",
        bm25=release >= (1, 15, 3),
        text_index=release >= (1, 20, 0),
        rrf_k=release >= (1, 16, 0),
        rrf_weights=release >= (1, 17, 0),  # 1.16 ignores them
        mmr=release >= (1, 15, 0),
        idf_corpus=release >= (1, 19, 0),
    )


def _check_done(result: Any) -> None:
    """Raise an error of `NOT_QDRANT` unless the result is one of a write."""
    if result is not True and not isinstance(result["status"], str):
        raise TypeError("there is no status")


# The client of the SDK, and its failures


@cache
def load_rest_client() -> Any:
    """Import and return the module that defines `ApiClient` and its exceptions, with a lighter HTTP client in it.

    `sys.modules` is left as it was, so a later `import qdrant_client` gets the whole SDK. Its classes are then not
    the ones of this module: take `ApiClient` and the exceptions to catch from here.
    """
    spec = find_spec(SDK)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{SDK} is not installed", name=SDK)
    folder = Path(spec.origin).parent
    imported = _remove_sdk_modules()
    try:
        for package in (folder, folder / "http", folder / "http" / "api"):
            _replace_by_empty(folder, package)
        for file in (folder / "http" / "api").glob("*_api.py"):
            _replace_by_empty(folder, file.with_suffix(""))
        module = import_module(CLIENT)
        module.Client = DirectClient  # type: ignore[attr-defined]
        parsing = vars(import_module(f"{SDK}.common.response_parsing"))
        if parsing.get("_loads") is from_json:  # by default, it looks in a cache for every value, where few are found
            parsing["_loads"] = partial(from_json, cache_strings="keys")
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


def response_error(host: str, response: Any, collection: str) -> errors.ChunkproofError:
    """Return the error for the SDK's `UnexpectedResponse`, whose status is not a success."""
    status, wait = response.status_code or 0, retry_after(response.headers)
    if status == 404 and collection and is_from_qdrant(response.content):
        return errors.CollectionNotFoundError(collection)
    if status == 429:
        return rate_limit_error(host, wait)
    if status in (401, 403):
        return errors.VectorStoreUnavailableError(host, "Qdrant refused the key; check QDRANT_API_KEY")
    if status in (408, 504):
        return errors.VectorStoreTimeoutError(host, f"Qdrant timed out ({status})", retry_after=wait)
    if status in (400, 422):
        is_strict = b"exceeded" in response.content or b"disabled" in response.content  # it has no code of its own
        refused = errors.StrictModeError if is_strict else errors.VectorStoreRefusedError
        return refused(host, f"Qdrant refused the request ({status})")
    kind = UnknownRouteError if status in (404, 405) else errors.VectorStoreUnavailableError
    return kind(host, f"Qdrant answered {status}", retry_after=wait)


def rate_limit_error(host: str, wait: float | None) -> errors.RateLimitedError:
    """Return the error for a 429."""
    return errors.RateLimitedError(f"Qdrant at {host} limits the rate of requests", retry_after=wait)


def connection_error(host: str, cause: BaseException | None) -> errors.ChunkproofError:
    """Return the error for a missing response, or for one that is not Qdrant's."""
    if isinstance(cause, errors.ChunkproofError):  # the key could not be read
        return cause
    if isinstance(cause, CircuitOpenError):
        reason = "Qdrant failed repeatedly; calls to it are paused for a moment"
        return errors.VectorStoreUnavailableError(host, reason, retry_after=cause.retry_after)
    if isinstance(cause, UpstreamResponseTooLargeError):
        return errors.ResponseTooLargeError(f"Qdrant at {host} sent {cause}; request fewer results")
    if isinstance(cause, httpx.TimeoutException):
        return errors.VectorStoreTimeoutError(host, "Qdrant did not answer in time")
    if isinstance(cause, httpx.ConnectError):
        return errors.VectorStoreUnavailableError(host, "The connection failed; check QDRANT_URL")
    if isinstance(cause, httpx.TransportError):
        return errors.VectorStoreUnavailableError(host, "The connection was closed before the response was complete")
    # Only the class: the message of a validation error quotes the response.
    log.warning("the response is not Qdrant's", extra={"cause": type(cause).__name__})
    return errors.VectorStoreUnavailableError(host, "The server at this address does not speak Qdrant's API")
