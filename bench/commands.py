"""The command line: seconds from the start of a process to its end."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping

from bench.process import ContestantError
from bench.results import Part

SEARCH = ("search", "how is chunk 7 stored", "--json")


def measure_commands(services: Mapping[str, str], count: int) -> Part:
    """`--help`, and a search on the server less what the search itself took."""
    env = {**os.environ, **services, "CHUNKPROOF_COLLECTION": "plain"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling every module would be half of each run
    part = Part("commands", f"command line: {count} runs each, the first not counted")
    for name, arguments in (("--help", ("--help",)), ("search, less the search itself", SEARCH)):
        wall, cpu = [], []
        for _ in range(count + 1):
            before, begun = _children_cpu(), time.perf_counter()
            command = [sys.executable, "-m", "chunkproof_cli", *arguments]
            done = subprocess.run(command, env=env, capture_output=True, check=False)
            taken = time.perf_counter() - begun
            if done.returncode:
                raise ContestantError(f"chunkproof {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]!r}")
            own = json.loads(done.stdout)["execution"]["latency_ms"] if arguments is SEARCH else 0.0
            wall.append(taken * 1_000 - own)
            cpu.append((_children_cpu() - before) * 1_000)
        part.add(name, wall_ms=wall[1:], cpu_ms=cpu[1:])
    return part


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
