"""Work in parts: what all steps of one job keep in S3, below one name."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkproof.clients.s3 import Bucket
from chunkproof.errors import NotFoundError

# Distributed Map reads an array of any size; its results, two bytes a shard, must fit in 256 KiB.
MOST_SHARDS = 20_000
SHARDS = "shards.json"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The objects of one job. Writing one again is harmless, so that every step can be run again."""

    bucket: Bucket
    name: str

    def key(self, name: str) -> str:
        """Where an object of this job is in the bucket."""
        return f"{self.name}/{name}"

    def address(self, name: str) -> str:
        """The same with the bucket."""
        return self.bucket.address(self.key(name))

    def read(self, name: str) -> bytes:
        """An object of this job."""
        return self.bucket.read(self.key(name))

    def found(self, name: str) -> bytes | None:
        """The same, None when it is not there."""
        with suppress(NotFoundError):
            return self.read(name)
        return None

    def write(self, name: str, content: str | bytes) -> None:
        """Write an object of this job, or write it again."""
        self.bucket.write(self.key(name), content.encode() if isinstance(content, str) else content)

    def write_shards(self, items: Sequence[dict[str, Any]]) -> str:
        """Tell the Distributed Map of these shards; returns the key that it reads."""
        self.write(SHARDS, json.dumps(items))
        return self.key(SHARDS)

    def shards(self) -> list[int]:
        """The numbers of the shards."""
        return [item["shard"] for item in json.loads(self.read(SHARDS))]

    def write_failure(self, shard: int, why: Exception) -> None:
        """Note why the last attempt at a shard failed."""
        self.write(f"errors/{shard:05d}.json", json.dumps({"error": str(why)}))

    def failure(self, shard: int) -> str:
        """Why a shard has no result."""
        noted = self.found(f"errors/{shard:05d}.json")
        return "it did not come to an end" if noted is None else str(json.loads(noted)["error"])
