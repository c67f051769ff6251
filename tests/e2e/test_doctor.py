import json
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import MiniLm
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Description, WritableStore
from chunkproof_cli.doctor.collection_checks import check_vector_index

from support.cohere_server import CohereServer
from support.commands import Command
from support.qdrant_server import QdrantServer
from support.sdk import sdk

PIPELINES = Path(__file__).parents[1] / "data" / "pipelines"


def load_fixture(store: WritableStore, name: str, collection: str) -> None:
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
    server_store: WritableStore,
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
    server_store: WritableStore,
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
    assert findings(run) == {
        "distance": "ok",
        "text": "ok",
        "likely model": "ok",
        "vectors": "ok",
        "without a server": "ok",
    }


def test_doctor_asks_for_a_name_when_there_are_several_collections(handbook: Command, handbook_file: Path) -> None:
    handbook("load", handbook_file, "--collection", "second")
    run = handbook("doctor")
    assert run.code == 2
    assert "choose one with --collection: handbook, second" in run.err


def test_of_many_collections_the_first_ones_are_listed(chunkproof: Command, tmp_path: Path) -> None:
    store = EdgeStore(tmp_path / "many")
    for number in range(25):
        store.create(f"c{number:02}", 2, Deadline(10_000))
    store.close()
    several = chunkproof("doctor", "--data", tmp_path / "many")
    assert several.code == 2
    assert "There are 25 collections" in several.err
    assert several.err.endswith("c18, c19, …\n")
    listed = chunkproof("doctor", "--data", tmp_path / "many", "--collection", "c24").out
    assert "→ c24" in listed
    assert "… and 5 more" in listed


def test_doctor_suggests_load_when_there_is_no_collection(chunkproof: Command) -> None:
    run = chunkproof("doctor")
    assert run.code == 2
    assert "load one with chunkproof load" in run.err


def make(folder: Path, points: list[models.PointStruct], distance: models.Distance, size: int = 3) -> None:
    store = EdgeStore(folder)
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
        "text": 'Set CHUNKPROOF_PAYLOAD_MAP=\'{"text": "body"}\'',
        "vectors": "Set CHUNKPROOF_EMBEDDER and CHUNKPROOF_MODEL to the model that made the collection",
    }
    assert run.json["verdict"] == "Verdict: collection c does not fit yet (distance, text, vectors)."


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


def test_a_collection_that_the_embedder_cannot_search_is_not_ready(chunkproof: Command, tmp_path: Path) -> None:
    point = models.PointStruct(id=1, vector=[1.0, 0.0, 0.0], payload={"text": "A"})
    make(tmp_path / "d", [point], models.Distance.COSINE)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    failed = next(f for f in run.json["findings"] if f["check"] == "vectors")
    assert failed["level"] == "FAIL"
    assert failed["message"].startswith("all-MiniLM-L6-v2 makes 384 values, the collection stores 3")
    searched = chunkproof("search", "anything", "--data", tmp_path / "d", "--collection", "c")
    assert searched.code == 2
    assert "all-MiniLM-L6-v2 makes 384 values, collection c stores 3: set CHUNKPROOF_EMBEDDER" in searched.err


def test_a_vector_of_zeros_fails(chunkproof: Command, tmp_path: Path) -> None:
    points = [models.PointStruct(id=1, vector=[0.0] * 384, payload={"text": "A"})]
    make(tmp_path / "d", points, models.Distance.COSINE, size=384)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    assert findings(run)["vectors"] == "FAIL"


def test_several_vectors_are_a_finding_with_the_names_to_choose_from(chunkproof: Command, tmp_path: Path) -> None:
    store = EdgeStore(tmp_path / "d")
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
    assert "embed-english-v3.0 makes 1024 values, collection c stores 3" in failed["message"]
    assert len(cohere_api.requests) == 1


# what the collection holds

SENTENCES = [f"Sentence {number} says what chunk {number} of this collection is about." for number in range(1, 31)]


def embedded(texts: list[str]) -> list[list[float]]:
    return MiniLm().embed(texts, InputType.DOCUMENT, Deadline(60_000))


def make_embedded(folder: Path, payloads: list[dict[str, Any]], texts: list[str]) -> None:
    vectors = embedded(texts)
    points = [
        models.PointStruct(id=number, vector=vector, payload=payload)
        for number, (vector, payload) in enumerate(zip(vectors, payloads, strict=True), start=1)
    ]
    make(folder, points, models.Distance.COSINE, size=384)


def remedy(run: Any, check: str) -> str:
    return str(next(f["remedy"] for f in run.json["findings"] if f["check"] == check))


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("body", lambda text: {"body": text, "kind": "page", "n": 3}),
        ("record.note", lambda text: {"record": {"note": text, "by": "someone"}, "path": "a/b/c" * 40}),
        ("blob_json.inner.words", lambda text: {"blob_json": json.dumps({"inner": {"words": text}, "v": "1 0"})}),
        ("body", lambda text: {"body": text, "raw": "QUJD" * 200, "summary": "the same for all of these chunks " * 9}),
    ],
    ids=["flat", "nested", "in a JSON string", "beside encoded bytes and a constant"],
)
def test_the_field_of_an_unknown_pipeline_is_proposed_as_a_line_to_paste(
    chunkproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, payload: Any
) -> None:
    make_embedded(tmp_path / "d", [payload(text) for text in SENTENCES[:5]], SENTENCES[:5])
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    setting = json.dumps({"text": path})
    assert remedy(run, "text") == f"Set CHUNKPROOF_PAYLOAD_MAP='{setting}'"
    assert f"CHUNKPROOF_PAYLOAD_MAP='{setting}'" in run.json["set"]
    assert [row["text"] for row in run.json["samples"]] == SENTENCES[:3]
    assert "Sentence 1" in chunkproof("doctor", "--data", tmp_path / "d").out
    monkeypatch.setenv("CHUNKPROOF_PAYLOAD_MAP", setting)
    assert chunkproof("doctor", "--data", tmp_path / "d").code == 0


def test_a_proposal_keeps_the_rows_that_are_set_already(
    chunkproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_embedded(
        tmp_path / "d", [{"body": text, "link": "https://a.example"} for text in SENTENCES[:5]], SENTENCES[:5]
    )
    monkeypatch.setenv("CHUNKPROOF_PAYLOAD_MAP", '{"url": "link"}')
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.json["proposed_payload_map"] == {"url": "link", "text": "body"}


def test_a_known_name_with_something_else_in_it_is_questioned(chunkproof: Command, tmp_path: Path) -> None:
    make_embedded(tmp_path / "d", [{"data": "2025-01-01", "body": text} for text in SENTENCES[:5]], SENTENCES[:5])
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert findings(run)["text"] == "note"
    assert remedy(run, "text") == 'If that is the text, set CHUNKPROOF_PAYLOAD_MAP=\'{"text": "body"}\''


def test_points_without_payloads_have_no_field_to_propose(chunkproof: Command, tmp_path: Path) -> None:
    make_embedded(tmp_path / "d", [{} for _ in SENTENCES[:5]], SENTENCES[:5])
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 1
    assert remedy(run, "text") == "Store each chunk's text in the payload: search returns it from there"


def test_texts_stored_twice_are_counted_with_the_call_that_deletes_them(chunkproof: Command, tmp_path: Path) -> None:
    texts = SENTENCES[:5] * 2
    make_embedded(tmp_path / "d", [{"text": text, "url": "https://a.example"} for text in texts], texts)
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    assert run.code == 0
    note = next(f for f in run.json["findings"] if f["check"] == "duplicate texts")
    assert note["message"].startswith("5 texts are stored more than once, 5 points too many")
    assert note["remedy"] == 'client.delete("c", points_selector=[6, 7, 8, 9, 10])'


def test_ids_that_several_points_share_are_reported(chunkproof: Command, tmp_path: Path) -> None:
    payloads = [{"text": text, "id": f"doc-{number % 2}"} for number, text in enumerate(SENTENCES[:6])]
    make_embedded(tmp_path / "d", payloads, SENTENCES[:6])
    run = chunkproof("doctor", "--data", tmp_path / "d", "--json")
    note = next(f for f in run.json["findings"] if f["check"] == "shared ids")
    assert note["message"].startswith("id holds ids that several points share (2 ids, 6 points)")


def test_the_kind_of_hash_is_named_and_another_one_is_noted(chunkproof: Command, tmp_path: Path) -> None:
    hashed = [{"text": text, "hash": md5(text.encode()).hexdigest()} for text in SENTENCES[:5]]
    make_embedded(tmp_path / "a", hashed, SENTENCES[:5])
    assert chunkproof("doctor", "--data", tmp_path / "a", "--json").json["content_hash"] == "MD5 of text"
    assert "MD5 of text" in chunkproof("doctor", "--data", tmp_path / "a").out
    other = [{"text": text, "content_hash": "0123456789abcdef" * 4} for text in SENTENCES[:5]]
    make_embedded(tmp_path / "b", other, SENTENCES[:5])
    run = chunkproof("doctor", "--data", tmp_path / "b", "--json")
    assert (run.json["content_hash"], findings(run)["content_hash"]) == (None, "note")


@pytest.mark.server
def test_vectors_indexes_and_sparse_vectors_are_checked_with_the_calls_that_mend_them(
    chunkproof: Command,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    client = sdk(server_store)
    client.create_collection(
        collection,
        vectors_config={"dense": models.VectorParams(size=384, distance=models.Distance.COSINE)},
        sparse_vectors_config={"words": models.SparseVectorParams()},
        quantization_config=models.ScalarQuantization(scalar=models.ScalarQuantizationConfig(type="int8")),
    )
    points = [
        models.PointStruct(id=number, vector={"dense": vector}, payload={"text": text, "lang": "en"})
        for number, (vector, text) in enumerate(zip(embedded(SENTENCES), SENTENCES, strict=True), start=1)
    ]
    bare = models.PointStruct(id=99, vector={}, payload={"text": "no vector was made for this one"})
    client.upsert(collection, [*points, bare], wait=True)
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "name: filtered\ncases:\n  - {name: a, query_text: x, filters: {lang: en}, expected_keywords: [x]}\n"
    )
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    run = chunkproof("doctor", "--collection", collection, "--suite", suite, "--json")
    assert run.code == 0, run.out
    notes = {f["check"]: f for f in run.json["findings"] if f["level"] == "note"}
    assert notes["points without vectors"]["message"].startswith("1 of 31 points have no vector")
    assert "scalar" in notes["quantization"]["message"]
    assert "modifier=Modifier.IDF" in notes["IDF modifier"]["remedy"]
    assert '"avg_len": 11' in notes["BM25 avg_len"]["remedy"]
    assert notes["suite filter"]["remedy"] == (
        f'create_payload_index("{collection}", field_name="lang", field_schema="keyword")'
    )
    client.create_payload_index(collection, "lang", models.PayloadSchemaType.KEYWORD, wait=True)
    again = chunkproof("doctor", "--collection", collection, "--suite", suite, "--json")
    assert "suite filter" not in findings(again)


@pytest.mark.parametrize(
    ("points", "indexed", "noted"),
    [(100, 0, False), (100, 50, True), (50_000, 0, True), (50_000, 44_000, True), (50_000, 49_000, False)],
)
def test_an_unindexed_share_is_noted_where_it_costs_time(points: int, indexed: int, noted: bool) -> None:
    description = Description("c", (), points, indexed, "green", {})
    assert [found.check for found in check_vector_index(description)] == ["vector index"] * noted
