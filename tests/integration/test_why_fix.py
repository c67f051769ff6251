"""What `why --fix` writes down, sent to a real server, brings the chunk back."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.test_why import CASES, NEW, OTHERS, PUMPS, QUESTION, delete, point, vector

from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.proof.backend import LocalBackend
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Point, WritableStore
from chunkproof.why.causes import Cause, WhyAnswer
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question

from support.chunks import fill, make_services
from support.sdk import sdk
from support.words import Words

pytestmark = pytest.mark.server
WRITTEN = [
    Cause.TEXT_CHANGED,
    Cause.STALE_VECTOR,
    Cause.DELETED,
    Cause.SPLIT_DIFFERENTLY,
    Cause.DUPLICATES,
    Cause.FIELD_RENAMED,
    Cause.VALUE_CHANGED,
]


@pytest.mark.parametrize("cause", WRITTEN)
def test_the_operations_bring_the_chunk_back(
    server_store: WritableStore, collection: str, tmp_path: Path, cause: Cause
) -> None:
    points = [point(n, text) for n, text in enumerate((PUMPS, *OTHERS), start=1)]
    fill(server_store, collection, *points, size=Words.dimension)
    services = make_services(server_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    plant, request = CASES[cause]
    question = Question({"query_text": QUESTION, "top_k": 2, **request}, "c1", Snapshot(file))

    def ask() -> WhyAnswer:
        services.forget(collection)
        return Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question)

    assert plant is not None
    plant(server_store, collection)
    lost = ask()
    assert lost.report.verdict.causes == (cause,), lost.report.verdict.line
    assert lost.fix is not None
    assert isinstance(server_store, ServerStore)
    url = f"{server_store.url}/collections/{collection}/points/batch?wait=true"
    sent = httpx.post(url, json={"operations": lost.fix.operations})
    assert sent.status_code == 200, sent.text
    assert ask().report.verdict.found


def write_nodes(store: WritableStore, collection: str, texts: dict[int, str]) -> None:
    """Write points as LlamaIndex's writer does: nodes are JSON strings, and metadata is embedded before the text."""
    structs = []
    for number, text in texts.items():
        metadata = {"file_name": f"manual-{number}.pdf", "edition": "second"}
        content = {"id_": f"n{number}", "metadata": metadata, "relationships": {"1": {"node_id": "doc"}}, "text": text}
        payload = {"_node_content": json.dumps(content), "doc_id": "doc", "chunk_id": f"c{number}", **metadata}
        embedded = f"file_name: {metadata['file_name']}\nedition: second\n\n{text}"
        vectors = {"": list(vector(embedded)), TEXT_VECTOR: make_bm25_vector(embedded)}
        structs.append({"id": number, "vector": vectors, "payload": payload})
    store.write_points(collection, structs, Deadline(60_000))


@pytest.mark.parametrize("mode", ["dense", "text", "hybrid"])
@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_node_becomes_what_its_framework_wrote_with_all_vectors_or_is_not_written(
    server_store: WritableStore, collection: str, tmp_path: Path, is_deleted: bool, has_vectors: bool, mode: str
) -> None:
    server_store.create(collection, Words.dimension, Deadline(60_000), text_search=True)
    write_nodes(server_store, collection, dict(enumerate((PUMPS, *OTHERS), start=1)))
    read = partial(sdk(server_store).retrieve, collection, [1], with_payload=True, with_vectors=True)
    before = read()
    services = make_services(server_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=has_vectors).write()
    if is_deleted:
        delete(server_store, collection)
    else:
        write_nodes(server_store, collection, {1: NEW})
    question = Question({"query_text": QUESTION, "top_k": 2, "mode": mode}, "c1", Snapshot(file))
    services.forget(collection)
    fix = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question).fix
    assert fix is not None
    if is_deleted:
        assert "JSON string" in (fix.refused or "")
        assert not fix.operations
        return
    assert isinstance(server_store, ServerStore)
    url = f"{server_store.url}/collections/{collection}/points/batch?wait=true"
    assert httpx.post(url, json={"operations": fix.operations}).status_code == 200
    assert read() == before  # spelled as before, relationships and all


def test_a_sparse_vector_that_is_made_otherwise_is_not_overwritten(
    server_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    def write(number: int, text: str) -> None:
        vectors = {"": list(vector(text)), TEXT_VECTOR: {"indices": [number, 99], "values": [0.5, 0.25]}}
        payload = {"chunk_id": f"c{number}", "text": text}
        server_store.write_points(collection, [{"id": number, "vector": vectors, "payload": payload}], Deadline(60_000))

    server_store.create(collection, Words.dimension, Deadline(60_000), text_search=True)
    for number, text in enumerate((PUMPS, *OTHERS), start=1):
        write(number, text)
    services = make_services(server_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    write(1, NEW)
    question = Question({"query_text": QUESTION, "top_k": 2}, "c1", Snapshot(file))
    fix = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question).fix
    assert fix is not None
    assert f"the vectors {TEXT_VECTOR} of its text cannot be made here as those of other chunks" in (fix.refused or "")


@pytest.mark.parametrize(
    "write",
    [
        lambda text: {"data": text, "hash": md5(text.encode()).hexdigest(), "user_id": "u"},
        lambda text: {"page_content": text, "metadata": {"content_hash": sha256(text.encode()).hexdigest(), "k": [1]}},
        lambda text: {"text": text, "content": text, "pieces": [text, "other"]},
    ],
    ids=["mem0", "LangChain", "copies"],
)
def test_a_text_is_restored_with_its_copies_and_hashes(
    memory_store: WritableStore, collection: str, tmp_path: Path, write: Callable[[str], dict[str, Any]]
) -> None:
    def make(number: int, text: str) -> Point:
        return Point(number, {"chunk_id": f"c{number}", **write(text)}, vector=vector(text))

    fill(
        memory_store,
        collection,
        *(make(n, text) for n, text in enumerate((PUMPS, *OTHERS), start=1)),
        size=Words.dimension,
    )
    services = make_services(memory_store, collection, Words())
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    memory_store.upsert(collection, [make(1, NEW)], "", Deadline(60_000))
    question = Question({"query_text": QUESTION, "top_k": 2}, "c1", Snapshot(file))
    fix = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question).fix
    assert fix is not None
    payload = dict(make(1, NEW).payload)
    for operation in fix.operations:
        payload |= operation.get("set_payload", {}).get("payload", {})
    assert payload == make(1, PUMPS).payload


def fill_as_load(store: WritableStore, collection: str, **more: Any) -> list[Point]:
    """Write the chunks with ids and payloads as `chunkproof load` writes them, and with some more fields."""
    points = [
        Point(
            point_id_for(f"c{n}"),
            {"chunk_id": f"c{n}", "text": text, "content_hash": sha256(text.encode()).hexdigest()}
            | {"embedding_model": "words", "lang": "en", **more},
            vector=vector(text),
        )
        for n, text in enumerate((PUMPS, *OTHERS), start=1)
    ]
    fill(store, collection, *points, size=Words.dimension)
    return points


def explain(services: Services, snapshot: Snapshot | None = None, **request: Any) -> WhyAnswer:
    services.forget(str(services.settings.collection))
    question = Question({"query_text": QUESTION, "top_k": 2, **request}, "c1", snapshot)
    return Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_an_embedded_store_gets_the_whole_chunk_or_nothing(
    memory_store: WritableStore, collection: str, is_loaded: bool
) -> None:
    """`load` writes whole points: a line has every change, and is written only for a point that `load` made."""
    own, *others = fill_as_load(memory_store, collection)
    renamed = {name: value for name, value in own.payload.items() if name != "lang"} | {"language": "en"}
    stale = replace(own, payload=renamed, vector=others[6].vector)
    if not is_loaded:
        sdk(memory_store).delete(collection, [own.id])
        stale = replace(stale, id=1)
    memory_store.upsert(collection, [stale], "", Deadline(60_000))
    answer = explain(make_services(memory_store, collection, Words()), top_k=1, filters={"lang": "en"})
    assert set(answer.report.verdict.causes) == {Cause.STALE_VECTOR, Cause.FIELD_RENAMED}, answer.report.verdict.line
    assert answer.fix is not None
    if is_loaded:
        kept = {name: value for name, value in own.payload.items() if name not in ("content_hash", "embedding_model")}
        assert list(answer.fix.chunks) == [{**kept, "language": "en"}]
        return
    assert list(answer.fix.chunks) == []
    assert (answer.report.verdict.command, answer.report.verdict.then) == (None, None)
    assert any("that would be another point" in note for note in answer.report.notes)


def test_a_vector_that_the_pipeline_made_of_more_than_the_text_is_restored_from_a_snapshot_alone(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    titled = [
        replace(each, vector=vector(f"A manual of things. {each.payload['text']}"))
        for each in fill_as_load(memory_store, collection)
    ]
    memory_store.upsert(collection, titled, "", Deadline(60_000))
    services, file = make_services(memory_store, collection, Words()), tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    memory_store.upsert(collection, [replace(titled[0], vector=titled[4].vector)], "", Deadline(60_000))
    bare, known = explain(services).fix, explain(services, Snapshot(file)).fix
    assert bare is not None
    assert "others have a cosine of 0." in (bare.refused or "")
    assert known is not None
    [written] = [each["update_vectors"]["points"][0]["vector"][""] for each in known.operations]
    assert written == pytest.approx(titled[0].vector, abs=1e-6)


def test_a_text_is_restored_with_the_part_of_its_hash_that_is_stored_and_empty_fields_stay_empty(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    def half(text: str) -> str:
        return sha256(text.encode()).hexdigest()[:16]

    own, *others = fill_as_load(memory_store, collection, subtitle="")
    points = [
        replace(each, payload={**each.payload, "content_hash": half(each.payload["text"])}) for each in (own, *others)
    ]
    memory_store.upsert(collection, points, "", Deadline(60_000))
    services, file = make_services(memory_store, collection, Words()), tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    for text in (NEW, ""):
        damaged = replace(points[0], payload={**points[0].payload, "text": text, "content_hash": half(text)})
        memory_store.upsert(collection, [replace(damaged, vector=vector(NEW))], "", Deadline(60_000))
        fix = explain(services, Snapshot(file)).fix
        assert fix is not None
        payload = dict(damaged.payload)
        for operation in fix.operations:
            payload |= operation.get("set_payload", {}).get("payload", {})
        assert payload == points[0].payload


def test_a_chunk_is_not_put_back_where_it_may_have_had_a_field_that_the_snapshot_leaves_out(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    points = fill_as_load(memory_store, collection)
    some = [replace(each, payload={**each.payload, "summary": "long " * 60}) for each in points[::2]]
    memory_store.upsert(collection, some, "", Deadline(60_000))
    services, file = make_services(memory_store, collection, Words()), tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    sdk(memory_store).delete(collection, [points[0].id])
    fix = explain(services, Snapshot(file)).fix
    assert fix is not None
    assert not fix.operations
    assert "does not keep summary" in (fix.refused or "")
