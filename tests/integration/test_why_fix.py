"""What `why --fix` writes down, sent to a real server, brings the chunk back."""

import json
from collections.abc import Callable
from functools import partial
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.test_why import CASES, NEW, OTHERS, PUMPS, QUESTION, delete, point, vector

from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
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
