"""When to repeat a failed call, and when to stop calling a failing service.

One policy for Qdrant and Cohere; the SDKs' own retries are off. A failed call is repeated at most once. A circuit
breaker counts failures in a row: while it is open, a dead service costs a request microseconds, not its whole budget.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum
from random import SystemRandom
from threading import Lock
from time import monotonic

import httpx

from chunkproof.deadline import Deadline

# One repetition at most: a service in trouble gets no more than twice the calls.
MAX_ATTEMPTS = 2
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
# Calls with these methods only read, in both APIs. A write is repeated only if no connection was made.
READ_METHODS = frozenset({"GET", "POST"})
MAX_JITTER_S = 0.2
# Neither service responds in less time than this.
MIN_CALL_MS = 100.0
# The circuit opens after this many failures in a row, and stays open for this long.
MAX_FAILURES = 5
OPEN_S = 5.0

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
    # A kept-alive connection broke before the first byte of the response.
    was_stale: bool = False

    @property
    def is_worth_repeating(self) -> bool:
        """Whether the same call may succeed a moment later."""
        if self.status is not None:
            return self.status in RETRIED_STATUSES and self.method in READ_METHODS
        if isinstance(self.error, httpx.ConnectError):
            return True
        return self.was_stale and self.method in READ_METHODS

    def is_service_failure(self, deadline: Deadline | None) -> bool | None:
        """Whether the service is at fault; None when the outcome says nothing about the service."""
        if self.status is not None:
            return self.status >= 500
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
    """Stops calls to a service after so many failures in a row.

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
        with self._lock:
            state = self.state
            if state is CircuitState.OPEN:
                raise CircuitOpenError(max(self._open_until - monotonic(), 1.0))
            is_probe = state is CircuitState.HALF_OPEN
            self._is_probing = is_probe
        return is_probe

    def record(self, *, failed: bool | None, is_probe: bool = False) -> None:
        """Record the outcome of a call; None when it says nothing about the service."""
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
