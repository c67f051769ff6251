"""Chunks of several pipelines, damaged at random: what `why --fix` writes restores exactly what was there.

And vectors that searches use, wrong or missing in one point or everywhere: no audit of vectors calls them right.
"""

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan
from chunkproof.audit.manifest_file import Entry
from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.backend import LocalBackend
from chunkproof.proof.vector_judge import SAME, cosine
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.store_port import Layout, WritableStore
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question

from support.audits import run_audit, services_on
from support.chunks import make_services
from support.stores import MemoryStore
from support.words import Words
from tools.checks.attack.attack import Attack

MODEL = Words()
SUBJECTS = ("pump", "valve", "river", "goat", "violin", "bread", "glass", "tram", "star", "chess", "barrel", "rock")
METADATA: tuple[Any, ...] = ("x", 7, 1.5, True, None, [], ["a", 1], {"deep": {"er": "ü"}}, "", "a\n\u00ad\U0001f600")
Payload = dict[str, Any]
SHAPES: dict[str, Callable[[str, str, Payload], Payload]] = {
    "LlamaIndex": lambda name, text, more: {
        "_node_content": json.dumps({"id_": name, "metadata": {}, "relationships": {"1": {"a": "d"}}, "text": text}),
        "_node_type": "TextNode",
        "doc_id": "d",
        "chunk_id": name,
        **more,
    },
    "LangChain": lambda name, text, more: {"page_content": text, "metadata": {"chunk_id": name, "source": "s", **more}},
    "Haystack": lambda name, text, more: {"id": name, "content": text, "meta": more, "score": None},
    "plain": lambda name, text, more: {"chunk_id": name, "text": text, **more},
}


def run(attack: Attack) -> None:
    """Repair chunks, and audit vectors."""
    logging.disable(logging.WARNING)  # the fields that a shape lacks
    try:
        while attack.goes_on():
            started, store = process_time(), MemoryStore()
            attempt = attack.rng.choice((_repair, _audit_vectors))
            with tempfile.TemporaryDirectory() as folder:
                wrong = attempt(attack.rng, store, Path(folder))
            store.close()
            attack.note(process_time() - started, wrong)
    finally:
        logging.disable(logging.NOTSET)


def _repair(rng: Random, store: WritableStore, folder: Path) -> str | None:
    shape, has_words = rng.choice(list(SHAPES)), rng.random() < 0.5
    more = {f"m{n}": rng.choice(METADATA) for n in range(rng.randrange(4))}
    texts = [
        f"The {word} of {rng.choice(SUBJECTS)} number {n} is {word} and {word}." for n, word in enumerate(SUBJECTS)
    ]
    points = [
        _make_point(store, n, SHAPES[shape](f"c{n}", text, more), text, has_words) for n, text in enumerate(texts)
    ]
    _create(store, has_words)
    store.write_points("docs", points, Deadline(60_000))
    services = make_services(store, "docs", MODEL)
    file = folder / "before.snapshot"
    SnapshotWriter(file, Reader(services, "docs"), texts=True, vectors=True).write()
    number, other = rng.randrange(len(texts)), "Nothing of this kind is said here, but something else."
    kind = rng.choice(("text", "vector", "deleted"))
    before = points[number]
    now: Payload | None = deepcopy(before)
    if kind == "deleted":
        store.drop("docs")  # type: ignore[attr-defined]
        _create(store, has_words)
        store.write_points("docs", [point for point in points if point is not before], Deadline(60_000))
        now = None
    else:
        payload = SHAPES[shape](f"c{number}", other if kind == "text" else texts[number], more)
        now = {**_make_point(store, number, payload, other, has_words), "id": before["id"]}
        store.write_points("docs", [now], Deadline(60_000))
    services.forget("docs")
    question = Question({"query_text": texts[number], "top_k": 1}, f"c{number}", Snapshot(file))
    answer = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question)
    if answer.fix is None or answer.fix.refused:
        is_refused = answer.report.verdict.found or (answer.fix is not None and bool(answer.fix.refused))
        return None if is_refused else f"{shape}, {kind}: no fix ({answer.report.verdict.line})"
    for operation in answer.fix.operations:
        now = _apply(operation, now, before["id"])
    if now is None or now["payload"] != before["payload"]:
        return f"{shape}, {kind}: {before['payload']} became {now and now['payload']}"
    if now["vector"].keys() != before["vector"].keys():
        return f"{shape}, {kind}: vectors {list(before['vector'])} became {list(now['vector'])}"
    if cosine(now["vector"][""], before["vector"][""]) < SAME:
        return f"{shape}, {kind}: another dense vector"
    words = [set(point["vector"].get("bm25", {"indices": ()})["indices"]) for point in (now, before)]
    return None if words[0] == words[1] else f"{shape}, {kind}: another BM25 vector"


def _apply(operation: Mapping[str, Any], point: Payload | None, point_id: Any) -> Payload | None:
    """Do to a point what a server would do."""
    [(name, content)] = operation.items()
    if name == "upsert":
        own = [one for one in content["points"] if one["id"] == point_id]
        return {**own[0], "vector": _by_name(own[0]["vector"])} if own else point
    if point is None or name == "delete":
        return None if point is None or point_id in content["points"] else point
    if name == "set_payload":
        return {**point, "payload": {**point["payload"], **content["payload"]}}
    if name == "overwrite_payload":
        return {**point, "payload": content["payload"]}
    assert name == "update_vectors", name
    made = [_by_name(one["vector"]) for one in content["points"] if one["id"] == point_id]
    return {**point, "vector": {**point["vector"], **(made[0] if made else {})}}


def _by_name(vector: Any) -> dict[str, Any]:
    named = vector if isinstance(vector, Mapping) else {"": vector}
    return {name: _embed_text(value) for name, value in named.items()}


def _embed_text(value: Any) -> Any:
    """Make the vector of a text, where the server is asked for it."""
    return make_bm25_vector(value["text"]) if isinstance(value, Mapping) and "text" in value else value


def _audit_vectors(rng: Random, store: WritableStore, folder: Path) -> str | None:
    texts = [f"{word} {other} by the water" for word in SUBJECTS for other in SUBJECTS[:3]]
    kind = rng.choice(("right", "no words", "no vector", "stale words", "stale vector"))
    bad = set(range(len(texts)) if kind.startswith("no") and rng.random() < 0.5 else [rng.randrange(len(texts))])
    points = []
    for number, text in enumerate(texts):
        wrong = number in bad
        point = _make_point(store, number, {"text": text}, text, has_words=True)
        changed = _make_point(store, number, {}, "Quite another text about nothing.", has_words=True)["vector"]
        name = "bm25" if kind.endswith("words") else ""
        if wrong and kind.startswith("no"):
            del point["vector"][name]
        elif wrong and kind.startswith("stale"):
            point["vector"][name] = changed[name]
        points.append(point)
    _create(store, has_words=True)
    store.write_points("docs", points, Deadline(60_000))
    lines = [Entry(str(number), text, point_id=number).to_line() for number, text in enumerate(texts)]
    report = run_audit(lines, folder / "state", services_on(store, MODEL), "docs", AuditPlan(vectors=0))
    assert report.vectors is not None
    right = report.vectors.kinds.get(Kind.VECTOR_OK, 0)
    expected = len(texts) - (len(bad) if kind != "right" else 0)
    return None if right == expected else f"{kind} in {len(bad)} of {len(texts)}: {right} are called right"


def _create(store: WritableStore, has_words: bool) -> None:
    dense = {"": {"size": Words.dimension, "distance": "Cosine"}}
    layout = Layout(dense, {"bm25": {"modifier": "idf"}} if has_words else {}, {})
    store.create_like("docs", layout, Deadline(60_000))


def _make_point(store: WritableStore, number: int, payload: Payload, text: str, has_words: bool) -> Payload:
    vector: Payload = {"": list(MODEL.embed([text], InputType.DOCUMENT, Deadline(60_000))[0])}
    if has_words:
        vector["bm25"] = store.bm25_maker(Deadline(60_000))(text)
    return {"id": number, "vector": vector, "payload": payload}
