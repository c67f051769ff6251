"""Name a collection of this store or of another server: `NAME`, or `http://HOST:PORT/collections/NAME`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import click
from pydantic import SecretStr

from chunkproof.retrieval.services import Services
from chunkproof.settings import Settings
from chunkproof.urls import is_http_url
from chunkproof_cli.connections import connect, open_services
from chunkproof_cli.options import Options

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
