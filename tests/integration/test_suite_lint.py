"""A suite against its collection, on real stores."""

from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.request import Deadline
from chunkproof.contract import RetrievalResponse
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof_cli.commands.suite_lint import PAGE, Linter

from support.chunks import fill, make_services
from support.sdk import sdk
from support.suites import answer, chunk, suite

URL = "https://docs.example.com/guide"


def guide(count: int) -> list[Point]:
    """Chunks of one long document; the last has no id of its own and a number for a document id."""
    points = [
        Point(n, {"text": "t", "chunk_id": f"guide-{n}", "document_id": "guide", "url": URL}, vector=(1.0, 0.0))
        for n in range(1, count)
    ]
    return [*points, Point(count, {"text": "t", "document_id": 77}, vector=(1.0, 0.0))]


def found(store: WritableStore, collection: str, best: float = 0.5, **case: Any) -> list[tuple[Any, str]]:
    made = suite({"name": "a", "query_text": "q", "collection_name": collection, **case})

    def search(request: dict[str, Any]) -> RetrievalResponse:
        assert request["top_k"] == 1
        return answer(chunk("x", best))

    linter = Linter(make_services(store, collection), search, lambda: Deadline(60_000))
    return [(problem.path[2:], problem.message) for problem in linter.find_problems(made.cases)]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def test_stored_ids_are_found_as_chunk_ids_document_ids_and_urls(either: WritableStore, collection: str) -> None:
    count = PAGE + 50  # more chunks of one document than a page shows
    fill(either, collection, *guide(count))
    ids = ["guide-1", f"guide-{count - 1}", "guide", URL, str(count), "77"]
    assert found(either, collection, expected_doc_ids=ids) == []
    assert found(either, collection, expected_doc_ids=[*ids, "guide-0", "9999"], judgments={"b": 1, URL: 2}) == [
        (("expected_doc_ids", 6), f"guide-0 is not a chunk id, document id or URL in {collection}"),
        (("expected_doc_ids", 7), f"9999 is not a chunk id, document id or URL in {collection}"),
    ]
    assert found(either, collection, judgments={"b": 1, "guide": 1}) == [
        (("judgments", "b"), f"b is not a chunk id, document id or URL in {collection}")
    ]


def test_a_point_id_that_responses_do_not_show_is_not_accepted_as_an_id(
    memory_store: WritableStore, collection: str
) -> None:
    fill(memory_store, collection, *guide(3))
    assert len(found(memory_store, collection, expected_doc_ids=["1"])) == 1  # its chunk_id is guide-1


@pytest.mark.server
def test_ids_that_strict_mode_refuses_to_look_up_are_reported(server_store: WritableStore, collection: str) -> None:
    fill(server_store, collection, *guide(3))
    sdk(server_store).update_collection(
        collection,
        strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
    )
    assert found(server_store, collection, expected_doc_ids=["guide-1"]) == []
    messages = [message for _, message in found(server_store, collection, expected_doc_ids=["guide"])]
    assert "ids cannot be looked up by document_id" in messages[0]
    assert "needs a payload index on document_id" in messages[0]


def test_a_threshold_that_no_result_reaches_is_found(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, *guide(3))
    case = {"expected_doc_ids": ["guide"], "relevance_threshold": 0.7}
    assert found(memory_store, collection, best=0.7, **case) == []
    assert found(memory_store, collection, best=0.69, **case) == [
        (("relevance_threshold",), "no result can reach relevance_threshold 0.7: the best scores 0.690")
    ]
    assert found(memory_store, collection, expect_no_results=True, relevance_threshold=0.9) == []


def test_more_ids_than_results_and_an_unknown_collection_are_found(
    memory_store: WritableStore, collection: str
) -> None:
    fill(memory_store, collection, *guide(3))
    case: dict[str, Any] = {"expected_doc_ids": ["guide-1", "guide-2"], "top_k": 1}
    assert found(memory_store, collection, **case) == [(("top_k",), "2 ids cannot all be in the top 1")]
    assert found(memory_store, collection, expect="any", **case) == []
    assert found(memory_store, collection, **(case | {"top_k": 2, "collection_name": "none"})) == [
        (("collection_name",), "Collection none not found")
    ]
