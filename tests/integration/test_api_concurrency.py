"""Many requests at once through the same handlers, as a local gateway sends them."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.store_port import Point
from chunkproof_cli.local.gateway import LambdaContext

from support import emf
from support.api import Reply, get, invoke, post
from support.chunks import fill, make_services
from support.cohere_server import KEY, cohere_server
from support.log_lines import capture_stdout
from support.stores import MemoryStore

THREADS = 32
SIZE = 8


def axis(number: int) -> list[float]:
    return [1.0 if index == number % SIZE else 0.0 for index in range(SIZE)]


@pytest.fixture(scope="module", autouse=True)
def _deployed() -> Iterator[None]:
    """Eight chunks at right angles; the embedder puts `question N` on the axis of chunk N modulo eight."""
    store = MemoryStore()
    fill(
        store,
        "docs",
        *(Point(n, {"text": f"text {n}", "url": "https://a.example"}, vector=tuple(axis(n))) for n in range(SIZE)),
        size=SIZE,
    )
    with cohere_server(lambda text: axis(int(text.split()[-1]))) as api:
        embedder = CohereEmbedder(
            DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"}), model="m", base_url=api.url
        )
        settings = {"DEADLINE_MS": "60000", "CACHE_ENTRIES": "50"}
        with container.override(make_services(store, "docs", embedder, **settings)):
            yield
        embedder.close()
    store.close()


@pytest.fixture(autouse=True)
def _eager_switching() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(events: list[dict[str, Any]]) -> list[Reply]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda n: invoke(events[n], LambdaContext(aws_request_id=f"r-{n}")), range(len(events))))


def test_no_answer_is_mixed_up() -> None:
    count = 480
    events = [
        post(
            "/search",
            {"query_text": f"question {n}", "query_id": f"q-{n}", "top_k": 1, "similarity_threshold": 0.9},
        )
        for n in range(count)
    ]
    for n, reply in enumerate(at_once(events)):
        body = reply.json
        assert (reply.status, reply.headers["x-request-id"]) == (200, f"r-{n}")
        assert (body["query"], body["query_id"]) == (f"question {n}", f"q-{n}")
        assert [result["text"] for result in body["results"]] == [f"text {n % SIZE}"]


def test_no_failure_is_mixed_up_with_another_or_with_a_success() -> None:
    kinds = [
        lambda n: post("/search", {"query_text": f"question {n}", "query_id": f"q-{n}", "top_k": 1}),
        lambda n: post("/search", {"query_text": f"question {n}", "query_id": f"q-{n}", "top_k": -n}),
        lambda n: post("/search", {"query_text": f"question {n}", "collection": f"none-{n}"}),
        lambda n: post("/validate-chunk", {"chunk_id": f"chunk-{n}", "original_text": "x"}),
        lambda n: post("/validate-chunk", {"chunk_id": str(n % SIZE), "original_text": f"text {n % SIZE}"}),
        lambda n: get(f"/collections/none-{n}"),
        lambda n: get(f"/nowhere/{n}"),
        lambda n: get("/health"),
    ]
    count = 480
    replies = at_once([kinds[n % len(kinds)](n) for n in range(count)])
    expected = [200, 400, 404, 404, 200, 404, 404, 200]
    assert [reply.status for reply in replies] == [expected[n % len(kinds)] for n in range(count)]
    for n, reply in enumerate(replies):
        assert reply.headers["x-request-id"] == f"r-{n}"
        body = reply.json
        match n % len(kinds):
            case 0 | 1:
                assert (body["query"], body["query_id"]) == (f"question {n}", f"q-{n}")
            case 2 | 5:
                assert reply.errors == [f"Collection none-{n} not found"]
            case 3:
                assert reply.errors == [f"Chunk chunk-{n} not found"]
            case 4:
                assert (body["chunk_id"], body["stored_text"]) == (str(n % SIZE), f"text {n % SIZE}")
            case 6:
                assert reply.errors == [f"There is nothing at /nowhere/{n}"]


def test_no_line_and_no_set_of_metrics_is_mixed_up(capsys: pytest.CaptureFixture[str]) -> None:
    count = 480
    events = [
        post("/search", {"query_text": f"question {n}", "top_k": 1 + n % 7, "collection": "docs" if n % 3 else "none"})
        for n in range(count)
    ]

    def send(n: int) -> None:
        invoke(events[n], LambdaContext(aws_request_id=f"r-{n}", function_name=f"f-{n}"))

    with capture_stdout(capsys) as output, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(send, range(count)))
        lines, metrics = {line["request_id"]: line for line in output.requests}, output.metrics
    assert (len(lines), len(metrics)) == (count, count)
    for written in metrics:
        figures, line = emf.figures(written), lines[written["function"].replace("f", "r")]
        assert figures["RequestLatency"] == line["stages_ms"]["total"]
        assert figures["Errors"] == (line["status"] == 404)
        assert ("ResultCount" in figures) == (line["status"] == 200)


def test_looking_at_a_collection_does_not_disturb_searching_it() -> None:
    events = [
        get("/collections/docs") if n % 2 else post("/search", {"query_vector": axis(n), "filters": {"url": "x"}})
        for n in range(480)
    ]
    failed = [json.loads(reply.text) for reply in at_once(events) if reply.status != 200]
    assert failed == []
