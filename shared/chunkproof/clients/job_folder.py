"""The objects of one sharded job in S3, under one prefix."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from chunkproof.clients.s3 import CONNECTIONS, Bucket
from chunkproof.errors import NotFoundError

# A Distributed Map reads an array of any size; its results, two bytes a shard, must fit in 256 KiB.
MAX_SHARDS = 20_000
SHARDS = "shards.json"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The objects of one job. Every step writes the same objects when it is retried."""

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

    def write_shards(self, items: Sequence[dict[str, Any]]) -> str:
        """Write the shards for the Distributed Map; return the key that it reads."""
        self.write(SHARDS, json.dumps(items))
        return self.key(SHARDS)

    def read_shards(self) -> list[int]:
        """Read the numbers of the shards."""
        return [item["shard"] for item in json.loads(self.read(SHARDS))]

    def write_failure(self, shard: int, why: Exception) -> None:
        """Record why the last attempt at a shard failed."""
        self.write(f"errors/{shard:05d}.json", json.dumps({"error": str(why)}))

    def read_failure(self, shard: int) -> str:
        """Read why a shard has no result."""
        content = self.read_if_exists(f"errors/{shard:05d}.json")
        return "it did not finish" if content is None else str(json.loads(content)["error"])


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
