"""Audits of a collection that was written with random ids, once and twice."""

import json
import random
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.reports.outputs import AUDIT

from support.commands import Command

RANDOM = ("--collection", "random")


@pytest.fixture
def manifest(handbook: Command, handbook_file: Path, tmp_path: Path) -> Path:
    file = tmp_path / "manifest.jsonl"
    assert handbook("manifest", handbook_file, "-o", file).code == 0
    return file


def write_with_random_ids(tmp_path: Path, times: int) -> int:
    """Copy the handbook as LangChain would write it, this many times; return the number of chunks."""
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    page = store.scroll("handbook", Deadline(10_000), limit=1_000, with_vector="")
    rng = random.Random(5)
    copies = [
        Point(
            str(UUID(int=rng.getrandbits(128))),
            {"page_content": point.payload["text"], "metadata": {"source": point.payload["url"]}},
            vector=point.vector,
        )
        for _ in range(times)
        for point in page.points
    ]
    store.create("random", len(page.points[0].vector or ()), Deadline(10_000))
    store.upsert("random", copies, "", Deadline(10_000))
    store.close()
    return len(page.points)


def test_a_collection_with_random_ids_passes_and_the_verdict_says_how_it_was_matched(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    chunks = write_with_random_ids(tmp_path, times=1)
    run = handbook("audit", manifest, *RANDOM)
    assert run.code == 0
    verdict = f"All {chunks} chunks are stored as they should be, byte for byte; {chunks} chunks are stored under other"
    assert verdict in run.out
    strict = handbook("audit", manifest, *RANDOM, "--match", "id", "--json")
    assert strict.code == 1
    assert (strict.json["kinds"]["missing"], strict.json["kinds"]["orphan"]) == (chunks, chunks)
    assert "no id of the manifest is stored: --match text looks for the texts" in handbook(
        "audit", manifest, *RANDOM, "--match", "id"
    ).out.replace("\n", " ")
    partial = handbook("audit", manifest, *RANDOM, "--partial")
    assert "no id of the manifest is stored: a complete audit looks for the texts" in partial.out


def test_a_collection_written_twice_is_duplicates_in_every_report_and_its_queries_return_them(
    handbook: Command, manifest: Path, tmp_path: Path
) -> None:
    chunks = write_with_random_ids(tmp_path, times=2)
    suite = tmp_path / "suite.json"
    cases = [
        {
            "name": "arm",
            "query_text": "How is the arm of a robot controlled?",
            "top_k": 10,
            "expected_keywords": ["robot"],
        }
    ]
    suite.write_text(json.dumps({"name": "arms", "cases": cases}))
    files = [tmp_path / f"report{suffix}" for suffix in AUDIT.extensions]
    outputs = [word for file in files for word in ("-o", file)]
    run = handbook("audit", manifest, *RANDOM, "--queries", suite, *outputs, "--json")
    assert run.code == 1
    assert run.json["kinds"] | {"match": 0} == dict.fromkeys(run.json["kinds"], 0) | {"duplicate_text": chunks}
    assert run.json["queries"] == {
        "queries": 1,
        "results": 10,
        "repeated": 5,
        "share": 0.5,
        "queries_affected": 1,
        "worst": 0.5,
    }
    for file in files[1:]:
        shown = file.read_text("utf-8").replace("\\", "")
        assert f"{chunks} have their text on more points than the manifest expects" in shown or file.suffix == ".xml"
        assert "5 of 10 results (50.0%) repeat the text of a better one" in shown
    failures = ET.parse(tmp_path / "report.xml").findall(".//failure")
    assert [failure.get("type") for failure in failures] == ["duplicate_text"]
    suite_run = handbook("suite", "run", suite, *RANDOM)
    assert "5 of 10 results (50.0%) repeat the text of a better one" in suite_run.out


def test_near_duplicates_are_listed_but_fail_only_on_request(handbook: Command, manifest: Path, tmp_path: Path) -> None:
    del manifest
    write_with_random_ids(tmp_path, times=1)
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    point = store.scroll("random", Deadline(10_000), limit=1, with_vector="").points[0]
    changed = {**point.payload, "page_content": point.payload["page_content"] + " One more sentence."}
    store.upsert("random", [Point(7, changed, vector=point.vector)], "", Deadline(10_000))
    store.close()
    snapshot = tmp_path / "snapshot.jsonl"
    assert handbook("manifest", *RANDOM, "-o", snapshot).code == 0
    run = handbook("audit", "--near-duplicates", snapshot, *RANDOM)
    assert run.code == 0
    assert "1 stored text is nearly the same as another one" in run.out
    assert handbook("audit", snapshot, *RANDOM, "--near-duplicates=0.5", "--fail-on", "near_duplicate").code == 1
    wrong = handbook("audit", snapshot, *RANDOM, "--near-duplicates", "1.5")
    assert (wrong.code, "1.5 is not a similarity" in wrong.err) == (2, True)
    assert handbook("audit", snapshot, *RANDOM, "--near-duplicates", "--partial").code == 2
