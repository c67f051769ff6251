"""A circuit breaker: a dead service costs microseconds, not the whole budget of every request."""

import logging
from enum import StrEnum
from threading import Lock
from time import monotonic

import httpx

FAILURES = 5
REST_S = 5.0

log = logging.getLogger(__name__)


class Circuit(StrEnum):
    """Closed lets calls through, open none; half-open lets one through to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitOpenError(httpx.TransportError):
    """The service failed so often that it was not asked again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the circuit is open")
        self.retry_after = retry_after


class Breaker:
    """Opens after so many failures in a row; after a rest, one call is the probe that closes it or not."""

    def __init__(self, service: str, failures: float = FAILURES, rest_s: float = REST_S) -> None:
        self.service = service
        self._failures = failures
        self._rest_s = rest_s
        self._failed = 0
        self._open_until = 0.0
        self._is_probing = False
        self._lock = Lock()

    @property
    def state(self) -> Circuit:
        """What the next call would meet."""
        if self._failed < self._failures:
            return Circuit.CLOSED
        return Circuit.OPEN if self._is_probing or monotonic() < self._open_until else Circuit.HALF_OPEN

    def admit(self) -> bool:
        """Let a call through, which must then be recorded, and say whether it is the probe.

        Raises `CircuitOpenError` at once while the circuit is open.
        """
        with self._lock:
            state = self.state
            if state is Circuit.OPEN:
                raise CircuitOpenError(max(self._open_until - monotonic(), 1.0))
            is_probe = state is Circuit.HALF_OPEN
            self._is_probing = is_probe
        return is_probe

    def record(self, *, failed: bool | None, is_probe: bool = False) -> None:
        """How the call went; None when it tells nothing about the service."""
        with self._lock:
            was_open = self._failed >= self._failures
            if is_probe:
                self._is_probing = False
            if failed is None:
                return
            self._failed = self._failed + 1 if failed else 0
            is_open = self._failed >= self._failures
            if is_open:
                self._open_until = monotonic() + self._rest_s
        if is_open != was_open:
            log.warning("circuit %s", "opened" if is_open else "closed", extra={"dependency": self.service})
