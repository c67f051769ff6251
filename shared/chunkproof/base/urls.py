"""Addresses of services, as settings and options take them."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_ODD = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")


def is_http_url(url: str) -> bool:
    """Whether the HTTP clients accept the URL; they would each refuse it in their own way, and late."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_host = ":" in host or _HOST.fullmatch(_ascii(host)) is not None
        return parts.scheme in ("http", "https") and is_host and parts.port != 0 and not _ODD.search(url)
    except ValueError:
        return False


def _ascii(host: str) -> str:
    """Return the host name in ASCII; `ValueError` when it is not a host name."""
    if host.isascii():
        return host.encode("idna").decode()  # finds empty and overlong labels
    import idna  # what the HTTP clients use; rarely needed

    return idna.encode(host, strict=True, std3_rules=True).decode()


def _http_url(url: str) -> str:
    if not is_http_url(url):
        raise ValueError("not an http or https address")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(_http_url)]
