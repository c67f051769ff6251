"""The examples of docs/guides/retrievers.md work as they are written.

Those of a framework run in an environment of its own, which has the framework and what Chunkproof needs:
`TEST_RETRIEVER_ENVIRONMENTS` names the folder with the virtual environments `langchain`, `llamaindex` and `haystack`.
`make test-frameworks` makes them and runs these tests.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkproof.stores.store_port import WritableStore

from support.cohere_server import KEY, CohereServer, cohere_server
from support.handbook import minilm
from support.pipelines import write
from support.qdrant_server import QdrantServer
from support.recording_server import CannedResponse, RecordedRequest, recording_server
from support.sdk import sdk

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "retrievers.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL))
ENVIRONMENTS = os.environ.get("TEST_RETRIEVER_ENVIRONMENTS")
PAGES = [
    {"name": "map", "query_text": "how does a robot find its map", "expected_doc_ids": ["robots"]},
    {"name": "menu", "query_text": "what the café serves", "expected_keywords": ["crème brûlée"], "top_k": 1},
]
PDF = "https://docs.example.com/papers/hybrid-search.pdf"
PASSAGES = [
    {"name": "dense", "query_text": "How do dense and sparse vectors work together?", "expected_doc_ids": [PDF]},
    {"name": "recall", "query_text": "How many questions was recall measured on?", "expected_keywords": ["1,200"]},
    {"name": "no-such-page", "query_text": "Anything", "expected_doc_ids": ["https://docs.example.com/none"]},
]


def run_suite(folder: Path, cases: list[dict[str, Any]], *options: str, python: str = sys.executable) -> Any:
    """Run the suite in a process of its own, in a folder that has every example of the guide."""
    for name, text in BLOCKS.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "suite.json").write_text(json.dumps({"name": "examples", "cases": cases}), "utf-8")
    command = [python, "-m", "chunkproof_cli", "suite", "run", "suite.json", *options, "--json"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT / 'cli'}", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def states(report: Any) -> dict[str, str]:
    return {case["name"]: case["status"] for case in report["result"]["test_results"]}


def test_the_function_passes(tmp_path: Path) -> None:
    report = run_suite(tmp_path, PAGES, "--retriever", "my_rag:search")
    assert states(report) == {"map": "passed", "menu": "passed"}


def test_the_mcp_server_passes(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    report = run_suite(tmp_path, PAGES, "--retriever", f"mcp:find@{sys.executable} server.py")
    assert states(report) == {"map": "passed", "menu": "passed"}, report["result"]["test_results"]


def test_the_service_passes_by_its_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_TOKEN", "secret")

    def respond(request: RecordedRequest) -> CannedResponse:
        assert request.headers["authorization"] == "Bearer secret"
        question = json.loads(request.body)
        assert question["options"]["limit"] in (10, 1)
        found = ("robots", "A robot builds a map.") if "map" in question["question"] else ("menus", "crème brûlée")
        passage = {"source": {"id": found[0]}, "body": found[1], "relevance": 12.5}
        return CannedResponse(body=json.dumps({"answer": {"passages": [passage]}}).encode())

    with recording_server(respond) as server:
        report = run_suite(tmp_path, PAGES, "--retriever", server.url, "--retriever-map", "mapping.yaml")
    assert states(report) == {"map": "passed", "menu": "passed"}


@pytest.fixture
def embeddings(monkeypatch: pytest.MonkeyPatch, served_qdrant: QdrantServer) -> Iterator[CohereServer]:
    """Cohere's API with the local model, which embedded the collections of the frameworks."""
    with cohere_server(minilm) as api:
        monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
        monkeypatch.setenv("COHERE_API_KEY", KEY)
        monkeypatch.setenv("CO_API_KEY", KEY)
        monkeypatch.setenv("COHERE_BASE_URL", api.url)
        yield api


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("langchain", "retriever"),
        ("langchain", "store"),
        ("llamaindex", "retriever"),
        ("haystack", "pipeline"),
    ],
)
@pytest.mark.usefixtures("embeddings")
def test_the_retriever_of_a_framework_passes_and_its_failures_are_diagnosed(
    framework: str, name: str, tmp_path: Path, server_store: WritableStore
) -> None:
    python = Path(ENVIRONMENTS or "/nowhere") / framework / "bin" / "python"
    if not python.exists():
        pytest.skip("make test-frameworks runs it")
    write(server_store, framework, f"{framework}_dense", with_indexes=True)
    try:
        options = ("--retriever", f"{framework}_rag:{name}", "--collection", framework)
        report = run_suite(tmp_path, PASSAGES, *options, python=str(python))
    finally:
        sdk(server_store).delete_collection(framework)
    assert states(report) == {"dense": "passed", "recall": "passed", "no-such-page": "failed"}, report["result"]
    assert report["result"]["test_results"][2]["diagnosis"][0]["cause"] == "not in collection"
    chunk = report["result"]["test_results"][0]["actual_results"][0]
    assert chunk["url"] == PDF
    assert (chunk["similarity_score"] > 0) is (name != "retriever" or framework != "langchain")
