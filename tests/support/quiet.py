"""Standard output for a tool's own words, while the handlers' log lines go nowhere."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def silence_handlers() -> Iterator[Callable[[str], None]]:
    """What handlers print is dropped; the function given prints a line for the reader."""
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
