"""The time budget of a request: created when it arrives, passed down, and enforced on every call."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from threading import Thread
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")

_current: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """How long a request has taken and may still take."""

    def __init__(self, budget_ms: float) -> None:
        self.budget_ms = budget_ms
        self.max_response_bytes: int | None = None
        self._started = monotonic()

    @property
    def started_at(self) -> float:
        """When the request arrived, on the clock of `time.monotonic`."""
        return self._started

    def limit_responses(self, max_bytes: int) -> "Deadline":
        """Return the same deadline, for calls whose responses have at most so many bytes.

        Reading a response costs processor time in proportion to its size, which no timeout of a socket limits.
        """
        limited = copy(self)
        limited.max_response_bytes = max_bytes
        return limited

    def less(self, ms: float) -> "Deadline":
        """Return a deadline that is so many milliseconds earlier, for a call after which something else must follow."""
        earlier = copy(self)
        earlier.budget_ms = self.budget_ms - ms
        return earlier

    def elapsed_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return (monotonic() - self._started) * 1000

    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, self.budget_ms - self.elapsed_ms())

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Limit every HTTP call inside the block to the time that is left.

        Only clients use it, around a call of an SDK. Everywhere else the deadline is an argument. It exists because
        the SDKs of Qdrant and Cohere take no deadline per call: the transport below them reads it with `current`.
        """
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def current() -> Deadline | None:
    """Return the deadline that is enforced here, if any."""
    return _current.get()


def run_with_timeout(call: Callable[[], Result], seconds: float) -> Result:
    """Run a call that takes no timeout, and raise `TimeoutError` after this many seconds.

    The call runs in a thread of its own, where no deadline is enforced. A call that takes longer goes on in its
    thread, and its result is dropped.
    """
    return start(call).result(seconds)


def start(call: Callable[[], Result]) -> "Future[Result]":
    """Run a call in a thread of its own, where no deadline is enforced yet."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return outcome


class Stopwatch:
    """Milliseconds since it was created; every stage of a request is timed with one."""

    def __init__(self) -> None:
        self._started = monotonic()

    def ms(self) -> float:
        """Elapsed milliseconds, to the microsecond."""
        return round((monotonic() - self._started) * 1000, 3)
