"""Concurrency: `chunkproof serve` with 1 to 32 clients that ask one search after another."""

import json
import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from bench.process import ContestantError
from bench.results import Part
from support.qdrant_server import free_port
from support.serving import Serving, start, wait_until_ready

CLIENTS = (1, 2, 4, 8, 16, 32)
TOP_K = 10
TICKS = os.sysconf("SC_CLK_TCK")


def measure_serve(services: Mapping[str, str], seconds: float) -> Part:
    """Requests per second, the time of one as its client sees it, and the server's processor time for it."""
    part = Part("serve", f"concurrency: chunkproof serve, {seconds:.0f} s with each number of clients")
    with tempfile.TemporaryDirectory() as folder:
        port, log = free_port(), Path(folder) / "stderr"
        env = {**os.environ, **services, "CHUNKPROOF_COLLECTION": "plain"}
        process = start("--port", port, log=log, env=env)
        try:
            wait_until_ready(Serving(f"http://127.0.0.1:{port}", process, log))
            _clients(port, 2, 1.0)  # what a first request does only once
            for count in CLIENTS:
                before, begun = _cpu_ms(process.pid), time.monotonic()
                taken = _clients(port, count, seconds)
                rate = len(taken) / (time.monotonic() - begun)
                cpu = (_cpu_ms(process.pid) - before) / len(taken)
                part.add(f"clients: {count}", answered_rps=[rate], wall_ms=taken, cpu_ms=[cpu])
        finally:
            process.kill()
            process.wait()
    return part


def _clients(port: int, count: int, seconds: float) -> list[float]:
    """Milliseconds of every request."""
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(count) as pool:
        taken = pool.map(lambda number: _client(port, number, until), range(count))
        return [ms for some in taken for ms in some]


def _client(port: int, number: int, until: float) -> list[float]:
    connection, taken = HTTPConnection("127.0.0.1", port, timeout=60), []
    turn = 0
    while time.monotonic() < until:
        turn += 1
        body = json.dumps({"query_text": f"Client {number} asks at {until}: {turn}", "top_k": TOP_K})
        begun = time.perf_counter()
        connection.request("POST", "/search", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        taken.append((time.perf_counter() - begun) * 1000)
        if answer.status != 200:
            raise ContestantError(f"chunkproof serve answered {answer.status}: {said[:500]!r}")
    connection.close()
    return taken


def _cpu_ms(pid: int) -> float:
    """Processor time of a process so far, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS
