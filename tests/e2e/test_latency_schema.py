"""docs/reference/logs.md against what the handlers write: every field, metric and message, in both directions."""

import ast
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.request import RequestTrace
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.cohere import CohereEmbedder, CohereReranker
from chunkproof.net.resilience import CircuitBreaker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.service.telemetry import Telemetry
from chunkproof.stores.store_port import Point
from chunkproof_cli.local.gateway import LambdaContext

from support.api import get, invoke, post
from support.chunks import fill
from support.cohere_server import KEY, cohere_server
from support.log_lines import CapturedOutput, Line, capture_stdout
from support.recording_server import CannedResponse
from support.stores import MemoryStore

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "logs.md").read_text("utf-8")
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "list": list}
PAYLOAD = {
    "text": "one",
    "url": "https://a.example",
    "document_title": "A",
    "content_hash": sha256(b"one").hexdigest(),
}
LEVELS = ("debug", "info", "warning", "error", "exception")


def rows(page: str, heading: str) -> dict[str, str]:
    """Read the first two columns of the first table of a section."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    return dict(re.findall(r"^\| `(.+?)` \| ([^|]*?) \|", section, re.M))


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[CapturedOutput]:
    """The output for requests that together have every field."""
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1")
    store = MemoryStore(words=True)
    fill(store, "docs", Point(1, PAYLOAD, vector=(1.0, 0.0)))
    with cohere_server(lambda _: [1.0, 0.0]) as api, capture_stdout(capsys) as written:
        transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
        embedder = CohereEmbedder(transport, model="m", base_url=api.url)
        circuits = {name: CircuitBreaker(name) for name in ("qdrant", "cohere", "rerank")}
        reranker = CohereReranker(transport, base_url=api.url)
        settings = Settings.from_env({"CHUNKPROOF_COLLECTION": "docs", "CHUNKPROOF_LOG_QUERIES": "true"})
        api.rerank_responses += [CannedResponse(503, b"{}", {"content-type": "application/json"})] * 2
        with container.override(Services(settings, store, embedder, circuits, reranker=reranker)):
            for event in (
                post("/search", {"query_text": "Where is one?"}),
                post("/search", {"query_text": "Where is one?", "rerank": True, "highlight": True}),
                post("/search", {"query_text": "Where is one?", "rerank": True}),
                post("/search", {"query_text": "Where is one?", "mode": "hybrid", "explain": True}),
                post("/search", {"query_text": "Where is one?", "mode": "text"}),
                post("/search", {"queries": ["Where is one?", ""]}),
                post("/validate-chunk", {"chunk_id": "1", "original_text": "another"}),
                post("/validate-chunks", {"chunks": [{"chunk_id": "1", "original_text": "another"}]}),
                get("/collections/none"),
            ):
                event["requestContext"]["timeEpoch"] = int(time.time() * 1000)
                invoke(event)
        embedder.close()
        reranker.close()
        yield written
    store.close()


def fields(line: Line, within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in line.items():
        yield within + name, value
        if isinstance(value, dict) and name != "mismatch_kinds":
            yield from fields(value, f"{within}{name}.")


def test_request_lines_have_exactly_the_documented_fields(written: CapturedOutput) -> None:
    documented = rows(PAGE, "The request line")
    found = {name: value for line in written.requests for name, value in fields(line)}
    del found["circuits.cohere"]  # the name of a provider
    assert set(found) == set(documented)
    wrong = {name: value for name, value in found.items() if type(value) is not TYPES[documented[name]]}
    assert wrong == {}


def test_metrics_are_exactly_the_documented_ones(written: CapturedOutput) -> None:
    (directives,) = zip(*(line["_aws"]["CloudWatchMetrics"] for line in written.metrics), strict=True)
    found = {
        re.sub(r"^(Errors)\..+", r"\1.CODE", re.sub(r"^(ChunkMismatch)\..+", r"\1.KIND", metric["Name"])): metric[
            "Unit"
        ]
        for directive in directives
        for metric in directive["Metrics"]
    }
    assert found == rows(PAGE, "Metrics")
    assert {directive["Namespace"] for directive in directives} == {"Chunkproof"}
    assert all(directive["Dimensions"] == [["environment", "function", "service"]] for directive in directives)


def logged_messages() -> Iterator[tuple[str, str]]:
    """Find each message that the layer logs, with its level."""
    for file in (ROOT / "shared" / "chunkproof").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log" | "logger"), attr=level),
                    args=[ast.Constant(value=str(message)), *_],
                ) if level in LEVELS:
                    yield message.replace("%s", "…"), "ERROR" if level == "exception" else level.upper()


def warnings(written: CapturedOutput) -> Iterator[tuple[str, str]]:
    """The warnings about a request that exceeds every limit."""
    stages_ms = {"embed": 1_001.0, "search": 501.0, "total": 2_001.0}
    trace = RequestTrace()
    trace.stages_ms, trace.status, trace.top_score = stages_ms, 200, 0.29
    written.clear()
    Telemetry().emit(trace, {}, LambdaContext(), Settings.from_env({}), {})
    for line in written.lines:
        if line.get("level") == "WARNING":
            yield line["message"].replace("2000", "…"), line["level"]


def test_other_lines_are_exactly_the_documented_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with capture_stdout(capsys) as written:
        found = {**dict(logged_messages()), **dict(warnings(written))}
    assert found == rows(PAGE, "Other lines")


def test_a_field_that_is_missing_or_extra_in_the_docs_is_noticed() -> None:
    page = PAGE.replace("| `state` | string |", "| `stage` | string |")
    assert set(rows(page, "The request line")) ^ set(rows(PAGE, "The request line")) == {"state", "stage"}
