"""What a published collection weighs and how fast it opens, by size: the figures of docs/guides/edge.md.

    PYTHONPATH=tests:. .venv/bin/python -m bench.published --chunks 10000 100000 --size 1024

Fetching is arithmetic: bytes over the bandwidth that S3 gives a function, which this machine cannot measure.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import DenseLeg, Point, StoreQuery, VectorConfig
from chunkproof_cli.aws.stack import list_locked
from chunkproof_cli.output import print_table

WORDS = [
    f"{start}{end}" for start in ("ret", "emb", "vec", "doc", "ind", "que") for end in ("or", "er", "ing", "ed", "al")
]
TEXT_WORDS = 180  # about 1 kB
BATCH = 1000
# What S3 gives a function with 1 GB of memory over sixteen connections, by AWS's own advice on ranged reads.
BANDWIDTH = 90e6
FOREVER = 1e9


def load(folder: Path, chunks: int, size: int) -> None:
    """A collection of random vectors and texts, with its index."""
    random = np.random.default_rng(1)
    store = EdgeStore(folder)
    store.create("docs", size, Deadline(FOREVER))
    for start in range(0, chunks, BATCH):
        vectors = random.normal(size=(BATCH, size)).astype("float32")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        texts = (" ".join(random.choice(WORDS, TEXT_WORDS)) for _ in range(BATCH))
        points = [
            Point(start + n, {"chunk_id": f"c{start + n}", "text": text}, vector=tuple(map(float, vector)))
            for n, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]
        store.upsert("docs", points, "", Deadline(FOREVER))
    store.optimize("docs")
    store.close()


def open_and_search(folder: Path, size: int) -> tuple[float, float, float]:
    """Milliseconds to open, of the first search, and of the median of the next fifty."""
    watch = perf_counter()
    store = EdgeStore(folder)
    store.describe("docs", Deadline(FOREVER))
    opened = perf_counter() - watch
    random = np.random.default_rng(2)
    times = []
    for _ in range(51):
        vector = tuple(map(float, random.normal(size=size)))
        watch = perf_counter()
        query = StoreQuery("docs", 10, dense=DenseLeg(VectorConfig("", size, "Cosine"), vector))
        store.search([query], Deadline(FOREVER))
        times.append(perf_counter() - watch)
    store.close()
    return opened * 1000, times[0] * 1000, sorted(times[1:])[25] * 1000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--chunks", type=int, nargs="+", default=[10_000])
    arguments.add_argument("--size", type=int, default=1024)
    arguments.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.measure:  # in a process of its own, whose memory is measured
        opened, first, usual = open_and_search(given.measure, given.size)
        print(opened, first, usual, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    rows = []
    for chunks in given.chunks:
        with TemporaryDirectory() as folder:
            load(Path(folder), chunks, given.size)
            with list_locked(Path(folder), "docs") as (_, version):
                stored = version.stored_bytes
            command = [sys.executable, "-m", "bench.published", "--size", str(given.size), "--measure", folder]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            opened, first, usual, memory = map(float, output.split())
        rows.append(
            (
                f"{chunks:,}",
                f"{stored / 1e6:,.0f}",
                f"{stored / BANDWIDTH:.1f}",
                f"{opened:.0f}",
                f"{first:.1f}",
                f"{usual:.1f}",
                f"{memory:,.0f}",
            )
        )
    print(f"{given.size} values and about 1 kB of text a chunk; fetching at {BANDWIDTH / 1e6:.0f} MB/s is assumed")
    print_table(("chunks", "MB", "fetch s", "open ms", "first ms", "search ms", "memory MB"), rows)


if __name__ == "__main__":
    main()
