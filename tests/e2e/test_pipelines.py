"""Collections as the writers of further pipelines leave them, from doctor to a clean audit, by the commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkproof.stores.store_port import WritableStore

from support.commands import Command
from support.pipelines import pipeline, write
from support.qdrant_server import QdrantServer
from support.sdk import sdk

# Where each writer puts the text, found by hand.
TEXT_FIELDS = {
    "mcp_server_qdrant": "document",
    "mem0": "data",
    "agno": "content",
    "lightrag": "content",
    "crewai": "content",
    "semantic_kernel": "Text",
    "semantic_kernel_memory": "_text",
    "unstructured": "text",
    "langchainjs": "content",
    "llamaindexts": "_node_content",
    "mastra": "text",
    "langchain_hybrid": "page_content",
    "llamaindex_hybrid": "_node_content",
    "haystack_hybrid": "content",
}


def text_of(payload: dict[str, Any], name: str) -> str:
    stored = payload[TEXT_FIELDS[name]]
    return str(json.loads(stored)["text"] if TEXT_FIELDS[name] == "_node_content" else stored)


@pytest.fixture(params=TEXT_FIELDS)
def name(
    request: pytest.FixtureRequest,
    server_store: WritableStore,
    served_qdrant: QdrantServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """Write the fixture into a collection of its name."""
    write(server_store, request.param, request.param, with_indexes=True)
    monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
    monkeypatch.setenv("CHUNKPROOF_COLLECTION", request.param)
    yield request.param
    sdk(server_store).delete_collection(request.param)


def test_a_collection_goes_from_doctor_to_a_clean_audit(name: str, chunkproof: Command, tmp_path: Path) -> None:
    points = pipeline(name)["points"]
    by_text = {text_of(point["payload"], name): point for point in points}

    doctor = chunkproof("doctor")
    assert doctor.code == 0, doctor.out + doctor.err
    assert f"Verdict: collection {name} is ready" in doctor.out

    for text in by_text:
        search = chunkproof("search", " ".join(text.split())[:200], "-k", 3, "--json")
        assert search.code == 0, search.err
        found = search.json["results"]
        assert text in [one["text"] for one in found]
        (hit,) = (one for one in found if one["text"] == text)
        assert hit["point_id"] == str(by_text[text]["id"])

        original = tmp_path / "original.txt"
        original.write_bytes(text.encode())
        for key in (hit["metadata"]["chunk_id"], by_text[text]["id"]):
            validate = chunkproof("validate", key, "--original-file", original)
            assert validate.code == 0, validate.out + validate.err
        original.write_bytes(text.encode()[:-1] + b"!!")
        assert chunkproof("validate", hit["metadata"]["chunk_id"], "--original-file", original).code == 1

    suite, report = tmp_path / "suite.yaml", tmp_path / "report.json"
    init = chunkproof("suite", "init", "--from-collection", "-n", 50, "-o", suite)
    assert init.code == 0, init.err
    run = chunkproof("suite", "run", suite, "-o", report, "--ignore-latency")
    assert run.code == 0, run.out + run.err
    assert json.loads(report.read_text("utf-8"))["result"]["passed"] >= len(by_text) / 2

    manifest = tmp_path / "manifest.jsonl"
    assert chunkproof("manifest", "-o", manifest).code == 0
    audit = chunkproof("audit", manifest, "--json")
    assert audit.code == 0, audit.out + audit.err
    assert (audit.json["audited"], audit.json["findings_total"]) == (len(points), 0)
