"""The one HTTP transport of both SDKs, and what they share in reading an answer."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from urllib.parse import urlsplit

import httpx

from chunkproof import deadline


class DeadlineTransport(httpx.HTTPTransport):
    """Gives each call of an SDK what is left of the request's time, and not a second more.

    The SDKs' own timeouts are whole seconds or apply per client; a request's budget is neither. `headers`
    is asked anew for every call, so that a client can be built before its key is known.
    """

    def __init__(self, headers: Callable[[], Mapping[str, str]] = dict) -> None:
        super().__init__()
        self._headers = headers

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request with the time that is left, or fail at once when none is."""
        request.headers.update(self._headers())
        budget = deadline.current()
        if budget is not None:
            left = budget.remaining_ms() / 1000
            if left <= 0:
                raise httpx.ReadTimeout("no time left for this call", request=request)
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), left)
        return super().handle_request(request)


def host_of(url: str) -> str:
    """Host and port of an address: all of it that a message may show."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "?", parts.port
    except ValueError:
        return "?"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Seconds to wait, from a `retry-after` in seconds or as a date."""
    value = {name.lower(): text for name, text in (headers or {}).items()}.get("retry-after", "").strip()
    try:
        if value.replace(".", "", 1).isdecimal():
            return float(value) if isfinite(float(value)) else None
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
