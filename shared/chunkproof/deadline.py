"""The time budget of a request: created when it arrives, passed down, applied to every call."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")

_current: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """How long a request has taken and may still take."""

    def __init__(self, budget_ms: float) -> None:
        self.budget_ms = budget_ms
        self._started = monotonic()

    def elapsed_ms(self) -> float:
        """Milliseconds since the request arrived."""
        return (monotonic() - self._started) * 1000

    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, self.budget_ms - self.elapsed_ms())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Bound every HTTP call made inside by what is left of this budget.

        The SDKs take no deadline per call, so their shared transport looks here for it.
        """
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def current() -> Deadline | None:
    """The deadline applied around this call, if any."""
    return _current.get()


def run_with_timeout(call: Callable[[], Result], seconds: float) -> Result:
    """What a call gives that takes no timeout, or `TimeoutError` after so many seconds.

    It runs in a thread of its own, which is left behind when it takes longer, and sees no deadline there.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again, where it is waited for
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return outcome.result(seconds)


class Stopwatch:
    """Milliseconds since it was made; the one way a stage is timed."""

    def __init__(self) -> None:
        self._started = monotonic()

    def ms(self) -> float:
        """Elapsed milliseconds, to the microsecond."""
        return round((monotonic() - self._started) * 1000, 3)
