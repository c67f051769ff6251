"""The same chunks in the SDK's local mode, in Qdrant Edge and on a Qdrant server, side by side in one run.

    make bench PARTS=embedded CHUNKS="1000 10000"

Vectors have 384 values and lie in clusters, as embeddings do; a query is near one of them. Ratios are local mode or
server divided by Edge. `command` is `chunkproof search` as a whole, with the start of Python and of the local model.
At 100,000 chunks, local mode alone takes some ten minutes to load.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx
import numpy as np
from qdrant_client import QdrantClient, models

from chunkproof import connect
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.hybrid import rank_points, searches_of
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, DenseLeg, Point, StoreQuery, TextLeg, VectorConfig
from chunkproof.suite.suite_report import ApproximationSummary
from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.corpus import sample_chunks, sample_suite
from chunkproof_cli.local.sandbox_services import run_qdrant
from chunkproof_cli.output import print_table

from bench import corpus

COLLECTION = "bench"
SIZE = 384
BATCH = 1_000
LANGUAGES = ("en", "de", "fr", "ja")
ROUNDS = 50
MOST_MS = 10_000
COMMANDS = 5
TOP_K = 10
CONFIG = VectorConfig("", SIZE, "Cosine")
FOREVER = 1e9
FIGURES = ("load s", "open ms", "dense ms", "filtered ms", "hybrid ms", "memory MB", "recall@10", "command ms")
STORES = ("local mode", "edge", "server")


def clustered_vectors(count: int, seed: int) -> np.ndarray:
    """Unit vectors around one direction for each hundred of them."""
    centers = corpus.unit_vectors(max(1, count // 100), seed=7, size=SIZE)
    random = np.random.default_rng(seed)
    near = centers[random.integers(len(centers), size=count)] + 0.04 * random.standard_normal((count, SIZE))
    return near / np.linalg.norm(near, axis=1, keepdims=True)


class LocalMode:
    """The local mode of Qdrant's SDK, with what this benchmark needs of a store."""

    def __init__(self, folder: Path) -> None:
        self._client = QdrantClient(path=str(folder))

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool) -> None:
        params = models.VectorParams(size=size, distance=models.Distance.COSINE)
        self._client.create_collection(collection, vectors_config=params)
        index = models.TextIndexParams(type=models.TextIndexType.TEXT, scoring=True)
        self._client.create_payload_index(collection, "text", index)

    def upsert(self, collection: str, points: list[Point], *_others: object, text_vector: str | None) -> None:
        structs = [models.PointStruct(id=p.id, vector=list(p.vector or ()), payload=dict(p.payload)) for p in points]
        self._client.upsert(collection, structs)

    def optimize(self, collection: str) -> None:
        """It has no indexes."""

    def describe(self, collection: str, deadline: Deadline) -> object:
        return self._client.get_collection(collection)

    def search(self, queries: list[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        found = []
        for query in queries:
            requests = [models.QueryRequest.model_validate(search) for search in searches_of(query)]
            results = self._client.query_batch_points(query.collection, requests)
            ranked = [[Point(p.id, p.payload or {}, p.score) for p in result.points] for result in results]
            found.append(rank_points(query, ranked))
        return found

    def close(self) -> None:
        self._client.close()


@contextmanager
def opened(kind: str, place: str) -> Iterator[Any]:
    """The store of a kind at a folder or an address."""
    if kind == "server":
        store = ServerStore(place, DeadlineTransport())
    else:
        store = (LocalMode if kind == "local mode" else EdgeStore)(Path(place))
    try:
        yield store
    finally:
        store.close()


def load(kind: str, place: str, chunks: int) -> float:
    """Seconds to write all chunks and to build the indexes."""
    vectors, begun = clustered_vectors(chunks, seed=3), perf_counter()
    text_vector = TEXT_VECTOR if kind == "server" else None
    with opened(kind, place) as store:
        store.create(COLLECTION, SIZE, Deadline(FOREVER), text_search=kind == "server")
        for first in range(0, chunks, BATCH):
            points = [
                Point(
                    number,
                    {"chunk_id": str(number), "text": corpus.text_of(number, 1_000), "lang": LANGUAGES[number % 4]},
                    vector=tuple(map(float, vectors[number])),
                )
                for number in range(first, min(first + BATCH, chunks))
            ]
            store.upsert(COLLECTION, points, "", Deadline(FOREVER), text_vector=text_vector)
        store.optimize(COLLECTION)
        if kind == "server":  # Edge indexes the field by itself
            index = {"field_name": "lang", "field_schema": "keyword"}
            httpx.put(f"{place}/collections/{COLLECTION}/index?wait=true", json=index, timeout=600).raise_for_status()
    return perf_counter() - begun


def measure(kind: str, place: str, chunks: int) -> dict[str, float]:
    """Times of a new process; the recall compares the index with exact search."""
    queries = [tuple(map(float, vector)) for vector in clustered_vectors(chunks, seed=5)[:ROUNDS]]
    begun = perf_counter()
    with opened(kind, place) as store:
        store.describe(COLLECTION, Deadline(FOREVER))
        figures = {"open ms": (perf_counter() - begun) * 1000}

        def search(query: StoreQuery) -> list[Point]:
            return store.search([query], Deadline(FOREVER))[0]

        def timed(make: Callable[[int], StoreQuery]) -> float:
            search(make(0))
            times: list[float] = []
            for number in range(ROUNDS):
                watch = perf_counter()
                search(make(number))
                times.append((perf_counter() - watch) * 1000)
                if sum(times) > MOST_MS:
                    break
            return median(times)

        def dense(number: int, *, exact: bool = False) -> StoreQuery:
            return StoreQuery(COLLECTION, TOP_K, dense=DenseLeg(CONFIG, queries[number], exact=exact))

        def filtered(number: int) -> StoreQuery:
            return StoreQuery(
                COLLECTION, TOP_K, dense=DenseLeg(CONFIG, queries[number]), where=(AnyOf("lang", ("de",)),)
            )

        leg = {"sparse_vector": TEXT_VECTOR} if kind == "server" else {"field": "text"}

        def hybrid(number: int) -> StoreQuery:
            text = TextLeg(f"sensor calibration {number}", **leg)
            return StoreQuery(COLLECTION, TOP_K, dense=DenseLeg(CONFIG, queries[number]), text=text, candidates=50)

        figures |= {"dense ms": timed(dense), "filtered ms": timed(filtered), "hybrid ms": timed(hybrid)}
        hits = [
            len({p.id for p in search(dense(n))} & {p.id for p in search(dense(n, exact=True))}) for n in range(ROUNDS)
        ]
    figures["memory MB"] = _memory_mb(os.getpid(), "VmHWM")
    figures["recall@10"] = sum(hits) / (ROUNDS * TOP_K)
    return figures


def run_apart(step: str, kind: str, place: str, chunks: int) -> dict[str, float]:
    """Run a step in a process of its own."""
    command = [sys.executable, "-m", "bench.embedded", "--chunks", str(chunks), "--step", step, kind, place]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def time_command(kind: str, place: str, number: int) -> float:
    """Milliseconds of `chunkproof search` from the shell; the first round fills the page cache."""
    variables = {"QDRANT_URL": place} if kind == "server" else {}
    where = [] if kind == "server" else ["--data", place]
    command = [sys.executable, "-m", "chunkproof_cli", "search", f"How is sensor {number} calibrated?", "--json"]
    ours = ("CHUNKPROOF_", "QDRANT_", "COHERE_", "CO_API_KEY", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    begun = perf_counter()
    run = subprocess.run(
        [*command, "--collection", COLLECTION, "-k", str(TOP_K), *where],
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    taken = (perf_counter() - begun) * 1000
    assert len(json.loads(run.stdout)["results"]) == TOP_K
    return taken


def sample_recall() -> ApproximationSummary:
    """How much of the exact results the embedded store finds for the questions of the sample suite."""
    with TemporaryDirectory() as folder:
        chunks = Path(folder, "chunks.jsonl")
        write_chunks(chunks, sample_chunks())
        load_them = [sys.executable, "-m", "chunkproof_cli", "load", str(chunks), "--collection", "handbook"]
        subprocess.run([*load_them, "--data", folder], check=True, stdout=subprocess.DEVNULL)
        with as_file(sample_suite()) as suite, connect(data=folder) as client:
            found = client.run_suite(suite, collection="handbook", exact=True).approximation
    assert found is not None
    return found


def say(line: str) -> None:
    """Progress, apart from the figures."""
    print(line, file=sys.stderr, flush=True)


def compare(chunks: int, url: str, server_memory: Callable[[], float]) -> dict[str, dict[str, float]]:
    """The figures of each kind of store."""
    found = {}
    for kind in STORES:
        with TemporaryDirectory() as folder:
            place = url if kind == "server" else str(Path(folder) / "data")
            say(f"{chunks:,} chunks: {kind}")
            found[kind] = {**run_apart("load", kind, place, chunks), **run_apart("measure", kind, place, chunks)}
            if kind != "local mode":  # no command opens its folder
                found[kind]["command ms"] = median(time_command(kind, place, number) for number in range(COMMANDS))
    found["server"]["memory MB"] = server_memory()
    return found


def _format(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.2f}"


def _memory_mb(pid: int, figure: str) -> float:
    """Memory of a process: `VmRSS` now, `VmHWM` at most."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(figure))
    return int(line.split()[1]) / 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--chunks", type=int, nargs="+", default=[1_000, 10_000])
    arguments.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.step:
        step, kind, place = given.step
        (chunks,) = given.chunks
        warnings.simplefilter("ignore", UserWarning)  # that a server would suit local mode's chunks better
        print(json.dumps({"load s": load(kind, place, chunks)} if step == "load" else measure(kind, place, chunks)))
        return
    logging.getLogger("chunkproof").setLevel(logging.ERROR)
    sample = sample_recall()
    print(f"Recall of the sample handbook, {sample.queries} questions: {sample.ann_recall:.3f}")
    for chunks in given.chunks:
        with run_qdrant() as server:
            assert server.process is not None
            pid = server.process.pid
            found = compare(chunks, server.url, lambda pid=pid: _memory_mb(pid, "VmHWM"))
        print(f"{chunks:,} chunks of 1 kB, {SIZE} values, up to {ROUNDS} searches each, medians")
        rows = [(kind, *(_format(figures.get(name)) for name in FIGURES)) for kind, figures in found.items()]
        for kind, figures in found.items():
            if kind != "edge":
                ratios = (figures[name] / found["edge"][name] if name in figures else None for name in FIGURES)
                rows.append((f"{kind} ÷ edge", *map(_format, ratios)))
        print_table(("store", *FIGURES), rows)


if __name__ == "__main__":
    main()
