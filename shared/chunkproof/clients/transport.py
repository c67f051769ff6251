"""The one HTTP transport of both SDKs, and what they share in reading an answer."""

import logging
import ssl
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from math import ceil, inf, isfinite
from time import sleep
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from chunkproof import deadline
from chunkproof.clients.breaker import Breaker, Circuit
from chunkproof.clients.connections import DeadlineBackend, EvictedError
from chunkproof.clients.retry import Attempt, pause_before_retry
from chunkproof.decompress import GZIP_OR_DEFLATE, DecompressedTooLargeError, decompress
from chunkproof.errors import NotConfiguredError

KEPT_ALIVE_S = 30.0
# Ten times what Lambda can return: a thousand vectors with their texts, and far below a function's memory.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
REFUSED_KEY = frozenset({401, 403})

Header = tuple[bytes, bytes]

log = logging.getLogger(__name__)


class AnswerTooLargeError(httpx.TransportError):
    """The answer, or what it unpacks to, has more bytes than a function should hold."""


class DeadlineTransport(httpx.BaseTransport):
    """Gives each call of an SDK what is left of the request's time, and not a second more.

    The SDKs' own timeouts are whole seconds, or apply to each read: a server that sends a byte now and then
    outlives them. Here every connect, read and write gets what is left when it begins. `headers` is asked
    anew for every call, so that a client can be built before its key is known; when the key is refused,
    `forget` is told and `headers` asked once more. A failed call is repeated as `retry` says, and not made at
    all while the `breaker` is open. Answers are asked for `compressed` where the network is slower than packing.
    """

    def __init__(
        self,
        headers: Callable[[], Mapping[str, str]] = dict,
        *,
        forget: Callable[[], None] = lambda: None,
        breaker: Breaker | None = None,
        compressed: bool = True,
    ) -> None:
        self._headers = headers
        self._encoding = "gzip" if compressed else "identity"
        self._forget = forget
        self._breaker = breaker or Breaker("service", failures=inf)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls(), keepalive_expiry=KEPT_ALIVE_S, network_backend=DeadlineBackend()
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and read the whole answer within the time that is left."""
        given = self._headers()
        response = self._repeated(request, given)
        if response.status_code in REFUSED_KEY:
            self._forget()
            renewed = self._headers()
            if renewed != given:  # the key was changed since it was read
                response = self._repeated(request, renewed)
        return response

    def _repeated(self, request: httpx.Request, headers: Mapping[str, str]) -> httpx.Response:
        """The answer of the last attempt that the policy allows."""
        call = _call(request, {"accept-encoding": self._encoding, **headers})
        budget = deadline.current()
        number = 1
        while True:
            attempt, response = self._attempt(call, request, budget)
            pause = pause_before_retry(attempt, number, budget)
            if pause is None or self._breaker.state is Circuit.OPEN:
                break
            log.info("call repeated", extra={"dependency": self._breaker.service, "status": attempt.status})
            sleep(pause)
            number += 1
        if response is None:
            raise attempt.error or httpx.TransportError("no answer")
        return response

    def _attempt(
        self, call: httpcore.Request, request: httpx.Request, budget: deadline.Deadline | None
    ) -> tuple[Attempt, httpx.Response | None]:
        is_probe = self._breaker.admit()
        watch, seen = deadline.Stopwatch(), _Seen()
        failed: bool | None = None
        try:
            response, wait = self._sent(call, request, seen)
            attempt = Attempt(request.method, watch.ms(), response.status_code, wait)
            failed = attempt.blames(budget)
            return attempt, response
        except AnswerTooLargeError as error:
            failed = False
            return Attempt(request.method, watch.ms(), error=error), None
        except httpx.TransportError as error:
            stale = seen.is_stale and not isinstance(error, httpx.TimeoutException)
            attempt = Attempt(request.method, watch.ms(), error=error, was_stale=stale)
            failed = attempt.blames(budget)
            return attempt, None
        finally:
            self._breaker.record(failed=failed, is_probe=is_probe)

    def _sent(
        self, call: httpcore.Request, request: httpx.Request, seen: "_Seen"
    ) -> tuple[httpx.Response, float | None]:
        """The answer, and the seconds that it asks to wait."""
        call.extensions = {"trace": seen}
        try:
            answer = self._pool.handle_request(call)
            try:
                body = _whole(answer.stream)
            finally:
                answer.close()
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
            seen.is_stale = seen.is_stale or isinstance(error, EvictedError)
            kind = getattr(httpx, type(error).__name__, httpx.TransportError)  # httpx has the same names
            raise kind(str(error), request=request) from None
        return _plain(answer.status, answer.headers, body)

    def close(self) -> None:
        """Give the connections back."""
        self._pool.close()


class DirectClient(httpx.Client):
    """Hands requests to its transport as they are.

    A plain client also sees to cookies, redirects and sign-in, of which neither service has any, in as much time as
    it takes to send. The environment's proxies would come instead of the transport, and with it of key and deadline.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport,
        *,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        super().__init__(transport=transport, trust_env=trust_env)
        self._direct = transport
        self._always = headers or {}

    def build_request(self, method: str, url: Any, **given: Any) -> httpx.Request:
        """The request with these headers and the client's, and no others."""
        sent = {name: given.get(name) for name in ("params", "content", "data", "files", "json")}
        return httpx.Request(method, url, headers={**self._always, **(given.get("headers") or {})}, **sent)

    def request(self, method: str, url: Any, **given: Any) -> httpx.Response:
        """The whole answer."""
        return self.send(self.build_request(method, url, **given))

    def send(self, request: httpx.Request, **_options: Any) -> httpx.Response:
        """The whole answer."""
        response = self._direct.handle_request(request)
        response.request = request
        response.read()
        return response


class _Seen:
    """What httpcore reports of a call: whether it opened a connection, and whether an answer began."""

    def __init__(self) -> None:
        self.is_stale = True

    def __call__(self, event: str, _info: object) -> None:
        if event in ("connection.connect_tcp.started", "http11.receive_response_headers.complete"):
            self.is_stale = False


def _call(request: httpx.Request, headers: Mapping[str, str]) -> httpcore.Request:
    """The request as it is sent: these headers come instead of its own, which stay as they are and tell no key."""
    given = {name.encode("ascii"): value.encode("ascii") for name, value in headers.items()}
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=[*(pair for pair in request.headers.raw if pair[0].lower() not in given), *given.items()],
        content=request.read(),
    )


def _plain(status: int, headers: list[Header], body: bytes) -> tuple[httpx.Response, float | None]:
    """The answer unpacked, within bounds, and the seconds that it asks to wait."""
    told = {b"retry-after": b"", b"content-encoding": b"identity"}
    kept = []
    for name, value in headers:
        lowered = name.lower()
        if lowered in told:
            told[lowered] = value
        else:
            kept.append((name, value))
    coding = told[b"content-encoding"].decode("latin-1").strip().lower()
    if coding != "identity":
        body = _unpacked(coding, body)
        kept = [pair for pair in kept if pair[0].lower() != b"content-length"]
        kept.append((b"content-length", b"%d" % len(body)))
    wait = retry_after({"retry-after": told[b"retry-after"].decode("latin-1")})
    if wait is not None:  # the SDKs read whole seconds only, and no dates
        kept.append((b"retry-after", b"%d" % ceil(wait)))
    return httpx.Response(status, headers=kept, stream=httpx.ByteStream(body)), wait


def _whole(stream: Any) -> bytes:
    parts, size = [], 0
    for part in stream:
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise AnswerTooLargeError(f"more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _unpacked(coding: str, body: bytes) -> bytes:
    if coding not in ("gzip", "deflate"):
        raise httpx.DecodingError(f"content-encoding {coding} was not asked for")
    try:
        return decompress(body, MAX_ANSWER_BYTES, GZIP_OR_DEFLATE)
    except DecompressedTooLargeError:
        raise AnswerTooLargeError(f"more than {MAX_ANSWER_BYTES} bytes, unpacked") from None
    except (zlib.error, EOFError):
        raise httpx.DecodingError(f"the answer is not valid {coding}") from None


@cache
def tls() -> ssl.SSLContext:
    """Whom to trust: the public authorities, or those of SSL_CERT_FILE or SSL_CERT_DIR."""
    try:
        return httpx.create_ssl_context()  # some 40 ms, once for both services
    except OSError as error:
        raise NotConfiguredError(
            f"The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error.strerror or error}"
        ) from None


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
    if not value:
        return None
    try:
        if value.replace(".", "", 1).isdecimal():
            return float(value) if isfinite(float(value)) else None
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
