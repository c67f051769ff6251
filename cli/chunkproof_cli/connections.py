"""Open the backend of a command: a store and an embedder in this process, or a deployed stack."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chunkproof.clients.qdrant.transfer import Advance
from chunkproof.errors import CollectionNotFoundError
from chunkproof.retrieval.backend import Backend
from chunkproof.retrieval.services import Services
from chunkproof.runtime.local import (
    Connection,
    list_collections,
    local_backend,
    only_collection,
    open_connection,
)
from chunkproof.settings import Settings
from chunkproof_cli.options import Options, explicit_collection, name_flags
from chunkproof_cli.output import print_note, progress_bar

if TYPE_CHECKING:
    from chunkproof_cli.api_client import ApiClient

API_DEADLINE_MS = 30_000


@contextmanager
def connect(options: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Open the configured store and embedder, or the local ones; close them at the end."""
    settings = settings or Settings.from_env()
    if options.embedder is not None:
        settings = settings.with_embedder(options.embedder)
    with ExitStack() as stack:
        with name_flags({"data folder": "--data"}):
            connection = stack.enter_context(open_connection(settings, options.data, progress=show_migration))
        yield connection


@contextmanager
def show_migration(label: str, steps: int) -> Iterator[Advance]:
    """Show how far the move of an older folder to Qdrant Edge is."""
    print_note(f"{label}, once; the old files are kept in the subfolder local-mode")
    with progress_bar(label, steps) as advance:
        yield advance


def open_api_client(url: str) -> "ApiClient":
    """Create a client for the API at this URL, with the token and the deadline of the settings."""
    from chunkproof_cli.api_client import ApiClient  # and with it httpx, which a search in this process does not need

    settings = Settings.from_env()
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url, token, (settings.deadline_ms or API_DEADLINE_MS) / 1000)


@contextmanager
def open_backend(options: Options, settings: Settings | None = None) -> Iterator[Backend]:
    """Open what a command runs against: the API at `--api`, else this process."""
    if options.api is None:
        with open_services(options, settings) as services:
            yield local_backend(services)
        return
    with open_api_client(options.api) as api_client:
        yield api_client


@contextmanager
def open_services(options: Options, settings: Settings | None = None) -> Iterator[Services]:
    """Open the services of a local command that only reads; the only collection of a store is the default."""
    with connect(options, settings) as connection:
        services = connection.services
        if explicit_collection(options) is None and (only := only_collection(services)) is not None:
            services.settings = services.settings.model_copy(update={"collection": only})
        try:
            yield services
        except CollectionNotFoundError as error:
            raise CollectionNotFoundError(error.name, _suggest(error.name, list_collections(services))) from None


def _suggest(name: str, names: list[str]) -> str | None:
    if not names:
        return None
    if near := get_close_matches(name, names, n=1):
        return f"Did you mean {near[0]}? Name it with --collection or CHUNKPROOF_COLLECTION."
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"The store has {shown}. Name one with --collection or CHUNKPROOF_COLLECTION."
