"""Sort any number of lines in constant memory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import reduce
from heapq import merge
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeVar

T = TypeVar("T")

# The size of one sorted run: small compared with the Python process itself, large enough to keep runs few.
RUN_BYTES = 4 * 1024 * 1024
# What Python adds to the bytes of each line.
LINE_OVERHEAD = 80
# Files open at a time; beyond that, runs are merged into one.
MAX_RUNS = 64


class Sorter:
    """Sorts lines, each ending in a newline, by their bytes.

    Runs are unnamed files in the folder, which the system removes even after a crash.
    """

    def __init__(self, folder: Path, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._lines: list[bytes] = []
        self._held_bytes = 0
        self._runs: list[IO[bytes]] = []
        self._open_files = ExitStack()
        self.count = 0

    def add(self, line: bytes) -> None:
        """Add one line."""
        self._lines.append(line)
        self._held_bytes += len(line) + LINE_OVERHEAD
        self.count += 1
        if self._held_bytes > self._run_bytes:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        """Yield all lines in order, once: the runs are removed at the end."""
        self._lines.sort()
        try:
            yield from merge(*self._rewind_runs(), self._lines) if self._runs else self._lines
        finally:
            self.close()

    def close(self) -> None:
        """Close the files, which removes them."""
        self._open_files.close()
        self._runs, self._lines = [], []

    def _spill(self) -> None:
        self._lines.sort()
        self._runs.append(self._write_run(self._lines))
        self._lines, self._held_bytes = [], 0
        if len(self._runs) >= MAX_RUNS:
            merged = self._write_run(merge(*self._rewind_runs()))
            for run in self._runs:
                run.close()
            self._runs = [merged]

    def _write_run(self, lines: Iterable[bytes]) -> IO[bytes]:
        run = TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the sorter
        self._open_files.callback(run.close)
        run.writelines(lines)
        return run

    def _rewind_runs(self) -> list[IO[bytes]]:
        for run in self._runs:
            run.seek(0)
        return self._runs


def merge_neighbours(items: Iterable[T], key: Callable[[T], object], merge_two: Callable[[T, T], T]) -> Iterator[T]:
    """Merge neighbours with the same key into one; items whose key is None are left alone."""
    for shared_key, group in groupby(items, key=key):
        if shared_key is None:
            yield from group
        else:
            yield reduce(merge_two, group)
