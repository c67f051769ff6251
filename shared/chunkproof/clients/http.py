"""The one HTTP transport of both SDKs, and what they share in reading an answer."""

import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from chunkproof import deadline

KEPT_ALIVE_S = 30.0
WRITE_SLICE = 65_536


class DeadlineTransport(httpx.BaseTransport):
    """Gives each call of an SDK what is left of the request's time, and not a second more.

    The SDKs' own timeouts are whole seconds, or apply to each read: a server that sends a byte now and then
    outlives them. Here every connect, read and write gets what is left when it begins. `headers` is asked
    anew for every call, so that a client can be built before its key is known.
    """

    def __init__(self, headers: Callable[[], Mapping[str, str]] = dict) -> None:
        self._headers = headers
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls(), keepalive_expiry=KEPT_ALIVE_S, network_backend=_DeadlineBackend()
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and read the whole answer within the time that is left."""
        request.headers.update(self._headers())
        try:
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.read(),
                )
            )
            try:
                body = b"".join(_chunks(answer.stream))
            finally:
                answer.close()
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            kind = getattr(httpx, type(error).__name__, httpx.TransportError)  # httpx has the same names
            raise kind(str(error), request=request) from None
        return httpx.Response(answer.status, headers=answer.headers, stream=httpx.ByteStream(body))

    def close(self) -> None:
        """Give the connections back."""
        self._pool.close()


class _DeadlineBackend(httpcore.SyncBackend):
    """Opens connections whose every operation is bounded by the deadline in force."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = _addresses(host, port)
        for index, address in enumerate(addresses):
            left = _left(timeout, httpcore.ConnectTimeout)
            share = left and left / (
                len(addresses) - index
            )  # one silent address must not cost the others theirs
            try:
                stream = super().connect_tcp(address, port, share, local_address, socket_options)
                return _DeadlineStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        raise httpcore.ConnectError(f"{host} has no address")


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from None
    return [str(address[4][0]) for address in found]


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_SLICE):  # a timeout holds for each send, not for all of them
            self._stream.write(buffer[start : start + WRITE_SLICE], _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    budget = deadline.current()
    if budget is None:
        return timeout
    left = budget.remaining_ms() / 1000
    if left <= 0:
        raise late("no time left")
    return left


def _chunks(stream: Any) -> Iterable[bytes]:
    yield from stream


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # some 40 ms, once for both services


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
