"""The audit's state machine in moto's interpreter, with the real handler and a real Qdrant server."""

import gzip
import importlib.util
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto import mock_aws
from moto.awslambda_simple.models import LambdaSimpleBackend

from chunkproof import connect
from chunkproof.clients import s3
from chunkproof.clients.http import DeadlineTransport
from chunkproof.clients.qdrant import QdrantStore
from chunkproof.errors import VectorStoreUnavailableError
from chunkproof_cli import cloud_audit
from chunkproof_cli.cloud import Stack
from chunkproof_cli.main import main

from support.audits import Planted, fill, planted, services_on
from support.qdrant_server import QdrantServer

ROOT = Path(__file__).parents[2]
BUCKET, REGION = "audits-of-a-test", "eu-central-1"
INTERPRETED = {"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}
ALWAYS_FAILS, FAILS_TWICE = 7, 11


def _handler() -> Callable[[dict[str, Any], None], dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("audit_app", ROOT / "functions/audit/app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Callable[[dict[str, Any], None], dict[str, Any]] = module.lambda_handler
    return handler


class Cloud:
    """The deployed state machine; `trouble` may raise before a step is run, `calls` counts the steps."""

    def __init__(self) -> None:
        self.trouble: Callable[[dict[str, Any], int], None] = lambda _event, _call: None
        self.calls: Counter[tuple[str, int | None]] = Counter()
        self._handler = _handler()

    def invoke(self, event: dict[str, Any]) -> dict[str, Any]:
        step = (event["step"], event.get("shard"))
        self.calls[step] += 1
        self.trouble(event, self.calls[step])
        return self._handler(event, None)

    def run(self, manifest: bytes, name: str, collection: str) -> dict[str, Any]:
        """An execution to its end."""
        boto3.client("s3").put_object(Bucket=BUCKET, Key="manifest.jsonl", Body=manifest)
        given = {"manifest": f"s3://{BUCKET}/manifest.jsonl", "collection": collection}
        states = boto3.client("stepfunctions", region_name=REGION)
        machine = states.list_state_machines()["stateMachines"][0]["stateMachineArn"]
        # A name may be used once; the audit's own id is what makes it the same.
        given |= {"audit_id": name}
        run = states.start_execution(stateMachineArn=machine, name=uuid4().hex, input=json.dumps(given))
        for _ in range(600):
            found = states.describe_execution(executionArn=run["executionArn"])
            if found["status"] != "RUNNING":
                return dict(found)
            time.sleep(0.1)
        raise AssertionError("the execution does not end")

    def report(self, name: str) -> dict[str, Any]:
        body = boto3.client("s3").get_object(Bucket=BUCKET, Key=f"audits/{name}/report.json")["Body"]
        report: dict[str, Any] = json.loads(body.read())
        return report


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, served_qdrant: QdrantServer) -> Iterator[Cloud]:
    """AWS as moto plays it, the handler working with the real server."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    s3._client.cache_clear()
    made = Cloud()

    def invoke(
        _backend: Any, _name: str, _qualifier: str, body: Any, _headers: Any, response_headers: Any
    ) -> bytes:
        try:
            return json.dumps(made.invoke(json.loads(body))).encode()
        except Exception as error:  # noqa: BLE001 - as Lambda does
            response_headers["x-amz-function-error"] = "Unhandled"
            return json.dumps({"errorType": type(error).__name__, "errorMessage": str(error)}).encode()

    monkeypatch.setattr(LambdaSimpleBackend, "invoke", invoke)
    with mock_aws(config=INTERPRETED):
        boto3.client("s3").create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        _deploy()
        store = QdrantStore.at(served_qdrant.url, DeadlineTransport())
        with connect.using(services_on(store)):
            yield made
        store.close()
    s3._client.cache_clear()


def _deploy() -> None:
    role = "arn:aws:iam::123456789012:role/audit"
    iam = boto3.client("iam")
    iam.create_role(RoleName="audit", AssumeRolePolicyDocument="{}")
    boto3.client("lambda").create_function(
        FunctionName="audit",
        Runtime="python3.13",
        Role=role,
        Handler="app.lambda_handler",
        Code={"ZipFile": b"-"},
    )
    definition = (ROOT / "functions/audit/audit.asl.json").read_text("utf-8")
    definition = definition.replace('"BackoffRate": 2.0', '"BackoffRate": 1.0')  # nobody waits here
    filled = {
        "Function": "audit",
        "Bucket": BUCKET,
        "ShardEntries": "30",
        "MaxConcurrency": "8",
        "RetrySeconds": "1",
    }
    for name, value in filled.items():
        definition = definition.replace("${" + name + "}", value)
    boto3.client("stepfunctions").create_state_machine(name="audit", definition=definition, roleArn=role)


@pytest.fixture
def stored(served_qdrant: QdrantServer, collection: str) -> Iterator[Planted]:
    made = planted(1_260)
    store = QdrantStore.at(served_qdrant.url, DeadlineTransport())
    fill(store, collection, made.points)
    yield made
    store.client.delete_collection(collection)
    store.close()


@pytest.mark.server
def test_the_shards_together_find_exactly_what_was_planted_and_a_poison_shard_is_not_lost(
    cloud: Cloud, stored: Planted, collection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(event: dict[str, Any], call: int) -> None:
        if event.get("shard") == ALWAYS_FAILS or (event.get("shard") == FAILS_TWICE and call <= 2):
            raise VectorStoreUnavailableError("host", "down")

    cloud.trouble = trouble
    found = cloud.run(b"".join(stored.manifest()), "first", collection)
    assert (found["status"], found["error"]) == ("FAILED", "AuditIncomplete")
    report = cloud.report("first")
    shards = sum(1 for step, _ in cloud.calls if step == "shard")
    assert shards >= 40
    assert cloud.calls["shard", ALWAYS_FAILS] == 5
    assert cloud.calls["shard", FAILS_TWICE] == 3

    poisoned = {f["chunk_id"] for f in report["findings"] if f["details"].startswith("Shard 7 could not")}
    assert sum(report["kinds"].values()) == report["manifest"]["chunks"] == report["audited"]
    assert report["manifest"]["entries"] == len(stored.entries)
    by_kind = {
        kind: {f["chunk_id"] for f in report["findings"] if f["kind"] == kind} - poisoned
        for kind in report["kinds"]
    }
    expected = {kind: stored.faults.get(kind, set()) - poisoned for kind in report["kinds"]}
    assert by_kind == expected
    assert report["kinds"]["unverifiable"] == len(poisoned) + len(expected["unverifiable"])
    assert report["coverage"] == 1 - report["kinds"]["unverifiable"] / report["audited"]

    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [m["ChunksAudited"] for m in metrics if "ChunksAudited" in m] == [[report["audited"]]]
    mismatches = {m["kind"]: m["ChunkMismatch"] for m in metrics if "ChunkMismatch" in m}
    assert mismatches["mismatch"] == [report["kinds"]["mismatch"]]
    assert set(mismatches) == set(report["kinds"]) - {"match"}


@pytest.mark.server
def test_the_same_audit_twice_is_harmless_and_full_coverage_succeeds(
    cloud: Cloud, stored: Planted, collection: str
) -> None:
    readable = [e for e in stored.entries if e.chunk_id not in stored.faults["unverifiable"]]
    manifest = b"".join(entry.to_line() for entry in readable[:200])
    reports = []
    for _ in range(2):
        found = cloud.run(manifest, "same", collection)
        assert found["status"] == "SUCCEEDED"
        assert json.loads(found["output"])["coverage"] == 1
        reports.append(cloud.report("same"))
    for report in reports:
        del report["run"]
    assert reports[0] == reports[1]


@pytest.fixture
def command(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`chunkproof audit --stack` where the stack says it has this state machine."""
    states = boto3.client("stepfunctions")
    outputs = {
        "AuditStateMachineArn": states.list_state_machines()["stateMachines"][0]["stateMachineArn"],
        "AuditBucketName": BUCKET,
    }
    monkeypatch.setattr(
        cloud_audit, "deployed_stack", lambda name: Stack(name, "CREATE_COMPLETE", outputs, {})
    )
    monkeypatch.setattr(cloud_audit, "POLL_S", 1.0)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["chunkproof", "audit", *map(str, arguments), "--stack", "prod"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.mark.server
def test_the_command_starts_an_audit_and_fetches_its_report(
    command: Any, stored: Planted, collection: str, tmp_path: Path
) -> None:
    manifest, report, findings = (tmp_path / name for name in ("m.jsonl.gz", "report.json", "all.jsonl"))
    manifest.write_bytes(gzip.compress(b"".join(stored.manifest())))
    code, out, err = command(manifest, "--collection", collection, "-o", report, "-o", findings)
    assert code == 1
    assert "is under way in prod" in err
    assert "chunks are stored as they should be" in out
    found = json.loads(report.read_text("utf-8"))
    assert found["kinds"]["match"] == stored.matches
    assert len(findings.read_text("utf-8").splitlines()) == found["findings_total"]


@pytest.mark.server
def test_the_command_says_why_an_audit_failed(command: Any, collection: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"chunk_id": "a"}\n')
    code, _out, err = command(bad, "--collection", collection)
    assert code == 2
    assert "Give original_text or original_sha256, one of them" in err
    code, _out, err = command(bad, "--sample", "5")
    assert code == 2
    assert "With --stack, --sample cannot be given" in err
    assert command("s3://nobody/nothing")[0] == 2
    bad.write_bytes(b"\x28\xb5\x2f\xfd rest")
    assert "plain or gzip, not zstd" in command(bad, "--collection", collection)[2]


@pytest.mark.server
def test_a_manifest_that_is_none_fails_at_once(cloud: Cloud, collection: str) -> None:
    found = cloud.run(b'{"chunk_id": "a"}\n', "bad", collection)
    assert (found["status"], found["error"]) == ("FAILED", "InvalidParameterError")
    assert cloud.calls == {("split", None): 1}
