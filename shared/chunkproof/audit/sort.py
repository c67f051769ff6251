"""Lines in order, however many there are, in constant memory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import reduce
from heapq import merge
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeVar

T = TypeVar("T")

# What one run holds: small beside what a Python process needs anyway, large enough to keep runs few.
RUN_BYTES = 4 * 1024 * 1024
# Each line costs its object as well.
LINE_COST = 80
# Open files at a time; beyond that, runs are merged into one.
MOST_RUNS = 64


class Sorter:
    """Takes lines, each ending in a newline, and gives them back sorted by their bytes.

    Runs go to unnamed files in the folder, which the system removes whatever happens.
    """

    def __init__(self, folder: Path, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._lines: list[bytes] = []
        self._held = 0
        self._runs: list[IO[bytes]] = []
        self._open = ExitStack()
        self.count = 0

    def add(self, line: bytes) -> None:
        """One more line."""
        self._lines.append(line)
        self._held += len(line) + LINE_COST
        self.count += 1
        if self._held > self._run_bytes:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """All lines in order, once: the runs are gone at the end."""
        self._lines.sort()
        try:
            yield from merge(*self._rewound(), self._lines) if self._runs else self._lines
        finally:
            self.close()

    def close(self) -> None:
        """Give the files back."""
        self._open.close()
        self._runs, self._lines = [], []

    def _spill(self) -> None:
        self._lines.sort()
        self._runs.append(self._written(self._lines))
        self._lines, self._held = [], 0
        if len(self._runs) >= MOST_RUNS:
            merged = self._written(merge(*self._rewound()))
            for run in self._runs:
                run.close()
            self._runs = [merged]

    def _written(self, lines: Iterable[bytes]) -> IO[bytes]:
        run = TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the sorter
        self._open.callback(run.close)
        run.writelines(lines)
        return run

    def _rewound(self) -> list[IO[bytes]]:
        for run in self._runs:
            run.seek(0)
        return self._runs


def neighbours_joined(
    items: Iterable[T], key: Callable[[T], object], joined: Callable[[T, T], T]
) -> Iterator[T]:
    """Items in order, where neighbours with the same key become one; an item without a key stays by itself."""
    for shared, same in groupby(items, key=key):
        if shared is None:
            yield from same
        else:
            yield reduce(joined, same)
