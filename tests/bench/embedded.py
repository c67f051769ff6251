"""Embedded: `chunkproof search` as a command, over a store in a folder, at several sizes."""

import json
import os
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from chunkproof.clients.local_model import MiniLm
from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.deadline import Deadline

from bench import corpus
from bench.process import ContestantError
from bench.results import Part

COLLECTION = "bench"
BATCH = 1_000
TOP_K = 10
Say = Callable[[str], None]


def measure_embedded(folder: Path, sizes: tuple[int, ...], count: int, say: Say) -> Part:
    """The whole command, and the search within it as the answer states it."""
    part = Part("embedded", f"embedded: chunkproof search over a folder, whole command, {count} rounds in turn")
    stores = {size: _store(folder, size, say) for size in sizes}
    taken: dict[int, list[tuple[float, float, float, float]]] = {size: [] for size in sizes}
    for number in range(count + 1):
        for size, data in stores.items():
            taken[size].append(_search(data, f"How is sensor {number} calibrated?"))
    for size, figures in taken.items():
        wall, cpu, search, store = zip(*figures[1:], strict=True)  # the first fills the page cache
        part.add(f"{size:,} chunks", wall_ms=wall, cpu_ms=cpu, search_ms=search, store_ms=store)
    return part


def _search(data: Path, query: str) -> tuple[float, float, float, float]:
    command = [sys.executable, "-m", "chunkproof_cli", "search", query, "-k", str(TOP_K), "--json"]
    command += ["--data", str(data), "--collection", COLLECTION]
    before, begun = _cpu_ms(), perf_counter()
    run = subprocess.run(command, env=_environment(os.environ), capture_output=True, text=True, check=False)
    wall, cpu = (perf_counter() - begun) * 1000, _cpu_ms() - before
    if run.returncode:
        raise ContestantError(f"chunkproof search failed: {run.stderr[-1000:]}")
    answer = json.loads(run.stdout)
    if len(answer["results"]) != TOP_K:
        raise ContestantError(f"chunkproof search found {len(answer['results'])} chunks instead of {TOP_K}")
    return wall, cpu, float(answer["execution"]["latency_ms"]), float(answer["execution"]["qdrant_query_time_ms"])


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Nothing that names another store or embedder."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("CHUNKPROOF_", "QDRANT_", "COHERE_", "CO_API_KEY"))
    }
    return {**kept, "CHUNKPROOF_DEADLINE_MS": "120000"}


def _cpu_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def _store(folder: Path, size: int, say: Say) -> Path:
    """A folder with so many chunks, made once for each version of the engine that writes it."""
    data = folder / f"embedded-{size}-edge-{version('qdrant-edge-py')}"
    if data.is_dir():
        return data
    say(f"Filling an embedded store with {size:,} chunks (once)")
    partial = data.with_name(f"{data.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    store = QdrantStore.open_embedded(partial)
    store.create(COLLECTION, MiniLm.dimension, Deadline(60_000))
    vectors = corpus.unit_vectors(size, seed=3, size=MiniLm.dimension)
    for first in range(0, size, BATCH):
        numbers = range(first, min(first + BATCH, size))
        points = [
            Point(
                number,
                {**corpus.metadata_of(number), "text": corpus.text_of(number)},
                vector=tuple(vectors[number].tolist()),
            )
            for number in numbers
        ]
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that a server would suit it better
            store.upsert(COLLECTION, points, "", Deadline(600_000))
    store.optimize(COLLECTION)
    store.close()
    partial.rename(data)
    return data
