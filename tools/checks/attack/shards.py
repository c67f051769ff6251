"""Writers of an Edge collection that are killed at random points, also while they create it or build its indexes.

After a kill, the collection holds every acknowledged write, and the write in progress as a whole or
not at all. The index of a field, the count, the text search and the exact search agree with what is stored.
"""

import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from chunkproof.base.errors import ChunkproofError, CollectionNotFoundError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import parse_filters
from chunkproof.stores import edge_shard
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import DenseLeg, Layout, Point, PointId, StoreQuery, VectorConfig

from tools.checks.attack.attack import Attack

COLLECTION = "killed"
IDS = 400
SIZE = 64
VECTOR = VectorConfig("", SIZE, "Cosine")
OPTIMIZE_EVERY = 7
LONGEST_S = 1.5
# Small, so that indexes of vectors are built and segments replaced.
OPTIMIZERS = edge.EdgeOptimizersConfig(indexing_threshold=20, deleted_threshold=0.1, vacuum_min_vector_number=50)
State = dict[PointId, tuple[object, tuple[float, ...]]]


def run(attack: Attack) -> None:
    """Kill writers; each kill is an attempt."""
    while attack.goes_on():
        with tempfile.TemporaryDirectory() as name:
            written = 0
            for _ in range(attack.rng.randint(1, 6)):
                acknowledged = _kill_writer(Path(name), written, attack.rng.uniform(0, LONGEST_S))
                begun = time.monotonic()
                try:
                    written = _check(Path(name), acknowledged)
                except (ChunkproofError, AssertionError) as error:
                    wrong = f"kill {attack.tried + 1}, after write {acknowledged}: {type(error).__name__} {error}"
                    attack.note(time.monotonic() - begun, wrong)
                    break
                attack.note(time.monotonic() - begun)
                if not attack.goes_on():
                    break


def _kill_writer(folder: Path, written: int, after: float) -> int:
    """Let a process write until it is killed; return the number of its last acknowledged write."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(folder, written, send))
    process.start()
    send.close()
    acknowledged = written
    with closing(receive):
        try:
            receive.poll(60)
            time.sleep(after)
        finally:
            process.kill()
            process.join()
        try:
            while receive.poll():
                acknowledged = receive.recv()
        except EOFError:
            pass
    return acknowledged


def _write(folder: Path, written: int, acknowledge: Connection) -> None:
    edge_shard.OPTIMIZE_FROM_BYTES = 0
    store, deadline = EdgeStore(folder), Deadline(60_000)
    acknowledge.send(written)
    if COLLECTION not in store.collections(deadline):
        vectors = edge.EdgeVectorParams(size=SIZE, distance=edge.Distance.Cosine)
        config = edge.EdgeConfig(vectors=vectors, wal_enabled=False, optimizers=OPTIMIZERS)
        edge_shard.to_edge_config = lambda _layout: config
        layout = Layout({}, indexes={"write": {"type": "integer"}, "text": {"type": "text"}})
        store.create_like(COLLECTION, layout, deadline)
    while True:
        written += 1
        store.upsert(COLLECTION, list(_points(written)), "", deadline)
        acknowledge.send(written)
        if written % OPTIMIZE_EVERY == 0:
            store.optimize(COLLECTION)


def _points(write: int) -> Iterator[Point]:
    """The points of a write: new ones, and some that replace others."""
    rng = random.Random(write)
    for point_id in rng.sample(range(IDS), rng.randint(1, 120)):
        vector = tuple(rng.uniform(-1, 1) for _ in range(SIZE))
        payload = {"write": write, "text": f"write{write} point{point_id} " + "x" * rng.randint(0, 2_000)}
        yield Point(point_id, payload, vector=vector)


def _check(folder: Path, acknowledged: int) -> int:
    """Compare the collection with what was acknowledged, and return the number of the last write that it has."""
    store, deadline = EdgeStore(folder), Deadline(60_000)
    with closing(store):
        try:
            page = store.scroll(COLLECTION, deadline, limit=IDS + 1, with_vector="")
        except CollectionNotFoundError:
            assert acknowledged == 0, "the collection is lost"
            return 0
        found = {point.id: dict(point.payload) for point in page.points}
        differences = []
        for last in (acknowledged, acknowledged + 1):
            expected = _expected(last)
            wanted = {point_id: dict(point.payload) for point_id, point in expected.items()}
            if found == wanted:
                _check_indexes(store, expected, deadline)
                return last
            differences.append(_describe_difference(found, wanted))
        raise AssertionError(f"neither write {acknowledged} ({differences[0]}) nor the next ({differences[1]})")


def _describe_difference(found: dict[PointId, dict[str, Any]], wanted: dict[PointId, dict[str, Any]]) -> str:
    both = found.keys() & wanted.keys()
    changed = [(found[key]["write"], wanted[key]["write"]) for key in both if found[key] != wanted[key]]
    return f"{len(wanted) - len(both)} missing, {len(found) - len(both)} more, {len(changed)} others {changed[:3]}"


def _expected(last: int) -> dict[PointId, Point]:
    return {point.id: point for write in range(1, last + 1) for point in _points(write)}


def _check_indexes(store: EdgeStore, expected: dict[PointId, Point], deadline: Deadline) -> None:
    assert store.describe(COLLECTION, deadline).points_count == len(expected), "another number of points"
    per_write = Counter(point.payload["write"] for point in expected.values())
    for write, count in per_write.items():
        where = parse_filters({"write": write})
        assert store.count(COLLECTION, where, deadline) == count, f"the index has another count of write {write}"
    for point in list(expected.values())[::40]:
        assert point.vector is not None
        for exact in (True, False):
            query = StoreQuery(COLLECTION, 1, DenseLeg(VECTOR, point.vector, exact=exact))
            ((nearest,),) = store.search([query], deadline)
            assert (nearest.id, nearest.score) == (point.id, 1.0), f"point {point.id} has another vector"
