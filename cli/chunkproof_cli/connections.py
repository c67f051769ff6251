"""Open the backend of a command: a store and an embedder in this process, or a deployed stack."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chunkproof.clients.local_model import local_model
from chunkproof.clients.ports import Embedder
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, NotConfiguredError
from chunkproof.retrieval.backend import Backend, LocalBackend
from chunkproof.retrieval.services import Services
from chunkproof.runtime.container import cohere_embedder, qdrant_store
from chunkproof.settings import Settings
from chunkproof_cli.api_client import ApiClient
from chunkproof_cli.options import Options

if TYPE_CHECKING:
    from chunkproof.clients.qdrant.store import QdrantStore

LOCAL_DEADLINE_MS = 10_000
API_DEADLINE_MS = 30_000


@dataclass(frozen=True)
class Connection:
    """A writable store, an embedder, and the services that use both."""

    services: Services
    store: "QdrantStore"
    embedder: Embedder


@contextmanager
def connect(options: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Open the configured store and embedder, or the local ones; close them at the end."""
    settings = settings or Settings.from_env()
    with ExitStack() as stack:
        store = qdrant_store(settings) if settings.qdrant_url else _open_embedded_store(options.data)
        stack.callback(store.close)
        embedder: Embedder = local_model()
        if (settings.embedder or ("cohere" if settings.cohere_api_key else "local")) == "cohere":
            if settings.cohere_api_key is None and settings.secret_arn is None:
                raise NotConfiguredError("CHUNKPROOF_EMBEDDER is cohere, but COHERE_API_KEY is not set")
            embedder = cohere = cohere_embedder(settings)
            stack.callback(cohere.close)
        yield Connection(Services(settings, store, embedder), store, embedder)


def local_backend(services: Services) -> LocalBackend:
    """Create the backend that runs in this process."""
    return LocalBackend(services, lambda: new_deadline(services.settings))


def open_api_client(url: str) -> ApiClient:
    """Create a client for the API at this URL, with the token and the deadline of the settings."""
    settings = Settings.from_env()
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url, token, (settings.deadline_ms or API_DEADLINE_MS) / 1000)


@contextmanager
def open_backend(options: Options) -> Iterator[Backend]:
    """Open what a command runs against: the API at `--api`, else this process."""
    if options.api is None:
        with open_services(options) as services:
            yield local_backend(services)
        return
    with open_api_client(options.api) as api_client:
        yield api_client


@contextmanager
def open_services(options: Options) -> Iterator[Services]:
    """Open the services of a local command that only reads."""
    with connect(options) as connection:
        yield connection.services


def _open_embedded_store(folder: Path) -> "QdrantStore":
    from chunkproof.clients.qdrant.store import QdrantStore  # takes a second to import

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(f"--data {folder}: {error.strerror}") from None
    return QdrantStore.open_local(folder)


def new_deadline(settings: Settings) -> Deadline:
    """Start the time limit of one request of a command."""
    return Deadline(settings.deadline_ms or LOCAL_DEADLINE_MS)
