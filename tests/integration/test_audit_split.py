"""Split a manifest in S3 into shards."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from chunkproof.audit.shards import ShardAudit
from chunkproof.clients import s3
from chunkproof.clients.s3 import Bucket
from chunkproof.errors import InvalidParameterError

BUCKET, REGION = "audits-of-a-test", "eu-central-1"
LINES = b'{"chunk_id": "a", "original_text": "b"}\n' * 100
PACKED = gzip.compress(LINES, mtime=0)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardAudit]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    s3._client.cache_clear()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield ShardAudit(Bucket(BUCKET), "an-audit")
    s3._client.cache_clear()


@pytest.mark.parametrize(
    "damaged",
    [PACKED[:30], PACKED[:20] + b"\xff" * 10 + PACKED[30:], PACKED[:-4] + b"oops"],
    ids=["cut", "overwritten", "wrong sum"],
)
def test_a_damaged_archive_is_an_input_error_and_is_not_retried(audit: ShardAudit, damaged: bytes) -> None:
    boto3.client("s3").put_object(Bucket=BUCKET, Key="m.gz", Body=damaged)
    with pytest.raises(InvalidParameterError, match=r"m\.gz cannot be decompressed"):
        audit.split(f"s3://{BUCKET}/m.gz", "c")


def test_a_byte_order_mark_is_not_part_of_the_first_entry(audit: ShardAudit, tmp_path: Path) -> None:
    boto3.client("s3").put_object(Bucket=BUCKET, Key="m", Body=b"\xef\xbb\xbf" + LINES)
    plan = audit.split(f"s3://{BUCKET}/m", "c")
    assert (plan.entries, plan.shards) == (100, 1)
    assert b"".join(audit.read_lines(audit.read_shards()[0], tmp_path)) == LINES
