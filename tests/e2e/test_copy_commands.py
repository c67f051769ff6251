"""`chunkproof pull` and `chunkproof push`: copies between a server and the embedded store, verified."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import DenseLeg, Layout, StoreQuery, TextLeg, VectorConfig
from chunkproof_cli.commands import copying
from chunkproof_cli.commands.copying import compare_collections, read_all

from support.commands import Command
from support.qdrant_server import QdrantServer
from support.sdk import sdk

pytestmark = pytest.mark.server
UUID = "550e8400-e29b-41d4-a716-446655440000"
PAYLOAD: dict[str, Any] = {
    "page_content": "e\u0301 \u00e9\r\n\x00 \u200d \ufeff pump",
    "metadata": {"source": "a.md", "list": [1, 2.5, None, {}], "big": 2**53 + 1},
}


@pytest.fixture
def served(server_store: ServerStore, served_qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch) -> ServerStore:
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    return server_store


@pytest.fixture
def filled(served: ServerStore, collection: str) -> Iterator[str]:
    """A collection with several vectors for some points."""
    client = sdk(served)
    client.create_collection(
        collection,
        vectors_config={
            "": models.VectorParams(size=3, distance=models.Distance.COSINE),
            "body": models.VectorParams(size=2, distance=models.Distance.DOT),
            "tokens": models.VectorParams(
                size=2,
                distance=models.Distance.COSINE,
                multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            ),
        },
        sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    client.create_payload_index(collection, "metadata.source", field_schema="keyword", wait=True)
    everything: Any = {
        "": [0.1, 0.2, 0.3],
        "body": [3.0, 4.0],
        "tokens": [[1.0, 1.0], [0.6, 0.8]],
        "words": models.SparseVector(indices=[7, 3], values=[0.25, 1.0]),
    }
    points = [
        models.PointStruct(id=n, vector={"": [1.0, n, 0.5]}, payload={"page_content": f"text {n}"}) for n in range(600)
    ]
    points += [
        models.PointStruct(id=2**64 - 1, vector=everything, payload=PAYLOAD),
        models.PointStruct(id=UUID, vector={}, payload=None),
    ]
    client.upsert(collection, points, wait=True)
    yield collection
    client.delete_collection(collection)


@pytest.mark.parametrize("how", ["snapshot", "scroll"])
def test_a_pulled_collection_has_every_point_vector_and_index(
    chunkproof: Command, served: ServerStore, filled: str, tmp_path: Path, how: str, deadline: Deadline
) -> None:
    run = chunkproof("pull", filled, "--as", "copy", "--data", tmp_path, "--by", how, "--json")
    assert run.code == 0, run.err
    assert run.json == {
        "collection": filled,
        "name": "copy",
        "source": served.host,
        "target": str(tmp_path),
        "method": how,
        "points": 602,
        "differing": 0,
        "differing_ids": [],
        "not_copied": [],
        "verified": True,
    }
    with closing(EdgeStore(tmp_path)) as copy:
        assert copy.collections(deadline) == ["copy"]
        assert not compare_collections(served, copy, (filled, "copy"), lambda _done: None).differing
        found = {point["id"]: point for point in read_all(copy, "copy")}
        assert found[2**64 - 1]["payload"] == PAYLOAD
        assert found[2**64 - 1]["vector"]["words"] == {"indices": [3, 7], "values": [1.0, 0.25]}
        assert found[UUID] == {"id": UUID, "vector": {}, "payload": {}}
        description = copy.describe("copy", deadline)
        assert description.indexed_fields == {"metadata.source": "keyword", "page_content": "text"}
        assert description.sparse_vectors == {"words": "idf"}
        by_words = StoreQuery("copy", 5, text=TextLeg("pump", field="page_content"))
        nearest = StoreQuery("copy", 1, DenseLeg(VectorConfig("", 3, "Cosine"), (1.0, 7.0, 0.5), exact=True))
        assert [[point.id for point in points] for points in copy.search([by_words, nearest], deadline)] == [
            [2**64 - 1],
            [7],
        ]


def test_a_copy_answers_without_the_server(
    chunkproof: Command, served: ServerStore, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = chunkproof("pull", filled, "--data", tmp_path)
    assert run.code == 0, run.err
    assert "602 points" in run.out
    assert "compared and are equal" in run.out
    monkeypatch.setenv("QDRANT_URL", "")
    run = chunkproof("collection", filled, "--data", tmp_path, "--json")
    assert (run.code, run.json["points_count"]) == (0, 602)


def test_a_copy_is_replaced_only_on_request(
    chunkproof: Command, served: ServerStore, filled: str, tmp_path: Path, deadline: Deadline
) -> None:
    assert chunkproof("pull", filled, "--data", tmp_path).code == 0
    run = chunkproof("pull", filled, "--data", tmp_path)
    assert run.code == 2
    assert "--replace" in run.err
    sdk(served).delete(filled, models.PointIdsList(points=[1, 2]), wait=True)
    assert chunkproof("pull", filled, "--data", tmp_path, "--replace").code == 0
    with closing(EdgeStore(tmp_path)) as copy:
        assert copy.count(filled, (), deadline) == 600


def test_a_pull_that_is_killed_leaves_no_snapshot_on_the_server(
    served: ServerStore, filled: str, tmp_path: Path
) -> None:
    arguments = ["pull", filled, "--data", str(tmp_path), "--by", "snapshot"]
    program = (
        "import signal, sys, threading, time, httpx\n"
        "from chunkproof_cli.main import main\n"
        "read = httpx.Response.iter_bytes\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "main_thread = threading.main_thread().ident\n"  # a signal to the process may reach another thread
        "def kill(): signal.pthread_kill(main_thread, signal.SIG{0}); time.sleep(9)\n"
        "def die(response, *_): next(read(response)); kill(); yield b''\n"
        "httpx.Response.iter_bytes = die\n"
        "sys.argv[1:] = {1!r}\n"
        "main()"
    )
    for kill in ("KILL", "TERM", "INT"):
        run = subprocess.run(
            [sys.executable, "-c", program.format(kill, arguments)],
            env={**os.environ, "QDRANT_URL": served.url},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert run.returncode in (-getattr(signal, f"SIG{kill}"), 130, 143), run.stderr
        left = httpx.get(f"{served.url}/collections/{filled}/shards/0/snapshots").json()["result"]
        assert left == [], f"after SIG{kill}"


def test_an_interrupted_pull_is_continued(
    chunkproof: Command, filled: str, tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = EdgeStore.write_points, 0

    def stop(self: EdgeStore, name: str, points: list[dict[str, Any]], deadline: Deadline) -> None:
        nonlocal written
        written += len(points)
        if written > 512:
            raise KeyboardInterrupt
        write(self, name, points, deadline)

    monkeypatch.setattr(EdgeStore, "write_points", stop)
    assert chunkproof("pull", filled, "--data", tmp_path, "--by", "scroll").code == 130
    with closing(EdgeStore(tmp_path)) as copy:
        assert copy.collections(deadline) == [f"{filled} (incomplete)"]
        assert copy.count(f"{filled} (incomplete)", (), deadline) == 512
    monkeypatch.setattr(EdgeStore, "write_points", write)
    run = chunkproof("pull", filled, "--data", tmp_path)
    assert (run.code, "it is continued" in run.err) == (0, True)
    with closing(EdgeStore(tmp_path)) as copy:
        assert copy.collections(deadline) == [filled]
        assert copy.count(filled, (), deadline) == 602


def test_a_copy_with_a_changed_point_is_not_kept(
    chunkproof: Command, filled: str, tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = EdgeStore.write_points

    def damage(self: EdgeStore, name: str, points: list[dict[str, Any]], deadline: Deadline) -> None:
        changed = [{**point, "payload": {"page_content": "text 5 "}} if point["id"] == 5 else point for point in points]
        write(self, name, changed, deadline)

    monkeypatch.setattr(EdgeStore, "write_points", damage)
    run = chunkproof("pull", filled, "--data", tmp_path, "--by", "scroll")
    assert run.code == 1
    assert "1 of 602 points differ" in run.out
    with closing(EdgeStore(tmp_path)) as copy:
        assert copy.collections(deadline) == []


def test_without_snapshots_the_points_are_read(
    chunkproof: Command, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def forbid(self: httpx.Client, _method: str, path: str, **_rest: Any) -> Iterator[httpx.Response]:
        yield httpx.Response(403, request=httpx.Request("GET", "http://127.0.0.1" + path))

    monkeypatch.setattr(httpx.Client, "stream", forbid)
    run = chunkproof("pull", filled, "--data", tmp_path, "--json")
    assert (run.code, run.json["method"]) == (0, "scroll")
    assert "the server refused a snapshot (403)" in run.err
    run = chunkproof("pull", filled, "--as", "other", "--data", tmp_path, "--by", "snapshot")
    assert run.code == 2
    assert "--by scroll" in run.err


def test_a_pushed_collection_equals_its_source(
    chunkproof: Command, served: ServerStore, filled: str, tmp_path: Path, deadline: Deadline
) -> None:
    assert chunkproof("pull", filled, "--data", tmp_path).code == 0
    target = f"{filled}-pushed"
    run = chunkproof("push", filled, "--as", target, "--data", tmp_path, "--json")
    assert run.code == 0, run.err
    assert (run.json["points"], run.json["verified"]) == (602, True)
    assert served.layout(target, deadline).vectors == served.layout(filled, deadline).vectors
    assert served.describe(target, deadline).indexed_fields["metadata.source"] == "keyword"
    run = chunkproof("push", filled, "--as", target, "--data", tmp_path)
    assert run.code == 2
    assert "--resume" in run.err
    assert chunkproof("push", filled, "--as", target, "--data", tmp_path, "--resume").code == 0
    sdk(served).delete_collection(target)


@pytest.mark.parametrize("how", ["snapshot", "scroll"])
def test_a_collection_that_was_pulled_and_pushed_is_made_as_before(
    chunkproof: Command, served: ServerStore, collection: str, tmp_path: Path, how: str, deadline: Deadline
) -> None:
    client = sdk(served)
    client.create_collection(
        collection,
        vectors_config={"body": models.VectorParams(size=2, distance=models.Distance.DOT, on_disk=True)},
        sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        hnsw_config=models.HnswConfigDiff(m=8, payload_m=24),
        quantization_config=models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        ),
        strict_mode_config=models.StrictModeConfig(enabled=True, max_query_limit=1_000),
        wal_config=models.WalConfigDiff(wal_capacity_mb=2),
        metadata={"owner": "search"},
    )
    for field, index in {
        "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True, on_disk=True),
        "year": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=False, range=True),
        "text": models.TextIndexParams(
            type=models.TextIndexType.TEXT, tokenizer=models.TokenizerType.PREFIX, min_token_len=3, lowercase=False
        ),
    }.items():
        client.create_payload_index(collection, field, field_schema=index, wait=True)
    payload = {"tenant": "a", "year": 2026, "text": "A text"}
    client.upsert(collection, [models.PointStruct(id=1, vector={"body": [1.0, 2.0]}, payload=payload)], wait=True)
    run = chunkproof("pull", collection, "--data", tmp_path, "--by", how)
    assert run.code == 0, run.err
    assert (
        "does not have these settings of the collection: quantization_config (scalar; push makes it again)" in run.err
    )
    run = chunkproof("push", collection, "--as", f"{collection}-back", "--data", tmp_path, "--json")
    assert (run.code, run.json["not_copied"]) == (0, ["strict_mode_config"]), run.err
    before, after = (client.get_collection(name) for name in (collection, f"{collection}-back"))
    assert after.config.model_copy(update={"strict_mode_config": None}) == before.config.model_copy(
        update={"strict_mode_config": None}
    )
    assert after.payload_schema == before.payload_schema
    client.delete_collection(f"{collection}-back")


def test_an_unknown_collection_and_a_missing_server_are_named(
    chunkproof: Command, served: ServerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = chunkproof("pull", "no-such-collection", "--data", tmp_path)
    assert (run.code, "Collection no-such-collection not found" in run.err) == (2, True)
    run = chunkproof("push", "no-such-collection", "--data", tmp_path)
    assert (run.code, "Collection no-such-collection not found" in run.err) == (2, True)
    monkeypatch.delenv("QDRANT_URL")
    for command in ("pull", "push"):
        run = chunkproof(command, "c", "--data", tmp_path)
        assert run.code != 0
        assert "QDRANT_URL is not set" in run.err


def test_large_points_are_read_in_smaller_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkproof.base.errors import ResponseTooLargeError

    asked: list[int] = []

    class Large:
        host = "here"

        def count(self, *_of: Any) -> int:
            return 6

        def layout(self, *_of: Any) -> Layout:
            return Layout({})

        def read_points(self, _name: str, start: Any, limit: int, _deadline: Deadline) -> Any:
            asked.append(limit)
            if limit > 2:
                raise ResponseTooLargeError("too large")
            begin = start or 0
            return [
                {"id": n, "payload": {"text": "t", "chunk_id": "c"}, "vector": {}}
                for n in range(begin, min(begin + limit, 6))
            ], begin + limit if begin + limit < 6 else None

    monkeypatch.setattr(copying, "BATCH", 8)
    source: Any = Large()
    assert [point["id"] for point in read_all(source, "c")] == list(range(6))
    assert asked == [8, 4, 2, 2, 2, 2]
    assert copying.CALL_MS > 0
