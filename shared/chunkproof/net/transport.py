"""The HTTP transport that both SDKs use: deadline, keys, retries, circuit breaker and response limits."""

import logging
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, lru_cache, partial
from math import ceil, inf
from select import POLLIN, poll
from threading import Lock
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import httpx

from chunkproof.base.errors import NotConfiguredError
from chunkproof.base.files import GZIP_OR_DEFLATE, DecompressedTooLargeError, decompress
from chunkproof.base.request import MAX_RESPONSE_BYTES, Deadline, Stopwatch, current, run_with_timeout, start, tracing
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
# Objects and lists: a thousand points have fewer, and Python takes microseconds for each.
MAX_CONTAINERS = 300_000
MAX_NAMES = 600_000
MAX_STRINGS = 2_000_000
KEY_REFUSED_STATUSES = frozenset({401, 403})
# The timeout of a socket applies to each of these, sent or received.
SLICE = 65_536
# Status line and headers of a response, and each line of a chunked one.
MAX_HEAD = 100 * 1024
# Qdrant sends a response in two parts and waits for the ACK of the first, which Linux delays by 40 ms.
QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

Address = tuple[str, int, bool]
"""A host, a port, and whether to encrypt."""
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
        self._kept: dict[Address, list[_Connection]] = {}
        self._early: dict[Address, tuple[float, Future[_Connection]]] = {}
        self._lock = Lock()

    def open_early(self, url: str) -> None:
        """Begin to open a connection to this address, in a thread, for the next request that needs a new one.

        It never fails a request: a connection that failed, or takes half of the time left, is replaced.
        """

        def connect() -> _Connection:
            with Deadline(EARLY_S * 1000).enforced():
                return _Connection(address)

        with suppress(httpx.InvalidURL), self._lock:  # of two threads, one opens
            address = _address(_parse_url(url))
            if address not in self._early:
                self._early[address] = monotonic(), start(connect)

    def prepare(self, url: str, *, opens: bool) -> None:
        """Do what takes long for a first request to this address; open a connection only if one follows at once."""
        if url.startswith("https:"):
            tls_context()  # some 40 ms, once for all services
        if opens:
            self.open_early(url)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and read the whole response within the time left."""
        headers = self._kept_headers
        if headers is None:
            if self._headers is not dict and not self._keeps_headers and not any(self._kept.values()):
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
        # The httpx request is not changed: an exception that refers to it must not hold a key.
        given = (*headers.items(), ("accept-encoding", self._encoding))
        head = _write_head(request.method, request.url.raw_path, tuple(request.headers.raw), given)
        content = request.read()
        if content or request.method not in ("GET", "HEAD"):
            head += b"content-length: %d\r\n" % len(content)
        budget, number = current(), 1
        while True:
            attempt = self._attempt(head + b"\r\n" + content, request, budget)
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

    def _attempt(self, sent: bytes, request: httpx.Request, budget: Deadline | None) -> httpx.Response | Attempt:
        """Make the call once, and record its outcome in the circuit breaker; a success is only its response."""
        is_probe, failed = self._breaker.admit(), None
        watch = Stopwatch()
        limit = MAX_RESPONSE_BYTES if budget is None else min(MAX_RESPONSE_BYTES, budget.max_response_bytes)
        connection: _Connection | None = None
        try:
            connection = self._take(_address(request.url))
            status, headers, body = connection.exchange(request.method, sent, limit)
            self._give_back(connection)
            response, wait = _to_httpx(status, headers, body, limit)
            if status < 300:
                failed = False
                return response
            size = max(len(sent), connection.size)
            attempt = Attempt(request.method, watch.ms(), status, wait, response=response, size=size)
            failed = attempt.is_service_failure(budget)
        except UpstreamResponseTooLargeError as error:
            failed = False
            return Attempt(request.method, watch.ms(), error=error)
        except httpx.TransportError as error:
            was_stale = connection is not None and connection.is_stale and not isinstance(error, httpx.TimeoutException)
            size = max(len(sent), connection.size if connection else 0)
            attempt = Attempt(request.method, watch.ms(), error=error, was_stale=was_stale, size=size)
            failed = attempt.is_service_failure(budget)
        finally:
            self._breaker.record(failed=failed, is_probe=is_probe)
        return attempt

    def _take(self, address: Address) -> "_Connection":
        """Return a connection that was kept, was opened early, or is new."""
        kept = self._kept.setdefault(address, [])
        with suppress(IndexError):  # another thread may take the last one
            while kept:
                connection, waiting = kept.pop(), poll()
                waiting.register(connection.socket, POLLIN)
                if monotonic() - connection.kept_at < KEEPALIVE_S and not waiting.poll(0):
                    return connection
                connection.socket.close()  # its server closed it, or soon will
        left = _seconds_left(httpx.ConnectTimeout)
        begun, opening = self._early.pop(address, (0.0, None))
        if opening is not None:
            with suppress(Exception):
                if monotonic() - begun < EARLY_S:
                    return opening.result(EARLY_S if left is None else left / 2)
            opening.add_done_callback(_close)
        return _Connection(address)

    def _give_back(self, connection: "_Connection") -> None:
        """Keep the connection for another request, if its server does, and close those that were kept for too long."""
        kept = self._kept[connection.address]
        if not connection.stays_open:
            connection.socket.close()
            return
        connection.is_stale, connection.kept_at = True, monotonic()
        kept.append(connection)
        with suppress(IndexError):
            while connection.kept_at - kept[0].kept_at > KEEPALIVE_S:
                kept.pop(0).socket.close()

    def close(self) -> None:
        """Close what no request uses."""
        while self._early:
            self._early.popitem()[1][1].add_done_callback(_close)
        for kept in self._kept.values():
            while kept:
                kept.pop().socket.close()


class DirectClient(httpx.Client):
    """An httpx client that hands requests to its transport unchanged.

    A plain client also handles cookies, redirects and authentication, which neither service uses and which takes as
    long as sending the request. Variables of the environment do not count: a proxy would replace the transport, and
    with it the key and the deadline.
    """

    def __init__(self, transport: httpx.BaseTransport, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(transport=transport, trust_env=False)
        self._direct_transport = transport
        self._own_headers = headers or {}

    def build_request(self, method: str, url: Any, **options: Any) -> httpx.Request:
        """Build a request with the given headers and the client's own, and no others."""
        names = ("params", "content", "data", "files", "json")
        sent = {name: options[name] for name in names if options.get(name) is not None}
        headers = (*self._own_headers.items(), *(options.get("headers") or {}).items())
        if sent and (len(sent) > 1 or not isinstance(sent.get("content"), bytes)):
            return httpx.Request(method, _parse_url(url), headers=dict(headers), **sent)
        request = httpx.Request.__new__(httpx.Request)
        vars(request).update(vars(_empty_request(method, url, headers)), _content=sent.get("content", b""))
        return request

    def request(self, method: str, url: Any, **options: Any) -> httpx.Response:
        """Send a request and return the response, read in full."""
        return self.send(self.build_request(method, url, **options))

    def send(self, request: httpx.Request, **_options: Any) -> httpx.Response:
        """Send a request and return the response, read in full."""
        response = self._direct_transport.handle_request(request)
        response.request = request
        response.read()
        return response


# A function calls a few addresses, over and over, with the same headers.
_parse_url = lru_cache(httpx.URL)


@lru_cache(32)
def _empty_request(method: str, url: str, headers: tuple[tuple[str, str], ...]) -> httpx.Request:
    return httpx.Request(method, _parse_url(url), headers=dict(headers))


@lru_cache(32)
def _write_head(method: str, target: bytes, own: tuple[Header, ...], given: tuple[tuple[str, str], ...]) -> bytes:
    """Return a head without what says how long the body is, which follows; given headers replace a request's own."""
    left_out = {b"content-length", b"transfer-encoding", *(name.encode() for name, _ in given)}
    pairs = [pair for pair in own if pair[0].lower() not in left_out]
    pairs += [(name.encode(), value.encode("ascii")) for name, value in given]
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target), *(b"%s: %s" % pair for pair in pairs)]
    head = b"\r\n".join([*lines, b""])
    if len(head.splitlines()) != len(lines) or b"\0" in head:
        raise httpx.LocalProtocolError("a header has a character that HTTP does not allow")
    return head


def _address(url: httpx.URL) -> Address:
    is_tls = url.scheme == "https"
    return url.raw_host.decode("ascii"), url.port or (443 if is_tls else 80), is_tls


def _to_httpx(status: int, headers: list[Header], body: bytes, limit: int) -> tuple[httpx.Response, float | None]:
    """Return the decompressed response, and the seconds that its `retry-after` asks to wait."""
    read = dict(headers)
    encoding = read.pop(b"content-encoding", b"identity").decode("latin-1").lower()
    if encoding != "identity":
        body = _decompress_body(encoding, body, limit)
        read[b"content-length"] = b"%d" % len(body)
    if len(body) > MAX_CONTAINERS:
        _check_number_of_values(body)
    asked = read.pop(b"retry-after", None)
    wait = None if asked is None else retry_after({"retry-after": asked.decode("latin-1")})
    if wait is not None:  # the SDKs read whole seconds only, and no dates
        read[b"retry-after"] = b"%d" % ceil(wait)
    response = httpx.Response(status, headers=list(read.items()), stream=httpx.ByteStream(body))
    response._content = body  # what `read` would put together from the stream
    return response, wait


def _check_number_of_values(body: bytes) -> None:
    """Refuse what would take seconds to parse: each object, list and name costs a microsecond or two."""
    containers = _count(body, b"{", MAX_CONTAINERS) + _count(body, b"[", MAX_CONTAINERS)  # those in strings included
    if containers <= MAX_CONTAINERS and _count(body, b":", MAX_NAMES) <= MAX_NAMES:
        return
    if body.count(b'"') - body.count(b'\\"') > 2 * MAX_STRINGS:  # then removing them would take seconds, too
        raise UpstreamResponseTooLargeError(f"more than {MAX_STRINGS:,} names and texts")
    without_strings = _STRING.sub(b"", body)
    if without_strings.count(b"{") + without_strings.count(b"[") > MAX_CONTAINERS:
        raise UpstreamResponseTooLargeError(f"more than {MAX_CONTAINERS:,} objects and lists")
    if without_strings.count(b":") > MAX_NAMES:
        raise UpstreamResponseTooLargeError(f"more than {MAX_NAMES:,} fields")


def _count(body: bytes, sign: bytes, most: int) -> int:
    """Count a character, up to one more than `most`: where it is rare, `replace` takes an eighth of `count`'s time."""
    return len(body) - len(body.replace(sign, b"", most + 1))


# A string of JSON; every character is looked at once, because the closing quote is optional.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


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


def _close(opening: "Future[_Connection]") -> None:
    if opening.exception() is None:
        opening.result().socket.close()


def _look_up(host: str, port: int, seconds: float | None) -> list[str]:
    # The system's resolver takes no timeout; it waits ten seconds and more for a silent name server.
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = look_up() if seconds is None else run_with_timeout(look_up, seconds)
    except TimeoutError:
        raise httpx.ConnectTimeout(f"the DNS lookup of {host} timed out") from None
    except (OSError, UnicodeError) as error:
        raise httpx.ConnectError(str(error)) from None
    return [str(address[4][0]) for address in found]


def _connect(address: Address) -> socket.socket:
    """Connect to the first address of the host that accepts."""
    host, port, is_tls = address
    context = tls_context() if is_tls else None  # whose certificates may be missing
    found = _look_up(host, port, _seconds_left(httpx.ConnectTimeout))
    failure: Exception = httpx.ConnectError(f"{host} has no address")
    for index, place in enumerate(found):
        left = _seconds_left(httpx.ConnectTimeout)
        try:
            # A silent address must not use up the time of the others.
            stream = socket.create_connection((place, port), left and left / (len(found) - index))
            try:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                stream.settimeout(_seconds_left(httpx.ConnectTimeout))
                return context.wrap_socket(stream, server_hostname=host) if context else stream
            except BaseException:
                stream.close()
                raise
        except OSError as error:
            failure = (httpx.ConnectTimeout if isinstance(error, TimeoutError) else httpx.ConnectError)(str(error))
    raise failure


class _Connection:
    """An HTTP/1.1 connection; the enforced deadline limits each of its operations.

    It is stale from the end of one response to the beginning of the next: a server may close it at any time. `size` are
    the bytes of the latest response, as far as it was read; it `stays_open` if another request can follow.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_stale = self.stays_open = False
        self.kept_at, self.size = 0.0, 0
        self.socket = _connect(address)
        self._received = b""

    def exchange(self, method: str, request: bytes, limit: int) -> tuple[int, list[Header], bytes]:
        """Send head and body, in one packet if they fit; return status, headers with names in lower case, and body."""
        self.size = 0
        try:
            for begin in range(0, len(request), SLICE):
                self.socket.settimeout(_seconds_left(httpx.WriteTimeout))
                self.socket.sendall(request[begin : begin + SLICE])
            status, headers = self._read_head()
            has_body = method != "HEAD" and status not in (204, 304)
            return status, headers, self._read_body(dict(headers), limit) if has_body else b""
        except BaseException as error:
            self.socket.close()
            if not isinstance(error, OSError):
                raise
            raise (httpx.WriteTimeout if isinstance(error, TimeoutError) else httpx.WriteError)(str(error)) from None

    def _read_head(self) -> tuple[int, list[Header]]:
        while True:
            first, _, lines = self._read_until(b"\r\n\r\n").partition(b"\r\n")
            found, pairs = _STATUS_LINE.fullmatch(first), _HEADER.findall(lines)
            if found is None or len(pairs) != len(lines.split(b"\r\n") if lines else ()):
                raise httpx.RemoteProtocolError("the response has no head of HTTP/1.1")
            if (status := int(found[2])) >= 200:  # before the response, a server may say that it has begun
                break
        headers = [(name.lower(), value.strip(b" \t")) for name, value in pairs]
        self.is_stale, self.stays_open = False, found[1] == b"1" and (b"connection", b"close") not in headers
        return status, headers

    def _read_body(self, headers: Mapping[bytes, bytes], limit: int) -> bytes:
        """Read the body, of `limit` bytes at most, in the form that the headers announce."""
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if (coding or b"chunked").lower() != b"chunked" or not (length or b"0").isdigit():
            raise httpx.RemoteProtocolError("where the response ends is not known")
        if coding is None and length and (len(length) > len(str(limit)) or int(length) > limit):
            raise _too_large(limit)
        parts = []
        for part in self._read_chunks() if coding else self._read_part(None if length is None else int(length)):
            self.size += len(part)
            if self.size > limit:
                raise _too_large(limit)
            parts.append(part)
        is_complete = (coding or length) is not None and not self._received  # nothing was asked that this could answer
        self.stays_open = self.stays_open and is_complete
        return b"".join(parts)

    def _read_chunks(self) -> Iterator[bytes]:
        while found := _CHUNK_SIZE.match(self._read_until(b"\r\n")):
            if not (size := int(found[0], 16)):
                while self._read_until(b"\r\n"):  # headers after the body
                    pass
                return
            yield from self._read_part(size)
            if self._read_until(b"\r\n"):
                break
        raise httpx.RemoteProtocolError("a part of the response has no size, or another one")

    def _read_part(self, size: int | None) -> Iterator[bytes]:
        """Yield this many bytes, or all until the server closes the connection."""
        while size is None or size > 0:
            self._received = self._received or self._receive(size)
            part = self._received[:size]
            if not part:
                return
            self._received = self._received[len(part) :]
            size = None if size is None else size - len(part)
            yield part

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._received:
            if len(self._received) > MAX_HEAD:
                raise httpx.RemoteProtocolError("the head of the response is too long")
            self._received += self._receive()
        line, _, self._received = self._received.partition(end)
        return line

    def _receive(self, size: int | None = SLICE) -> bytes:
        """Return what has arrived of so many bytes, waiting for it; nothing where None says that the server may end."""
        try:
            self.socket.settimeout(_seconds_left(httpx.ReadTimeout))
            if QUICK_ACK is not None:
                self.socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
            part = self.socket.recv(max(size or 0, SLICE))
        except OSError as error:
            raise (httpx.ReadTimeout if isinstance(error, TimeoutError) else httpx.ReadError)(str(error)) from None
        if not part and size is not None:
            raise httpx.RemoteProtocolError("the server closed the connection before the response was complete")
        return part


_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?")
_HEADER = re.compile(rb"(?:^|\r\n)([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r]*+(?:\r(?!\n)[^\r]*+)*)")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}(?=[ \t]*(?:;|$))")


def _seconds_left(expired: type[httpx.TimeoutException]) -> float | None:
    """Return the seconds until the deadline; None where none is enforced."""
    budget = current()
    left = budget.remaining_ms() / 1000 if budget else None
    if left is not None and left <= 0:
        raise expired("no time left")
    return left


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context with the public certificate authorities, or those of SSL_CERT_FILE or SSL_CERT_DIR."""
    try:
        context = httpx.create_ssl_context()
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
