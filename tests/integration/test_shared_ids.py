"""Pipelines that keep the id of a document where others keep a chunk's: the point id is used instead, everywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.audit.ledger import AuditPlan
from chunkproof.base.errors import AmbiguousIdError
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import _count_ids, ids_of
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import SAMPLE_POINTS, Services
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof_cli.commands.suite_init import build_starter
from chunkproof_cli.manifest_sources import EntryShape, entries_of_collection, write_manifest

from support.audits import run_audit
from support.chunks import ask, check, fill, make_services
from support.sdk import sdk

DOCUMENTS = ("custom-documents/a.txt", "custom-documents/b.txt", "custom-documents/c.txt")
UUIDS = [f"550e8400-e29b-41d4-a716-4466554400{number:02d}" for number in range(12)]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def anything_llm() -> list[Point]:
    """Twelve chunks of three documents as AnythingLLM stores them: `id` is the document's."""
    return [
        Point(
            UUIDS[number],
            {"id": f"doc-{number % 3}", "title": DOCUMENTS[number % 3], "text": f"chunk {number} of its document"},
            vector=(1.0, number / 20),
        )
        for number in range(12)
    ]


def audit_own_snapshot(services: Services, collection: str, folder: Path, *, by_ids: bool = False) -> Any:
    reader = Reader(services, collection)
    manifest = folder / "manifest.jsonl"
    write_manifest(entries_of_collection(reader, EntryShape(["url"]), lambda _count: None, []), manifest)
    lines = manifest.read_bytes().splitlines(keepends=True)
    return run_audit(lines, folder / f"state-{by_ids}", services, collection, AuditPlan(by_ids=by_ids))


def test_an_id_that_chunks_of_a_document_share_is_the_documents(either: WritableStore, collection: str) -> None:
    fill(either, collection, *anything_llm())
    services = make_services(either, collection)
    results = ask(services, query_vector=[1.0, 0.0], top_k=12).results
    assert [result.metadata.chunk_id for result in results] == [str(result.point_id) for result in results]
    assert {result.point_id for result in results} == set(UUIDS)
    assert {result.metadata.document_id for result in results} == {"doc-0", "doc-1", "doc-2"}  # type: ignore[union-attr]


def test_a_chunk_is_validated_by_the_id_that_a_search_shows(either: WritableStore, collection: str) -> None:
    fill(either, collection, *anything_llm())
    services = make_services(either, collection)
    for result in ask(services, query_vector=[1.0, 0.0], top_k=12).results:
        verdict = check(services, result.metadata.chunk_id, original_text=result.text)
        assert verdict.validation_passed
        assert (verdict.chunk_id, verdict.point_id) == (result.metadata.chunk_id, result.point_id)


def test_the_id_of_a_document_is_refused_as_ambiguous_with_its_points(either: WritableStore, collection: str) -> None:
    fill(either, collection, *anything_llm())
    with pytest.raises(AmbiguousIdError, match="doc-1 means more than one point: "):
        check(make_services(either, collection), "doc-1", original_text="x")


def test_a_filter_on_document_id_uses_the_shared_id(either: WritableStore, collection: str) -> None:
    fill(either, collection, *anything_llm())
    answer = ask(make_services(either, collection), query_vector=[1.0, 0.0], filters={"document_id": "doc-1"}, top_k=9)
    assert {result.point_id for result in answer.results} == set(UUIDS[1::3])


@pytest.mark.parametrize("by_ids", [False, True], ids=["scan", "by ids"])
def test_its_own_snapshot_audits_clean(either: WritableStore, collection: str, tmp_path: Path, by_ids: bool) -> None:
    fill(either, collection, *anything_llm())
    report = audit_own_snapshot(make_services(either, collection), collection, tmp_path, by_ids=by_ids)
    assert (report.findings_total, report.kinds["match"]) == (0, 12)


def test_a_starter_suite_expects_texts_where_ids_are_random(either: WritableStore, collection: str) -> None:
    fill(either, collection, *anything_llm())
    starter = build_starter(make_services(either, collection).collection(collection, Deadline(60_000)), 5)
    assert starter.items
    assert all(item.passage for item in starter.items)


def test_ids_that_repeat_only_behind_the_sample_are_found_by_the_facet(either: WritableStore, collection: str) -> None:
    count = 3 * SAMPLE_POINTS
    points = (
        Point(n, {"text": f"text {n}", "id": f"doc-{n if n < SAMPLE_POINTS else n % 7}"}, vector=(1.0, n / count))
        for n in range(1, count)
    )
    fill(either, collection, *points)
    if either.host != "memory":
        sdk(either).create_payload_index(collection, "id", models.PayloadSchemaType.KEYWORD, wait=True)
    results = ask(make_services(either, collection), query_vector=[1.0, 0.0], top_k=5).results
    assert [result.metadata.chunk_id for result in results] == [str(result.point_id) for result in results]


def test_a_value_that_the_store_counted_twice_is_still_an_id(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, *(Point(n, {"chunk_id": f"c-{n}", "text": "t"}, vector=(1.0, n)) for n in range(3)))

    class Reorganizing:
        """Counts the points that it moves twice, as a server may."""

        def facet(self, *_: object, **__: object) -> dict[str, int]:
            return {"c-1": 2, "c-0": 1, "c-2": 1}

        count = memory_store.count

    looked_at = make_services(Reorganizing(), collection).collection(collection, Deadline(9_000))  # type: ignore[arg-type]
    found = _count_ids("chunk_id", {}, looked_at)
    assert (found.repeated, found.is_shared) == (set(), False)
    twice = Point(9, {"chunk_id": "c-1", "text": "t"}, vector=(1.0, 9.0))
    memory_store.upsert(collection, [twice], "", Deadline(9_000))
    found = _count_ids("chunk_id", {}, looked_at)
    assert found.repeated == {"c-1"}


def test_without_an_index_the_sampled_ids_are_counted(either: WritableStore, collection: str) -> None:
    count = 2 * SAMPLE_POINTS
    points = (
        Point(n, {"text": f"text {n}", "id": f"doc-{n % SAMPLE_POINTS}"}, vector=(1.0, n / count))
        for n in range(1, count + 1)
    )
    fill(either, collection, *points)
    results = ask(make_services(either, collection), query_vector=[1.0, 0.0], top_k=5).results
    assert [result.metadata.chunk_id for result in results] == [str(result.point_id) for result in results]


def test_one_id_stored_twice_leaves_the_ids_of_all_others(
    either: WritableStore, collection: str, tmp_path: Path
) -> None:
    points = [Point(n, {"text": f"text {n}", "chunk_id": f"c-{n}"}, vector=(1.0, n / 60)) for n in range(40)]
    twin = Point(99, {"text": "text 7, changed", "chunk_id": "c-7"}, vector=(1.0, 1.0))
    fill(either, collection, *points, twin)
    services = make_services(either, collection)
    results = ask(services, query_vector=[1.0, 0.0], top_k=50).results
    shown = {result.point_id: result.metadata.chunk_id for result in results}
    assert shown == {**{n: f"c-{n}" for n in range(40)}, 7: "7", 99: "99"}
    for point_id, chunk_id in shown.items():
        assert check(services, chunk_id, original_sha256="0" * 64).point_id == point_id
    with pytest.raises(AmbiguousIdError):
        check(services, "c-7", original_text="text 7")
    twins = [result for result in results if result.point_id in (7, 99)]
    assert all("c-7" in ids_of(result.metadata) for result in twins), "a suite may still expect it"
    report = audit_own_snapshot(services, collection, tmp_path)
    assert report.findings_total == 0


def test_a_document_whose_id_is_that_of_its_first_point_is_read_by_point_ids(
    either: WritableStore, collection: str, tmp_path: Path
) -> None:
    points = [Point(UUIDS[n], {"text": f"text {n}", "id": UUIDS[n - n % 4]}, vector=(1.0, n / 20)) for n in range(12)]
    fill(either, collection, *points)
    services = make_services(either, collection)
    for result in ask(services, query_vector=[1.0, 0.0], top_k=12).results:
        assert check(services, result.metadata.chunk_id, original_text=result.text).point_id == result.point_id
    for by_ids in (False, True):
        assert audit_own_snapshot(services, collection, tmp_path, by_ids=by_ids).findings_total == 0


def test_a_counter_within_a_document_is_no_id(either: WritableStore, collection: str) -> None:
    points = [
        Point(UUIDS[n], {"text": f"text {n}", "metadata": {"chunk_id": f"chunk-{n % 4}"}}, vector=(1.0, n / 20))
        for n in range(12)
    ]
    fill(either, collection, *points)
    results = ask(make_services(either, collection), query_vector=[1.0, 0.0], top_k=12).results
    assert {result.metadata.chunk_id for result in results} == set(UUIDS)


def test_ids_are_not_looked_into_where_payloads_have_none(
    memory_store: WritableStore, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory_store, collection, Point(1, {"text": "one"}, vector=(1.0, 0.0)))

    def refuse(*_given: Any, **_options: Any) -> Iterator[None]:
        raise AssertionError("asked")

    monkeypatch.setattr(memory_store, "scroll", refuse)
    monkeypatch.setattr(memory_store, "facet", refuse)
    assert ask(make_services(memory_store, collection), query_vector=[1.0, 0.0]).results[0].point_id == 1
