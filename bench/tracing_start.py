"""Measure what tracing costs at start-up: a fresh process up to its first response, with and without, in turn."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter_ns

TESTS = Path(__file__).resolve().parents[1] / "tests"
ROUNDS = 9
ANSWER = "from support.api import get, invoke; assert invoke(get('/health')).status == 200"


def start_ms(tracing: str) -> float:
    """Milliseconds from the start of a process to the end of its first request."""
    env = {**os.environ, "PYTHONPATH": str(TESTS), **({"OTEL_TRACES_EXPORTER": "console"} if tracing == "true" else {})}
    started = perf_counter_ns()
    subprocess.run([sys.executable, "-c", ANSWER], env=env, check=True, stdout=subprocess.DEVNULL)
    return (perf_counter_ns() - started) / 1e6


def main() -> None:
    start_ms("true")  # bytecode is written
    rounds = [(start_ms("false"), start_ms("true")) for _ in range(ROUNDS)]
    off, on = (median(times) for times in zip(*rounds, strict=True))
    more = median(with_it - without for without, with_it in rounds)
    print(f"A process up to its first answer: medians of {ROUNDS} rounds")
    print(f"  tracing off  {off:6.0f} ms")
    print(f"  tracing on   {on:6.0f} ms  {on / off:5.2f}x  {more:+5.0f} ms (its API alone, without an exporter)")


if __name__ == "__main__":
    main()
