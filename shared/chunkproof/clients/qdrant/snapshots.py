"""Download the snapshot of a collection's shard from a Qdrant server."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import httpx

from chunkproof.clients.transport import host_of
from chunkproof.errors import VectorStoreUnavailableError

# Making a snapshot takes time in proportion to the collection.
MAKING_S = 600.0
READ_S = 60.0
Advance = Callable[[int], None]


class NoSnapshotError(Exception):
    """The server makes no snapshot that can be used: it forbids them, or the collection has several shards."""


class SnapshotClient:
    """Makes, downloads and deletes the snapshot of a collection that has one shard."""

    def __init__(self, url: str, headers: Mapping[str, str], collection: str) -> None:
        self._host = host_of(url)
        self._collection = f"/collections/{quote(collection, safe='')}"
        self._client = httpx.Client(base_url=url, headers=dict(headers), timeout=READ_S, trust_env=False)

    def download(self, file: Path, begin: Callable[[int], Advance]) -> None:
        """Write a new snapshot to a file, and check it against the server's checksum; `begin` gets its size."""
        try:
            with self._client:
                shard = self._only_shard()
                snapshots = f"{self._collection}/shards/{shard}/snapshots"
                made = self._client.post(snapshots, timeout=MAKING_S)
                if made.is_error:
                    raise NoSnapshotError(f"the server refused a snapshot ({made.status_code})")
                snapshot = made.json()["result"]
                path = f"{snapshots}/{quote(snapshot['name'], safe='')}"
                try:
                    self._fetch(path, snapshot, file, begin(int(snapshot["size"])))
                finally:
                    self._client.delete(path)
        except httpx.HTTPError as error:
            raise VectorStoreUnavailableError(self._host, f"the snapshot failed: {type(error).__name__}") from None
        except (ValueError, LookupError, TypeError):
            raise NoSnapshotError("the server's response is not that of a snapshot") from None

    def _only_shard(self) -> int:
        cluster = self._client.get(f"{self._collection}/cluster")
        if cluster.is_error:
            raise NoSnapshotError(f"the server does not name its shards ({cluster.status_code})")
        result = cluster.json()["result"]
        if result["shard_count"] != 1 or len(result["local_shards"]) != 1:
            raise NoSnapshotError("the collection has several shards, or another node of the cluster has it")
        return int(result["local_shards"][0]["shard_id"])

    def _fetch(self, path: str, snapshot: Mapping[str, str], file: Path, advance: Advance) -> None:
        digest = sha256()
        with self._client.stream("GET", path) as response, file.open("wb") as target:
            if response.is_error:
                raise NoSnapshotError(f"the server does not send its snapshot ({response.status_code})")
            for block in response.iter_bytes():
                digest.update(block)
                target.write(block)
                advance(len(block))
        if snapshot.get("checksum") and digest.hexdigest() != snapshot["checksum"]:
            raise VectorStoreUnavailableError(self._host, "the snapshot was damaged on its way; run the command again")
