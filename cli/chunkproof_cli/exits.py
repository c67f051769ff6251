"""Exit codes, a closed standard output, and signals that must not lose a result."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation

from chunkproof.base import errors

TooLarge = errors.RequestTooLargeError | errors.ResponseTooLargeError
FAILED, WRONG_INPUT, COULD_NOT_JUDGE, INTERRUPTED = 1, 2, 3, 130


def exit_code(error: errors.ChunkproofError) -> int:
    """Return 1 when a check failed, 2 for wrong usage or input, 3 when it could not be judged."""
    if isinstance(error, errors.ChunkNotFoundError | errors.CorruptChunkError):
        return FAILED
    if isinstance(
        error,
        errors.InvalidParameterError | errors.NotFoundError | errors.SettingsError | errors.ForbiddenError | TooLarge,
    ):
        return WRONG_INPUT
    return COULD_NOT_JUDGE


def rebuild_error(code: str, messages: list[str]) -> errors.ChunkproofError:
    """Rebuild an error from its code, so that exit codes are the same with and without `--api`."""
    kinds = [kind for kind in errors.error_classes() if kind.code == code]
    kind = min(kinds, key=lambda k: len(k.__mro__), default=errors.ChunkproofError)
    error = kind.__new__(kind)  # the constructors of some kinds compose the message themselves
    errors.ChunkproofError.__init__(error, *messages)
    return error


def discard_stdout() -> None:
    """Send further output to the null device, so that Python reports no failed write at exit."""
    with suppress(UnsupportedOperation):  # not a file: no write can fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


SIGNALS = (signal.SIGINT, signal.SIGTERM)
# This many signals end the process at once: writing the result may hang.
MAX_SIGNALS = 3


class Interrupts:
    """Raises `KeyboardInterrupt` at the first signal; from then on, or from `hold` on, signals wait.

    This way, neither a partial nor a finished result is lost while it is written.
    """

    def __init__(self) -> None:
        self._is_holding = False
        self._signals = 0

    def hold(self) -> None:
        """Let signals wait: there is a result to write."""
        self._is_holding = True

    def release(self) -> None:
        """Let the next signal interrupt again; interrupt at once if a signal was held."""
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
