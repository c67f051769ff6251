"""The HTTP transport that both SDKs use: deadline, keys, retries, circuit breaker and response limits."""

import logging
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from math import ceil, inf
from threading import Lock
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from chunkproof.base.errors import NotConfiguredError
from chunkproof.base.files import GZIP_OR_DEFLATE, DecompressedTooLargeError, decompress
from chunkproof.base.request import Deadline, Stopwatch, current, run_with_timeout, start, tracing
from chunkproof.net.resilience import (
    Attempt,
    CircuitBreaker,
    CircuitState,
    UpstreamResponseTooLargeError,
    pause_before_retry,
    retry_after,
)

KEEPALIVE_S = 30.0
# A connection that was opened early is used for so long; servers close one on which nothing is sent after some seconds.
EARLY_S = 3.0
# Ten times what Lambda can return: room for a thousand vectors with texts, and far below a function's memory.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# Objects and lists: a thousand points have fewer, and Python takes microseconds for each.
MAX_CONTAINERS = 300_000
MAX_NAMES = 600_000
MAX_STRINGS = 2_000_000
KEY_REFUSED_STATUSES = frozenset({401, 403})

WRITE_SLICE = 65_536
# Qdrant sends a response in two parts and waits for the ACK of the first, which Linux delays by 40 ms.
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

BROKEN = (OSError, httpcore.NetworkError)

Header = tuple[bytes, bytes]

log = logging.getLogger(__name__)


class DeadlineTransport(httpx.BaseTransport):
    """Sends the requests of an SDK within the deadline that is enforced around the call.

    The SDKs' own timeouts are whole seconds, or apply to each read, so a server that sends one byte now and then
    outlasts them. Here every connect, read and write is limited to the time left when it begins.

    `headers` is called for every request, so that a client can be built before its key is known; with `keep_headers`,
    only for the first, because the key cannot change. When a service refuses the key, `expire_key` is called and then
    `headers` once more. Failed calls are repeated as `resilience` decides, and none is made while the circuit is open.
    `compressed` asks for gzip, which pays off where the network is slower than compression.
    """

    def __init__(
        self,
        headers: Callable[[], Mapping[str, str]] = dict,
        *,
        expire_key: Callable[[], None] = lambda: None,
        breaker: CircuitBreaker | None = None,
        compressed: bool = True,
        keep_headers: bool = False,
    ) -> None:
        if tracing.tracer is not None:
            headers, keep_headers = tracing.tracer.with_traceparent(headers), False
        self._headers = headers
        self._kept_headers: Mapping[str, str] | None = None
        self._keeps_headers = keep_headers
        self._encoding = "gzip" if compressed else "identity"
        self._expire_key = expire_key
        self._breaker = breaker or CircuitBreaker("service", max_failures=inf)
        self._backend = DeadlineBackend()
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls_context(), keepalive_expiry=KEEPALIVE_S, network_backend=self._backend
        )

    def open_early(self, url: str) -> None:
        """Begin to open a connection to this address, in a thread, for the next request that needs a new one."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        if parts.hostname:
            self._backend.open_early(parts.hostname, parts.port or (443 if is_tls else 80), is_tls=is_tls)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and read the whole response within the time left."""
        headers = self._kept_headers
        if headers is None:
            if self._headers is not dict and not self._keeps_headers and not self._pool.connections:
                self.open_early(str(request.url))  # while the key is read
            headers = self._headers()
            self._kept_headers = headers if self._keeps_headers else None
        response = self._send_with_retries(request, headers)
        if response.status_code in KEY_REFUSED_STATUSES:
            self._expire_key()
            new_headers = self._headers()
            if new_headers != headers:  # the key was rotated after it was read
                response = self._send_with_retries(request, new_headers)
        return response

    def _send_with_retries(self, request: httpx.Request, headers: Mapping[str, str]) -> httpx.Response:
        call = _to_httpcore(request, {"accept-encoding": self._encoding, **headers})
        budget, number = current(), 1
        while True:
            attempt = self._attempt(call, request, budget)
            if isinstance(attempt, httpx.Response):
                return attempt
            pause = pause_before_retry(attempt, number, budget)
            if pause is None or self._breaker.state is CircuitState.OPEN:
                break
            log.info("call repeated", extra={"dependency": self._breaker.service, "status": attempt.status})
            sleep(pause)
            number += 1
        if attempt.response is None:
            raise attempt.error or httpx.TransportError("no response")
        return attempt.response

    def _attempt(
        self, call: httpcore.Request, request: httpx.Request, budget: Deadline | None
    ) -> httpx.Response | Attempt:
        """Make the call once, and record its outcome in the circuit breaker; a success is only its response."""
        is_probe = self._breaker.admit()
        watch, progress = Stopwatch(), _CallProgress(len(request.content))
        failed: bool | None = None
        try:
            response, wait = self._send(call, request, progress)
            if response.status_code < 300:
                failed = False
                return response
            attempt = Attempt(
                request.method, watch.ms(), response.status_code, wait, response=response, size=progress.size
            )
        except UpstreamResponseTooLargeError as error:
            failed = False
            return Attempt(request.method, watch.ms(), error=error)
        except httpx.TransportError as error:
            was_stale = progress.is_stale and not isinstance(error, httpx.TimeoutException)
            attempt = Attempt(request.method, watch.ms(), error=error, was_stale=was_stale, size=progress.size)
            failed = attempt.is_service_failure(budget)
            return attempt
        else:
            failed = attempt.is_service_failure(budget)
            return attempt
        finally:
            self._breaker.record(failed=failed, is_probe=is_probe)

    def _send(
        self, call: httpcore.Request, request: httpx.Request, progress: "_CallProgress"
    ) -> tuple[httpx.Response, float | None]:
        """Return the response, and the seconds that its `retry-after` asks to wait."""
        call.extensions = {"trace": progress}
        try:
            response = self._pool.handle_request(call)
            try:
                budget = current()
                limit = min(MAX_RESPONSE_BYTES, (budget and budget.max_response_bytes) or MAX_RESPONSE_BYTES)
                body = _read_body(response.stream, response.headers, limit, progress)
            finally:
                response.close()
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            progress.is_stale = progress.is_stale or isinstance(error, EvictedError)
            kind = getattr(httpx, type(error).__name__, httpx.TransportError)  # httpx has the same names
            raise kind(str(error), request=request) from None
        return _to_httpx(response.status, response.headers, body, limit)

    def close(self) -> None:
        """Close the connections."""
        self._backend.drop_early()
        self._pool.close()


class DirectClient(httpx.Client):
    """An httpx client that hands requests to its transport unchanged.

    A plain client also handles cookies, redirects and authentication, which neither service uses and which takes as
    long as sending the request. `trust_env` is off by default: a proxy from the environment would replace the
    transport, and with it the key and the deadline.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport,
        *,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(transport=transport, trust_env=trust_env)
        self._direct_transport = transport
        self._own_headers = headers or {}

    def build_request(self, method: str, url: Any, **options: Any) -> httpx.Request:
        """Build a request with the given headers and the client's own, and no others."""
        sent = {name: options.get(name) for name in ("params", "content", "data", "files", "json")}
        headers = {**self._own_headers, **(options.get("headers") or {})}
        return httpx.Request(method, url, headers=headers, **sent)

    def request(self, method: str, url: Any, **options: Any) -> httpx.Response:
        """Send a request and return the response, read in full."""
        return self.send(self.build_request(method, url, **options))

    def send(self, request: httpx.Request, **_options: Any) -> httpx.Response:
        """Send a request and return the response, read in full."""
        response = self._direct_transport.handle_request(request)
        response.request = request
        response.read()
        return response


class _CallProgress:
    """A trace for httpcore. `is_stale` until a connection is opened or a response begins.

    A call that fails while it is stale used a kept-alive connection that the server had closed. `size` is that of the
    request, or of the response as far as it was read.
    """

    is_stale = True

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, event: str, _info: object) -> None:
        if event in ("connection.connect_tcp.started", "http11.receive_response_headers.complete"):
            self.is_stale = False


def _to_httpcore(request: httpx.Request, headers: Mapping[str, str]) -> httpcore.Request:
    """Build the request to send, with these headers in place of its own of the same names.

    The httpx request is not changed: an exception that refers to it must not hold a key.
    """
    replaced = {name.encode("ascii"): value.encode("ascii") for name, value in headers.items()}
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=[
            *(pair for pair in request.headers.raw if pair[0].lower() not in replaced),
            *replaced.items(),
        ],
        content=request.read(),
    )


def _to_httpx(status: int, headers: list[Header], body: bytes, limit: int) -> tuple[httpx.Response, float | None]:
    """Return the decompressed response, and the seconds that its `retry-after` asks to wait."""
    read = {b"retry-after": b"", b"content-encoding": b"identity"}
    kept = []
    for name, value in headers:
        lowered = name.lower()
        if lowered in read:
            read[lowered] = value
        else:
            kept.append((name, value))
    encoding = read[b"content-encoding"].decode("latin-1").strip().lower()
    if encoding != "identity":
        body = _decompress_body(encoding, body, limit)
        kept = [pair for pair in kept if pair[0].lower() != b"content-length"]
        kept.append((b"content-length", b"%d" % len(body)))
    _check_number_of_values(body)
    wait = retry_after({"retry-after": read[b"retry-after"].decode("latin-1")}) if read[b"retry-after"] else None
    if wait is not None:  # the SDKs read whole seconds only, and no dates
        kept.append((b"retry-after", b"%d" % ceil(wait)))
    return httpx.Response(status, headers=kept, stream=httpx.ByteStream(body)), wait


def _check_number_of_values(body: bytes) -> None:
    """Refuse what would take seconds to parse: each object, list and name costs a microsecond or two."""
    containers = body.count(b"{") + body.count(b"[")  # those in strings included
    if containers <= MAX_CONTAINERS and body.count(b":") <= MAX_NAMES:
        return
    if body.count(b'"') - body.count(b'\\"') > 2 * MAX_STRINGS:  # then removing them would take seconds, too
        raise UpstreamResponseTooLargeError(f"more than {MAX_STRINGS:,} names and texts")
    without_strings = _STRING.sub(b"", body)
    if without_strings.count(b"{") + without_strings.count(b"[") > MAX_CONTAINERS:
        raise UpstreamResponseTooLargeError(f"more than {MAX_CONTAINERS:,} objects and lists")
    if without_strings.count(b":") > MAX_NAMES:
        raise UpstreamResponseTooLargeError(f"more than {MAX_NAMES:,} fields")


# A string of JSON; every character is looked at once, because the closing quote is optional.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def _read_body(stream: Any, headers: list[Header], limit: int, progress: _CallProgress) -> bytes:
    announced = next((value for name, value in headers if name.lower() == b"content-length"), b"")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    for part in stream:
        size += len(part)
        progress.size = max(progress.size, size)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _decompress_body(encoding: str, body: bytes, limit: int) -> bytes:
    if encoding not in ("gzip", "deflate"):
        raise httpx.DecodingError(f"content-encoding {encoding} was not requested")
    try:
        return decompress(body, limit, GZIP_OR_DEFLATE)
    except DecompressedTooLargeError:
        raise _too_large(limit, ", decompressed") from None
    except (zlib.error, EOFError):
        raise httpx.DecodingError(f"the response is not valid {encoding}") from None


def _too_large(limit: int, how: str = "") -> UpstreamResponseTooLargeError:
    return UpstreamResponseTooLargeError(f"more than {limit} bytes{how}")


class DeadlineBackend(httpcore.SyncBackend):
    """Opens connections, each operation of which is limited by the deadline that is enforced.

    One that was opened early is handed out once. Whatever happened to it, it fails no request: one that failed, or
    takes half of the time left, is replaced by a new one.
    """

    def __init__(self) -> None:
        self._early: dict[tuple[str, int], tuple[float, Future[_DeadlineStream]]] = {}
        self._lock = Lock()

    def open_early(self, host: str, port: int, *, is_tls: bool) -> None:
        """Begin to open a connection, unless there is one already."""

        def connect() -> _DeadlineStream:
            with Deadline(EARLY_S * 1000).enforced():
                stream = self._connect(host, port)
                return stream.start_tls(tls_context(), host) if is_tls else stream

        with self._lock:  # of two threads, one opens
            if (host, port) not in self._early:
                self._early[host, port] = monotonic(), start(connect)

    def drop_early(self) -> None:
        """Close what no request took."""
        while self._early:
            _, (_, opening) = self._early.popitem()
            opening.add_done_callback(_close_stream)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Return the connection that was opened early, or a new one."""
        left = _seconds_left(timeout, httpcore.ConnectTimeout)
        begun, opening = self._early.pop((host, port), (0.0, None))
        if opening is not None:
            with suppress(Exception):
                if monotonic() - begun < EARLY_S:
                    return opening.result(EARLY_S if left is None else left / 2)
            opening.add_done_callback(_close_stream)
        return self._connect(host, port, timeout, local_address, socket_options)

    def _connect(self, host: str, port: int, timeout: float | None = None, *options: Any) -> "_DeadlineStream":
        """Connect to the first address of the host that accepts."""
        addresses = _look_up(host, port, _seconds_left(timeout, httpcore.ConnectTimeout))
        for index, address in enumerate(addresses):
            left = _seconds_left(timeout, httpcore.ConnectTimeout)
            # A silent address must not use up the time of the others.
            share = left and left / (len(addresses) - index)
            try:
                return _DeadlineStream(super().connect_tcp(address, port, share, *options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        raise httpcore.ConnectError(f"{host} has no address")


def _close_stream(opening: "Future[_DeadlineStream]") -> None:
    if opening.exception() is None:
        opening.result().close()


def _look_up(host: str, port: int, seconds: float | None) -> list[str]:
    # The system's resolver takes no timeout; it waits ten seconds and more for a silent name server.
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = look_up() if seconds is None else run_with_timeout(look_up, seconds)
    except TimeoutError:
        raise httpcore.ConnectTimeout(f"the DNS lookup of {host} timed out") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from None
    return [str(address[4][0]) for address in found]


class EvictedError(httpcore.NetworkError):
    """The connection pool closed the connection while a request was using it."""


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, *, is_tls: bool = False) -> None:
        self._stream = stream
        self._is_tls = is_tls
        self._socket: socket.socket | None = stream.get_extra_info("socket")
        self._is_closed = False
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._flush(timeout)
        left = _seconds_left(timeout, httpcore.ReadTimeout)
        try:
            if QUICK_ACK is not None and self._socket is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
            return self._stream.read(max_bytes, left)
        except BROKEN as error:
            raise self._network_error(error) from None

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Collect what is written until the first read, so that head and body leave in one packet."""
        self._unsent += buffer
        if len(self._unsent) >= WRITE_SLICE:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        buffer, self._unsent = self._unsent, b""
        try:
            for start in range(0, len(buffer), WRITE_SLICE):  # the timeout applies to each send, not to all
                left = _seconds_left(timeout, httpcore.WriteTimeout)
                self._stream.write(buffer[start : start + WRITE_SLICE], left)
        except BROKEN as error:
            raise self._network_error(error) from None

    def _network_error(self, error: Exception) -> httpcore.NetworkError:
        """An `EvictedError` if this side closed the connection.

        With several threads, httpcore may close a connection as idle that another thread has just taken.
        """
        return (EvictedError if self._is_closed else httpcore.ReadError)(str(error))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_DeadlineStream":
        if self._is_tls:  # it was opened early
            return self
        left = _seconds_left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left), is_tls=True)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()


def _seconds_left(timeout: float | None, expired: type[httpcore.TimeoutException]) -> float | None:
    """Return the seconds until the deadline, or the timeout where none is enforced."""
    budget = current()
    if budget is None:
        return timeout
    left = budget.remaining_ms() / 1000
    if left <= 0:
        raise expired("no time left")
    return left


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context with the public certificate authorities, or those of SSL_CERT_FILE or SSL_CERT_DIR."""
    try:
        context = httpx.create_ssl_context()  # takes some 40 ms, once for both services
    except OSError as error:
        raise NotConfiguredError(
            f"The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error.strerror or error}"
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def host_of(url: str) -> str:
    """Return host and port of a URL, the only parts that a message may show."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "?", parts.port
    except ValueError:
        return "?"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host
