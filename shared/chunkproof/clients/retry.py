"""When a failed call is worth repeating: the one policy for both services, whose SDKs' own retries are off."""

from dataclasses import dataclass
from random import SystemRandom

import httpx

from chunkproof.deadline import Deadline

# One repetition at most: a service in trouble gets no more than twice the calls.
ATTEMPTS = 2
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
# Calls of both APIs that only read; a write is repeated only when it never left.
READS = frozenset({"GET", "POST"})
LONGEST_PAUSE_S = 0.2
# Less than this holds no answer of either service.
SHORTEST_CALL_MS = 100.0

_random = SystemRandom()  # a snapshot clones other random state, and its copies would retry in step


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call and how it went: an answer's status, or an error."""

    method: str
    took_ms: float
    status: int | None = None
    retry_after: float | None = None
    error: httpx.TransportError | None = None
    # The connection had been kept alive, and not a byte of an answer came over it.
    was_stale: bool = False

    @property
    def is_passing(self) -> bool:
        """Whether the same call may well succeed a moment later."""
        if self.status is not None:
            return self.status in RETRIED_STATUSES and self.method in READS
        if isinstance(self.error, httpx.ConnectError):
            return True
        return self.was_stale and self.method in READS

    def blames(self, budget: Deadline | None) -> bool | None:
        """Whether the service is at fault; None when the call says nothing about it."""
        if self.status is not None:
            return self.status >= 500
        if isinstance(self.error, httpx.TimeoutException) and budget is not None:
            # What another service left over may be too little for anyone.
            return True if self.took_ms >= max(1.0, budget.budget_ms / 4) else None
        return None if self.was_stale else True


def pause_before_retry(attempt: Attempt, number: int, budget: Deadline | None) -> float | None:
    """Seconds to wait before the next attempt; None when there is to be none."""
    if number >= ATTEMPTS or not attempt.is_passing:
        return None
    jitter = 0.0 if attempt.was_stale else _random.uniform(0.0, LONGEST_PAUSE_S)
    pause = jitter + (attempt.retry_after or 0.0)
    if budget is None:
        return pause if pause <= LONGEST_PAUSE_S else None
    left_ms = budget.remaining_ms() - pause * 1000
    return pause if left_ms >= max(attempt.took_ms, SHORTEST_CALL_MS) else None
