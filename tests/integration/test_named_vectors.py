"""Audits of vectors and diffs compare every vector that searches use, and name them."""

from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.embedders.embedder_port import InputType
from chunkproof.stores.store_port import Layout, WritableStore
from chunkproof_cli.commands.diff import run_diff

from support.audits import run_audit, services_on
from support.words import Words

TEXTS = [f"pump {number} moves water {word} the river" for number in range(6) for word in ("up", "down", "over")]
MODEL = Words()
SIZE = len(MODEL.embed(["a"], InputType.DOCUMENT, Deadline(1_000))[0])


def fill(store: WritableStore, name: str, **changes: Any) -> None:
    """Store texts with a dense vector, a second one, and BM25; `changes` maps a name to what is stored instead."""
    dense = {"size": SIZE, "distance": "Cosine"}
    layout = Layout({"": dense, "title": {"size": 3, "distance": "Cosine"}}, {"bm25": {"modifier": "idf"}}, {})
    store.create_like(name, layout, Deadline(10_000))
    make, points = store.bm25_maker(Deadline(10_000)), []
    for number, text in enumerate(TEXTS, start=1):
        vector = list(MODEL.embed([text], InputType.DOCUMENT, Deadline(1_000))[0])
        vectors = {"": vector, "title": [1.0, float(number), 0.5], "bm25": make(text), **changes}
        stored = {key: value(number) if callable(value) else value for key, value in vectors.items()}
        vectors = {key: value for key, value in stored.items() if value is not None}
        payload = {"text": text, "tag": "a", **vectors.pop("payload", {})}
        points.append({"id": number, "vector": vectors, "payload": payload})
    store.write_points(name, points, Deadline(10_000))


def audit(store: WritableStore, name: str, folder: Path) -> Any:
    lines = [Entry(str(number), text).to_line() for number, text in enumerate(TEXTS, start=1)]
    return run_audit(lines, folder, services_on(store, MODEL), name, AuditPlan(vectors=0))


def test_an_audit_names_the_vectors_that_it_compared(store: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(store, collection)
    report = audit(store, collection, tmp_path)
    assert report.vectors.kinds[Kind.VECTOR_OK] == len(TEXTS)
    assert (report.vectors.names, report.vectors.not_compared) == (("", "bm25"), ("title",))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"bm25": None}, Kind.UNVERIFIABLE_VECTOR),
        ({"bm25": {"indices": [1, 2, 3], "values": [1.0, 1.0, 1.0]}}, Kind.WRONG_MODEL),
        ({"title": None}, Kind.UNVERIFIABLE_VECTOR),
    ],
    ids=["BM25 missing", "BM25 wrong", "another missing"],
)
def test_vectors_that_are_missing_or_wrong_everywhere_are_not_clean(
    store: WritableStore, collection: str, tmp_path: Path, changes: dict[str, Any], kind: Kind
) -> None:
    fill(store, collection, **changes)
    report = audit(store, collection, tmp_path)
    assert report.vectors.kinds[kind] == len(TEXTS)


def test_a_stale_bm25_vector_is_found(store: WritableStore, collection: str, tmp_path: Path) -> None:
    make = store.bm25_maker(Deadline(10_000))
    fill(store, collection, bm25=lambda number: make("another text altogether" if number == 4 else TEXTS[number - 1]))
    report = audit(store, collection, tmp_path)
    assert [(found.chunk_id, found.kind) for found in report.findings] == [("4", Kind.STALE_VECTOR)]
    assert "bm25 is not the BM25 vector of the stored text" in report.findings[0].details


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({}, None),
        ({"bm25": None}, "bm25: 0 of 0 the same, 18 only in A"),
        ({"title": lambda number: [float(number), -1.0, 9.0]}, "title: 0 of 18 the same"),
        ({"payload": {"tag": "b"}}, "metadata differs"),
        ({"payload": {"more": {"deep": 1}}}, "metadata differs"),
    ],
    ids=["equal", "BM25 missing", "another wrong", "metadata", "more metadata"],
)
def test_a_diff_compares_all_vectors_and_all_metadata(
    store: WritableStore, collection: str, changes: dict[str, Any], failure: str | None
) -> None:
    other = f"{collection}-b"
    fill(store, collection)
    fill(store, other, **changes)
    services = services_on(store, MODEL)
    report = run_diff((Reader(services, collection), Reader(services, other)), None)
    assert [each.name for each in report.others] == ["title", "bm25"]
    if failure is None:
        assert (report.exit_code, report.failures) == (0, ())
        assert "title: 18 of 18 the same; bm25: 18 of 18 the same" in report.verdict
    else:
        assert report.exit_code == 1
        assert failure in report.verdict
    named = run_diff((Reader(services, collection), Reader(services, other)), ["tag"])
    assert ("metadata differs" in named.failures) == (changes == {"payload": {"tag": "b"}})
