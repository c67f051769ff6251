"""Measure what logs and metrics cost a request: the warm handler with and without them, in turn, in one run.

The request is the shortest there is, so that the share is the greatest there is: one round trip to a Qdrant
server on this machine, no embedder. Log lines go into a pipe, as in Lambda.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from operator import sub, truediv
from statistics import median
from time import perf_counter_ns
from unittest.mock import patch

from chunkproof.service import telemetry
from chunkproof.service.api import Api

from support.api import Event, invoke, new_process, post
from support.cloud import handbook_host
from support.qdrant_server import NoServerError

BASE = "stages timed, nothing emitted"
ROUNDS = 1_000
WARM_UP = 50
# The official client keeps no connection to 127.0.0.1.
ADDRESS = "127.0.0.2"
REQUESTS = {
    "POST /search, embedding cached": post("/search", {"query_text": "How do I take a backup?"}),
    "POST /validate-chunk": post("/validate-chunk", {"chunk_id": "vectordb-operations-00", "original_text": "x"}),
}


def _nothing(*_: object) -> None:
    pass


def _without(*parts: AbstractContextManager[object]) -> AbstractContextManager[object]:
    stack = ExitStack()
    for part in parts:
        stack.enter_context(part)
    return stack


VARIANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    BASE: lambda: _without(patch.object(Api, "_emit_telemetry", _nothing)),
    "and the log line": lambda: _without(patch.object(telemetry, "emit_metrics", _nothing)),
    "and the metrics: as it is": nullcontext,
}


def measure(event: Event) -> dict[str, list[float]]:
    """Microseconds of each variant, round by round; who begins a round changes."""
    taken: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(WARM_UP + ROUNDS):
        names = list(VARIANTS)
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            with VARIANTS[name]():
                started = perf_counter_ns()
                invoke(event)
                ended = perf_counter_ns()
            taken[name].append((ended - started) / 1000)
    return {name: times[WARM_UP:] for name, times in taken.items()}


def table(title: str, taken: dict[str, list[float]]) -> Iterator[str]:
    """Compare within a round: other work on the machine slows all variants of a round alike."""
    without = taken[BASE]
    yield f"{title}: medians of {ROUNDS} rounds"
    for name, times in taken.items():
        whole, more = median(times), median(map(sub, times, without))
        ratio = median(map(truediv, times, without))
        yield f"  {name:<26}{whole:8.0f} µs  {ratio:5.2f}x  {more:+6.0f} µs  {more / whole:6.1%} of the handler"


@contextmanager
def lines_into_a_pipe() -> Iterator[None]:
    """Write standard output line by line into a pipe that is read continuously, as in Lambda."""
    ours = os.dup(1)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None
        os.dup2(reader.stdin.fileno(), 1)
        reader.stdin.close()
        sys.stdout.reconfigure(line_buffering=True)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(ours, 1)
            os.close(ours)


def main() -> None:
    with handbook_host("0.0.0.0") as host:
        os.environ.update(host.variables(ADDRESS))
        with new_process(), lines_into_a_pipe():
            measured = {title: measure(event) for title, event in REQUESTS.items()}
    for title, taken in measured.items():
        print("\n".join(table(title, taken)))


if __name__ == "__main__":
    try:
        main()
    except NoServerError as reason:
        sys.exit(f"This needs a Qdrant server: {reason}")
