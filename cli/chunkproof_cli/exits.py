"""Exit codes, and an end without complaints."""

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
)

TooLarge = RequestTooLargeError | ResponseTooLargeError
FAILED, WRONG_INPUT, COULD_NOT_JUDGE = 1, 2, 3


def exit_code(error: ChunkproofError) -> int:
    """1 a check failed, 2 wrong usage or input, 3 could not judge."""
    if isinstance(error, ChunkNotFoundError | CorruptChunkError):
        return FAILED
    if isinstance(error, InvalidParameterError | NotFoundError | SettingsError | ForbiddenError | TooLarge):
        return WRONG_INPUT
    return COULD_NOT_JUDGE


def discard_stdout() -> None:
    """When nobody reads on, or nothing can be written: nothing more to say, and no complaint at exit."""
    with suppress(UnsupportedOperation):  # not a file: nothing that could complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
