"""Suites and audits in the cloud without a Qdrant server: every step reads one version of the published collection."""

import gzip
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.stores.published import PublishedCollections
from chunkproof.stores.store_port import Point
from chunkproof.suite.suite_report import SuiteReport, read_report

from support.audits import DAMAGES, Planted, planted
from support.chunks import SECONDS_60, make_services
from support.log_lines import capture_stdout
from support.published import lambda_container, make_bucket, publish, run_in_new_containers
from support.states import Cloud, command, deployed
from support.words import Words

pytest.importorskip("qdrant_edge", reason="Qdrant's engine has no wheel for this system")

TOPICS = ("pump", "well", "river", "star", "gear", "sensor")
SUITE = {
    "name": "machines",
    "cases": [{"name": topic, "query_text": f"the {topic}", "expected_doc_ids": [topic]} for topic in TOPICS],
}


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """The state machine of suites; each of its steps runs in a new container."""
    with deployed("suite", {"ShardCases": "2", "MaxConcurrency": "1"}, monkeypatch) as made:
        start = partial(lambda_container, collection="docs", embedder=Words(), DEADLINE_MS="20000", CACHE_ENTRIES="0")
        run_in_new_containers(made, start, tmp_path)
        yield made


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """The state machine of audits; each of its steps runs in a new container."""
    with deployed("audit", {"ShardEntries": "30", "MaxConcurrency": "1"}, monkeypatch) as made:
        run_in_new_containers(made, partial(lambda_container, collection="docs", embedder=None), tmp_path)
        yield made


def topics(texts: str = "all about the {}") -> list[Point]:
    """A point for each topic, with its text."""
    written = [texts.format(topic) for topic in TOPICS]
    vectors = Words().embed(written, InputType.DOCUMENT, Deadline(SECONDS_60))
    return [
        Point(number, {"chunk_id": topic, "text": text}, vector=tuple(vector))
        for number, (topic, text, vector) in enumerate(zip(TOPICS, written, vectors, strict=True))
    ]


def run_suite(cloud: Cloud, name: str) -> SuiteReport:
    address = cloud.put("suite.json", json.dumps(SUITE).encode())
    found = cloud.execute({"suite": address, "collection": "", "source": ""}, name)
    assert found["status"] == "SUCCEEDED", found
    report = read_report(json.dumps(cloud.get(f"runs/{name}/report.json")).encode(), name)
    assert json.loads(found["output"])["versions"] == report.suite.versions
    return report


def run_audit(cloud: Cloud, lines: Sequence[bytes], audit_id: str, **given: bool) -> dict[str, Any]:
    """Run an audit to its end, as the command starts it, and return its report."""
    address = cloud.put("manifest.jsonl", b"".join(lines))
    cloud.execute({"manifest": address, "collection": "", "audit_id": audit_id, **given})
    return cloud.get(f"audits/{audit_id}/report.json")


def chunks_by_kind(report: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["kind"], set()).add(finding["chunk_id"])
    return found


class Moving:
    """Publishes another version before a step, once; `published` is then the version in force."""

    def __init__(self, bucket: PublishedCollections, folder: Path, points: list[Point], step: str, shard: Any) -> None:
        self._publish = partial(publish, bucket, folder, "docs", points)
        self._before = step, shard
        self.published = ""

    def __call__(self, event: dict[str, Any], _call: int) -> None:
        if (event["step"], event.get("shard")) == self._before and not self.published:
            self.published = self._publish()


# Suites


def test_a_suite_passes_without_a_server_and_its_report_and_log_name_the_version(
    suites: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = publish(make_bucket(), tmp_path, "docs", topics())
    with capture_stdout(capsys) as written:
        report = run_suite(suites, "first")
    assert (report.result.passed, report.result.errors) == (6, 0)
    assert report.suite.versions == {"docs": version}
    assert report.validation.collection_stats.vector_count == 6
    assert suites.calls == {("split", None): 1, ("merge", None): 1, **{("shard", n): 1 for n in range(3)}}
    (line,) = written.saying("suite")
    assert (line["versions"], line["passed"], line["cases"]) == ({"docs": version}, 6, 6)


def test_a_pointer_that_moves_during_a_suite_leaves_all_cases_in_one_version(suites: Cloud, tmp_path: Path) -> None:
    bucket = make_bucket()
    before = publish(bucket, tmp_path, "docs", topics())
    suites.trouble = moved = Moving(bucket, tmp_path, topics("nothing of interest")[:5], "shard", 1)
    report = run_suite(suites, "first")
    assert bucket.pointer("docs").version == moved.published != before
    assert (report.result.passed, report.suite.versions) == (6, {"docs": before})
    assert report.validation.collection_stats.vector_count == 6, "the merge is about the same version"

    after = run_suite(suites, "second")
    assert (after.result.passed < 6, after.suite.versions) == (True, {"docs": moved.published})


def test_a_failed_case_is_explained_from_the_version_of_the_run(suites: Cloud, tmp_path: Path) -> None:
    bucket = make_bucket()
    publish(bucket, tmp_path, "docs", topics()[1:])  # without the pump
    suites.trouble = Moving(bucket, tmp_path, topics(), "shard", 0)
    report = run_suite(suites, "first")
    (failed,) = (case for case in report.result.test_results if case.status.value == "failed")
    assert (failed.name, [one.cause.value for one in failed.diagnosis]) == ("pump", ["not in collection"])


def test_a_version_that_cannot_be_fetched_is_the_reason_that_the_report_gives(suites: Cloud, tmp_path: Path) -> None:
    bucket = make_bucket()
    version = publish(bucket, tmp_path, "docs", topics())

    def remove(event: dict[str, Any], _call: int) -> None:
        if event["step"] == "shard" and event["shard"] == 2:
            bucket.bucket.write(f"versions/{version}.json", b"{}")
        elif event["step"] == "merge":
            bucket.bucket.write(f"versions/{version}.json", kept)

    kept = bucket.bucket.read(f"versions/{version}.json")
    suites.trouble = remove
    address = suites.put("suite.json", json.dumps(SUITE).encode())
    found = suites.execute({"suite": address, "collection": "", "source": ""}, "first")
    assert (found["status"], found["error"]) == ("FAILED", "SuiteIncomplete")
    cases = suites.get("runs/first/report.json")["result"]["test_results"]
    assert [case["status"] for case in cases] == ["passed"] * 4 + ["error"] * 2
    assert "was changed after it was published" in cases[4]["error_message"]


def test_a_collection_that_is_not_published_fails_a_run_at_once(suites: Cloud) -> None:
    make_bucket()
    address = suites.put("suite.json", json.dumps(SUITE).encode())
    found = suites.execute({"suite": address, "collection": "", "source": ""})
    assert (found["error"], suites.calls) == ("CollectionNotFoundError", {("split", None): 1})


def test_a_run_that_began_with_another_kind_of_store_fails_and_says_why(suites: Cloud, tmp_path: Path) -> None:
    version = publish(make_bucket(), tmp_path, "docs", topics())
    with lambda_container(tmp_path / "one", "docs", Words()) as services:
        with pytest.raises(InvalidParameterError, match="began without a published version of docs: start it again"):
            services.at({}).store.count("docs", (), Deadline(SECONDS_60))
        served = make_services(object(), "docs")  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="began with Store=edge"):
            served.at({"docs": version})
        assert served.at(served.pin(["docs"])) is served


def test_a_container_keeps_the_version_of_its_run_and_then_takes_that_of_the_next(
    suites: Cloud, tmp_path: Path
) -> None:
    bucket, folder = make_bucket(), tmp_path / "one"
    before = publish(bucket, tmp_path, "docs", topics())
    with lambda_container(folder, "docs", Words()) as services:
        first = services.at(services.pin(["docs"]))
        after = publish(bucket, tmp_path, "docs", topics()[:2])
        assert services.at({"docs": before}).store is first.store, "it is fetched once"
        assert first.store.count("docs", (), Deadline(SECONDS_60)) == 6
        second = services.at(services.pin(["docs"]))
        assert (second.versions, second.store.count("docs", (), Deadline(SECONDS_60))) == ({"docs": after}, 2)
        assert [path.name for path in (folder / "chunkproof-published").iterdir()] == [after]


# Audits


@pytest.fixture
def stored(audits: Cloud, tmp_path: Path) -> tuple[Planted, PublishedCollections, str]:
    """A published collection with planted faults, its bucket and its version."""
    made, bucket = planted(300), make_bucket()
    return made, bucket, publish(bucket, tmp_path, "docs", made.points)


def test_an_audit_without_a_server_finds_exactly_the_planted_faults_orphans_included(
    audits: Cloud, stored: tuple[Planted, PublishedCollections, str], capsys: pytest.CaptureFixture[str]
) -> None:
    made, _bucket, version = stored
    with capture_stdout(capsys) as written:
        report = run_audit(audits, made.manifest(), "first")
    assert chunks_by_kind(report) == made.faults
    assert made.faults["missing"]
    assert made.faults["orphan"]
    assert report["mismatch_kinds"]["truncated"] == len(made.damages["truncated"]) == 3
    assert (report["complete_scan"], report["points"]) == (True, len(made.points))
    assert (report["version"], report["kinds"]["match"]) == (version, made.matches)
    assert audits.calls == {("split", None): 1, ("shard", 0): 1, ("merge", None): 1}
    (line,) = written.saying("audit")
    assert (line["collection"], line["version"], line["findings"]) == ("docs", version, report["findings_total"])


def test_a_partial_manifest_is_audited_by_ids_in_shards(
    audits: Cloud, stored: tuple[Planted, PublishedCollections, str]
) -> None:
    made, _bucket, version = stored
    report = run_audit(audits, made.manifest(), "first", partial=True)
    assert chunks_by_kind(report) == {kind: ids for kind, ids in made.faults.items() if kind != "orphan"}
    assert (report["complete_scan"], report["version"]) == (False, version)
    assert sum(step == "shard" for step, _ in audits.calls) > 5


@pytest.mark.parametrize(("is_partial", "shard"), [(False, 0), (True, 3)], ids=["complete", "partial"])
def test_a_pointer_that_moves_during_an_audit_leaves_the_report_about_one_version(
    audits: Cloud,
    stored: tuple[Planted, PublishedCollections, str],
    tmp_path: Path,
    is_partial: bool,
    shard: int,
) -> None:
    made, bucket, version = stored
    damaged = [
        Point(one.id, {**one.payload, "text": DAMAGES["truncated"](str(one.payload["text"]))}, vector=one.vector)
        for one in made.points[:-20]
    ]
    undisturbed = run_audit(audits, made.manifest(), "first", partial=is_partial)
    audits.trouble = moved = Moving(bucket, tmp_path, damaged, "shard", shard)
    report = run_audit(audits, made.manifest(), "second", partial=is_partial)
    assert bucket.pointer("docs").version == moved.published != version
    assert report["version"] == version
    for one in (report, undisturbed):
        del one["run"]
    assert report == undisturbed

    after = run_audit(audits, made.manifest(), "third", partial=is_partial)
    assert (after["version"], after["kinds"]["match"]) == (moved.published, 0)


@pytest.mark.parametrize("is_partial", [False, True], ids=["complete", "partial"])
def test_results_of_another_version_do_not_count_when_an_audit_is_run_again(
    audits: Cloud, stored: tuple[Planted, PublishedCollections, str], tmp_path: Path, is_partial: bool
) -> None:
    made, bucket, _version = stored
    run_audit(audits, made.manifest(), "same", partial=is_partial)
    after = publish(bucket, tmp_path, "docs", made.points[:-20])

    def fail(event: dict[str, Any], _call: int) -> None:
        if event.get("shard") == 0:
            raise MemoryError("no room")

    audits.trouble = fail
    report = run_audit(audits, made.manifest(), "same", partial=is_partial)
    assert report["version"] == after
    failed = [one for one in report["findings"] if one["details"].startswith("Shard 0 could not be audited")]
    assert failed
    assert report["kinds"]["unverifiable"] >= len(failed)
    if not is_partial:
        assert (report["kinds"]["unverifiable"], report["complete_scan"]) == (report["manifest"]["chunks"], False)


def test_the_command_shows_the_version_that_was_audited(
    audits: Cloud,
    stored: tuple[Planted, PublishedCollections, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, _bucket, version = stored
    manifest, report = tmp_path / "m.jsonl.gz", tmp_path / "report.json"
    manifest.write_bytes(gzip.compress(b"".join(made.manifest())))
    chunkproof = command("Audit", monkeypatch, capsys)
    code, out, _err = chunkproof("audit", manifest, "--stack", "prod", "-o", report, "--collection", "docs")
    assert (code, f"version {version[:12]}" in out) == (1, True)
    assert f"{len(made.faults['orphan'])} stored points are not in the manifest" in out
    assert json.loads(report.read_text("utf-8"))["version"] == version
    code, out, _err = chunkproof("audit", manifest, "--stack", "prod", "--partial", "--collection", "docs")
    assert (code, "orphans were not looked for" in out) == (1, True)


def test_the_command_shows_the_version_that_was_searched(
    suites: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = publish(make_bucket(), tmp_path, "docs", topics())
    file, texts = tmp_path / "machines.json", ("report.md", "report.txt", "report.html")
    file.write_text(json.dumps(SUITE), "utf-8")
    outputs = [argument for name in texts for argument in ("-o", tmp_path / name)]
    chunkproof = command("Suite", monkeypatch, capsys)
    code, out, _err = chunkproof("suite", "run", file, "--stack", "prod", "--ignore-latency", *outputs)
    assert (code, f"Searched docs version {version[:12]}." in out) == (0, True)
    for name in texts:
        assert f"docs version {version[:12]}" in (tmp_path / name).read_text("utf-8")
