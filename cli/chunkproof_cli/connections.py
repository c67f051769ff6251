"""What a command runs against: store and embedder on this machine, or a deployed stack."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chunkproof.clients.ports import Embedder
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, NotConfiguredError
from chunkproof.retrieval.backend import Backend, LocalBackend
from chunkproof.retrieval.services import Services
from chunkproof.runtime.container import cohere_embedder, qdrant_store
from chunkproof.settings import Settings
from chunkproof_cli.api_client import ApiClient
from chunkproof_cli.local.minilm import local_model
from chunkproof_cli.options import Options

if TYPE_CHECKING:
    from chunkproof.clients.qdrant.store import QdrantStore

TERMINAL_DEADLINE_MS = 10_000
REMOTE_DEADLINE_MS = 30_000


@dataclass(frozen=True)
class Connection:
    """A store that can be written to, an embedder, and the services over both."""

    services: Services
    store: "QdrantStore"
    embedder: Embedder


@contextmanager
def connect(given: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Store and embedder, each as configured or else local; closed at the end."""
    settings = settings or Settings.from_env()
    with ExitStack() as open_things:
        store = qdrant_store(settings) if settings.qdrant_url else _embedded(given.data)
        open_things.callback(store.close)
        embedder: Embedder = local_model()
        if (settings.embedder or ("cohere" if settings.cohere_api_key else "local")) == "cohere":
            if settings.cohere_api_key is None and settings.secret_arn is None:
                raise NotConfiguredError("COHERE_API_KEY is not set, and CHUNKPROOF_EMBEDDER asks for Cohere")
            embedder = cohere = cohere_embedder(settings)
            open_things.callback(cohere.close)
        yield Connection(Services(settings, store, embedder), store, embedder)


def local_backend(services: Services) -> LocalBackend:
    """This process answers, with store and embedder of its own and a terminal's patience."""
    return LocalBackend(services, lambda: new_deadline(services.settings))


def open_api_client(url: str) -> ApiClient:
    """The API at this address, with the token and the deadline of the settings."""
    settings = Settings.from_env()
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url, token, (settings.deadline_ms or REMOTE_DEADLINE_MS) / 1000)


@contextmanager
def open_backend(given: Options) -> Iterator[Backend]:
    """Who answers a command: the stack at `--api`, else this process."""
    if given.api is None:
        with open_services(given) as services:
            yield local_backend(services)
        return
    with open_api_client(given.api) as api:
        yield api


@contextmanager
def open_services(given: Options) -> Iterator[Services]:
    """The same for commands that only read."""
    with connect(given) as connected:
        yield connected.services


def _embedded(folder: Path) -> "QdrantStore":
    from chunkproof.clients.qdrant.store import QdrantStore  # a second to import: not for --help

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(f"--data {folder}: {error.strerror}") from None
    return QdrantStore.open_local(folder)


def new_deadline(settings: Settings) -> Deadline:
    """The time one request from a terminal may take."""
    return Deadline(settings.deadline_ms or TERMINAL_DEADLINE_MS)
