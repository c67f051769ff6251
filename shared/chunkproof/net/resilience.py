"""Calls of services: when one is repeated, when a failing service is left alone, and which error a failure becomes.

One policy for Qdrant and the embedding services; the SDKs' own retries are off. A failed call is repeated at most once.
A circuit breaker counts failures in a row: while it is open, a dead service costs a request microseconds, not its whole
budget. Errors leak no key, path or text of another service.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite
from random import SystemRandom
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

import httpx
from pydantic_core import from_json

from chunkproof.base.errors import ChunkproofError, RateLimitedError, UnavailableError
from chunkproof.base.request import Deadline

# One repetition at most: a service in trouble gets no more than twice the calls.
MAX_ATTEMPTS = 2
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
# Calls with these methods only read, in both APIs. A write is repeated only if no connection was made.
READ_METHODS = frozenset({"GET", "POST"})
MAX_JITTER_S = 0.2
# Neither service responds in less time than this.
MIN_CALL_MS = 100.0
# More bytes than a usual call has, either way: a search by a vector takes up to 250 kB.
LARGE_BYTES = 256 * 1024
# The circuit opens after this many failures in a row, and stays open for this long.
MAX_FAILURES = 5
OPEN_S = 5.0

# A longer wait is passed on as this: no caller waits for days because a server says so.
MAX_RETRY_AFTER_S = 3_600.0
# What code raises that reads a response which is not one of the API.
MALFORMED = (httpx.HTTPError, ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError)

Result = TypeVar("Result")
Refusal = Callable[[int, str], ChunkproofError | None]

log = logging.getLogger(__name__)
# A Lambda snapshot copies the state of other generators, and all its copies would retry in step.
_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call and its outcome: the status of the response, or an error."""

    method: str
    took_ms: float
    status: int | None = None
    retry_after: float | None = None
    error: httpx.TransportError | None = None
    response: httpx.Response | None = None
    # A kept-alive connection broke before the first byte of the response.
    was_stale: bool = False
    # Of the request, or of the response as far as it was read: the larger.
    size: int = 0

    @property
    def is_worth_repeating(self) -> bool:
        """Whether the same call may succeed a moment later."""
        if self.status is not None:
            return self.status in RETRIED_STATUSES and self.method in READ_METHODS
        if isinstance(self.error, httpx.ConnectError):
            return True
        return self.was_stale and self.method in READ_METHODS

    def is_service_failure(self, deadline: Deadline | None) -> bool | None:
        """Whether the service is at fault; None when the outcome says nothing about the service.

        A large call may fail by what it asks for alone: a server drops the connection, or the time does not suffice.
        That must not stop the calls of others. Only a service to which there is no connection is at fault then.
        """
        is_large = self.size > LARGE_BYTES or (deadline is not None and deadline.is_heavy)
        if self.status is not None:
            return False if self.status < 500 else None if is_large else True
        if is_large and not isinstance(self.error, httpx.ConnectError | httpx.ConnectTimeout):
            return None
        if isinstance(self.error, httpx.TimeoutException) and deadline is not None:
            # An earlier call may have left too little time for any service to respond in.
            return True if self.took_ms >= max(1.0, deadline.budget_ms / 4) else None
        return None if self.was_stale else True


def pause_before_retry(attempt: Attempt, number: int, deadline: Deadline | None) -> float | None:
    """Return the seconds to wait before the next attempt, or None when there should be none.

    `number` counts attempts from 1. The pause and another call as long as the last must fit into the time left.
    """
    if number >= MAX_ATTEMPTS or not attempt.is_worth_repeating:
        return None
    jitter = 0.0 if attempt.was_stale else _random.uniform(0.0, MAX_JITTER_S)
    pause = jitter + (attempt.retry_after or 0.0)
    if deadline is None:
        return pause if pause <= MAX_JITTER_S else None
    left_ms = deadline.remaining_ms() - pause * 1000
    return pause if left_ms >= max(attempt.took_ms, MIN_CALL_MS) else None


class CircuitState(StrEnum):
    """Closed lets every call through, open none, half-open one as a probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitOpenError(httpx.TransportError):
    """The call was not made, because the service failed too often."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the circuit is open")
        self.retry_after = retry_after


class CircuitBreaker:
    """Stops calls to a service after several failures in a row.

    After `open_s` seconds one call goes through as a probe: its outcome closes the circuit or opens it again.
    """

    def __init__(self, service: str, max_failures: float = MAX_FAILURES, open_s: float = OPEN_S) -> None:
        self.service = service
        self._max_failures = max_failures
        self._open_s = open_s
        self._failures = 0
        self._open_until = 0.0
        self._is_probing = False
        self._lock = Lock()

    @property
    def state(self) -> CircuitState:
        """The state that the next call will meet."""
        if self._failures < self._max_failures:
            return CircuitState.CLOSED
        is_open = self._is_probing or monotonic() < self._open_until
        return CircuitState.OPEN if is_open else CircuitState.HALF_OPEN

    def admit(self) -> bool:
        """Let a call through and return whether it is the probe; the caller must `record` its outcome.

        Raises `CircuitOpenError` at once while the circuit is open.
        """
        if not self._failures:
            return False
        with self._lock:
            state = self.state
            if state is CircuitState.OPEN:
                raise CircuitOpenError(max(self._open_until - monotonic(), 1.0))
            is_probe = state is CircuitState.HALF_OPEN
            self._is_probing = is_probe
        return is_probe

    def record(self, *, failed: bool | None, is_probe: bool = False) -> None:
        """Record the outcome of a call; None when it says nothing about the service."""
        if failed is False and not self._failures:
            return
        with self._lock:
            was_open = self._failures >= self._max_failures
            if is_probe:
                self._is_probing = False
            if failed is None:
                return
            self._failures = self._failures + 1 if failed else 0
            is_open = self._failures >= self._max_failures
            if is_open:
                self._open_until = monotonic() + self._open_s
        if is_open != was_open:
            log.warning("circuit %s", "opened" if is_open else "closed", extra={"dependency": self.service})


class UpstreamResponseTooLargeError(httpx.TransportError):
    """The response of a service, as sent or decompressed, is larger than `MAX_RESPONSE_BYTES`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route of an API: its path, what it returns, and the errors that its failures become.

    Messages advise to check the last three: the settings of a refused request (4xx), what a 401 or 403 refuses with
    its setting, and the setting of the address.
    """

    path: str
    returns: str
    failed: type[UnavailableError]
    timed_out: type[UnavailableError]
    disconnected: type[UnavailableError]
    wrong_request: str
    refused: str = "the key; check COHERE_API_KEY"
    address: str = "COHERE_BASE_URL"


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """A call of an endpoint of a host, for a model."""

    endpoint: Endpoint
    host: str
    model: str

    def run(
        self,
        send: Callable[[], httpx.Response],
        read: Callable[[Any], Result],
        deadline: Deadline,
        refusal: Refusal = lambda _status, _text: None,
    ) -> Result:
        """Send a request and return what `read` takes from the JSON of the response; a failure is Chunkproof's error.

        `refusal` may return the error for a status and the text of its response; None leaves it to the usual ones.
        """
        error: ChunkproofError
        endpoint, host = self.endpoint, self.host
        try:
            with deadline.enforced():
                response = send()
                if response.is_success:
                    return read(from_json(response.content))
            error = refusal(response.status_code, response.text) or self._status_error(response)
        except CircuitOpenError as opened:
            error = endpoint.failed(
                f"{host} failed repeatedly; calls to it are paused for a moment", retry_after=opened.retry_after
            )
        except UpstreamResponseTooLargeError:
            error = endpoint.failed(f"{host} sent more bytes than any {endpoint.returns} has")
        except httpx.TimeoutException:
            error = endpoint.timed_out(f"{host} did not answer in time")
        except httpx.ConnectError:
            error = endpoint.disconnected(f"{host} could not be reached; check the network and {endpoint.address}")
        except httpx.TransportError:
            error = endpoint.disconnected(f"{host} closed the connection before the response was complete")
        except ChunkproofError:  # such as a key that could not be read
            raise
        except MALFORMED:
            article = "an" if endpoint.returns[0] in "aeiou" else "a"
            error = endpoint.failed(f"{host} sent a response that is not {article} {endpoint.returns}")
        raise error from None

    def _status_error(self, response: httpx.Response) -> ChunkproofError:
        endpoint, status = self.endpoint, response.status_code
        wait = retry_after(response.headers)
        if status in (401, 403):
            return endpoint.failed(f"{self.host} refused {endpoint.refused}")
        if status == 404:
            setting = re.split(r" (?:and|or) ", endpoint.wrong_request)[0]
            return endpoint.failed(f"{self.host} does not know the model {self.model}; check {setting}")
        if status == 429:
            limited = f"{self.host} limits the rate of {endpoint.returns}s; try again later"
            return RateLimitedError(limited, retry_after=wait)
        if status in (408, 504):
            return endpoint.timed_out(f"{self.host} timed out ({status})", retry_after=wait)
        hint = f"; check {endpoint.wrong_request}" if 400 <= status < 500 else ""
        return endpoint.failed(f"{self.host} answered {status}{hint}", retry_after=wait)


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Return the seconds to wait, an hour at most, from a `retry-after` header in seconds or as a date."""
    value = {name.lower(): text for name, text in (headers or {}).items()}.get("retry-after", "").strip()
    if not value:
        return None
    try:
        if value.replace(".", "", 1).isdecimal():
            return min(MAX_RETRY_AFTER_S, float(value)) if isfinite(float(value)) else None
        wait = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        return min(MAX_RETRY_AFTER_S, max(0.0, wait))
    except (ValueError, TypeError, OverflowError):
        return None
