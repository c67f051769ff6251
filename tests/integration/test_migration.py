"""A folder of local mode becomes an Edge store once, and nothing of it is lost on the way."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.clients.ports import Point
from chunkproof.clients.qdrant import migration, store, transfer
from chunkproof.clients.qdrant.edge import EdgeStore
from chunkproof.clients.qdrant.local import LocalStore
from chunkproof.clients.qdrant.store import QdrantStore
from chunkproof.clients.qdrant.transfer import read_all
from chunkproof.deadline import Deadline
from chunkproof.errors import VectorStoreUnavailableError
from chunkproof.runtime.local import open_embedded_store
from chunkproof.settings import Settings

from support.chunks import fill

UUID = "550e8400-e29b-41d4-a716-446655440000"
PAYLOADS = {
    1: {"text": "e\u0301 \x00 \ufeff", "deep": {"list": [1, 2.5, None, {}], "none": None}, "big": 2**53 + 1},
    2**64 - 1: {"text": "", "float": 1.0, "int": 1, "true": True},
    UUID: {},
}


@pytest.fixture
def folder(tmp_path: Path, deadline: Deadline) -> Path:
    """A folder with two collections, one of them with several vectors."""
    path = tmp_path / "data"
    with closing(LocalStore(path)) as old:
        fill(old, "plain", *(Point(n, payload, vector=(0.3, 0.4)) for n, payload in PAYLOADS.items()))
        old.client.create_collection(
            "many vectors",
            vectors_config={
                "body": models.VectorParams(size=2, distance=models.Distance.DOT),
                "tokens": models.VectorParams(
                    size=2,
                    distance=models.Distance.COSINE,
                    multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
                ),
            },
            sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        vector = {
            "body": [3.0, 4.0],
            "tokens": [[1.0, 0.0], [0.6, 0.8]],
            "words": models.SparseVector(indices=[7, 3], values=[0.25, 1.0]),
        }
        structs = [models.PointStruct(id=1, vector=vector, payload={"n": 1}), models.PointStruct(id=2, vector={})]
        old.client.upsert("many vectors", structs)
    return path


def test_every_collection_is_moved_with_all_payloads_and_vectors(folder: Path, deadline: Deadline) -> None:
    with closing(QdrantStore.open_embedded(folder)) as moved:
        assert isinstance(moved, EdgeStore)
        assert moved.collections(deadline) == ["many vectors", "plain"]
        found = {point.id: point for point in moved.scroll("plain", deadline, limit=9, with_vector="").points}
        assert {point_id: dict(point.payload) for point_id, point in found.items()} == PAYLOADS
        assert found[1].vector == pytest.approx((0.6, 0.8))
        description = moved.describe("many vectors", deadline)
        assert description.sparse_vectors == {"words": "idf"}
        one, two = read_all(moved, "many vectors")
        assert one["vector"]["body"] == [3.0, 4.0]
        assert one["vector"]["tokens"][1] == pytest.approx([0.6, 0.8])
        assert one["vector"]["words"] == {"indices": [3, 7], "values": [1.0, 0.25]}
        assert two == {"id": 2, "vector": {}, "payload": {}}


@pytest.mark.parametrize(
    ("payload", "settings", "field"),
    [
        ({"page_content": "Error 4711", "metadata": {"source": "https://a.example"}}, {}, "page_content"),
        ({"body": {"main": "Error 4711"}}, {"CHUNKPROOF_PAYLOAD_MAP": '{"text": "body.main"}'}, "body.main"),
    ],
)
def test_words_are_indexed_where_the_pipeline_keeps_the_text(
    tmp_path: Path, deadline: Deadline, payload: dict[str, Any], settings: dict[str, str], field: str
) -> None:
    with closing(LocalStore(tmp_path / "data")) as old:
        fill(old, "c", Point(1, payload, vector=(1.0, 0.0)))
    with closing(open_embedded_store(tmp_path / "data", Settings.from_env(settings))) as moved:
        assert moved.describe("c", deadline).text_fields == (field,)


def test_the_old_files_are_kept_aside_and_the_move_happens_once(folder: Path, deadline: Deadline) -> None:
    shown: list[tuple[str, int]] = []

    @contextmanager
    def progress(label: str, steps: int) -> Iterator[transfer.Advance]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count

        yield advance
        shown.append((label, done - steps))

    QdrantStore.open_embedded(folder, progress).close()
    QdrantStore.open_embedded(folder, progress).close()
    assert shown == [(f"Moving collection {name} to Qdrant Edge", 0) for name in ("many vectors", "plain")]
    assert sorted(path.name for path in (folder / "local-mode").iterdir()) == ["collection", "meta.json"]
    assert not (folder / "meta.json").exists()


def test_an_interrupted_move_starts_again(folder: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(migration, "compare_collections", stop)
    with pytest.raises(KeyboardInterrupt):
        QdrantStore.open_embedded(folder)
    monkeypatch.undo()
    with closing(QdrantStore.open_embedded(folder)) as moved:
        assert moved.count("plain", (), deadline) == 3
        assert moved.count("many vectors", (), deadline) == 2


def test_a_point_that_differs_stops_the_move_and_the_old_files_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = EdgeStore.write_points

    def damage(self: EdgeStore, name: str, points: list[dict[str, object]], deadline: Deadline) -> None:
        write(self, name, [{**point, "payload": {"text": "changed"}} for point in points], deadline)

    monkeypatch.setattr(EdgeStore, "write_points", damage)
    with pytest.raises(VectorStoreUnavailableError, match="2 of 2 points differ, the first is 1; nothing was changed"):
        QdrantStore.open_embedded(folder)
    assert (folder / "meta.json").exists()
    monkeypatch.undo()
    QdrantStore.open_embedded(folder).close()


def test_an_empty_folder_is_not_moved(tmp_path: Path) -> None:
    LocalStore(tmp_path).close()
    QdrantStore.open_embedded(tmp_path).close()
    assert not (tmp_path / "local-mode").exists()


def test_without_the_engine_local_mode_is_used(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "has_edge", lambda: False)
    with closing(QdrantStore.open_embedded(tmp_path)) as opened:
        assert isinstance(opened, LocalStore)
        fill(opened, "c", Point(1, {"text": "x"}, vector=(1.0, 0.0)))
        assert opened.count("c", (), deadline) == 1


def test_a_folder_of_the_engine_is_not_opened_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    QdrantStore.open_embedded(tmp_path).close()
    monkeypatch.setattr(store, "has_edge", lambda: False)
    with pytest.raises(VectorStoreUnavailableError, match="pip install qdrant-edge-py"):
        QdrantStore.open_embedded(tmp_path)
