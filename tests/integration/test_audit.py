"""Every chunk is in exactly one class, with any ids, order, interruptions and changes during the audit."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from typing import Any
from uuid import uuid4

import pytest

from chunkproof.audit import audit_run, join
from chunkproof.audit.audit_report import AuditReport
from chunkproof.audit.audit_run import Audit
from chunkproof.audit.findings import Finding, Kind, find_copies
from chunkproof.audit.ledger import AuditPlan, Ledger, Progress, load_progress, prepare
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.errors import (
    InvalidParameterError,
    ResponseTooLargeError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.embedders.embedder_port import InputType
from chunkproof.stores.store_port import Point, WritableStore

from support.audits import VECTOR, fill, found_in, planted, resume, run_audit, services_on
from support.clock import replace_clock
from support.pipelines import FOLDER, pipeline
from support.sdk import sdk
from support.words import Words


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and a server; a store in a folder is read like one in memory."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


class Troubled:
    """A store that calls a function before each read."""

    def __init__(self, store: WritableStore, trouble: Callable[[int], None]) -> None:
        self._store = store
        self._trouble = trouble
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("scroll", "fetch"):
            return method

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            self._trouble(self.calls)
            return method(*args, **options)

        return call


def without_run(report: AuditReport) -> dict[str, Any]:
    """Return all of a report except how it ran."""
    return report.model_dump(exclude={"run"})


def stored(chunk_id: str, text: str = "a text", point_id: int | str | None = None, **payload: Any) -> Point:
    fields = {"chunk_id": chunk_id, "text": text, **payload}
    return Point(point_id_for(chunk_id) if point_id is None else point_id, fields, vector=VECTOR)


@pytest.mark.parametrize("hashed", [False, True], ids=["texts", "hashes"])
def test_exactly_the_planted_faults_are_found(
    store: WritableStore, collection: str, tmp_path: Path, hashed: bool
) -> None:
    made = planted(1_200, hashed=hashed)
    fill(store, collection, made.points)
    report = run_audit(made.manifest(), tmp_path, services_on(store), collection)

    assert found_in(tmp_path) == made.faults
    assert report.kinds[Kind.MATCH] == made.matches
    assert report.points == len(made.points)
    of_manifest = sum(count for kind, count in report.kinds.items() if kind != Kind.ORPHAN)
    assert of_manifest == report.manifest.chunks
    assert report.manifest.entries == len(made.entries) == report.manifest.chunks + report.manifest.repeated
    assert report.coverage == 1 - 3 / report.manifest.chunks


def test_a_mismatch_has_the_same_kind_and_place_as_in_a_validation(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(400)
    fill(memory_store, collection, made.points)
    report = run_audit(made.manifest(), tmp_path, services_on(memory_store), collection)
    kinds = {f.chunk_id: f.mismatch.kind for f in report.findings if f.mismatch}
    assert {kind: {i for i in kinds if kinds[i] == kind} for kind in kinds.values()} == made.damages
    assert report.mismatch_kinds == dict.fromkeys(report.mismatch_kinds, 3)
    cut = next(f for f in report.findings if f.mismatch and f.mismatch.kind == "truncated")
    original = next(entry.original_text for entry in made.entries if entry.chunk_id == cut.chunk_id)
    assert cut.mismatch is not None
    assert cut.mismatch.first_difference is not None
    assert cut.mismatch.first_difference.char == len(original or "") // 2
    assert cut.source is not None
    assert cut.source.startswith("https://docs.example.com/")


def test_a_partial_manifest_is_audited_by_ids_and_without_orphans(
    store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(600)
    fill(store, collection, made.points)
    report = run_audit(made.manifest(), tmp_path, services_on(store), collection, AuditPlan(by_ids=True))
    expected = {kind: ids for kind, ids in made.faults.items() if kind != Kind.ORPHAN}
    assert found_in(tmp_path) == expected
    assert Kind.ORPHAN not in report.kinds
    assert not report.complete_scan
    assert report.points is None
    assert sum(report.kinds.values()) == report.manifest.chunks


def test_a_chunk_on_another_point_is_found_there(store: WritableStore, collection: str, tmp_path: Path) -> None:
    other = str(uuid4())
    fill(store, collection, [stored("a", point_id=other), stored("b", "cut", point_id=5)])
    lines = [Entry("a", "a text").to_line(), Entry("b", "cut short").to_line()]
    report = run_audit(lines, tmp_path, services_on(store), collection)
    assert [(f.chunk_id, f.kind, f.point_ids) for f in report.findings] == [("b", Kind.MISMATCH, (5,))]
    assert report.kinds[Kind.MATCH] == 1


def test_a_point_is_found_by_its_own_id_and_by_the_one_in_its_payload(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [stored("intro", point_id=7)])
    lines = [Entry("7", "a text").to_line(), Entry("intro", "a text").to_line()]
    assert run_audit(lines, tmp_path, services_on(memory_store), collection).findings_total == 0


def test_the_point_id_of_an_entry_is_the_expected_point(store: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(store, collection, [stored("a", point_id=3), stored("a", point_id=4), stored("b", point_id=9)])
    lines = [
        Entry("a", "a text", point_id=3).to_line(),
        Entry("a", "a text", point_id=4).to_line(),
        Entry("b", "a text", point_id=9).to_line(),
    ]
    report = run_audit(lines, tmp_path, services_on(store), collection)
    assert [(f.chunk_id, f.kind, f.point_ids) for f in report.findings] == [("a", Kind.DUPLICATE, (3, 4))]
    assert (report.kinds[Kind.MATCH], report.manifest.chunks, report.manifest.repeated) == (1, 2, 1)


def test_an_id_on_a_thousand_points_is_one_duplicate_with_the_count(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [stored("same", point_id=n) for n in range(1_000)])
    report = run_audit([Entry("same", "a text").to_line()], tmp_path, services_on(memory_store), collection)
    assert [f.details for f in report.findings] == ["1000 points have this id, with the same text"]
    unknown = run_audit([Entry("x", "another").to_line()], tmp_path / "o", services_on(memory_store), collection)
    assert unknown.kinds[Kind.ORPHAN] == 1_000


def test_a_duplicate_that_also_mismatches_is_one_finding_with_both_details(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [stored("a", "cut"), stored("a", "other", point_id=1)])
    report = run_audit([Entry("a", "cut short").to_line()], tmp_path, services_on(memory_store), collection)
    (finding,) = report.findings
    assert finding.kind is Kind.DUPLICATE
    assert finding.details == (
        "2 points have this id, with different texts; Stored text truncated: 3 of 9 characters kept"
    )


def test_a_chunk_that_changes_during_the_audit_is_read_again_before_it_is_a_mismatch(
    store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(store, collection, [stored("a", "old text"), stored("b", "wrong")])

    def replace_after_the_first_read(call: int) -> None:
        if call == 2:
            store.upsert(collection, [stored("a", "new text")], "", Deadline(10_000))

    troubled = Troubled(store, replace_after_the_first_read)
    lines = [Entry("a", "new text").to_line(), Entry("b", "right").to_line()]
    report = run_audit(lines, tmp_path, services_on(troubled), collection)
    assert [(f.chunk_id, f.kind) for f in report.findings] == [("b", Kind.MISMATCH)]
    assert report.run.changed == 1


def test_a_chunk_written_during_the_audit_is_not_missing_and_a_deleted_one_is_no_orphan(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [stored("gone")])

    def swap(call: int) -> None:
        if call == 2:
            sdk(memory_store).delete(collection, [point_id_for("gone")])
            memory_store.upsert(collection, [stored("late")], "", Deadline(10_000))

    report = run_audit(
        [Entry("late", "a text").to_line()], tmp_path, services_on(Troubled(memory_store, swap)), collection
    )
    assert report.findings_total == 0


@pytest.mark.server
@pytest.mark.parametrize("plan", [AuditPlan(), AuditPlan(by_ids=True)], ids=["scan", "by ids"])
def test_an_audit_interrupted_at_random_points_and_resumed_gives_the_same_report(
    server_store: WritableStore, collection: str, tmp_path: Path, plan: AuditPlan
) -> None:
    made = planted(1_700)
    fill(server_store, collection, made.points)
    lines = made.manifest()
    whole = Troubled(server_store, lambda _call: None)
    expected = run_audit(lines, tmp_path / "whole", services_on(whole), collection, plan)
    digest = sha256(b"".join(lines)).hexdigest()
    rng = random.Random(11)

    for number in range(6):
        folder, stops = tmp_path / str(number), sorted(rng.sample(range(1, whole.calls + 1), 3))

        def interrupt(call: int, stops: list[int] = stops) -> None:
            if call in stops:
                raise KeyboardInterrupt

        troubled = Troubled(server_store, interrupt)
        report: AuditReport | None = None
        with suppress(KeyboardInterrupt):
            report = run_audit(lines, folder, services_on(troubled), collection, plan)
        while report is None:
            with suppress(KeyboardInterrupt):
                report = resume(folder, services_on(troubled), collection, digest, plan)
        assert without_run(report) == without_run(expected), stops
        assert (folder / "findings.jsonl").read_bytes() == (tmp_path / "whole" / "findings.jsonl").read_bytes()
        assert 1 <= report.run.resumed <= len(stops)


def test_what_was_written_after_the_last_saved_state_is_discarded(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(1_300)
    fill(memory_store, collection, made.points)

    def stop(call: int) -> None:
        if call == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_audit(made.manifest(), tmp_path, services_on(Troubled(memory_store, stop)), collection)
    progress = load_progress(tmp_path)
    assert progress is not None
    unsaved = Ledger.resume(tmp_path, progress)
    Finding(chunk_id="ghost", kind=Kind.MISSING, details="").add_to(unsaved)
    unsaved.close()
    (tmp_path / "ledger.sqlite-wal").write_bytes(b"half a frame")
    digest = sha256(b"".join(made.manifest())).hexdigest()
    resume(tmp_path, services_on(memory_store), collection, digest)
    assert found_in(tmp_path) == made.faults


@pytest.mark.parametrize("kept", ["nothing", "half a page", "one page", "another file"])
def test_an_audit_with_a_damaged_ledger_is_not_resumed(
    memory_store: WritableStore, collection: str, tmp_path: Path, kept: str
) -> None:
    fill(memory_store, collection, [stored("a"), stored("b")])
    lines = [Entry("a", "a text").to_line(), Entry("b", "a text").to_line()]
    run_audit(lines, tmp_path, services_on(memory_store), collection)
    damaged = tmp_path / "ledger.sqlite"
    page = damaged.read_bytes()[:4096]
    contents = {"nothing": b"", "half a page": page[:2048], "one page": page, "another file": b"{}"}
    damaged.write_bytes(contents[kept])
    digest = sha256(b"".join(lines)).hexdigest()
    with pytest.raises(InvalidParameterError, match=r"ledger\.sqlite is not the state of an audit: .* --restart"):
        resume(tmp_path, services_on(memory_store), collection, digest)


def test_only_the_same_audit_is_resumed(memory_store: WritableStore, collection: str, tmp_path: Path) -> None:
    fill(memory_store, collection, [stored("a")])
    lines = [Entry("a", "a text").to_line()]
    run_audit(lines, tmp_path, services_on(memory_store), collection)
    services, digest = services_on(memory_store), sha256(lines[0]).hexdigest()
    with pytest.raises(InvalidParameterError, match="another manifest:"):
        resume(tmp_path, services, collection, "0" * 64)
    with pytest.raises(InvalidParameterError, match="another by ids"):
        resume(tmp_path, services, collection, digest, AuditPlan(by_ids=True))
    with pytest.raises(InvalidParameterError, match="no interrupted audit"):
        resume(tmp_path / "nothing", services, collection, digest)


def test_temporary_failures_of_the_server_are_retried(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(1_100)
    fill(memory_store, collection, made.points)

    calls = Counter[int]()

    def every_other_call_fails(_call: int) -> None:
        calls[get_ident()] += 1  # of each thread: two that take turns would fail the same one every time
        if calls[get_ident()] % 2:
            raise VectorStoreUnavailableError("host", "down")

    run_audit(made.manifest(), tmp_path, services_on(Troubled(memory_store, every_other_call_fails)), collection)
    assert found_in(tmp_path) == made.faults


def test_a_lasting_failure_of_the_server_stops_the_audit_without_a_report(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(1_100)
    fill(memory_store, collection, made.points)

    def dies(call: int) -> None:
        if call > 2:
            raise VectorStoreUnavailableError("host", "down")

    with pytest.raises(VectorStoreUnavailableError):
        run_audit(made.manifest(), tmp_path, services_on(Troubled(memory_store, dies)), collection)
    assert not (tmp_path / "findings.jsonl").exists()
    resume(tmp_path, services_on(memory_store), collection, sha256(b"".join(made.manifest())).hexdigest())
    assert found_in(tmp_path) == made.faults


@pytest.mark.parametrize("plan", [AuditPlan(), AuditPlan(by_ids=True)], ids=["scan", "by ids"])
def test_responses_that_are_too_large_or_too_slow_are_requested_in_parts(
    memory_store: WritableStore, collection: str, tmp_path: Path, plan: AuditPlan
) -> None:
    made = planted(600)
    fill(memory_store, collection, made.points)

    class Narrow(Troubled):
        def __getattr__(self, name: str) -> Any:
            method = super().__getattr__(name)

            def call(*args: Any, **options: Any) -> Any:
                wanted = options.get("limit") or len(args[1])
                if wanted > 100:
                    raise ResponseTooLargeError("large")
                if wanted > 60 and name == "fetch":
                    raise VectorStoreTimeoutError("host", "slow")
                return method(*args, **options)

            return call if name in ("scroll", "fetch") else method

    run_audit(made.manifest(), tmp_path, services_on(Narrow(memory_store, lambda _: None)), collection, plan)
    expected = {k: ids for k, ids in made.faults.items() if k != Kind.ORPHAN or not plan.by_ids}
    assert found_in(tmp_path) == expected


def test_a_sample_bounds_the_faults_of_the_whole_and_is_the_same_every_time(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    fill(memory_store, collection, [stored(f"c{n}") for n in range(500)])
    lines = [Entry(f"c{n}", "a text").to_line() for n in range(500)]
    reports = [
        run_audit(lines, tmp_path / str(n), services_on(memory_store), collection, AuditPlan(sample=60)) for n in (1, 2)
    ]
    assert without_run(reports[0]) == without_run(reports[1])
    sample = reports[0].sample
    assert sample is not None
    assert (sample.drawn, sample.faults) == (60, 0)
    assert sample.upper_bound == pytest.approx(1 - 0.05 ** (1 / 60))
    assert reports[0].audited == 60


@pytest.mark.server
def test_where_strict_mode_prevents_the_lookup_of_an_id_its_chunk_is_unverifiable_and_not_missing(
    server_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    from qdrant_client import models

    sdk(server_store).create_collection(
        collection,
        vectors_config=models.VectorParams(size=4, distance=models.Distance.COSINE),
        strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
    )
    server_store.upsert(collection, [stored("a"), stored("b", point_id=1)], "", Deadline(10_000))
    lines = [Entry("a", "a text").to_line(), Entry("b", "a text").to_line()]
    by_ids = run_audit(lines, tmp_path / "i", services_on(server_store), collection, AuditPlan(by_ids=True))
    assert [(f.chunk_id, f.kind) for f in by_ids.findings] == [("b", Kind.UNVERIFIABLE)]
    assert "create_payload_index" in by_ids.findings[0].details
    assert by_ids.coverage == 0.5
    scanned = run_audit(lines, tmp_path / "s", services_on(server_store), collection)
    assert scanned.findings_total == 0


def test_a_resumed_audit_is_of_the_collection_as_it_is_now(
    memory_store: WritableStore, collection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after half of the points, with all texts replaced before it is resumed."""
    made = planted(60, faults_of_each=0)
    fill(memory_store, collection, made.points)
    monkeypatch.setattr("chunkproof.collection.reader.PAGE_SIZE", 10)
    audit = Audit(tmp_path, services_on(memory_store), collection, on_progress=_stop_after(30))
    with pytest.raises(KeyboardInterrupt):
        audit.run(audit.start(prepare(made.manifest(), "manifest.jsonl", tmp_path)))
    progress = load_progress(tmp_path)
    assert progress is not None
    replaced = [replace(point, payload={**point.payload, "text": "replaced"}) for point in made.points]
    memory_store.upsert(collection, replaced, "", Deadline(10_000))
    digest = sha256(b"".join(made.manifest())).hexdigest()
    report = resume(tmp_path, services_on(memory_store), collection, digest)
    assert report.kinds["match"] == 0
    assert report.points == 60
    assert report.run.started_at == progress.started_at
    assert report.run.read_at is not None
    assert report.run.read_at > progress.read_at


def test_a_point_that_gets_its_payload_during_the_audit_is_no_duplicate_of_itself(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    made = planted(60, faults_of_each=0)
    late = {point.id: point for point in made.points if str(point.payload["chunk_id"]) != str(point.id)}
    fill(memory_store, collection, [replace(point, payload={}) if point.id in late else point for point in made.points])

    def write(progress: Progress) -> None:
        if progress.compared == 60 and late:
            memory_store.upsert(collection, list(late.values()), "", Deadline(10_000))
            late.clear()

    audit = Audit(tmp_path, services_on(memory_store), collection, on_progress=write)
    report = audit.run(audit.start(prepare(made.manifest(), "manifest.jsonl", tmp_path)))
    assert (report.kinds["match"], report.findings_total) == (60, 0)


def test_chunks_a_second_are_of_the_last_reading_alone(
    memory_store: WritableStore, collection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read takes a second, an embedding a hundred: not a reading that was stopped, near texts, nor vectors count."""
    made, clock = planted(60, faults_of_each=0), replace_clock(join, monkeypatch)
    fill(memory_store, collection, made.points)
    monkeypatch.setattr("chunkproof.collection.reader.PAGE_SIZE", 10)
    monkeypatch.setattr(audit_run, "AuditRun", lambda *given: join.AuditRun(*given, _saved_at=clock.now))
    read_at: list[float] = []

    class Slow(Words):
        def embed(self, texts: Any, _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
            clock.now += 100
            return [list(VECTOR) for _ in texts]

    def wait(_call: int) -> None:
        clock.now += 1

    def stop(progress: Progress) -> None:
        clock.now += 1_000
        if progress.phase == "vectors":
            raise KeyboardInterrupt

    def note(progress: Progress) -> None:
        if progress.phase == "read":
            read_at.append(clock.now)

    services, plan = services_on(Troubled(memory_store, wait), Slow()), AuditPlan(vectors=60, near_duplicates=0.9)
    audit = Audit(tmp_path, services, collection, plan, on_progress=stop)
    with pytest.raises(KeyboardInterrupt):
        audit.run(audit.start(prepare(made.manifest(), "manifest.jsonl", tmp_path)))
    again = Audit(tmp_path, services, collection, plan, on_progress=note)
    ledger = again.resume(sha256(b"".join(made.manifest())).hexdigest())
    began = clock.now
    report = again.run(ledger)
    assert read_at[-1] - began >= 6, "of six pages"
    assert report.run.chunks_per_second == round(60 / (read_at[-1] - began), 1)
    assert report.run.seconds > 1_000


def _stop_after(compared: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.compared >= compared:
            raise KeyboardInterrupt

    return stop


def second_texts(report: AuditReport) -> dict[str, str]:
    return {finding.chunk_id: finding.details for finding in report.findings}


@pytest.mark.parametrize("first", ["text", "page_content"])
def test_a_second_text_that_disagrees_with_its_copies_is_a_finding(
    memory_store: WritableStore, collection: str, tmp_path: Path, first: str
) -> None:
    """Where most points have the same text twice, or hardly one has a second text; `text` is read first."""
    copies = [stored(f"c{n}", f"Chunk {n}.", content=f"Chunk {n}.") for n in range(40)]
    copies[7] = stored("c7", "Chunk 7.", content="Chunk 7, as it was.")
    plain = [Point(n, {"page_content": f"Page {n}.", "metadata": {"source": "x"}}, vector=VECTOR) for n in range(400)]
    plain[9] = Point(9, {"page_content": "Page 9, as it was.", "text": "Page 9."}, vector=VECTOR)
    points = copies if first == "text" else plain
    fill(memory_store, collection, points)
    texts = [(str(p.payload.get("chunk_id", p.id)), p.payload.get("text") or p.payload["page_content"]) for p in points]
    lines = [Entry(name, original_text=str(text)).to_line() for name, text in texts]
    report = run_audit(lines, tmp_path, services_on(memory_store), collection)
    wanted = {"c7": "content"} if first == "text" else {"9": "page_content"}
    details = {name: f"{field} has another text than text, which searches return" for name, field in wanted.items()}
    assert second_texts(report) == details
    assert report.kinds[Kind.METADATA_MISMATCH] == 1


@pytest.mark.parametrize(
    "extra",
    [
        {"content": "The whole page, of which the text is a summary."},
        {"document": "handbook.pdf", "data": "x"},
        {"content": ""},
        {"content": ["a"], "chunk_text": None},
        {"metadata": {"text": "About this document"}},
    ],
)
def test_a_second_text_that_differs_on_purpose_is_none(
    memory_store: WritableStore, collection: str, tmp_path: Path, extra: dict[str, Any]
) -> None:
    points = [stored(f"c{n}", f"Chunk {n}.", **(extra if n % 2 else {})) for n in range(40)]
    fill(memory_store, collection, points)
    lines = [Entry(f"c{n}", original_text=f"Chunk {n}.").to_line() for n in range(40)]
    assert run_audit(lines, tmp_path, services_on(memory_store), collection).kinds[Kind.MATCH] == 40


@pytest.mark.parametrize("name", [file.stem for file in FOLDER.glob("*.json") if file.stem != "docstore"])
def test_no_pipeline_writes_a_second_text_that_disagrees(name: str) -> None:
    payloads = [point["payload"] for point in pipeline(name)["points"]]
    mapped = PayloadMap()
    for path in find_copies(payloads * 10, mapped):
        for payload in payloads:
            other = mapped.value_at(path, payload)
            assert other in (None, "", mapped.value("text", payload)), path
