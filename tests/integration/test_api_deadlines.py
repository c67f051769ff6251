"""The time budget of a request: the deployment's, and never more than Lambda has left."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import pytest

from chunkproof.base.request import Deadline
from chunkproof.service.container import RESERVE_MS, lambda_deadline
from chunkproof.stores.store_port import WritableStore

from support.api import get, invoke, new_process, post
from support.cohere_server import KEY
from support.listeners import dripping_server, silent_server
from support.qdrant_server import QdrantServer

ASKED = post("/search", {"query_text": "backups", "similarity_threshold": 0.5})


@dataclass
class Lambda:
    """A context with this much time left."""

    left_ms: int
    aws_request_id: str = "r-1"

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    with new_process():
        yield


@pytest.mark.parametrize(
    ("setting", "left_ms", "budget_ms"),
    [
        ("", 30_000, 2_000),
        ("", 1_500, 1_400),
        ("500", 30_000, 500),
        ("5000", 30_000, 5_000),
        ("5000", 3_000, 2_900),
        ("900000", 30_000, 29_900),
        ("500", 600, 500),
        ("500", 599, 499),
        ("500", 100, 0),
        ("500", 0, 0),
    ],
)
def test_the_budget_is_the_setting_and_never_more_than_lambda_has_left_but_a_reserve(
    monkeypatch: pytest.MonkeyPatch, setting: str, left_ms: int, budget_ms: int
) -> None:
    monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", setting)
    assert RESERVE_MS == 100
    assert lambda_deadline(Lambda(left_ms)).budget_ms == budget_ms


@pytest.mark.parametrize("event", [ASKED, post("/validate-chunk", {"chunk_id": "a"}), get("/collections/docs")])
@pytest.mark.parametrize("server", [silent_server, partial(dripping_server, 0.05, 200)], ids=["silent", "dripping"])
def test_a_qdrant_that_does_not_answer_in_time_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch, event: dict[str, Any], server: Any
) -> None:
    with server() as url:
        monkeypatch.setenv("QDRANT_URL", url)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "300")
        started = monotonic()
        reply = invoke(event)
        took = monotonic() - started
    assert (reply.status, reply.code) == (503, "QDRANT_TIMEOUT")
    assert reply.errors[0] == f"Qdrant service unavailable at {url.removeprefix('http://')}"
    assert 0.25 < took < 3
    assert reply.json["execution"]["latency_ms"] >= 250


def test_what_lambda_has_left_ends_a_request_before_the_setting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as url:
        monkeypatch.setenv("QDRANT_URL", url)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "60000")
        started = monotonic()
        reply = invoke(ASKED, Lambda(400))
        took = monotonic() - started
    assert (reply.status, reply.code) == (503, "QDRANT_TIMEOUT")
    assert took < 3


def test_with_no_time_left_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as url:
        monkeypatch.setenv("QDRANT_URL", url)
        reply = invoke(ASKED, Lambda(50))
    assert (reply.status, reply.code) == (503, "QDRANT_TIMEOUT")
    assert (reply.json["query"], reply.json["execution"]["threshold_applied"]) == ("backups", 0.5)


@pytest.mark.server
def test_an_embedder_that_does_not_answer_in_time_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
    served_qdrant: QdrantServer,
    server_store: WritableStore,
    collection: str,
    deadline: Deadline,
) -> None:
    server_store.create(collection, 1024, deadline)
    with silent_server() as url:
        monkeypatch.setenv("QDRANT_URL", served_qdrant.url)
        monkeypatch.setenv("COHERE_BASE_URL", url)
        monkeypatch.setenv("CHUNKPROOF_COLLECTION", collection)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "500")
        started = monotonic()
        reply = invoke(ASKED)
        took = monotonic() - started
    assert (reply.status, reply.code) == (503, "EMBEDDING_TIMEOUT")
    assert reply.errors == [f"Failed to embed query: {url.removeprefix('http://')} did not answer in time"]
    assert took < 3
    assert reply.json["execution"]["embedding_time_ms"] == 0.0


def test_deep_health_of_two_silent_dependencies_keeps_to_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_server() as qdrant, silent_server() as cohere:
        monkeypatch.setenv("QDRANT_URL", qdrant)
        monkeypatch.setenv("COHERE_BASE_URL", cohere)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "400")
        started = monotonic()
        reply = invoke(get("/health", deep="true"))
        took = monotonic() - started
    assert (reply.status, reply.json["qdrant"]["status"], reply.json["embedder"]["status"]) == (
        503,
        "down",
        "down",
    )
    assert took < 3


@pytest.mark.server
def test_a_silent_qdrant_does_not_make_the_embedder_look_down(monkeypatch: pytest.MonkeyPatch, cohere_api: Any) -> None:
    with silent_server() as qdrant:
        monkeypatch.setenv("QDRANT_URL", qdrant)
        monkeypatch.setenv("COHERE_BASE_URL", cohere_api.url)
        monkeypatch.setenv("CHUNKPROOF_DEADLINE_MS", "1000")
        reply = invoke(get("/health", deep="true"))
    assert (reply.json["qdrant"]["status"], reply.json["embedder"]["status"]) == ("down", "ok")
