"""Pairs of audits of one manifest against two collections, started within a second of each other.

Each must give the report that it gives alone. Some pairs use one folder for their state: then one of them is refused
with the advice to name another folder, follows it, and gives the right report too.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore

from support.audits import fill, planted
from support.qdrant_server import qdrant_server
from tools.checks.attack.attack import Attack
from tools.checks.attack.commands import Ended, start, stop_all

CHUNKS = 4_000
FEW_CHUNKS = 1_000  # when there is little time
LONGEST_PAUSE = 1.0
SHARED_FOLDER = 0.25
REFUSED = 2


@dataclass(frozen=True)
class Stage:
    """Two collections on a server, one with faults; a manifest; and the report of an undisturbed audit of each."""

    url: str
    manifest: bytes
    expected: dict[str, dict[str, Any]]


def run(attack: Attack) -> None:
    """Start pairs of audits, as many as given; each audit is an attempt."""
    attack.most = attack.most and 2 * attack.most
    try:
        with _stage(attack.seed, CHUNKS if attack.is_counted else FEW_CHUNKS) as stage:
            while attack.goes_on():
                with tempfile.TemporaryDirectory() as name:
                    for ended, wrong in _run_pair(attack.rng, stage, Path(name)):
                        attack.note(ended.seconds, wrong and f"audit {attack.tried + 1}: {wrong}")
    finally:
        stop_all()


def _run_pair(rng: random.Random, stage: Stage, folder: Path) -> Iterator[tuple[Ended, str | None]]:
    """Run two audits; yield how each ended, and what is wrong with its report."""
    (folder / "manifest.jsonl").write_bytes(stage.manifest)
    shares = rng.random() < SHARED_FOLDER
    collections = rng.sample(list(stage.expected), 2)
    given = {name: ["audit", "manifest.jsonl", "--collection", name, "-o", f"{name}.json"] for name in collections}
    pause, env = rng.uniform(0, LONGEST_PAUSE) * rng.choice((0, 0.1, 1)), {"QDRANT_URL": stage.url}
    processes = {}
    for name in collections:
        state = ["--state", "shared"] if shares else []
        processes[name] = start(folder, name, *given[name], *state, env=env)
        time.sleep(pause)
    for name, process in processes.items():
        ended = process.wait()
        if shares and ended.code == REFUSED and "--state" in ended.err:
            ended = start(folder, name, *given[name], "--state", f"own-{name}", env=env).wait()
        yield ended, _find_wrong(ended, folder / f"{name}.json", stage.expected[name])
    left = sorted(file.name for file in folder.iterdir() if file.is_dir())
    if left:
        yield ended, f"left {left}"


def _find_wrong(ended: Ended, report: Path, expected: dict[str, Any]) -> str | None:
    if ended.code not in (0, 1):
        return f"exit {ended.code}: {ended.err[-300:]}"
    found = without_run(json.loads(report.read_text("utf-8")))
    return None if found == expected else f"{found['kinds']} and not {expected['kinds']}"


def without_run(report: dict[str, Any]) -> dict[str, Any]:
    """A report without its times."""
    return {name: value for name, value in report.items() if name != "run"}


@contextmanager
def _stage(seed: int, chunks: int) -> Iterator[Stage]:
    made = planted(chunks, faults_of_each=5, seed=seed)
    whole = planted(chunks, faults_of_each=0, seed=seed)
    suffix = uuid4().hex[:8]
    with qdrant_server() as server, tempfile.TemporaryDirectory() as name:
        store = ServerStore(server.url, DeadlineTransport())
        for collection, points in (("whole", whole.points), ("faulty", made.points)):
            fill(store, f"{collection}-{suffix}", points)
        store.close()
        stage = Stage(server.url, b"".join(whole.manifest()), {})
        for collection in ("whole", "faulty"):
            full_name = f"{collection}-{suffix}"
            (Path(name) / "manifest.jsonl").write_bytes(stage.manifest)
            given = ("audit", "manifest.jsonl", "--collection", full_name, "--json")
            alone = start(Path(name), collection, *given, env={"QDRANT_URL": server.url}).wait()
            stage.expected[full_name] = without_run(json.loads(alone.out))
        kinds = [report["kinds"] for report in stage.expected.values()]
        if not (kinds[0]["match"] == chunks > kinds[1]["match"]):
            raise RuntimeError(f"undisturbed audits do not find what was planted: {kinds}")
        yield stage
