"""`chunkproof why`, `chunkproof snapshot` and `suite run --blame`, as a user runs them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point, WritableStore

from support.commands import Command
from support.sdk import sdk

MOJIBAKE = "How is text recognised that was decoded with the wrong encoding?"
SUITE = {
    "name": "two questions",
    "collection": "handbook",
    "cases": [
        {"name": "mojibake", "query_text": MOJIBAKE, "expected_doc_ids": ["vectordb-text-hygiene-07"], "top_k": 5},
        {
            "name": "quotes",
            "query_text": "Which quotes and dashes do word processors put in?",
            "expected_doc_ids": ["vectordb-text-hygiene-04"],
            "top_k": 5,
            "filters": {"document_id": "vectordb-text-hygiene"},
        },
    ],
}


@pytest.fixture
def data(loaded_handbook: Path, tmp_path: Path) -> Path:
    """A copy of the handbook's store."""
    return Path(shutil.copytree(loaded_handbook, tmp_path / "data"))


def change(data: Path, plant: Callable[[WritableStore], object]) -> None:
    """Change the embedded store."""
    store = EdgeStore(data)
    try:
        plant(store)
    finally:
        store.close()


def find(store: WritableStore, chunk_id: str) -> Point:
    """Return the point of a chunk, with its vector."""
    where = (AnyOf("chunk_id", (chunk_id,)),)
    return store.scroll("handbook", Deadline(10_000), limit=1, where=where, with_vector="").points[0]


def test_a_chunk_that_is_found_exits_0_and_a_lost_one_1_with_the_cause_and_a_command(
    chunkproof: Command, data: Path, tmp_path: Path
) -> None:
    found = chunkproof("why", MOJIBAKE, "--expect", "vectordb-text-hygiene-07", "--data", data)
    assert found.code == 0
    assert "Found: vectordb-text-hygiene-07 is at rank 1" in found.out
    files = [tmp_path / f"why.{extension}" for extension in ("json", "html", "md", "txt")]
    lost = chunkproof(
        *(
            "why",
            MOJIBAKE,
            "--expect",
            "https://handbook.example.com/vectordb-text-hygiene#s07",
            "--filter",
            "document_id=languages",
        ),
        *("--data", data, *(part for file in files for part in ("-o", file))),
    )
    assert lost.code == 1
    assert lost.out.splitlines()[-1].startswith(
        "Lost: vectordb-text-hygiene-07 is stored, but the filter on document_id"
    )
    report = json.loads(files[0].read_text("utf-8"))
    assert report["verdict"]["causes"] == ["filtered out"]
    assert "--filter" not in report["verdict"]["command"]
    assert all("filtered out" in file.read_text("utf-8") for file in files)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("why", "x", "--expect", " "), "--expect cannot be empty"),
        (("why", "x", "--expect", "y", "-k", "0"), "--top-k must be between 1 and"),
        (("why", "x", "--expect", "y", "-o", "why.pdf"), "the extension must be one of"),
        (("why", "x"), "Missing option '--expect'"),
        (("suite", "run", "s.yaml", "--blame"), "--blame needs --baseline"),
        (("suite", "run", "s.yaml", "--baseline", "b.json", "--snapshot", "{file}"), "give both"),
    ],
)
def test_wrong_usage_is_named_by_its_flag(
    chunkproof: Command, data: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    run = chunkproof(*(part.format(file=file) for part in arguments), "--data", data)
    assert run.code == 2
    assert message in run.err


def test_newly_lost_questions_are_blamed_in_every_format(chunkproof: Command, data: Path, tmp_path: Path) -> None:
    suite, before = tmp_path / "suite.yaml", tmp_path / "before.snapshot"
    suite.write_text(yaml.safe_dump(SUITE))
    at = ("--data", data)
    assert chunkproof("snapshot", "--texts", "--vectors", "-o", before, *at).code == 0
    assert chunkproof("suite", "run", suite, "-o", tmp_path / "old.json", *at).code == 0

    def spoil(store: WritableStore) -> None:
        mojibake, quotes, other = (
            find(store, name) for name in ("vectordb-text-hygiene-07", "vectordb-text-hygiene-04", "languages-00")
        )
        moved = {**quotes.payload, "document_id": "elsewhere"}
        changed = [replace(mojibake, vector=other.vector), replace(quotes, payload=moved)]
        store.upsert("handbook", changed, "", Deadline(10_000))

    change(data, spoil)
    files = [tmp_path / f"new.{extension}" for extension in ("json", "html", "md", "txt")]
    run = chunkproof(
        *("suite", "run", suite, "--baseline", tmp_path / "old.json", "--blame", "--snapshot", before, *at),
        *(part for file in files for part in ("-o", file)),
    )
    assert run.code == 1
    summary = (
        "2 questions lost: 1 comes back with vectordb-text-hygiene-07's text embedded anew, "
        "1 with document_id as in the snapshot"
    )
    assert summary in run.out.replace("\n", " ")
    blame = json.loads(files[0].read_text("utf-8"))["blame"]
    assert [case["causes"] for case in blame["cases"]] == [["stale vector"], ["value changed"]]
    assert all("questions lost" in file.read_text("utf-8") for file in files)


def test_the_fix_that_is_written_down_brings_the_chunk_back(chunkproof: Command, data: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.snapshot"
    assert chunkproof("snapshot", "--texts", "-o", before, "--data", data).code == 0
    change(data, lambda store: sdk(store).delete("handbook", [find(store, "vectordb-text-hygiene-07").id]))
    fix = tmp_path / "fix.jsonl"
    arguments = ("why", MOJIBAKE, "--expect", "vectordb-text-hygiene-07", "--snapshot", before, "--data", data)
    lost = chunkproof(*arguments, "--fix", fix)
    assert lost.code == 1
    assert "Then: chunkproof load --collection handbook" in lost.out
    assert chunkproof("load", fix, "--collection", "handbook", "--data", data).code == 0
    assert chunkproof(*arguments).code == 0
