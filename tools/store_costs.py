"""What a store costs in a month, idle and per million searches: `make costs STORES=1` compares six ways to run one.

A Qdrant server on EC2 or on Fargate, Qdrant Cloud, and edge: a shard in S3 that the functions read, without a server.
For comparison, two services of AWS that Chunkproof does not search: S3 Vectors and OpenSearch Serverless.
The stack itself (`make costs`), the embedder and copies for availability are not included. Prices are in
cli/chunkproof_cli/prices.toml; those that were not verified are marked with an asterisk.

Examples:
  make costs STORES=1
  make costs STORES=1 CHUNKS=1000000 DIMENSION=384
  make costs STORES=1 QDRANT_CLOUD_GB_HOUR=0.05
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil, inf

from chunkproof_cli.suites.configurations import PRICES

from tools.costs import BILLED_MS, LOG_BYTES

STORE = PRICES["store"]
USD: dict[str, float] = {
    **STORE["prices"],
    "api_request": PRICES["million"]["api_request"] / 1e6,
    "lambda_request": PRICES["million"]["lambda_request"] / 1e6,
    "lambda_gb_second": PRICES["gigabyte_second"]["lambda_arm64"],
    "log_gb": PRICES["gigabyte"]["log_ingested"],
    "s3_gb": PRICES["month"]["s3_gb"],
}
UNVERIFIED = r"\* Not verified: look the price up before you rely on it, and set it in cli/chunkproof_cli/prices.toml."
HOURS = 720
GB = 1024**3
TEXT_BYTES = 2_000
# A server keeps vectors and their index in memory, by Qdrant's rule of thumb; payloads stay on its disk.
MEMORY_FACTOR, SERVER_BYTES = 1.5, 0.5 * GB
# Of a shard on disk: vectors and index, text with its fields, and the rest. With 384 values and 2,000 bytes of text,
# 6.7 kB were measured for each chunk.
INDEX_FACTOR, PAYLOAD_FACTOR, OTHER_BYTES = 1.1, 1.5, 2_000
# A function keeps the pages of the shard in memory, beside its code. This is the most that Lambda allows, and of /tmp.
FUNCTION_MB, BESIDE_MB, LARGEST_MB = 1024, 512, 10_240
FREE_TMP_MB = 512
# One request in a hundred meets a cold start, which fetches the shard in parts of 8 MiB, at 100 MB a second.
COLD_SHARE, FETCH_BYTES_S, PART_BYTES = 0.01, 100e6, 8 * 1024**2
# Of S3 Vectors: what a vector has beside its values, and how many are read at the higher price. A unit's memory.
VECTOR_KEY_BYTES, NEAR_VECTORS, UNIT_GB = 1_170, 100_000, 6


@dataclass(frozen=True)
class Item:
    """What is charged, the dollars, and whether the price was verified."""

    name: str
    usd: float
    verified: bool


@dataclass(frozen=True)
class Store:
    """One way to run a store: what it costs idle, and what a million searches add."""

    name: str
    idle: tuple[Item, ...]
    searches: tuple[Item, ...]

    @property
    def idle_usd(self) -> float:
        return sum(item.usd for item in self.idle)

    @property
    def million_usd(self) -> float:
        return sum(item.usd for item in self.searches)


@dataclass(frozen=True)
class Size:
    """A collection, and the room it takes."""

    chunks: int
    dimension: int
    text_bytes: int = TEXT_BYTES

    @property
    def memory(self) -> float:
        """Bytes of memory of a server."""
        return self.chunks * self.dimension * 4 * MEMORY_FACTOR + SERVER_BYTES

    @property
    def disk(self) -> float:
        """Bytes of a shard."""
        each = self.dimension * 4 * INDEX_FACTOR + self.text_bytes * PAYLOAD_FACTOR + OTHER_BYTES
        return self.chunks * each


def compare(size: Size) -> list[Store | str]:
    """Every store that can hold the collection; for one that cannot, why not."""
    found: list[Store | str] = []
    for make in (on_ec2, on_fargate, in_qdrant_cloud, in_s3_vectors, in_opensearch, at_the_edge):
        try:
            found.append(make(size))
        except LookupError as reason:
            found.append(str(reason))
    return found


def on_ec2(size: Size) -> Store:
    """A server on the smallest instance with room enough, in a VPC, whose functions reach the embedder by NAT."""
    machines = sorted(STORE["ec2"].items(), key=lambda one: one[1]["hour"])
    fitting = [(name, one) for name, one in machines if one["gb"] * GB >= size.memory]
    if not fitting:
        raise LookupError(f"server on EC2: {size.memory / GB:,.0f} GB of memory are more than one instance here has")
    name, machine = fitting[0]
    idle = (
        Item(f"instance {name}, {machine['gb']} GB", machine["hour"] * HOURS, name in STORE["verified"]),
        _disk(size),
        _price("nat_hour", HOURS, "NAT gateway, for the functions in the VPC"),
    )
    return Store("server on EC2", idle, tuple(_requests(FUNCTION_MB)))


def on_fargate(size: Size) -> Store:
    """A server in one task. Its disk lasts as long as the task: another one restores a snapshot."""
    needed = ceil(size.memory / GB)
    fitting = [(cpus, max(least, needed)) for cpus, least, most in STORE["fargate_sizes"] if needed <= most]
    if not fitting:
        raise LookupError(f"server on Fargate: {needed:,} GB of memory are more than a task has")
    cpus, gigabytes = fitting[0]
    disk = max(0.0, 2 * size.disk / GB - STORE["fargate_free_disk_gb"])
    idle = (
        _price("fargate_vcpu_hour", cpus * HOURS, f"{cpus} vCPU"),
        _price("fargate_gb_hour", gigabytes * HOURS, f"{gigabytes} GB of memory"),
        _price("fargate_disk_gb_hour", disk * HOURS, "disk over 20 GB"),
        _price("nat_hour", HOURS, "NAT gateway, for the functions in the VPC"),
    )
    return Store("server on Fargate", idle, tuple(_requests(FUNCTION_MB)))


def in_qdrant_cloud(size: Size) -> Store:
    """A cluster of one node with its memory rounded up to a power of two; the functions need no VPC."""
    gigabytes = 2 ** max(0, ceil(size.memory / GB) - 1).bit_length()
    idle = (_price("qdrant_cloud_gb_hour", gigabytes * HOURS, f"cluster with {gigabytes} GB of memory"),)
    return Store("Qdrant Cloud", idle, tuple(_requests(FUNCTION_MB)))


def in_s3_vectors(size: Size) -> Store:
    """An index of S3 Vectors, for comparison: up to 100 results, no search by words, some 100 ms when warm."""
    each = size.dimension * 4 + VECTOR_KEY_BYTES
    near, far = min(size.chunks, NEAR_VECTORS), max(0, size.chunks - NEAR_VECTORS)
    idle = (_price("s3_vectors_gb", size.chunks * (each + size.text_bytes) / GB, "vectors and texts"),)
    searches = (
        *_requests(FUNCTION_MB),
        _price("s3_vectors_query", 1e6, "queries"),
        _price("s3_vectors_near_gb", 1e6 * near * each / GB, "what queries read of the first 100,000 vectors"),
        _price("s3_vectors_far_gb", 1e6 * far * each / GB, "what they read of the others"),
    )
    return Store("S3 Vectors", idle, searches)


def in_opensearch(size: Size) -> Store:
    """A collection of OpenSearch Serverless, for comparison: stopped while idle, 10 to 30 s to start.

    A million searches in a month leave no hour without one, so its units run all the time.
    """
    idle = (_price("opensearch_gb", size.disk / GB, "storage"),)
    units = max(1.0, ceil(2 * size.memory / (UNIT_GB * GB)) / 2)
    running = _price("opensearch_unit_hour", units * HOURS, f"{units:g} units, awake for a month")
    return Store("OpenSearch Serverless", idle, (*_requests(FUNCTION_MB), running))


def at_the_edge(size: Size) -> Store:
    """A shard in S3, which functions copy to /tmp when they start."""
    megabytes = size.disk / 1024**2
    if megabytes > LARGEST_MB - BESIDE_MB:
        raise LookupError(f"edge: a shard of {megabytes / 1024:,.1f} GB does not fit into a function's 10 GB")
    memory = max(FUNCTION_MB, ceil(megabytes + BESIDE_MB))
    fetch_s = size.disk / FETCH_BYTES_S
    idle = (_price("s3_gb", 2 * size.disk / GB, "two versions of the shard in S3"),)
    seconds = 1e6 * (BILLED_MS / 1000 + COLD_SHARE * fetch_s)
    storage = max(0.0, megabytes - FREE_TMP_MB) / 1024
    searches = (
        *_requests(memory),
        _price("lambda_gb_second", 1e6 * COLD_SHARE * fetch_s * memory / 1024, "fetching the shard"),
        _price("lambda_tmp_gb_second", seconds * storage, "/tmp over 512 MB"),
        _price("s3_get", 1e6 * COLD_SHARE * ceil(size.disk / PART_BYTES), "reads from S3"),
    )
    return Store("edge, no server", idle, searches)


def _requests(memory_mb: int) -> Iterator[Item]:
    """What a million searches cost with any store."""
    yield _price("api_request", 1e6, "API requests")
    yield _price("lambda_request", 1e6, "Lambda requests")
    yield _price("lambda_gb_second", 1e6 * BILLED_MS / 1000 * memory_mb / 1024, f"functions of {memory_mb:,} MB")
    yield _price("log_gb", 1e6 * LOG_BYTES / GB, "logs")


def _disk(size: Size) -> Item:
    return _price("gp3_gb", max(20.0, 2 * size.disk / GB), "disk, twice the collection")


def _price(name: str, amount: float, label: str) -> Item:
    return Item(label, amount * USD[name], name in STORE["verified"])


def report(size: Size, *, detailed: bool = False) -> str:
    """The comparison, in Markdown."""
    found = compare(size)
    stores = [one for one in found if isinstance(one, Store)]
    date = PRICES["date"]
    lines = [
        f"| {size.chunks:,} chunks of {size.dimension:,} values | idle, USD a month ({date}) | each million searches |",
        "|---|---:|---:|",
        *(f"| {one.name} | {one.idle_usd:,.2f} | {one.million_usd:,.2f} |" for one in stores),
    ]
    notes = [reason for reason in found if isinstance(reason, str)]
    notes += list(_break_even(stores))
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    if detailed:
        lines += ["", "| store | item | USD |", "|---|---|---:|", *_details(stores), "", UNVERIFIED]
    return "\n".join(lines) + "\n"


def _break_even(stores: list[Store]) -> Iterator[str]:
    """From how many searches a month on a server is cheaper than edge."""
    edge = next((one for one in stores if one.name.startswith("edge")), None)
    for one in stores:
        if edge is None or one is edge:
            continue
        more = edge.million_usd - one.million_usd
        if more > 0.005:
            millions = (one.idle_usd - edge.idle_usd) / more
            if millions < 0.05:
                yield f"{one.name} is cheaper than edge at any number of searches"
                continue
            yield f"edge is cheaper than {one.name} up to {millions:,.1f} million searches a month"
        else:
            yield f"edge is cheaper than {one.name} at any number of searches"


def _details(stores: list[Store]) -> Iterator[str]:
    for one in stores:
        for kind, items in (("idle", one.idle), ("a million searches", one.searches)):
            for item in items:
                if item.usd:
                    mark = "" if item.verified else "\\*"
                    yield f"| {one.name}, {kind} | {item.name}{mark} | {item.usd:,.2f} |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--chunks", type=int, default=100_000)
    arguments.add_argument("--dimension", type=int, default=1024)
    arguments.add_argument("--text-bytes", type=int, default=TEXT_BYTES, help="of a chunk, on average")
    arguments.add_argument(
        "--qdrant-cloud-gb-hour",
        type=float,
        help="USD for a GB of memory and an hour, by Qdrant's calculator; the one in prices.toml is a guess",
    )
    arguments.add_argument("--json", action="store_true", help="print every item as JSON")
    given = arguments.parse_args()
    for name in ("chunks", "dimension", "text_bytes"):
        if getattr(given, name) < 1:
            arguments.error(f"--{name.replace('_', '-')} must be 1 or more")
    if given.qdrant_cloud_gb_hour is not None:
        if not 0 <= given.qdrant_cloud_gb_hour < inf:
            arguments.error("--qdrant-cloud-gb-hour must be 0 or more")
        USD["qdrant_cloud_gb_hour"] = given.qdrant_cloud_gb_hour
    size = Size(given.chunks, given.dimension, given.text_bytes)
    if given.json:
        found = [asdict(one) if isinstance(one, Store) else {"does_not_fit": one} for one in compare(size)]
        print(json.dumps(found, indent=2))
    else:
        print(report(size, detailed=True), end="")


if __name__ == "__main__":
    main()
