"""One kind of attack: how long or how often it goes on, and what it found."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

# A kind that is still busy this long after its time is stopped. An attempt may end late on a busy machine.
GRACE = 1.15
MORE_SECONDS = 2.0


class TimeOverError(BaseException):
    """The kind is stopped. No handler of exceptions in the product may take it for an error of its own."""


class Attack:
    """Attempts of one kind: for this many seconds, or at most `most` attempts if that is given.

    `rng` makes the same attempts from the same seed.
    """

    def __init__(self, kind: str, seed: int, seconds: float = 0.0, most: int | None = None) -> None:
        self.kind = kind
        self.seed = seed
        self.rng = random.Random(seed)
        self.most = most
        self.tried = 0
        self.held = 0
        self.slowest = 0.0
        self.details: list[str] = []
        self._seconds = seconds
        self._started = time.monotonic()

    @property
    def is_counted(self) -> bool:
        """Whether a number of attempts was given, and not a time."""
        return self.most is not None

    def goes_on(self) -> bool:
        """Whether to try again."""
        if self.most is not None:
            return self.tried < self.most
        return not self.tried or time.monotonic() < self._started + self._seconds

    def note(self, seconds: float, wrong: str | None = None) -> None:
        """Count an attempt that took so long, and what went wrong."""
        self.tried += 1
        self.held += wrong is None
        self.slowest = max(self.slowest, seconds)
        if wrong is not None:
            self.details.append(wrong)

    @contextmanager
    def limit_time(self) -> Iterator[None]:
        """Stop the block somewhat after the time of this kind; a counted one takes as long as it takes."""

        def stop(*_: object) -> None:
            raise TimeOverError

        before = signal.signal(signal.SIGALRM, stop)
        if not self.is_counted:
            signal.setitimer(signal.ITIMER_REAL, self._seconds * GRACE + MORE_SECONDS)
        try:
            yield
        except TimeOverError:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
