"""Chunks whose ids are not stored are matched by their texts; the same text under several ids is a duplicate."""

import random
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from chunkproof.audit.findings import Kind
from chunkproof.audit.ledger import AuditPlan
from chunkproof.audit.manifest_file import Entry
from chunkproof.stores.store_port import Point, WritableStore

from support.audits import DAMAGES, VECTOR, fill, found_in, planted, resume, run_audit, services_on
from support.pipelines import pipeline, write

# Damage that can be undone: the original is recognized by its hash alone.
UNDONE = ("unicode_normalization", "invisible_characters", "mojibake", "html_entities")
WORDS = [f"word{number}" for number in range(400)]


def texts(count: int, seed: int = 1, words: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [f"cafe\u0301 &amp; {' '.join(rng.choices(WORDS, k=words))}" for _ in range(count)]


def random_points(contents: list[str], seed: int = 2, **payload: object) -> list[Point]:
    """Store each text as LangChain does: under a random id, which is nowhere else."""
    rng = random.Random(seed)
    return [
        Point(str(UUID(int=rng.getrandbits(128))), {"page_content": text, "metadata": payload}, vector=VECTOR)
        for text in contents
    ]


class StopsAt:
    """A store that is interrupted when it is asked for points by id for the nth time."""

    def __init__(self, store: WritableStore, fetches: int) -> None:
        self._store, self._left = store, fetches

    def __getattr__(self, name: str) -> Any:
        self._left -= name == "fetch"
        if self._left == 0:
            raise KeyboardInterrupt
        return getattr(self._store, name)


def lines_of(contents: list[str], *, hashed: bool = False) -> list[bytes]:
    return [
        Entry(
            f"chunk-{number}",
            original_text=None if hashed else text,
            original_sha256=sha256(text.encode()).hexdigest() if hashed else None,
        ).to_line()
        for number, text in enumerate(contents)
    ]


@pytest.mark.parametrize("hashed", [False, True], ids=["texts", "hashes"])
def test_a_collection_with_random_ids_is_matched_by_text(
    memory_store: WritableStore, collection: str, tmp_path: Path, hashed: bool
) -> None:
    fill(memory_store, collection, random_points(texts(600)))
    report = run_audit(lines_of(texts(600), hashed=hashed), tmp_path, services_on(memory_store), collection)
    assert report.findings_total == 0
    assert report.kinds[Kind.MATCH] == 600
    assert report.matching is not None
    assert (report.matching.by_id, report.matching.by_text, report.matching.by_nearest_text) == (0, 600, 0)


def test_a_collection_written_twice_with_random_ids_has_each_text_as_a_duplicate_and_nothing_missing(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [*random_points(texts(300)), *random_points(texts(300), seed=3)])
    report = run_audit(lines_of(texts(300)), tmp_path, services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.DUPLICATE_TEXT: 300}
    assert report.findings[0].details == "2 points have this text; the manifest has it once"
    assert report.matching is not None
    assert (report.matching.repeated_texts, report.matching.extra_points) == (300, 300)


def test_a_snapshot_of_the_first_run_finds_the_second_run_as_duplicates(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    first = random_points(texts(50))
    fill(memory_store, collection, [*first, *random_points(texts(50), seed=3)])
    snapshot = [Entry(str(point.id), point.payload["page_content"]).to_line() for point in first]
    report = run_audit(snapshot, tmp_path, services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.DUPLICATE_TEXT: 50}
    assert report.matching is not None
    assert (report.matching.by_id, report.matching.by_text) == (50, 0)


@pytest.mark.server
def test_what_langchain_wrote_twice_is_audited_with_the_right_counts(
    server_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    write(server_store, collection, "langchain_twice", with_indexes=False)
    contents = [point["payload"]["page_content"] for point in pipeline("langchain_dense")["points"]]
    assert len(pipeline("langchain_twice")["points"]) == 2 * len(contents) == 12
    report = run_audit(lines_of(contents), tmp_path, services_on(server_store), collection)
    assert +Counter(report.kinds) == {Kind.DUPLICATE_TEXT: 6}


def test_only_as_many_chunks_are_duplicates_as_there_are_points_too_many(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, random_points(["same"] * 6))
    report = run_audit(lines_of(["same"] * 5), tmp_path, services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.MATCH: 4, Kind.DUPLICATE_TEXT: 1}
    assert report.findings[0].details == "6 points have this text; the manifest has it 5 times"


def test_a_text_that_is_stored_less_often_than_the_manifest_has_it_is_missing(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, random_points(["same"] * 2))
    report = run_audit(lines_of(["same"] * 5), tmp_path, services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.MATCH: 2, Kind.MISSING: 3}
    assert "as another chunk of the manifest" in report.findings[0].details


def test_repeated_texts_of_several_documents_are_matched_within_their_document(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    urls = [f"https://docs.example.com/{number}" for number in range(8)]
    points = [
        replace(random_points(["Contact us"], seed)[0], payload={"text": "Contact us", "url": url})
        for seed, url in enumerate(urls)
    ]
    fill(memory_store, collection, points)
    lines = [Entry(f"c{n}", "Contact us", metadata={"url": url}).to_line() for n, url in enumerate(reversed(urls))]
    assert run_audit(lines, tmp_path, services_on(memory_store), collection).kinds[Kind.MATCH] == 8
    wrong = [Entry("c0", "Contact us", metadata={"url": "https://elsewhere.example"}).to_line()]
    report = run_audit(wrong, tmp_path / "wrong", services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.DUPLICATE_TEXT: 1}


@pytest.mark.parametrize("damage", [kind for kind in DAMAGES if kind != "empty"])
@pytest.mark.parametrize("hashed", [False, True], ids=["texts", "hashes"])
def test_a_changed_text_under_a_random_id_is_a_mismatch_of_its_kind(
    memory_store: WritableStore, collection: str, tmp_path: Path, damage: str, hashed: bool
) -> None:
    contents = texts(30)
    damaged = [DAMAGES[damage](text) if number % 3 == 0 else text for number, text in enumerate(contents)]
    fill(memory_store, collection, random_points(damaged))
    report = run_audit(lines_of(contents, hashed=hashed), tmp_path, services_on(memory_store), collection)
    is_recognized = not hashed or damage in UNDONE
    others = {Kind.MISMATCH: 10} if is_recognized else {Kind.MISSING: 10, Kind.ORPHAN: 10}
    assert +Counter(report.kinds) == {Kind.MATCH: 20, **others}
    if is_recognized:
        assert report.mismatch_kinds == {damage: 10}
        assert {f.matched_by for f in report.findings} == {"nearest_text"}
        assert {f.chunk_id for f in report.findings} == {f"chunk-{n}" for n in range(0, 30, 3)}


def test_unrelated_texts_stay_missing_and_orphaned(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, random_points(texts(40, seed=5)))
    report = run_audit(lines_of(texts(40, seed=6)), tmp_path, services_on(memory_store), collection)
    assert +Counter(report.kinds) == {Kind.MISSING: 40, Kind.ORPHAN: 40}


def test_where_ids_are_shared_an_edited_text_under_another_id_is_no_match(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    contents = texts(10)
    points = [Point(n, {"text": text}, vector=VECTOR) for n, text in enumerate(contents)]
    edited = replace(points[0], id=99, payload={"text": contents[0].replace("cafe", "tea")})
    fill(memory_store, collection, [edited, *points[1:]])
    lines = [Entry(str(n), text).to_line() for n, text in enumerate(contents)]
    report = run_audit(lines, tmp_path, services_on(memory_store), collection)
    assert {f.chunk_id: f.kind for f in report.findings} == {"0": Kind.MISSING, "99": Kind.ORPHAN}


def test_with_match_by_id_texts_are_not_compared(memory_store: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(memory_store, collection, random_points(texts(10)))
    plan = AuditPlan(match_by="id")
    report = run_audit(lines_of(texts(10)), tmp_path, services_on(memory_store), collection, plan)
    assert +Counter(report.kinds) == {Kind.MISSING: 10, Kind.ORPHAN: 10}
    assert report.matching is None


def test_planted_faults_are_found_beside_chunks_under_random_ids(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(300)
    fill(memory_store, collection, [*made.points, *random_points(texts(100))])
    lines = [*made.manifest(), *lines_of(texts(100))]
    report = run_audit(lines, tmp_path, services_on(memory_store), collection)
    assert found_in(tmp_path) == made.faults
    assert report.kinds[Kind.MATCH] == made.matches + 100


def test_an_audit_resumed_while_texts_were_matched_gives_the_same_report(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    contents = texts(400)
    stored = [DAMAGES["truncated"](text) if number % 5 == 0 else text for number, text in enumerate(contents)]
    fill(memory_store, collection, random_points(stored))
    lines = lines_of(contents)
    whole = run_audit(lines, tmp_path / "whole", services_on(memory_store), collection)
    assert +Counter(whole.kinds) == {Kind.MATCH: 320, Kind.MISMATCH: 80}
    for stop_at in (3, 4, 5):
        folder = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            run_audit(lines, folder, services_on(StopsAt(memory_store, stop_at)), collection)
        again = resume(folder, services_on(memory_store), collection, sha256(b"".join(lines)).hexdigest())
        assert again.model_dump(exclude={"run"}) == whole.model_dump(exclude={"run"})


def test_near_duplicates_are_listed_on_request_and_equal_texts_are_none(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    contents = texts(60)
    nearly = [text + " and a few words more" for text in contents[:7]]
    points = random_points([*contents, contents[0], *nearly])
    fill(memory_store, collection, points)
    lines = [Entry(str(point.id), point.payload["page_content"]).to_line() for point in points]
    report = run_audit(lines, tmp_path, services_on(memory_store), collection, AuditPlan(near_duplicates=0.8))
    assert +Counter(report.kinds) == {Kind.MATCH: 68, Kind.NEAR_DUPLICATE: 7}
    assert report.faults == 0
    assert "% in common" in report.findings[0].details
    exact = run_audit(lines, tmp_path / "all", services_on(memory_store), collection, AuditPlan(near_duplicates=0.99))
    assert exact.kinds[Kind.NEAR_DUPLICATE] == 0
