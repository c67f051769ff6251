"""One request has one budget of memory and of time, whatever the chunks are like."""

from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof.base.errors import ResponseTooLargeError, VectorStoreTimeoutError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import FOUND_BYTES, Services
from chunkproof.embedders.local_model import MAX_CHARS, local_model
from chunkproof.service import container
from chunkproof.service.oversized import MAX_BODY_MEMORY, check_memory
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof.why.examined import ExaminedCollection

from support.api import invoke, post
from support.chunks import ask, fill, make_services
from support.stores import MemoryStore

CHUNKS, LENGTH = 40, 1_000_000
GZIP = {"accept-encoding": "gzip"}


@pytest.fixture(scope="module")
def store() -> Iterator[WritableStore]:
    """Forty chunks of a megabyte, in documents of ten."""
    made = MemoryStore()
    texts = (f"{number} ".ljust(LENGTH, "x") for number in range(CHUNKS))
    fill(made, "docs")
    for number, text in enumerate(texts):
        payload = {"text": text, "url": "u", "document_id": f"d{number // 10}", "position": number % 10}
        made.upsert("docs", [Point(number, payload, vector=(1.0, number / 100))], "", Deadline(60_000))
    yield made
    made.close()


@pytest.fixture
def services(store: WritableStore) -> Iterator[Services]:
    made = make_services(store, "docs", DEADLINE_MS="60000")
    with container.override(made):
        yield made


@pytest.mark.parametrize(
    "options", [{}, {"with_payload": True}, {"explain": True}, {"diversity": 0.5}, {"cursor": "start"}]
)
def test_more_text_than_a_response_has_room_for_is_refused_before_it_is_written(services, options):
    reply = invoke(post("/search", {"query_vector": [1, 0], "top_k": 30, **options}, GZIP))

    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")
    assert reply.errors == [f"The points found have more than {FOUND_BYTES} bytes; request fewer results"]


def test_as_much_as_there_is_room_for_is_found(services):
    assert len(ask(services, query_vector=[1.0, 0.0], top_k=15).results) == 15


def test_texts_that_many_results_have_as_neighbours_count_each_time(services):
    reply = invoke(post("/search", {"query_vector": [1, 0], "top_k": 10, "neighbours": 5}, GZIP))

    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")
    assert reply.errors[0].endswith("characters: lower neighbours, or top_k")


def test_groups_are_formed_without_the_texts_of_all_candidates(services, monkeypatch):
    bodies: list[dict[str, Any]] = []
    call = EdgeStore.call

    def record(self, operation, deadline, collection="", body=None, where=(), *, read):
        bodies.append(body or {})
        return call(self, operation, deadline, collection, body, where, read=read)

    monkeypatch.setattr(EdgeStore, "call", record)
    found = ask(services, query_vector=[1.0, 0.0], top_k=3, group_by="document_id").results

    assert [result.group for result in found] == ["d0", "d1", "d2"]
    assert {str(body["with_payload"]) for body in bodies if "query" in body} == {"['document_id']"}


def test_many_large_chunks_cannot_be_validated_at_once(services):
    asked = [{"chunk_id": str(number), "original_sha256": "0" * 64} for number in range(30)]
    reply = invoke(post("/validate-chunks", {"chunks": asked}, GZIP))

    assert (reply.status, reply.code) == (413, "RESPONSE_TOO_LARGE")


def test_each_page_of_the_engine_is_limited_as_a_servers_is(store):
    with pytest.raises(ResponseTooLargeError):
        store.scroll("docs", Deadline(60_000).limit_responses(5_000_000), limit=10)
    with pytest.raises(ResponseTooLargeError):
        store.fetch("docs", [1, 2, 3, 4, 5, 6], Deadline(60_000).limit_responses(5_000_000))


def test_a_search_for_causes_ends_with_the_time_of_its_request(services):
    examined = ExaminedCollection(services, "docs", lambda: Deadline(0))

    with pytest.raises(VectorStoreTimeoutError):
        examined.text_of(Point(1, {"text": "a"}))


def test_a_body_that_would_take_too_much_memory_is_refused():
    check_memory("a" * 1_000_000)
    with pytest.raises(ResponseTooLargeError):
        check_memory("a" * 1_000_000, copies=MAX_BODY_MEMORY // 1_000_000 + 1)


def test_the_tokens_of_a_text_of_megabytes_are_not_counted():
    excess = local_model().excess("a " * MAX_CHARS)

    assert excess == f"{2 * MAX_CHARS:,} characters, all-MiniLM-L6-v2 reads 256 tokens"
