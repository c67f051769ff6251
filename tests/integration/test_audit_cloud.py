"""The state machine of an audit, run by moto with the real handler and a real Qdrant server."""

import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.errors import VectorStoreUnavailableError
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.server import ServerStore

from support.audits import Planted, fill, planted, services_on
from support.qdrant_server import QdrantServer
from support.sdk import sdk
from support.states import Cloud, command, deployed

ALWAYS_FAILS, FAILS_TWICE = 7, 11


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, served_qdrant: QdrantServer) -> Iterator[Cloud]:
    """The deployed application; its handler uses the real server."""
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    filled = {"ShardEntries": "30", "MaxConcurrency": "8"}
    with deployed("audit", filled, monkeypatch) as made, container.override(services_on(store)):
        yield made
    store.close()


def run(cloud: Cloud, manifest: bytes, audit_id: str, collection: str) -> dict[str, Any]:
    """Run an execution to its end; executions with the same audit id are the same audit."""
    address = cloud.put("manifest.jsonl", manifest)
    return cloud.execute({"manifest": address, "collection": collection, "audit_id": audit_id})


def shards_of(cloud: Cloud) -> int:
    return len(cloud.get("audits/first/shards.json"))


@pytest.fixture
def stored(served_qdrant: QdrantServer, collection: str) -> Iterator[Planted]:
    made = planted(1_260)
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    fill(store, collection, made.points)
    yield made
    sdk(store).delete_collection(collection)
    store.close()


@pytest.mark.server
def test_the_shards_find_exactly_the_planted_faults_and_a_failing_shard_is_reported_as_unverifiable(
    cloud: Cloud, stored: Planted, collection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(event: dict[str, Any], call: int) -> None:
        if event.get("shard") == ALWAYS_FAILS or (event.get("shard") == FAILS_TWICE and call <= 2):
            raise VectorStoreUnavailableError("host", "down")

    cloud.trouble = trouble
    found = run(cloud, b"".join(stored.manifest()), "first", collection)
    assert (found["status"], found["error"]) == ("FAILED", "AuditIncomplete")
    report = cloud.get("audits/first/report.json")
    shards = sum(1 for step, _ in cloud.calls if step == "shard")
    assert shards >= 40
    assert cloud.calls["shard", ALWAYS_FAILS] == 5
    assert cloud.calls["shard", FAILS_TWICE] == 3

    poisoned = {f["chunk_id"] for f in report["findings"] if f["details"].startswith("Shard 7 could not")}
    assert sum(report["kinds"].values()) == report["manifest"]["chunks"] == report["audited"]
    assert report["manifest"]["entries"] == len(stored.entries)
    by_kind = {
        kind: {f["chunk_id"] for f in report["findings"] if f["kind"] == kind} - poisoned for kind in report["kinds"]
    }
    expected = {kind: stored.faults.get(kind, set()) - poisoned for kind in report["kinds"]}
    assert by_kind == expected
    assert report["kinds"]["unverifiable"] == len(poisoned) + len(expected["unverifiable"])
    assert report["coverage"] == 1 - report["kinds"]["unverifiable"] / report["audited"]
    kept = [cloud.get(f"audits/first/results/{n:05d}.json") for n in range(shards_of(cloud)) if n != ALWAYS_FAILS]
    spans = [(datetime.fromisoformat(one["run"]["started_at"]), one["run"]["seconds"]) for one in kept]
    reading = max(at.timestamp() + took for at, took in spans) - min(at.timestamp() for at, _ in spans)
    read = sum(one["audited"] for one in kept)  # neither the shard that failed, nor the time before and after
    assert report["run"]["chunks_per_second"] == pytest.approx(read / reading, rel=0.01)
    assert reading < report["run"]["seconds"]

    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [m["ChunksAudited"] for m in metrics if "ChunksAudited" in m] == [[report["audited"]]]
    mismatches = {m["kind"]: m["ChunkMismatch"] for m in metrics if "ChunkMismatch" in m}
    assert mismatches["mismatch"] == [report["kinds"]["mismatch"]]
    assert set(mismatches) == set(report["kinds"]) - {"match"}
    [figures] = [m for m in metrics if "AuditFindings" in m]
    assert figures["AuditFindings"] == [report["findings_total"]]
    assert {kind: figures[f"AuditFindings.{kind}"] for kind in mismatches} == mismatches
    assert {"environment", "function"} <= figures.keys()


@pytest.mark.server
def test_an_audit_in_the_cloud_succeeds_only_when_it_is_clean(
    cloud: Cloud, stored: Planted, collection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = set().union(*stored.faults.values())
    clean = b"".join(entry.to_line() for entry in stored.entries if entry.chunk_id not in faulty)
    found = run(cloud, clean, "clean", collection)
    assert (found["status"], json.loads(found["output"])["faults"]) == ("SUCCEEDED", 0)
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [m["AuditFindings"] for m in metrics if "AuditFindings" in m] == [[0]]
    assert [m["AuditFindings.mismatch"] for m in metrics if "AuditFindings.mismatch" in m] == [[0]]


@pytest.mark.server
def test_an_audit_that_is_run_twice_gives_the_same_report(cloud: Cloud, stored: Planted, collection: str) -> None:
    readable = [e for e in stored.entries if e.chunk_id not in stored.faults["unverifiable"]]
    manifest = b"".join(entry.to_line() for entry in readable[:200])
    reports = []
    for _ in range(2):
        found = run(cloud, manifest, "same", collection)
        assert (found["status"], found["error"]) == ("FAILED", "AuditFoundFaults")
        reports.append(cloud.get("audits/same/report.json"))
    for report in reports:
        del report["run"]
    assert reports[0] == reports[1]


@pytest.fixture
def audit(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`chunkproof audit --stack`."""
    chunkproof = command("Audit", monkeypatch, capsys)
    return lambda *arguments: chunkproof("audit", *arguments, "--stack", "prod")


@pytest.mark.server
def test_the_command_starts_an_audit_and_downloads_its_report(
    audit: Any, stored: Planted, collection: str, tmp_path: Path
) -> None:
    manifest, report, findings = (tmp_path / name for name in ("m.jsonl.gz", "report.json", "all.jsonl"))
    manifest.write_bytes(gzip.compress(b"".join(stored.manifest())))
    code, out, err = audit(manifest, "--collection", collection, "-o", report, "-o", findings)
    assert code == 1
    assert "is under way in prod" in err
    assert "chunks are stored as they should be" in out
    found = json.loads(report.read_text("utf-8"))
    assert found["kinds"]["match"] == stored.matches
    assert len(findings.read_text("utf-8").splitlines()) == found["findings_total"]


@pytest.mark.server
def test_the_command_says_why_an_audit_failed(audit: Any, collection: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"chunk_id": "a"}\n')
    code, _out, err = audit(bad, "--collection", collection)
    assert code == 2
    assert "Give original_text or original_sha256, one of them" in err
    code, _out, err = audit(bad, "--sample", "5")
    assert code == 2
    assert "With --stack, --sample cannot be given" in err
    assert audit("s3://no-such-bucket/nothing")[0] == 2
    bad.write_bytes(b"\x28\xb5\x2f\xfd rest")
    assert "plain or gzip, not zstd" in audit(bad, "--collection", collection)[2]


@pytest.mark.server
def test_a_wrong_manifest_fails_without_retries(cloud: Cloud, collection: str) -> None:
    found = run(cloud, b'{"chunk_id": "a"}\n', "bad", collection)
    assert (found["status"], found["error"]) == ("FAILED", "InvalidParameterError")
    assert cloud.calls == {("split", None): 1}
