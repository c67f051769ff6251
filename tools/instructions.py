"""Count the processor instructions of one warm search and one warm validation with valgrind (`make instructions`).

Unlike a time, the count does not depend on what else the machine does. It depends on how Python was built, so limits
are ratios to the floor, which makes a search's two calls with the standard library alone. Each runs in a process under
valgrind, beside the servers of `make walk`, which are not counted; neither is the start, nor are the first requests.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from chunkproof_cli.local.sandbox_services import COLLECTION

from support.api import Event, invoke
from support.cloud import handbook_host
from support.qdrant_server import NoServerError
from support.quiet import silence_handlers
from tools.walk import REQUESTS

ROOT = Path(__file__).resolve().parents[1]
FLOOR = "standard library alone"
# Ratios to the floor. Lower one when a change made a request cheaper; raise one only with a reason.
LIMITS = {"POST /search": 0.95, "POST /validate-chunk": 0.76}
WARM_UP, COUNTED = 8, 20
# Everything takes some 50 times as long under valgrind, and hashes decide how many steps a look-up takes.
SETTINGS = {"CHUNKPROOF_DEADLINE_MS": "60000", "PYTHONHASHSEED": "0"}


class NoValgrindError(RuntimeError):
    """Valgrind is not installed."""


def count_instructions() -> dict[str, int]:
    """Return the instructions of a request of each kind and of the floor, in thousands."""
    if shutil.which("callgrind_control") is None:
        raise NoValgrindError("valgrind is not installed")
    with handbook_host("0.0.0.0") as host:
        # The official Qdrant client keeps no connection to 127.0.0.1.
        variables = host.variables("127.0.0.2")
        floor = {
            "COLLECTION": COLLECTION,
            "COHERE_BASE_URL": json.loads(variables["CHUNKPROOF_SETTINGS"])["COHERE_BASE_URL"],
        }
        python_path = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
        environment = {**os.environ, **variables, **SETTINGS, **floor, **python_path}
        return {title: _count(title, environment) for title in (*REQUESTS, FLOOR)}


def _count(title: str, environment: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        counts, prefix = Path(folder, "counts"), f"--vgdb-prefix={folder}/vgdb"
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}", prefix]
        command += [sys.executable, "-m", "tools.instructions", title]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for order in (["--instr=on"], ["--dump"]):
                if process.stdout.readline() != "waiting\n":
                    raise RuntimeError(f"{title} did not work under valgrind")
                subprocess.run(["callgrind_control", prefix, *order, str(process.pid)], check=True, capture_output=True)
                process.stdin.write("\n")
        totals = re.search(r"^(?:totals|summary): (\d+)", Path(f"{counts}.1").read_text("utf-8"), re.MULTILINE)
        assert totals is not None
        return round(int(totals[1]) / COUNTED / 1000)


def _serve(title: str) -> None:
    with silence_handlers() as write_line:
        send = _ask_floor if title == FLOOR else partial(_send, REQUESTS[title])
        for turns in (range(WARM_UP), range(WARM_UP, WARM_UP + COUNTED)):
            for turn in turns:
                if send(turn) != 200:
                    raise RuntimeError(f"{title} failed")
            write_line("waiting")
            sys.stdin.readline()


def _send(make_event: Callable[[int], Event], turn: int) -> int:
    return invoke(make_event(turn)).status


def _ask_floor(turn: int) -> int:
    from bench.contenders.floor import lambda_handler  # reads the environment

    query = {"query_text": f"How do I take a backup, take {turn}?", "top_k": 5}
    return int(lambda_handler({"body": json.dumps(query)}, None)["statusCode"])


def main() -> None:
    thousands = count_instructions()
    for title, figure in thousands.items():
        limit = f", at most {LIMITS[title]}" if title in LIMITS else ""
        print(f"  {title:24} {figure:6,} thousand   {figure / thousands[FLOOR]:5.2f}{limit}")
    sys.exit(any(thousands[title] > limit * thousands[FLOOR] for title, limit in LIMITS.items()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(sys.argv[1])
        sys.exit()
    try:
        main()
    except (NoServerError, NoValgrindError) as reason:
        sys.exit(f"This needs a Qdrant server and valgrind: {reason}")
