"""Audits of vectors and diffs compare every vector that searches use, and name them."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.request import Deadline
from chunkproof.collection.reader import Reader
from chunkproof.embedders.embedder_port import InputType
from chunkproof.stores.store_port import Layout, Point, WritableStore
from chunkproof_cli.commands.diff import run_diff

from support.audits import run_audit, services_on
from support.words import Words

TEXTS = [f"pump {number} moves water {word} the river" for number in range(6) for word in ("up", "down", "over")]
MODEL = Words()
SIZE = len(MODEL.embed(["a"], InputType.DOCUMENT, Deadline(1_000))[0])


def fill(store: WritableStore, name: str, title_size: int = 3, **changes: Any) -> None:
    """Store texts with a dense vector, a second one, and BM25; `changes` maps a name to what is stored instead."""
    dense = {"size": SIZE, "distance": "Cosine"}
    layout = Layout({"": dense, "title": {**dense, "size": title_size}}, {"bm25": {"modifier": "idf"}}, {})
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


def test_words_with_other_weights_and_a_vector_that_a_few_points_lack_are_found(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    make = memory_store.bm25_maker(Deadline(10_000))

    def weigh(number: int) -> Any:
        vector = make(TEXTS[number - 1])
        return {**vector, "values": [0.0] * len(vector["values"])} if number == 4 else vector

    def embed(number: int) -> Any:
        vector = MODEL.embed([TEXTS[number - 1]], InputType.DOCUMENT, Deadline(1_000))[0]
        return None if number == 9 else list(vector)

    fill(memory_store, collection, bm25=weigh, title=embed, title_size=SIZE)
    report = audit(memory_store, collection, tmp_path)
    assert [(found.chunk_id, found.kind) for found in report.findings] == [
        ("4", Kind.STALE_VECTOR),
        ("9", Kind.UNVERIFIABLE_VECTOR),
    ]


def test_a_diff_reads_every_vector_before_it_says_equal(memory_store: WritableStore, collection: str) -> None:
    """One of 700 is another one, of a text that comes twice, of a point without a text, or is missing."""
    dense, services = {"size": 2, "distance": "Cosine"}, services_on(memory_store, MODEL)
    payloads = [{"text": f"text {n // 2 if n < 10 else n}"} if n else {"image": "a.png"} for n in range(700)]
    changes: dict[str, tuple[int, list[float] | None]] = {
        "same": (0, [1.0, 0.0]),
        **{f"text {n}": (n, [0.0, 1.0]) for n in (3, 250, 699)},
        "no text": (0, [0.0, 1.0]),
        "missing": (5, None),
    }
    for name, (at, vector) in {collection: (0, [1.0, 0.0]), **changes}.items():
        memory_store.create_like(name, Layout({"a": dense}), Deadline(10_000))
        made = [[1.0, n / 1_000] if n != at else vector for n in range(700)]
        points = [
            {"id": n, "vector": {} if each is None else {"a": each}, "payload": payload}
            for n, (each, payload) in enumerate(zip(made, payloads, strict=True))
        ]
        memory_store.write_points(name, points, Deadline(10_000))
    codes = {name: run_diff((Reader(services, collection), Reader(services, name)), None).exit_code for name in changes}
    assert codes == {name: 0 if name == "same" else 1 for name in changes}


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        ({"url": "blob"}, {"url": "blob"}, True),
        ({"url": "blob"}, {"url": "unknown"}, False),
        ({"url": "blob"}, {}, False),
        ({"a": {}}, {}, False),
        ({"_node_content": '{"text": "%s", "metadata": 1}'}, {"_node_content": '{"text": "%s", "metadata": 2}'}, False),
        ({"_node_content": '{"text": "%s", "id_": "a"}'}, {"_node_content": '{"text": "%s", "id_": "b"}'}, True),
        ({"payload": {"text": "%s", "lang": "en"}}, {"payload": {"text": "%s", "lang": "de"}}, False),
    ],
)
def test_a_diff_compares_what_is_beside_the_text_from_both_sides(
    memory_store: WritableStore, collection: str, first: dict[str, Any], second: dict[str, Any], is_equal: bool
) -> None:
    services, names = services_on(memory_store, MODEL), (collection, f"{collection}-b")
    for name, payload in zip(names, (first, second), strict=True):
        memory_store.create(name, 2, Deadline(10_000))
        texts = {} if "%s" in str(payload) else {"text": "%s"}
        points = [
            Point(n, json.loads(json.dumps({**texts, **payload}).replace("%s", f"text {n}")), vector=(1.0, float(n)))
            for n in range(6)
        ]
        memory_store.upsert(name, points, "", Deadline(10_000))
    for a, b in (names, names[::-1]):
        report = run_diff((Reader(services, a), Reader(services, b)), None)
        assert (report.exit_code == 0) == is_equal, report.verdict


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
