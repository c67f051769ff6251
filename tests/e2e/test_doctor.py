import json
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.clients.qdrant.store import QdrantStore

from support.cohere_server import CohereServer
from support.commands import Command
from support.qdrant_server import QdrantServer
from support.sdk import sdk

PIPELINES = Path(__file__).parents[1] / "data" / "pipelines"


def load_fixture(store: QdrantStore, name: str, collection: str) -> None:
    """A collection as a framework wrote it."""
    fixture: dict[str, Any] = json.loads((PIPELINES / f"{name}.json").read_text("utf-8"))
    config = fixture["collection_config"]
    vectors = config["vectors"]
    sdk(store).create_collection(
        collection,
        vectors_config=models.VectorParams(**vectors)
        if "size" in vectors
        else {key: models.VectorParams(**params) for key, params in vectors.items()},
        sparse_vectors_config={key: models.SparseVectorParams() for key in config.get("sparse_vectors") or {}} or None,
    )
    sdk(store).upsert(collection, [models.PointStruct(**point) for point in fixture["points"]], wait=True)


def findings(run: Any) -> dict[str, str]:
    return {item["check"]: item["level"] for item in run.json["findings"]}


@pytest.mark.server
@pytest.mark.parametrize(
    "name",
    [
        "langchain_dense",
        "langchain_hybrid",
        "llamaindex_dense",
        "llamaindex_hybrid",
        "haystack_dense",
        "haystack_hybrid",
    ],
)
def test_a_frameworks_collection_is_ready_as_it_is(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    server_store: QdrantStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    load_fixture(server_store, name, collection)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    run = chunkproof("doctor", "--collection", collection, "--json")
    assert run.code == 0, run.out
    assert run.json["shares"]["text"] == 1.0
    assert findings(run)["vectors"] == "ok"
    assert len(run.json["samples"]) == 3
    assert f"CHUNKPROOF_COLLECTION={collection}" in run.json["set"]
    shown = chunkproof("doctor", "--collection", collection)
    assert shown.code == 0
    assert f"Verdict: collection {collection} is ready" in shown.out


@pytest.mark.server
def test_missing_payload_indexes_are_named_with_the_call_that_makes_them(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    server_store: QdrantStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_fixture(server_store, "haystack_dense", collection)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    remedies = [f["remedy"] for f in chunkproof("doctor", "--collection", collection, "--json").json["findings"]]
    assert f'create_payload_index("{collection}", field_name="id", field_schema="keyword")' in remedies
    assert f'create_payload_index("{collection}", field_name="meta.url", field_schema="keyword")' in remedies


def test_doctor_writes_nothing(handbook: Command, tmp_path: Path) -> None:
    before = handbook("collection", "handbook", "--json").json
    assert handbook("doctor", "--collection", "handbook").code == 0
    assert handbook("collection", "handbook", "--json").json == before


def test_doctor_checks_the_only_collection_by_default(handbook: Command) -> None:
    run = handbook("doctor", "--json")
    assert run.json["collection"] == "handbook"
    assert findings(run) == {"distance": "ok", "text": "ok", "likely model": "ok", "vectors": "ok"}


def test_doctor_asks_for_a_name_when_there_are_several_collections(handbook: Command, handbook_file: Path) -> None:
    handbook("load", handbook_file, "--collection", "second")
    run = handbook("doctor")
    assert run.code == 2
    assert "choose one with --collection: handbook, second" in run.err


def test_doctor_suggests_load_when_there_is_no_collection(chunkproof: Command) -> None:
    run = chunkproof("doctor")
    assert run.code == 2
    assert "load one with chunkproof load" in run.err


def make(folder: Path, points: list[models.PointStruct], distance: models.Distance, size: int = 3) -> None:
    store = QdrantStore.open_local(folder)
    sdk(store).create_collection("c", vectors_config=models.VectorParams(size=size, distance=distance))
    if points:
        sdk(store).upsert("c", points)
    store.close()


def test_failed_checks_come_with_a_remedy(chunkproof: Command, tmp_path: Path) -> None:
    point = models.PointStruct(id=1, vector=[3.0, 0.0, 0.0], payload={"body": "text under a name nobody knows"})
    make(tmp_path / "d", [point], models.Distance.EUCLID)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    failed = {f["check"]: f["remedy"] for f in run.json["findings"] if f["level"] == "FAIL"}
    assert failed == {
        "distance": "Create the collection again with Cosine distance",
        "text": 'Name its field: CHUNKPROOF_PAYLOAD_MAP=\'{"text": "…"}\'',
    }
    assert run.json["verdict"] == "Verdict: collection c does not fit yet (distance, text)."


def test_an_empty_collection_is_not_ready(chunkproof: Command, tmp_path: Path) -> None:
    make(tmp_path / "d", [], models.Distance.COSINE)
    run = chunkproof("doctor", "--data", tmp_path / "d")
    assert run.code == 1
    assert "The collection is empty" in run.out


def test_stale_vectors_fail(handbook: Command, tmp_path: Path) -> None:
    vector = [1.0] + [0.0] * 383
    points = [models.PointStruct(id=n, vector=vector, payload={"text": f"Chunk {n}"}) for n in range(3)]
    make(tmp_path / "d", points, models.Distance.COSINE, size=384)
    run = handbook("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    assert findings(run)["vectors"] == "FAIL"


def test_vectors_of_another_size_are_reported_as_not_compared(chunkproof: Command, tmp_path: Path) -> None:
    point = models.PointStruct(id=1, vector=[1.0, 0.0, 0.0], payload={"text": "A"})
    make(tmp_path / "d", [point], models.Distance.COSINE)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 0
    note = next(f for f in run.json["findings"] if f["check"] == "vectors")
    assert note["message"] == "Not compared: all-MiniLM-L6-v2 makes 384 values, the collection stores 3"


def test_a_vector_of_zeros_fails(chunkproof: Command, tmp_path: Path) -> None:
    points = [models.PointStruct(id=1, vector=[0.0] * 384, payload={"text": "A"})]
    make(tmp_path / "d", points, models.Distance.COSINE, size=384)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    assert findings(run)["vectors"] == "FAIL"


def test_several_vectors_are_a_finding_with_the_names_to_choose_from(chunkproof: Command, tmp_path: Path) -> None:
    store = QdrantStore.open_local(tmp_path / "d")
    params = models.VectorParams(size=3, distance=models.Distance.COSINE)
    sdk(store).create_collection("c", vectors_config={"title": params, "body": params})
    point = models.PointStruct(id=1, vector={"title": [1, 0, 0], "body": [1, 0, 0]}, payload={"text": "A"})
    sdk(store).upsert("c", [point])
    store.close()
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    failed = next(f for f in run.json["findings"] if f["check"] == "vector")
    assert "CHUNKPROOF_VECTOR_NAME" in failed["message"]


def test_a_model_of_another_size_fails_after_one_call(
    chunkproof: Command, tmp_path: Path, cohere_api: CohereServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [models.PointStruct(id=n, vector=[1.0, 0, 0], payload={"text": f"Chunk {n}"}) for n in range(1, 9)]
    make(tmp_path / "d", points, models.Distance.COSINE)
    monkeypatch.setenv("COHERE_API_KEY", cohere_api.key)
    monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    failed = next(f for f in run.json["findings"] if f["check"] == "vectors")
    assert "embed-english-v3.0 makes 1024 values, the collection stores 3" in failed["message"]
    assert len(cohere_api.requests) == 1
