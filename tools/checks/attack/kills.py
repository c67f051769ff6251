"""Commands that are killed at random points: load, audit, manifest, snapshot and suite.

After a kill nothing that was there before is lost, every file is the old one or a complete new one, and the same
command, with `--resume` where it leaves something to resume, gives what an undisturbed run gives.
"""

import gzip
import json
import random
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

from chunkproof.audit.manifest_file import Entry
from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.errors import ChunkproofError
from chunkproof.base.request import Deadline
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.edge_folder import copy_folder
from chunkproof.stores.server import ServerStore
from chunkproof.suite.suite_report import read_report
from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.corpus import sample_chunks, sample_suite

from support.audits import fill, planted
from support.qdrant_server import qdrant_server
from tools.checks.attack.attack import Attack
from tools.checks.attack.commands import Ended, start, stop_all
from tools.checks.attack.concurrency import without_run

CHUNKS = 3_000
FEW_CHUNKS = 1_000  # when there is little time
MOST_KILLS = 3
OLD = b"an older file\n"
HERE = ("--collection", "handbook", "--data", "store")
INTERRUPTED = 130


class SlippedError(Exception):
    """Something was lost, half written or different."""


@dataclass
class Stage:
    """A server with a collection, a folder with local stores, and what undisturbed runs give.

    What a command needs is prepared before it is first attacked.
    """

    home: Path
    rng: random.Random
    chunks: int
    url: str = ""
    expected: dict[str, Any] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    kills: list[float] = field(default_factory=list)
    collection: str = field(default_factory=lambda: f"killed-{uuid4().hex[:8]}")

    def run(self, folder: Path, kind: str, *arguments: object) -> Ended:
        """Run a command to its end."""
        ended = start(folder, kind, *arguments, env={"QDRANT_URL": self.url} if self.uses_server(kind) else {}).wait()
        self.durations[kind] = ended.seconds
        return ended

    def kill(self, folder: Path, kind: str, *arguments: object, how: signal.Signals = signal.SIGKILL) -> Ended:
        """Run a command, and kill it at a random point."""
        env = {"QDRANT_URL": self.url} if self.uses_server(kind) else {}
        process = start(folder, kind, *arguments, env=env)
        time.sleep(self.rng.uniform(0, self.durations[kind]))
        process.kill(how)
        ended = process.wait()
        if ended.code in (-how, INTERRUPTED):  # otherwise it had ended before
            self.kills.append(ended.seconds)
        return ended

    def kill_some_times(self, folder: Path, kind: str, *arguments: object) -> Iterator[Ended]:
        """Kill a command up to three times, and yield after each, for a look at what it left."""
        for _ in range(self.rng.randint(1, MOST_KILLS)):
            yield self.kill(folder, kind, *arguments)

    @staticmethod
    def uses_server(kind: str) -> bool:
        return kind in ("audit", "manifest", "snapshot")


def run(attack: Attack) -> None:
    """Kill commands; each kill is an attempt."""
    kinds = attack.rng.sample(list(ATTEMPTS), len(ATTEMPTS))
    kinds.sort(key=lambda kind: ATTEMPTS[kind][0] is not _prepare_collection)  # which needs the least preparation
    with _stage(attack.rng, CHUNKS if attack.is_counted else FEW_CHUNKS) as stage:
        for kind in cycle(kinds):
            if not attack.goes_on():
                break
            stage.kills.clear()
            wrong = _try(stage, kind)
            for seconds in stage.kills[1:]:
                attack.note(seconds)
            if stage.kills or wrong:
                attack.note(max(stage.kills, default=0.0), wrong)


def _try(stage: Stage, kind: str) -> str | None:
    """Kill a command some times; return what is wrong afterwards."""
    prepare, attempt = ATTEMPTS[kind]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        try:
            prepare(stage)
            attempt(stage, Path(name))
        except (SlippedError, ChunkproofError, ValueError, OSError) as error:
            return f"{kind}: {type(error).__name__} {error}"
    return None


def _load(stage: Stage, folder: Path) -> None:
    """Half of the chunks are stored already; all are loaded."""
    copy_folder(stage.home / "half", folder / "store")
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
    file = folder / "manifest.jsonl.gz"
    file.write_bytes(OLD)
    given = ("manifest", "--collection", stage.collection, "-o", file.name)
    allowed = (OLD, stage.expected["manifest"])
    for _ in stage.kill_some_times(folder, "manifest", *given):
        _check(file.read_bytes() in allowed, "a manifest that is neither the old nor the new one")
    ended = stage.run(folder, "manifest", *given)
    _check(ended.code == stage.expected["manifest code"], f"exit {ended.code}: {ended.err[-300:]}")
    _check(file.read_bytes() == stage.expected["manifest"], "another manifest")


def _snapshot(stage: Stage, folder: Path) -> None:
    file = folder / "now.snapshot"
    file.write_bytes(OLD)
    given = ("snapshot", "--collection", stage.collection, "--texts", "-o", file.name)
    for _ in stage.kill_some_times(folder, "snapshot", *given):
        if file.read_bytes() != OLD:  # it was complete before it was killed
            _check(_read_snapshot(file) == stage.expected["snapshot"], "another snapshot after a kill")
    ended = stage.run(folder, "snapshot", *given)
    _check(ended.code == 0, f"exit {ended.code}: {ended.err[-300:]}")
    _check(_read_snapshot(file) == stage.expected["snapshot"], "another snapshot")
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
    _check(not left, f"left {left}")


def _read_snapshot(file: Path) -> list[Entry]:
    return list(Snapshot(file).entries())


def _suite(stage: Stage, folder: Path) -> None:
    copy_folder(stage.home / "whole", folder / "store")
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


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SlippedError(otherwise)


def _read_store(folder: Path) -> dict[str, str]:
    """The chunks of the local store, as JSON by their ids."""
    store = EdgeStore(folder)
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
def _stage(rng: random.Random, chunks: int) -> Iterator[Stage]:
    # On a busy machine a command that was killed may still hold a folder: it is left to the system then.
    with qdrant_server() as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        try:
            yield Stage(Path(name), rng, chunks, server.url)
        finally:
            stop_all()


def _prepare_stores(stage: Stage) -> None:
    """Load half of the chunks into a local store, and then all of them."""
    if "load" in stage.expected:
        return
    home, chunks = stage.home, list(sample_chunks())[:24]
    write_chunks(home / "few.jsonl", iter(chunks[:12]))
    write_chunks(home / "chunks.jsonl", iter(chunks))
    for file, copy, key in (("few.jsonl", "half", "half"), ("chunks.jsonl", "whole", "load")):
        _check_run(stage.run(home, "load", "load", file, *HERE))
        copy_folder(home / "store", home / copy)
        stage.expected[key] = _read_store(home / copy)


def _prepare_suite(stage: Stage) -> None:
    """Run the suite undisturbed."""
    if "suite" in stage.expected:
        return
    _prepare_stores(stage)
    (stage.home / "suite.yaml").write_bytes(sample_suite().read_bytes())
    given = ("suite", "run", "suite.yaml", *HERE, "-o", "report.json", "--ignore-latency")
    ended = _check_run(stage.run(stage.home, "suite", *given))
    stage.expected |= {"suite": _read_verdicts(stage.home / "report.json"), "suite code": ended.code}


def _prepare_collection(stage: Stage) -> None:
    """Fill a collection with faults; audit it, and write its manifest, undisturbed."""
    if "audit" in stage.expected:
        return
    made = planted(stage.chunks, faults_of_each=5, seed=stage.rng.randrange(1_000))
    served = ServerStore(stage.url, DeadlineTransport())
    fill(served, stage.collection, made.points)
    served.close()
    (stage.home / "manifest.jsonl").write_bytes(b"".join(made.manifest()))
    named = ("--collection", stage.collection)
    audited = _check_run(stage.run(stage.home, "audit", "audit", "manifest.jsonl", *named, "--json"))
    ended = _check_run(stage.run(stage.home, "manifest", "manifest", *named, "-o", "manifest.jsonl.gz"))
    manifest = (stage.home / "manifest.jsonl.gz").read_bytes()
    _check(len(gzip.decompress(manifest).splitlines()) > stage.chunks // 2, "no manifest")
    _check_run(stage.run(stage.home, "snapshot", "snapshot", *named, "--texts", "-o", "now.snapshot"))
    stage.expected |= {
        "audit": without_run(json.loads(audited.out)),
        "manifest": manifest,
        "manifest code": ended.code,
        "snapshot": _read_snapshot(stage.home / "now.snapshot"),
    }


def _check_run(ended: Ended) -> Ended:
    _check(ended.code in (0, 1), f"undisturbed: exit {ended.code}: {ended.err[-300:]}")
    return ended


ATTEMPTS: dict[str, tuple[Callable[[Stage], None], Callable[[Stage, Path], None]]] = {
    "load": (_prepare_stores, _load),
    "load into a new store": (_prepare_stores, _load_new),
    "audit": (_prepare_collection, _audit),
    "manifest": (_prepare_collection, _manifest),
    "snapshot": (_prepare_collection, _snapshot),
    "suite": (_prepare_suite, _suite),
}
