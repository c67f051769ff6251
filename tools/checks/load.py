"""Load the handlers from many clients while the Qdrant server is killed and restarted (`make test-load`).

Exit 1 when a response came too late or was a 500, or when no search succeeded after the restart.
"""

import argparse
import gc
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

from chunkproof_cli.local.gateway import FUNCTIONS, load_function

from support.api import invoke, new_process, post
from support.fault_table import DEADLINE_MS, Setup, fault_setup
from support.qdrant_server import NoServerError
from support.quiet import silence_handlers

# Threads share a processor here; in Lambda each request has its own.
GRACE_MS = 1_000
LONGEST_RECOVERY_S = 10.0
LARGEST_GROWTH_MB = 50.0
QUERIES = 200
PAUSE_S = 0.005


@dataclass
class Tally:
    """What all clients saw."""

    codes: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    lock: Lock = field(default_factory=Lock)
    restarted_at: float | None = None
    first_success_s: float | None = None

    def add(self, code: str, ms: float) -> None:
        with self.lock:
            self.codes[code] += 1
            self.slowest_ms = max(self.slowest_ms, ms)
            if code == "200" and self.restarted_at is not None and self.first_success_s is None:
                self.first_success_s = time.monotonic() - self.restarted_at


def client(number: int, stopped: Event, tally: Tally) -> None:
    turn = number
    while not stopped.is_set():
        turn += 1
        if turn % 4:
            event = post("/search", {"query_text": f"question {turn % QUERIES}", "top_k": 3})
        else:
            event = post("/validate-chunk", {"chunk_id": "1", "original_text": "one"})
        started = time.monotonic()
        reply = invoke(event)
        ms = (time.monotonic() - started) * 1000
        tally.add("200" if reply.status == 200 else f"{reply.status} {reply.code}", ms)
        time.sleep(PAUSE_S)


def memory_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def run(setup: Setup, clients: int, seconds: float, say: Callable[[str], None]) -> int:
    tally, stopped = Tally(), Event()
    for name in FUNCTIONS:  # the code is loaded before a request comes, as in Lambda
        load_function(name)
    with new_process(), ThreadPoolExecutor(clients) as pool:
        for number in range(clients):
            pool.submit(client, number * 17, stopped, tally)
        time.sleep(seconds / 3)
        before = memory_mb()
        setup.server.stop()
        time.sleep(seconds / 3)
        setup.server.start()
        tally.restarted_at = time.monotonic()
        while tally.first_success_s is None and time.monotonic() - tally.restarted_at < LONGEST_RECOVERY_S:
            time.sleep(0.05)
        time.sleep(seconds / 3)
        stopped.set()
    growth = memory_mb() - before
    total = sum(tally.codes.values())
    say(f"{total} requests by {clients} clients in {seconds:.0f} s, the server killed for a third of it")
    for code, count in tally.codes.most_common():
        say(f"  {count:6}  {code}")
    say(f"slowest answer        {tally.slowest_ms:7.0f} ms (deadline {DEADLINE_MS} ms)")
    recovery = tally.first_success_s
    say(f"first success         {'never' if recovery is None else f'{recovery:7.2f} s after the server was back'}")
    say(f"memory                {before:7.0f} MB, then {growth:+.1f} MB")
    bad = [
        tally.slowest_ms > DEADLINE_MS + GRACE_MS,
        recovery is None or recovery > LONGEST_RECOVERY_S,
        any(code.startswith("500") for code in tally.codes),
        growth > LARGEST_GROWTH_MB,
    ]
    return int(any(bad))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=15)
    given = parser.parse_args()
    with silence_handlers() as say, fault_setup() as setup:
        return run(setup, given.clients, given.seconds, say)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoServerError as reason:
        sys.exit(f"This needs a Qdrant server: {reason}")
