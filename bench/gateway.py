"""Concurrency: `chunkproof serve` with one worker and one a core, 1 to 32 clients at work, and 1,000 connected."""

import asyncio
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
# Clients that keep their connections.
HELD = 1_000
TICKS = os.sysconf("SC_CLK_TCK")


def measure_serve(services: Mapping[str, str], seconds: float) -> Part:
    """Requests per second, the time of one as its client sees it, and the servers' processor time for it.

    Where clients, store and servers share the processors, requests per second cannot grow with the workers. What can
    be seen is whether a request costs more with more of them, and so how far they are from linear.
    """
    part = Part("serve", f"concurrency: chunkproof serve, {seconds:.0f} s with each number of clients")
    env = {**os.environ, **services, "CHUNKPROOF_COLLECTION": "plain"}
    for name, workers in (("1", 1), ("one a core", max(2, os.cpu_count() or 2))):
        with tempfile.TemporaryDirectory() as folder:
            port, log = free_port(), Path(folder) / "stderr"
            process = start("--port", port, "--workers", workers, log=log, env=env)
            try:
                wait_until_ready(Serving(f"http://127.0.0.1:{port}", process, log))
                _clients(port, 8 * workers, 2.0)  # what a first request does only once, in each worker
                for count in CLIENTS:
                    before, begun = _cpu_ms(process.pid), time.monotonic()
                    taken = _clients(port, count, seconds)
                    rate = len(taken) / (time.monotonic() - begun)
                    cpu = (_cpu_ms(process.pid) - before) / len(taken)
                    part.add(f"workers: {name}, clients: {count}", answered_rps=[rate], wall_ms=taken, cpu_ms=[cpu])
                taken = asyncio.run(_hold(port, HELD))
                part.add(f"workers: {name}, clients: {HELD:,}, kept alive", wall_ms=taken)
            finally:
                process.kill()
                process.wait()
    return part


async def _hold(port: int, count: int) -> list[float]:
    """Milliseconds of each request of this many clients, all connected before the first request; each sends two."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]

    async def ask(number: int) -> list[float]:
        reader, writer = opened[number]
        taken = []
        for turn in range(2):
            body = json.dumps({"query_text": f"Held client {number} asks: {turn}", "top_k": TOP_K}).encode()
            begun = time.perf_counter()
            writer.write(b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            said = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
            taken.append((time.perf_counter() - begun) * 1000)
            if not head.startswith(b"http/1.1 200 "):
                raise ContestantError(
                    f"chunkproof serve answered {head[:12]!r} to one of {count} clients: {said[:500]!r}"
                )
        return taken

    try:
        return [ms for some in await asyncio.gather(*map(ask, range(count))) for ms in some]
    except (OSError, EOFError) as error:
        raise ContestantError(f"chunkproof serve lost one of {count} clients: {error!r}") from None
    finally:
        for _, writer in opened:
            writer.close()


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
    """Processor time of a process so far, its threads and the processes it started included."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS + sum(_cpu_ms(int(child)) for child in started)
