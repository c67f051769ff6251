"""Estimate the duration and cost of an audit of any size; a test compares docs/guides/scale.md with this.

Figures are measured (`make bench PARTS=audit`) unless they say otherwise, or prices; change one and run this again.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

# Measured on two shared cores, chunks of 1.8 kB, Qdrant 1.16 on the same machine: right by order of magnitude.
LOCAL_CHUNKS_S = 15_000  # one process, complete scan, sorting the manifest included
SHARD_CHUNKS_S = 8_000  # one process, by ids: the most that one Lambda with a whole core reaches
SPLIT_ENTRIES_S = 23_000  # entries with text; hash-only ones 43,000
START_S = 0.6  # a cold container, as `make bench` has it, with its key in a secret
PAYLOAD_BYTES = 2_200  # a chunk as JSON

# The state machine
SHARD_ENTRIES = 5_000
STATES_PER_SHARD = 3  # start, Shard, Audited
REQUESTS_PER_SHARD = 7  # to S3: plan, shard, findings, result; merging reads two, Split wrote one
MERGED_SHARDS_S = 150  # tests/integration/test_merge_time.py: 200 shards, 20 ms for each of two small objects
LONGEST_STEP_S = 900  # Lambda's limit, for Split and Merge
MARGIN = 0.8

# Prices in US dollars, us-east-1, arm64
LAMBDA_GB_S = 0.0000133334
LAMBDA_MEMORY_GB = 1769 / 1024
LAMBDA_CALL = 0.20 / 1_000_000
STATE = 0.025 / 1_000
S3_REQUEST = 0.005 / 1_000  # the dearer kind for all of them

SIZES = (1_000_000, 100_000_000, 1_000_000_000)
# Chunks a second that a Qdrant cluster returns by id. Two shared cores returned 12,000.
READ_RATES = (10_000, 50_000, 200_000)


@dataclass(frozen=True)
class Estimate:
    """One audit in the cloud."""

    chunks: int
    read_rate: int

    @property
    def concurrency(self) -> int:
        """The number of parallel shards that reaches the read rate of the cluster."""
        return ceil(self.read_rate / SHARD_CHUNKS_S)

    @property
    def executions(self) -> int:
        """The number of parts to split the manifest into: each part is split and merged by one Lambda."""
        by_split = SPLIT_ENTRIES_S * LONGEST_STEP_S * MARGIN
        by_merge = MERGED_SHARDS_S * LONGEST_STEP_S * MARGIN * SHARD_ENTRIES
        return ceil(self.chunks / min(by_split, by_merge))

    @property
    def shards(self) -> int:
        return ceil(self.chunks / SHARD_ENTRIES)

    @property
    def reading_s(self) -> float:
        return self.chunks / min(self.read_rate, self.concurrency * SHARD_CHUNKS_S)

    @property
    def seconds(self) -> float:
        """The duration: parts are split in parallel; their shards share the cluster."""
        split = self.chunks / self.executions / SPLIT_ENTRIES_S
        merge = self.shards / self.executions / MERGED_SHARDS_S
        return START_S + split + self.reading_s + merge

    @property
    def dollars(self) -> float:
        busy = self.concurrency * self.reading_s + self.chunks / SPLIT_ENTRIES_S + self.shards / MERGED_SHARDS_S
        compute = busy * LAMBDA_MEMORY_GB * LAMBDA_GB_S + self.shards * LAMBDA_CALL
        return compute + self.shards * (STATES_PER_SHARD * STATE + REQUESTS_PER_SHARD * S3_REQUEST)

    @property
    def limit(self) -> str:
        """What takes most of the time."""
        return "Qdrant's read rate" if self.reading_s > self.seconds / 2 else "splitting and merging"


def table() -> Iterator[str]:
    """Format the estimates as in docs/guides/scale.md."""
    heads = ("chunks", "Qdrant reads/s", "shards side by side", "executions", "duration", "AWS cost")
    yield f"| {' | '.join(heads)} | read from Qdrant | limited by |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---|"
    for chunks in SIZES:
        for rate in READ_RATES:
            one = Estimate(chunks, rate)
            data = chunks * PAYLOAD_BYTES / 1e9
            yield (
                f"| {chunks:,} | {rate:,} | {one.concurrency} | {one.executions} | {duration(one.seconds)} "
                f"| ${one.dollars:,.2f} | {data:,.0f} GB | {one.limit} |"
            )


def laptop() -> Iterator[str]:
    """Estimate a complete scan by one process."""
    yield "| chunks | duration |"
    yield "|---:|---:|"
    for chunks in SIZES:
        yield f"| {chunks:,} | {duration(chunks / LOCAL_CHUNKS_S)} |"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


if __name__ == "__main__":
    sys.stdout.write("\n".join((*laptop(), "", *table())) + "\n")
