"""Objects in S3, and sharded jobs (audits, suites) that keep their shards and results there.

A state machine runs a job in three steps: split it, run each shard, merge the results. Every step writes the same
objects when it runs again, so retries are safe. A job reads one version of each published collection: its plan notes
the versions in force when it began, wherever the pointers are by then.

    FOLDER/ID/plan.json        what is done, in how many shards
    FOLDER/ID/shards.json      the shards, for the Distributed Map
    FOLDER/ID/shards/N.*       their input
    FOLDER/ID/results/N.json   their results
    FOLDER/ID/errors/N.json    why the last attempt at a shard failed
    FOLDER/ID/report.json      the report
"""

import json
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, NotFoundError, UnavailableError
from chunkproof.contract import Model

SCHEME = "s3://"
# Requests at the same time, each with a connection of its own.
CONNECTIONS = 16


# What S3 answers, and what botocore raises, when a role, a key or an address is wrong: no later call succeeds.
MISCONFIGURED = (
    "AccessDenied",
    "403",
    "AllAccessDisabled",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "NoCredentialsError",
    "ParamValidationError",
)
CONNECT_S, READ_S, ATTEMPTS = 3.0, 20.0, 3


class ObjectStoreError(UnavailableError):
    """S3 could not be reached, or refused the request; `reason` is its error code, or the class of the error."""

    code = "S3_FAILED"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def is_misconfigured(self) -> bool:
        """Whether permissions or settings are wrong, so that no later call succeeds."""
        return self.reason in MISCONFIGURED


class NoBucketError(NotFoundError):
    """There is no such bucket."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket. A missing object or bucket raises `NotFoundError`, any other failure `ObjectStoreError`."""

    name: str

    def address(self, key: str) -> str:
        """Return the address of an object, `s3://BUCKET/KEY`."""
        return f"s3://{self.name}/{key}"

    def read(self, key: str) -> bytes:
        """Read a whole object."""
        with self._translate_errors(key):
            return bytes(aws_client().get_object(Bucket=self.name, Key=key)["Body"].read())

    def open(self, key: str) -> Any:
        """Open an object as a file that can be read once."""
        with self._translate_errors(key):
            return aws_client().get_object(Bucket=self.name, Key=key)["Body"]

    def write(self, key: str, content: bytes, *, with_checksum: bool = False) -> None:
        """Create or replace an object; with its checksum, `sha256_of` does not need to read it."""
        with self._translate_errors(key):
            options = {"ChecksumAlgorithm": "SHA256"} if with_checksum else {}
            aws_client().put_object(Bucket=self.name, Key=key, Body=content, **options)

    def create(self, key: str, content: bytes) -> bool:
        """Create an object; False if there is one."""
        try:
            with self._translate_errors(key):
                aws_client().put_object(Bucket=self.name, Key=key, Body=content, IfNoneMatch="*")
        except ObjectStoreError as error:
            if error.reason in ("PreconditionFailed", "ConditionalRequestConflict"):
                return False
            raise
        return True

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        with self._translate_errors(key):
            aws_client().delete_object(Bucket=self.name, Key=key)

    def sha256_of(self, key: str) -> str | None:
        """Return the SHA-256 of an object, from S3's own checksum if it has one; None if there is no such object."""
        try:
            with self._translate_errors(key):
                head = aws_client().head_object(Bucket=self.name, Key=key, ChecksumMode="ENABLED")
        except NotFoundError:
            return None
        if checksum := head.get("ChecksumSHA256"):
            return b64decode(checksum).hex()
        return sha256(self.read(key)).hexdigest()

    def list_keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with the prefix, in order."""
        with self._translate_errors(prefix):
            pages = aws_client().get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def upload(self, key: str, file: Path) -> None:
        """Create or replace an object from a file of any size."""
        with self._translate_errors(key):
            aws_client().upload_file(str(file), self.name, key)

    def download(self, key: str, file: Path) -> None:
        """Copy an object to a file."""
        with self._translate_errors(key):
            aws_client().download_file(self.name, key, str(file))

    @contextmanager
    def _translate_errors(self, key: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in ("NoSuchKey", "404", "NoSuchBucket"):
                missing = NoBucketError if code == "NoSuchBucket" else NotFoundError
                raise missing(f"There is no {self.address(key)}") from None
            raise ObjectStoreError(f"S3 refused {self.address(key)} ({code})", code) from None
        except BotoCoreError as error:
            reason = type(error).__name__
            raise ObjectStoreError(f"S3 could not be reached: {reason}", reason) from None


def is_s3_address(text: str) -> bool:
    """Whether the text is meant as the address of an object."""
    return text.startswith(SCHEME)


def parse_address(address: str) -> tuple[Bucket, str]:
    """Split an address into bucket and key."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not is_s3_address(address) or not bucket or not key:
        raise InvalidParameterError(f"{address} is not the address of an object, s3://BUCKET/KEY")
    return Bucket(bucket), key


@cache
def aws_client(service: str = "s3") -> Any:
    """Return the client of a service of AWS."""
    import boto3
    from botocore.config import Config

    # An attempt ends early enough for another one, within the time that Lambda gives a start.
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    limits = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "max_pool_connections": CONNECTIONS}
    return boto3.client(service, config=Config(**limits, retries=retries))


# A Distributed Map reads an array of any size; its results, two bytes a shard, must fit in 256 KiB.
MAX_SHARDS = 20_000
SHARDS = "shards.json"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class JobFolder:
    """The objects under one prefix of a bucket."""

    bucket: Bucket
    name: str

    def key(self, name: str) -> str:
        """Return the key of an object in the bucket."""
        return f"{self.name}/{name}"

    def address(self, name: str) -> str:
        """Return the address of an object, `s3://BUCKET/KEY`."""
        return self.bucket.address(self.key(name))

    def read(self, name: str) -> bytes:
        """Read an object."""
        return self.bucket.read(self.key(name))

    def read_if_exists(self, name: str) -> bytes | None:
        """Read an object; None when it does not exist."""
        with suppress(NotFoundError):
            return self.read(name)
        return None

    def write(self, name: str, content: str | bytes) -> None:
        """Create or replace an object."""
        self.bucket.write(self.key(name), content.encode() if isinstance(content, str) else content)


class JobPlan(Model):
    """What is done, in how many shards; a kind of job adds its id and its own fields."""

    bucket: str
    shards_key: str
    shards: int
    started_at: datetime
    versions: dict[str, str] = Field(default_factory=dict, description="Of published collections: what is read")


Plan = TypeVar("Plan", bound=JobPlan)


class ShardedJob(JobFolder, Generic[Plan]):
    """The folder of one job, and what its steps have in common.

    A kind of job names the `FOLDER` of its jobs, the field that has their `ID` in plans and shards, and its model of a
    `PLAN`.
    """

    FOLDER: ClassVar[str]
    ID: ClassVar[str]
    PLAN: type[Plan]

    def __init__(self, bucket: Bucket, job_id: str) -> None:
        super().__init__(bucket, f"{self.FOLDER}/{job_id}")
        self._id: dict[str, Any] = {self.ID: job_id}

    def plan(self) -> Plan:
        """Read the plan that the split wrote."""
        return self.PLAN.model_validate_json(self.read("plan.json"))

    def shards(self) -> list[int]:
        """Read the numbers of the shards."""
        return [item["shard"] for item in json.loads(self.read(SHARDS))]

    def read_failure(self, shard: int) -> str:
        """Read why a shard has no result."""
        content = self.read_if_exists(f"errors/{shard:05d}.json")
        return "it did not finish" if content is None else str(json.loads(content)["error"])

    def report_address(self) -> str:
        """Return the address of the report."""
        return self.address("report.json")

    def _write_plan(self, shards: Sequence[dict[str, Any]], **fields: Any) -> Plan:
        """Write the shards for the Distributed Map, and the plan, which ends the split."""
        self.write(SHARDS, json.dumps([{**self._id, **shard} for shard in shards]))
        key = self.key(SHARDS)
        plan = self.PLAN(**self._id, bucket=self.bucket.name, shards_key=key, shards=len(shards), **fields)
        self.write("plan.json", plan.to_json())
        return plan

    @contextmanager
    def _recording_failure(self, shard: int) -> Iterator[None]:
        """Record why an attempt at a shard fails."""
        try:
            yield
        except ChunkproofError as error:
            self.write(f"errors/{shard:05d}.json", json.dumps({"error": str(error)}))
            raise


def map_in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the function's results in the order of the items, while the next few are under way.

    One object after the other, 20,000 shards would take longer than Lambda lets a function run.
    """
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) == 2 * CONNECTIONS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
