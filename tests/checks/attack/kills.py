"""Commands that are killed at random points: load, audit, manifest and suite.

After a kill nothing that was there before is lost, every file is the old one or a complete new one, and the same
command, with `--resume` where it leaves something to resume, gives what an undisturbed run gives.
"""

import gzip
import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.transport import DeadlineTransport
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError
from chunkproof.suite.report import read_report
from chunkproof_cli.files.chunks import write_chunks
from chunkproof_cli.local.corpus import sample_chunks, sample_suite

from checks.attack.commands import Ended, start
from checks.attack.concurrency import without_run
from checks.attack.result import Result
from support.audits import fill, planted
from support.qdrant_server import qdrant_server

CHUNKS = 3_000
MOST_KILLS = 3
OLD = b"an older file\n"
HERE = ("--collection", "handbook", "--data", "store")
INTERRUPTED = 130


class SlippedError(Exception):
    """Something was lost, half written or different."""


@dataclass
class Stage:
    """A server with a collection, a folder with a local store, and what undisturbed runs give."""

    url: str
    home: Path
    rng: random.Random
    expected: dict[str, Any] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    slowest: float = 0.0
    kills: int = 0
    collection: str = field(default_factory=lambda: f"killed-{uuid4().hex[:8]}")

    def run(self, folder: Path, kind: str, *arguments: object) -> Ended:
        """Run a command to its end."""
        ended = start(folder, kind, *arguments, env={"QDRANT_URL": self.url} if self.uses_server(kind) else {}).wait()
        self.slowest = max(self.slowest, ended.seconds)
        self.durations[kind] = ended.seconds
        return ended

    def kill(self, folder: Path, kind: str, *arguments: object, how: signal.Signals = signal.SIGKILL) -> Ended:
        """Run a command, and kill it at a random point."""
        env = {"QDRANT_URL": self.url} if self.uses_server(kind) else {}
        process = start(folder, kind, *arguments, env=env)
        time.sleep(self.rng.uniform(0, self.durations[kind]))
        process.kill(how)
        ended = process.wait()
        self.kills += ended.code in (-how, INTERRUPTED)  # otherwise it had ended before
        return ended

    def kill_some_times(self, folder: Path, kind: str, *arguments: object) -> Iterator[Ended]:
        """Kill a command up to three times, and yield after each, for a look at what it left."""
        for _ in range(self.rng.randint(1, MOST_KILLS)):
            yield self.kill(folder, kind, *arguments)

    @staticmethod
    def uses_server(kind: str) -> bool:
        return kind in ("audit", "manifest")


def run(seed: int, seconds: float, most: int | None = None) -> Result:
    """Kill commands until the time is over, or as many times as given."""
    end = time.monotonic() + seconds
    details: list[str] = []
    with _stage(seed) as stage:
        for kind in cycle(ATTEMPTS):
            if time.monotonic() >= end or (most is not None and stage.kills >= most):
                break
            with tempfile.TemporaryDirectory() as name:
                try:
                    ATTEMPTS[kind](stage, Path(name))
                except (SlippedError, ChunkproofError, ValueError, OSError) as error:
                    details.append(f"after kill {stage.kills}, {kind}: {type(error).__name__} {error}")
    return Result("kills", stage.kills, stage.kills - len(details), stage.slowest, tuple(details))


def _load(stage: Stage, folder: Path) -> None:
    """Half of the chunks are stored already; all are loaded."""
    shutil.copytree(stage.home / "half", folder / "store")
    given = ("load", stage.home / "chunks.jsonl", *HERE)
    half, whole = stage.expected["half"], stage.expected["load"]
    for _ in stage.kill_some_times(folder, "load", *given):
        found = _read_store(folder / "store")
        _check(half.items() <= found.items() <= whole.items(), f"{len(found)} chunks after a kill")
    ended = stage.run(folder, "load", *given)
    _check(ended.code == 0, f"exit {ended.code}: {ended.err[-300:]}")
    _check(_read_store(folder / "store") == whole, "not the chunks of the file")


def _load_new(stage: Stage, folder: Path) -> None:
    """There is no store yet."""
    given = ("load", stage.home / "few.jsonl", *HERE)
    for _ in stage.kill_some_times(folder, "load", *given):
        pass
    ended = stage.run(folder, "load", *given)
    _check(ended.code == 0, f"exit {ended.code}: {ended.err[-300:]}")
    _check(_read_store(folder / "store") == stage.expected["half"], "not the chunks of the file")


def _audit(stage: Stage, folder: Path) -> None:
    (folder / "report.json").write_bytes(OLD)
    given = (
        "audit",
        stage.home / "manifest.jsonl",
        "--collection",
        stage.collection,
        "-o",
        "report.json",
        "--state",
        "state",
    )
    resumed: tuple[str, ...] = ()
    for _ in range(stage.rng.randint(1, MOST_KILLS)):
        stage.kill(folder, "audit", *given, *resumed)
        resumed = ("--resume",)
        if (folder / "report.json").read_bytes() != OLD:  # it was complete before it was killed
            _check_audit(stage, folder)
    ended = stage.run(folder, "audit", *given, "--resume")
    _check(ended.code == 1, f"exit {ended.code}: {ended.err[-300:]}")
    _check_audit(stage, folder)
    _check(not (folder / "state").exists(), "the state was left")


def _check_audit(stage: Stage, folder: Path) -> None:
    found = without_run(json.loads((folder / "report.json").read_text("utf-8")))
    _check(found == stage.expected["audit"], "another report")


def _manifest(stage: Stage, folder: Path) -> None:
    file = folder / "snapshot.jsonl.gz"
    file.write_bytes(OLD)
    given = ("manifest", "--collection", stage.collection, "-o", file.name)
    allowed = (OLD, stage.expected["manifest"])
    for _ in stage.kill_some_times(folder, "manifest", *given):
        _check(file.read_bytes() in allowed, "a snapshot that is neither the old nor the new one")
    ended = stage.run(folder, "manifest", *given)
    _check(ended.code == stage.expected["manifest code"], f"exit {ended.code}: {ended.err[-300:]}")
    _check(file.read_bytes() == stage.expected["manifest"], "another snapshot")


def _suite(stage: Stage, folder: Path) -> None:
    shutil.copytree(stage.home / "whole", folder / "store")
    file = folder / "report.json"
    file.write_bytes(OLD)
    given = ("suite", "run", stage.home / "suite.yaml", *HERE, "-o", file.name, "--ignore-latency")
    before = OLD
    resumed: tuple[str, ...] = ()
    for _ in range(stage.rng.randint(1, MOST_KILLS)):
        how = stage.rng.choice((signal.SIGKILL, signal.SIGTERM))
        ended = stage.kill(folder, "suite", *given, *resumed, how=how)
        if file.read_bytes() != before:  # otherwise it was killed before the first case, or could leave nothing
            before = file.read_bytes()
            verdicts = _read_verdicts(file)
            judged = {name: found for name, found in verdicts.items() if found[0] != "pending"}
            _check(judged.items() <= stage.expected["suite"].items(), "another verdict after a kill")
            resumed = ("--resume", file.name)
            _check(ended.code != INTERRUPTED or "--resume" in ended.err, "no advice to resume")
    ended = stage.run(folder, "suite", *given, *resumed)
    _check(ended.code == stage.expected["suite code"], f"exit {ended.code}: {ended.err[-300:]}")
    _check(_read_verdicts(file) == stage.expected["suite"], "another report")


ATTEMPTS: dict[str, Callable[[Stage, Path], None]] = {
    "load": _load,
    "audit": _audit,
    "snapshot": _manifest,
    "suite": _suite,
    "load into a new store": _load_new,
}


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SlippedError(otherwise)


def _read_store(folder: Path) -> dict[str, str]:
    """The chunks of the local store, as JSON by their ids."""
    store = QdrantStore.open_local(folder)
    try:
        page = store.scroll("handbook", Deadline(10_000), limit=1_000, with_vector="")
        return {str(point.id): json.dumps([point.payload, point.vector]) for point in page.points}
    finally:
        store.close()


def _read_verdicts(file: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    results = read_report(file.read_bytes(), file.name).result.test_results
    return {
        result.name: (result.status.value, tuple(found.chunk_id for found in result.actual_results or ()))
        for result in results
    }


@contextmanager
def _stage(seed: int) -> Iterator[Stage]:
    """Make collections, stores and files, and run every command undisturbed."""
    made = planted(CHUNKS, faults_of_each=5, seed=seed)
    chunks = list(sample_chunks())[:24]
    with qdrant_server() as server, tempfile.TemporaryDirectory() as name:
        stage = Stage(server.url, Path(name), random.Random(seed))
        served = QdrantStore.open_server(server.url, DeadlineTransport())
        fill(served, stage.collection, made.points)
        served.close()
        home, expected = stage.home, stage.expected
        (home / "manifest.jsonl").write_bytes(b"".join(made.manifest()))
        (home / "suite.yaml").write_bytes(sample_suite().read_bytes())
        write_chunks(home / "few.jsonl", iter(chunks[:12]))
        write_chunks(home / "chunks.jsonl", iter(chunks))
        for file, copy, key in (("few.jsonl", "half", "half"), ("chunks.jsonl", "whole", "load")):
            stage.run(home, "load", "load", file, *HERE)
            shutil.copytree(home / "store", home / copy)
            expected[key] = _read_store(home / copy)
        audited = stage.run(home, "audit", "audit", "manifest.jsonl", "--collection", stage.collection, "--json")
        expected["audit"] = without_run(json.loads(audited.out))
        ended = stage.run(home, "manifest", "manifest", "--collection", stage.collection, "-o", "snapshot.jsonl.gz")
        expected["manifest"] = (home / "snapshot.jsonl.gz").read_bytes()
        expected["manifest code"] = ended.code
        _check(len(gzip.decompress(expected["manifest"]).splitlines()) > CHUNKS // 2, "no snapshot")
        ended = stage.run(home, "suite", "suite", "run", "suite.yaml", *HERE, "-o", "report.json", "--ignore-latency")
        expected["suite"], expected["suite code"] = _read_verdicts(home / "report.json"), ended.code
        yield stage
