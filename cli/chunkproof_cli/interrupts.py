"""Ctrl-C and SIGTERM during work whose result must not be lost."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After so many signals the process ends as if it did not handle them: writing the result may hang.
MAX_SIGNALS = 3


class Interrupts:
    """Raises `KeyboardInterrupt` at the first signal; from then on, or from `hold` on, signals wait.

    So neither what an interrupted run leaves nor a finished result is lost while it is written.
    """

    def __init__(self) -> None:
        self._is_holding = False
        self._signals = 0

    def hold(self) -> None:
        """Let signals wait: there is a result to write."""
        self._is_holding = True

    def release(self) -> None:
        """Raise at the next signal, and at once if one came meanwhile."""
        self._is_holding = False
        if self._signals:
            self._interrupt()

    def handle(self, number: int, _frame: object) -> None:
        """Handle a signal."""
        self._signals += 1
        if self._signals >= MAX_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._is_holding:
            self._interrupt()

    def _interrupt(self) -> None:
        self._is_holding = True
        raise KeyboardInterrupt


@contextmanager
def handle_interrupts() -> Iterator[Interrupts]:
    """Handle Ctrl-C and SIGTERM alike inside the block."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.handle) for number in SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
