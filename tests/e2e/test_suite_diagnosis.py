"""The sample suite on a damaged collection: it fails, and says what was done to each chunk."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point

from support.chunks import make_services
from support.commands import Command
from support.sdk import sdk

CASES = ("french-robot", "german-mower", "spanish-underwater", "garbled-accents", "checksum-in-code")
CAUSES = {
    "french-robot": "text changed",
    "german-mower": "not in collection",
    "garbled-accents": "stale vector",
    "checksum-in-code": "filtered out",
}


@pytest.fixture
def damaged(handbook: Command, tmp_path: Path) -> Command:
    """The handbook with one chunk deleted, one cut, one re-embedded with another text and one field emptied."""
    store = EdgeStore(tmp_path / "data-home" / "chunkproof")
    services, deadline = make_services(store, "handbook"), Deadline(60_000)

    def change(chunk_id: str, made: Callable[[Point], Point]) -> None:
        found = services.collection("handbook", deadline).find_one(chunk_id)
        point = store.fetch("handbook", [found.id], deadline, with_vector="")[0]
        store.upsert("handbook", [made(point)], "", deadline)

    other = tuple(local_model().embed(["Ein Rasenmäher"], InputType.DOCUMENT, deadline)[0])
    cut = {"text": "Le mot robot vient"}
    change("languages-00", lambda point: replace(point, payload={**point.payload, **cut}))
    change("vectordb-text-hygiene-07", lambda point: replace(point, vector=other))
    change("vectordb-text-hygiene-08", lambda point: replace(point, payload={**point.payload, "has_code": False}))
    gone = services.collection("handbook", deadline).find_one("languages-02")
    sdk(store).delete("handbook", models.PointIdsList(points=[gone.id]))
    store.close()
    return handbook


def test_each_kind_of_damage_is_named_in_every_format_with_a_command_that_shows_it(
    damaged: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.yaml"
    damaged("demo", "--export-suite", suite)
    chosen = [part for name in CASES for part in ("--filter", name)]
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "txt", "md", "xml")}
    outputs = [part for file in files.values() for part in ("-o", file)]
    run = damaged("suite", "run", suite, "--collection", "handbook", "--ignore-latency", *chosen, *outputs)
    assert run.code == 1
    cases = json.loads(files["json"].read_text("utf-8"))["result"]["test_results"]
    found = {case["name"]: case["diagnosis"] for case in cases}
    assert found.pop("spanish-underwater") == []
    assert {name: [one["cause"] for one in causes] for name, causes in found.items()} == {
        name: [cause] for name, cause in CAUSES.items()
    }
    texts = {kind: file.read_text("utf-8") for kind, file in files.items() if kind != "json"}
    texts["terminal"] = run.out
    for kind, text in texts.items():
        plain = re.sub(r"\\(.)", r"\1", text)  # as Markdown shows it
        for cause in CAUSES.values():
            assert cause in plain, (kind, cause)
        assert "its text no longer matches its hash" in plain, kind
        assert "chunkproof validate --collection handbook languages-00" in plain, kind
    monkeypatch.chdir(tmp_path)  # one of the commands writes fix.jsonl
    for causes in found.values():
        command = shlex.split(causes[0]["command"])
        assert damaged(*command[1:]).code in (0, 1), command  # 1: what it shows is wrong
