"""Open what a command runs against: a store and an embedder in this process, another server, or a deployed stack."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import unquote

import click
from pydantic import SecretStr

from chunkproof.base.embedder_config import is_http_url
from chunkproof.base.errors import CollectionNotFoundError
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.proof.backend import Backend
from chunkproof.service.terminal import (
    Connection,
    default_data_folder,
    list_collections,
    local_backend,
    only_collection,
    open_connection,
)
from chunkproof_cli.options import Options, explicit_collection, name_flags
from chunkproof_cli.output import mask_secrets, print_note

if TYPE_CHECKING:
    from chunkproof_cli.api_client import ApiClient

API_DEADLINE_MS = 30_000
# A variable with one of these prefixes that resembles a setting this closely is probably misspelt.
PREFIXES, ALIKE = ("CHUNKPROOF_", "QDRANT_", "COHERE_"), 0.9


@contextmanager
def connect(options: Options, settings: Settings | None = None) -> Iterator[Connection]:
    """Open the configured store and embedder, or the local ones; close them at the end."""
    settings, known = settings or Settings.from_env(), Settings.variables()
    for name in (name for name in os.environ if name.startswith(PREFIXES) and name not in known):
        for near in get_close_matches(name, known, n=1, cutoff=ALIKE):
            print_note(f"{name} is not a setting: did you mean {near}?")
    if options.embedder is not None:
        settings = settings.with_embedder(options.embedder)
    with ExitStack() as stack:
        with name_flags({"data folder": "--data"}):
            connection = stack.enter_context(open_connection(settings, options.data))
        yield connection


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


def options_of_store(given: Options) -> str:
    """Return the options with which another command reaches the same store or stack."""
    if given.api:
        return f"--api {shlex.quote(mask_secrets(given.api))}"
    if Settings.from_env().qdrant_url is None and given.data != default_data_folder():
        return f"--data {shlex.quote(str(given.data))}"
    return ""


_ADDRESS = re.compile(r"(https?://.+?)/(?:collections|dashboard#/collections)/([^/]+)/?")


@dataclass(frozen=True)
class Address:
    """A collection; `url` is None for the configured store."""

    collection: str
    url: str | None = None

    def __str__(self) -> str:
        return self.collection if self.url is None else f"{self.url}/collections/{self.collection}"


def parse_address(text: str, option: str) -> Address:
    """Parse a collection's name or URL."""
    if "://" not in text:
        if not text.strip():
            raise click.BadParameter("it is empty; name a collection", param_hint=option)
        return Address(text)
    found = _ADDRESS.fullmatch(text)
    if not found or not is_http_url(found[1]):
        raise click.BadParameter(
            f"{text} is not the address of a collection, such as https://HOST:6333/collections/NAME", param_hint=option
        )
    return Address(unquote(found[2]), found[1].rstrip("/"))


@contextmanager
def open_address(address: Address, given: Options, api_key: str | None) -> Iterator[Services]:
    """Open the store of a collection; the key of another server is never the configured one, unless it is the same."""
    if address.url is None:
        with open_services(given) as services:
            yield services
        return
    settings = Settings.from_env()
    is_same = settings.qdrant_url is not None and settings.qdrant_url == address.url
    key = SecretStr(api_key) if api_key else settings.qdrant_api_key if is_same else None
    changed = {"qdrant_url": address.url, "qdrant_api_key": key, "secret_arn": settings.secret_arn if is_same else None}
    with connect(given, settings.model_copy(update=changed)) as connection:
        yield connection.services
