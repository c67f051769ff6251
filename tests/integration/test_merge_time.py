"""A merge of as many shards as an audit or a suite may have ends within the time that Lambda gives a function."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from chunkproof.audit.audit_job import AuditJobPlan, ShardedAudit
from chunkproof.audit.audit_report import Findings, build_report
from chunkproof.audit.ledger import AuditSpec, Ledger, ManifestFacts, Progress
from chunkproof.net import s3
from chunkproof.net.s3 import CONNECTIONS, MAX_SHARDS, Bucket, JobFolder, map_in_parallel
from chunkproof.net.s3 import SHARDS as SHARDS_FILE

from tools.checks import scale

BUCKET, SHARDS = "merged", 200
REQUEST_S = 0.02  # what a request to S3 usually takes from Lambda


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobFolder]:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3.aws_client.cache_clear()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield JobFolder(Bucket(BUCKET), "audits/a")
    s3.aws_client.cache_clear()


def slow_down(patch: pytest.MonkeyPatch) -> None:
    read = Bucket.read

    def slow_read(bucket: Bucket, key: str) -> bytes:
        time.sleep(REQUEST_S)
        return read(bucket, key)

    patch.setattr(Bucket, "read", slow_read)


def test_a_merge_of_the_most_shards_fits_into_lambdas_limit(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder.write(SHARDS_FILE, json.dumps([{"shard": number} for number in range(SHARDS)]))
    plan = AuditJobPlan(
        audit_id="a",
        bucket=BUCKET,
        shards_key="-",
        manifest="s3://merged/manifest.jsonl",
        collection="c",
        sha256="0" * 64,
        entries=SHARDS * 10,
        shards=SHARDS,
        started_at=datetime.now(UTC),
    )
    folder.write("plan.json", plan.to_json())
    manifest = ManifestFacts(name="m", sha256="0" * 64, entries=10, chunks=10, repeated=0)
    spec = AuditSpec(collection="c", host="-", manifest=manifest, by_ids=True)
    with closing(Ledger.create(tmp_path)) as ledger:
        result = build_report(Progress(spec=spec, compared=10, seconds=1.0), Findings(tmp_path / "f", ledger))
    for number in range(SHARDS):
        folder.write(f"results/{number:05d}.json", result.to_json())
        folder.write(f"findings/{number:05d}.jsonl", b"")
    slow_down(monkeypatch)
    began = time.monotonic()
    report = ShardedAudit(Bucket(BUCKET), "a").merge("qdrant.example")
    taken = time.monotonic() - began
    print(f"{SHARDS / taken:.0f} shards a second")
    assert report.manifest.entries == SHARDS * 10
    assert taken < SHARDS * 2 * REQUEST_S, "not one object after the other"
    assert taken / SHARDS * MAX_SHARDS < scale.LONGEST_STEP_S * scale.MARGIN


def test_results_are_in_order_and_few_are_under_way() -> None:
    begun: list[int] = []

    def double(number: int) -> int:
        begun.append(number)
        time.sleep(0.001 * (number % 3))
        return 2 * number

    results = map_in_parallel(double, range(500))
    assert next(results) == 0
    assert len(begun) <= 2 * CONNECTIONS
    assert list(results) == [2 * number for number in range(1, 500)]


def test_a_failure_is_raised_in_its_place() -> None:
    def refuse(number: int) -> int:
        if number == 3:
            raise OSError("gone")
        return number

    results = map_in_parallel(refuse, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="gone"):
        next(results)
