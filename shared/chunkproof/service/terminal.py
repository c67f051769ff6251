"""A store and an embedder for a terminal, a notebook or a script: the configured ones, else local ones."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, missing_extra
from chunkproof.base.files import make_private_folder
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import Embedder
from chunkproof.proof.backend import LocalBackend
from chunkproof.service.container import (
    CollectionEmbedders,
    EmbedderBuilder,
    cohere_reranker,
    qdrant_store,
    start_tracing,
)

if TYPE_CHECKING:
    from chunkproof.stores.edge import EdgeStore
    from chunkproof.stores.store_port import WritableStore

LOCAL_DEADLINE_MS = 10_000
# The names only help to choose a collection: a store that does not respond must not be waited for twice.
LISTING_DEADLINE_MS = 2_000


@dataclass(frozen=True)
class Connection:
    """A writable store, an embedder, and the services that use both."""

    services: Services
    store: "WritableStore"
    embedder: Embedder


@contextmanager
def open_connection(settings: Settings, folder: Path, embedder: Embedder | None = None) -> Iterator[Connection]:
    """Open the configured store, else the embedded one in the folder; close it at the end.

    Without an embedder of the caller's own, which then serves every collection, they are those that the settings name.
    """
    start_tracing()
    with ExitStack() as stack:
        try:
            store = qdrant_store(settings) if settings.qdrant_url else open_embedded_store(folder)
        except ImportError as error:
            raise missing_extra(error) or error from None
        stack.callback(store.close)
        embedders: Mapping[str, Embedder] = {}
        if embedder is None:
            builder = EmbedderBuilder(settings)
            stack.callback(builder.close)
            try:
                embedder = builder.default(settings.embedder_on_terminal)
            except ImportError as error:
                raise missing_extra(error) or error from None
            embedders = CollectionEmbedders(settings.models, builder)
        reranker = None
        if (settings.cohere_api_key is not None or settings.secret_arn is not None) and find_spec("cohere"):
            reranker = cohere_reranker(settings)
            stack.callback(reranker.close)
        services = Services(settings, store, embedder, embedders=embedders, reranker=reranker)
        yield Connection(services, store, embedder)


def local_backend(services: Services) -> LocalBackend:
    """Create the backend that runs in this process."""
    return LocalBackend(services, lambda: new_deadline(services.settings))


def new_deadline(settings: Settings) -> Deadline:
    """Start the time limit of one request."""
    return Deadline(settings.deadline_ms or LOCAL_DEADLINE_MS)


def only_collection(services: Services) -> str | None:
    """Return the collection of a store that has one; None when it has none or several."""
    names = list_collections(services)
    return names[0] if len(names) == 1 else None


def list_collections(services: Services) -> list[str]:
    """Return the names of all collections; none when the store cannot be reached, which the next call will report."""
    with suppress(ChunkproofError):
        return services.store.collections(Deadline(LISTING_DEADLINE_MS))
    return []


def default_data_folder() -> Path:
    """Return the folder of the embedded store when none is named."""
    from platformdirs import user_data_path

    return user_data_path("chunkproof")


def open_embedded_store(folder: Path) -> "EdgeStore":
    """Open the store in a folder, which is made if it does not exist."""
    from chunkproof.stores.qdrant import open_edge_store

    try:
        make_private_folder(folder)
    except OSError as error:
        raise InvalidParameterError(f"data folder {folder}: {error.strerror}") from None
    return open_edge_store(folder)
