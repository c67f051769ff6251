"""Open the backend of a command: a store and an embedder in this process, or a deployed stack."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from chunkproof.retrieval.backend import Backend
from chunkproof.retrieval.services import Services
from chunkproof.runtime.local import Connection, local_backend, open_connection
from chunkproof.settings import Settings
from chunkproof_cli.api_client import ApiClient
from chunkproof_cli.options import Options, name_flags

API_DEADLINE_MS = 30_000


@contextmanager
def connect(options: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Open the configured store and embedder, or the local ones; close them at the end."""
    with ExitStack() as stack:
        with name_flags({"data folder": "--data"}):
            connection = stack.enter_context(open_connection(settings or Settings.from_env(), options.data))
        yield connection


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
