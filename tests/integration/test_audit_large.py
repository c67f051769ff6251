"""Thirty thousand chunks on a real server, with faults of every kind among them."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import load_progress
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore

from support.audits import Planted, fill, found_in, planted, run_audit, services_on
from support.qdrant_server import QdrantServer
from support.sdk import sdk

pytestmark = pytest.mark.server

CHUNKS, COLLECTION = 30_000, "thirty-thousand"


@dataclass(frozen=True)
class Large:
    """The collection, its manifest, and the report of an uninterrupted audit."""

    made: Planted
    manifest: Path
    folder: Path
    report: dict[str, object]
    url: str


@pytest.fixture(scope="module")
def large(served_qdrant: QdrantServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    folder, made = tmp_path_factory.mktemp("large"), planted(CHUNKS, faults_of_each=40)
    manifest = folder / "manifest.jsonl"
    manifest.write_bytes(b"".join(made.manifest()))
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    fill(store, COLLECTION, made.points, batch=5_000)
    with manifest.open("rb") as lines:
        report = run_audit(lines, folder / "state", services_on(store), COLLECTION)
    yield Large(made, manifest, folder / "state", report.model_dump(mode="json", exclude={"run"}), served_qdrant.url)
    sdk(store).delete_collection(COLLECTION)
    store.close()


def test_exactly_the_planted_faults_are_found_among_thirty_thousand(large: Large) -> None:
    found = found_in(large.folder)
    assert found == large.made.faults
    assert {kind: len(ids) for kind, ids in found.items()} == {
        Kind.MISSING: 40,
        Kind.ORPHAN: 40,
        Kind.DUPLICATE: 80,
        Kind.METADATA_MISMATCH: 40,
        Kind.UNVERIFIABLE: 40,
        Kind.MISMATCH: 400,
    }
    kinds = large.report["kinds"]
    assert isinstance(kinds, dict)
    assert sum(kinds.values()) == CHUNKS  # with the orphans, which are not in the manifest
    assert kinds[Kind.MATCH] == large.made.matches


def test_an_audit_killed_at_random_points_and_resumed_gives_the_same_report(large: Large, tmp_path: Path) -> None:
    state, findings, report = (tmp_path / name for name in ("state", "findings.jsonl", "report.json"))
    command = [
        sys.executable,
        "-m",
        "chunkproof_cli",
        "audit",
        str(large.manifest),
        "--collection",
        COLLECTION,
    ]
    command += ["--state", str(state), "-o", str(findings), "-o", str(report), "--resume"]
    environment = {**os.environ, "QDRANT_URL": large.url}
    stops = sorted(random.Random(5).sample(range(CHUNKS // 2), 4))

    for stop in stops:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while ((left := load_progress(state)) is None or left.compared < stop) and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, "it finished before it could be killed"
        process.kill()
        process.wait()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    written = json.loads(report.read_text("utf-8"))
    assert written.pop("run")["resumed"] == len(stops)
    assert written == large.report
    assert findings.read_bytes() == (large.folder / "findings.jsonl").read_bytes()
