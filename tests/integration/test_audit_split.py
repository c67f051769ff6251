"""Split a manifest in S3 into shards."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from moto.server import ThreadedMotoServer

from chunkproof.audit.audit_job import ShardedAudit
from chunkproof.base.errors import InvalidParameterError
from chunkproof.net import s3
from chunkproof.net.s3 import Bucket

from support.cloud import CREDENTIALS

BUCKET, REGION = "audits-of-a-test", "eu-central-1"
LINES = b'{"chunk_id": "a", "original_text": "b"}\n' * 100
PACKED = gzip.compress(LINES, mtime=0)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardedAudit]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    s3.aws_client.cache_clear()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield ShardedAudit(Bucket(BUCKET), "an-audit")
    s3.aws_client.cache_clear()


@pytest.mark.parametrize(
    "damaged",
    [PACKED[:30], PACKED[:20] + b"\xff" * 10 + PACKED[30:], PACKED[:-4] + b"oops"],
    ids=["cut", "overwritten", "wrong sum"],
)
def test_a_damaged_archive_is_an_input_error_and_is_not_retried(audit: ShardedAudit, damaged: bytes) -> None:
    boto3.client("s3").put_object(Bucket=BUCKET, Key="m.gz", Body=damaged)
    with pytest.raises(InvalidParameterError, match=r"m\.gz cannot be decompressed"):
        audit.split(f"s3://{BUCKET}/m.gz", "c")


@pytest.mark.parametrize("content", [LINES * 1_000, gzip.compress(LINES * 1_000)], ids=["plain", "gzip"])
def test_a_manifest_that_comes_over_a_connection_is_read_to_its_end(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}"}.items():
            monkeypatch.setenv(name, value)
        s3.aws_client.cache_clear()
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        boto3.client("s3").put_object(Bucket=BUCKET, Key="m", Body=content)
        plan = ShardedAudit(Bucket(BUCKET), "an-audit").split(f"s3://{BUCKET}/m", "c")
    finally:
        server.stop()
        s3.aws_client.cache_clear()
    assert plan.entries == 100_000


def test_a_byte_order_mark_is_not_part_of_the_first_entry(audit: ShardedAudit, tmp_path: Path) -> None:
    boto3.client("s3").put_object(Bucket=BUCKET, Key="m", Body=b"\xef\xbb\xbf" + LINES)
    plan = audit.split(f"s3://{BUCKET}/m", "c")
    assert (plan.entries, plan.shards) == (100, 1)
    assert b"".join(audit.read_lines(audit.shards()[0], tmp_path)) == LINES
