"""The folder in S3 that all steps of one sharded job share."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkproof.clients.s3 import Bucket
from chunkproof.errors import NotFoundError

# Distributed Map reads an array of any size, but its results, two bytes a shard, must fit in 256 KiB.
MAX_SHARDS = 20_000
SHARDS = "shards.json"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The objects of one job. Every write can be repeated, so that every step can run again."""

    bucket: Bucket
    name: str

    def key(self, name: str) -> str:
        """Return the key of an object of this job."""
        return f"{self.name}/{name}"

    def address(self, name: str) -> str:
        """Return the address of an object of this job, with the bucket."""
        return self.bucket.address(self.key(name))

    def read(self, name: str) -> bytes:
        """Read an object of this job."""
        return self.bucket.read(self.key(name))

    def read_if_exists(self, name: str) -> bytes | None:
        """Read an object of this job; None when it does not exist."""
        with suppress(NotFoundError):
            return self.read(name)
        return None

    def write(self, name: str, content: str | bytes) -> None:
        """Write an object of this job, or replace it."""
        self.bucket.write(self.key(name), content.encode() if isinstance(content, str) else content)

    def write_shards(self, items: Sequence[dict[str, Any]]) -> str:
        """Write the input of the Distributed Map, one item per shard, and return its key."""
        self.write(SHARDS, json.dumps(items))
        return self.key(SHARDS)

    def shards(self) -> list[int]:
        """Return the numbers of the shards."""
        return [item["shard"] for item in json.loads(self.read(SHARDS))]

    def write_failure(self, shard: int, error: Exception) -> None:
        """Record why the last attempt at a shard failed."""
        self.write(_failure_name(shard), json.dumps({"error": str(error)}))

    def failure(self, shard: int) -> str:
        """Return why a shard has no result."""
        recorded = self.read_if_exists(_failure_name(shard))
        return "it did not finish" if recorded is None else str(json.loads(recorded)["error"])


def _failure_name(shard: int) -> str:
    return f"errors/{shard:05d}.json"
