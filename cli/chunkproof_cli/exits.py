"""Exit codes, and a quiet end when standard output is closed."""

import os
import sys
from contextlib import suppress
from io import UnsupportedOperation

from chunkproof.errors import (
    ChunkNotFoundError,
    ChunkproofError,
    CorruptChunkError,
    ForbiddenError,
    InvalidParameterError,
    NotFoundError,
    RequestTooLargeError,
    ResponseTooLargeError,
    SettingsError,
    error_classes,
)

TooLarge = RequestTooLargeError | ResponseTooLargeError
FAILED, WRONG_INPUT, COULD_NOT_JUDGE = 1, 2, 3


def exit_code(error: ChunkproofError) -> int:
    """Return 1 when a check failed, 2 for wrong usage or input, 3 when it could not be judged."""
    if isinstance(error, ChunkNotFoundError | CorruptChunkError):
        return FAILED
    if isinstance(error, InvalidParameterError | NotFoundError | SettingsError | ForbiddenError | TooLarge):
        return WRONG_INPUT
    return COULD_NOT_JUDGE


def rebuild_error(code: str, messages: list[str]) -> ChunkproofError:
    """Rebuild an error from its code, so that exit codes are the same with and without `--api`."""
    kinds = [kind for kind in error_classes() if kind.code == code]
    kind = min(kinds, key=lambda k: len(k.__mro__), default=ChunkproofError)
    error = kind.__new__(kind)  # the constructors of some kinds compose the message themselves
    ChunkproofError.__init__(error, *messages)
    return error


def discard_stdout() -> None:
    """Send further output to the null device, so that Python reports no failed write at exit."""
    with suppress(UnsupportedOperation):  # not a file: no write can fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
