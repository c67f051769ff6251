"""Standard output without the handlers' log lines."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def silence_handlers() -> Iterator[Callable[[str], None]]:
    """Drop what handlers print; yield a function that prints a line."""
    terminal = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield lambda line: _write(terminal, line)
    finally:
        os.dup2(terminal, 1)
        os.close(terminal)


def _write(terminal: int, line: str) -> None:
    os.write(terminal, f"{line}\n".encode())
