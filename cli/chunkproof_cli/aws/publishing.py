"""A collection of the embedded store as a version to publish, and whether a function has room for it."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from chunkproof.base.request import Deadline
from chunkproof.stores.published import Version, list_version
from chunkproof.stores.published_store import SPARE_BYTES
from chunkproof.stores.qdrant import open_edge_store

MB = 1 << 20
COUNT_MS = 600_000
# Of a function's memory, what the interpreter and its packages take (docs/guides/edge.md).
BASE_MEMORY_MB = 200


@dataclass(frozen=True)
class FunctionLimits:
    """Disk and memory of a function, in MB, as the template has them."""

    disk_mb: int = 10_240
    memory_mb: int = 1024

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "FunctionLimits":
        """Read the limits of a deployed stack."""
        return cls(memory_mb=int(parameters.get("MemorySize") or cls.memory_mb))


@contextmanager
def listed(data: Path, collection: str) -> Iterator[tuple[Path, Version]]:
    """List the files of a collection, which no other process can write to meanwhile."""
    with closing(open_edge_store(data)) as store:
        points = store.count(collection, (), Deadline(COUNT_MS))  # also repeats an interrupted write
    from chunkproof.stores.edge_folder import locked_files  # where there is no Qdrant Edge, it cannot be imported

    with locked_files(data, collection) as (folder, paths):
        yield folder, list_version(folder, paths, collection, points)


def find_misfit(size: int, limits: FunctionLimits) -> str | None:
    """Say what a function lacks to search a collection of so many bytes; None if it fits.

    On disk, the next version stands beside the one in use while it is fetched. In memory, the engine maps its files;
    a function whose memory holds them all reads no disk while it searches.
    """
    spare = SPARE_BYTES // MB
    needed_disk = 2 * size // MB + spare
    if needed_disk > limits.disk_mb:
        return (
            f"Two versions of it take {needed_disk:,} MB of disk, and the functions have {limits.disk_mb:,} MB, "
            "which is all that Lambda offers: use a server"
        )
    needed_memory = size // MB + BASE_MEMORY_MB
    if needed_memory > limits.memory_mb:
        return (
            f"It takes {needed_memory:,} MB of memory, and the functions have {limits.memory_mb:,} MB: "
            f"deploy with MemorySize={_round_up(needed_memory)}"
        )
    return None


def _round_up(megabytes: int) -> str:
    """Round up to whole 256 MB; beyond Lambda's limit there is no such function."""
    rounded = -(-megabytes // 256) * 256
    return str(rounded) if rounded <= 10_240 else f"{rounded}, which is more than Lambda offers: use a server"
