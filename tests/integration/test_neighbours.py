"""Neighbours of results: whatever the pipeline calls document and position, with few requests, and only one's own."""

from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import ask, fill, make_services
from support.sdk import sdk

NEAR, FAR = (1.0, 0.0), (0.0, 1.0)


def chunk(number: int, document: str, position: Any, *, found: bool = False, **payload: Any) -> Point:
    """A chunk with a text of its own; only those `found` are near to the query."""
    own = {"text": f"{document} {position}", "document_id": document, "position": position, **payload}
    return Point(number, own, vector=NEAR if found else FAR)


def around(response: RetrievalResponse) -> list[tuple[list[str], str, list[str]]]:
    """The texts before each result, its own, and those after."""
    found = []
    for result in response.results:
        assert result.neighbours is not None
        before, after = result.neighbours.before, result.neighbours.after
        found.append(([one.text for one in before], result.text, [one.text for one in after]))
    return found


def look(store: WritableStore, collection: str, neighbours: int = 1, **request: Any) -> RetrievalResponse:
    services = make_services(store, collection)
    return ask(services, query_vector=list(NEAR), similarity_threshold=0.5, neighbours=neighbours, **request)


def test_neighbours_are_the_chunks_before_and_after_in_the_same_document(store: WritableStore, collection: str) -> None:
    points = [chunk(n, "a", n, found=n == 3) for n in range(1, 7)] + [chunk(10 + n, "b", n) for n in range(1, 7)]
    fill(store, collection, *points)
    assert around(look(store, collection)) == [(["a 2"], "a 3", ["a 4"])]
    assert around(look(store, collection, 2)) == [(["a 1", "a 2"], "a 3", ["a 4", "a 5"])]
    response = look(store, collection, 5)
    assert around(response) == [(["a 1", "a 2"], "a 3", ["a 4", "a 5", "a 6"])]
    assert response.notes == ()
    assert response.results[0].neighbours is not None
    first = response.results[0].neighbours.before[0]
    assert (first.chunk_id, first.point_id, first.position) == ("1", 1, 1)


def test_without_the_field_no_result_has_neighbours(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, chunk(1, "a", 1, found=True), chunk(2, "a", 2))
    response = look(memory_store, collection, 0)
    assert "neighbours" not in response.results[0].model_dump()


def test_positions_may_be_offsets_and_have_gaps(memory_store: WritableStore, collection: str) -> None:
    points = [chunk(n, "a", offset, found=offset == 2_040) for n, offset in enumerate((0, 980, 2_040, 3_100, 7_000))]
    fill(memory_store, collection, *points)
    assert around(look(memory_store, collection)) == [(["a 980"], "a 2040", ["a 3100"])]


def test_the_first_and_the_last_chunk_have_neighbours_on_one_side(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, *(chunk(n, "a", n, found=n in (0, 3)) for n in range(4)))
    assert sorted(around(look(memory_store, collection))) == [([], "a 0", ["a 1"]), (["a 2"], "a 3", [])]


PAYLOADS = {
    "url and chunk_index": lambda n: {"url": "https://x.y/a", "chunk_index": n},
    "metadata": lambda n: {"metadata": {"source": "a.md", "chunk_index": n}},
    "meta": lambda n: {"meta": {"source_id": "a", "split_id": n}},
    "a number as the document": lambda n: {"document_id": 7, "position": n},
    "an id that chunks share": lambda n: {"id": "doc-a", "position": n},
    "floats": lambda n: {"document_id": "a", "position": n / 2},
    "a name with a space": lambda n: {"doc_id": "my document", "position": n},
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_document_and_position_are_found_as_the_payload_map_finds_them(
    store: WritableStore, collection: str, payload: Any
) -> None:
    fill(
        store,
        collection,
        *(Point(n, {"text": f"t{n}", **payload(n)}, vector=NEAR if n == 5 else FAR) for n in range(3, 8)),
    )
    assert around(look(store, collection)) == [(["t4"], "t5", ["t6"])]


def test_a_map_of_the_deployment_is_used(memory_store: WritableStore, collection: str) -> None:
    points = [Point(n, {"text": f"t{n}", "book": "b", "page": n}, vector=NEAR if n == 2 else FAR) for n in range(1, 4)]
    fill(memory_store, collection, *points)
    services = make_services(memory_store, collection, PAYLOAD_MAP='{"document_id": "book", "position": "page"}')
    response = ask(services, query_vector=list(NEAR), similarity_threshold=0.5, neighbours=1)
    assert around(response) == [(["t1"], "t2", ["t3"])]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"document_id": "a"},
        {"position": 1},
        {"document_id": "a", "position": "1"},
        {"document_id": [1], "position": 1},
    ],
)
def test_where_payloads_do_not_say_the_answer_notes_why(
    memory_store: WritableStore, collection: str, payload: dict[str, Any]
) -> None:
    fill(memory_store, collection, Point(1, {"text": "one", **payload}, vector=NEAR))
    response = look(memory_store, collection)
    assert [result.neighbours for result in response.results] == [None]
    assert "neighbours cannot be found" in response.notes[0]
    assert "CHUNKPROOF_PAYLOAD_MAP" in response.notes[0]


def test_results_without_a_place_are_counted(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, chunk(1, "a", 1, found=True), Point(2, {"text": "two"}, vector=NEAR))
    response = look(memory_store, collection)
    assert [result.neighbours is None for result in response.results] == [False, True]
    assert response.notes == ("1 of 2 results have no document and position that neighbours can be found by",)


def test_a_document_with_more_chunks_than_are_read_is_noted(memory_store: WritableStore, collection: str) -> None:
    points = [chunk(n, "a", 10 * n, found=n == 700) for n in range(1, 801)]
    fill(memory_store, collection, *points)
    response = look(memory_store, collection)
    assert response.notes == ("neighbours may be incomplete: the documents have more than 500 chunks",)


def test_neighbours_of_very_many_results_are_refused() -> None:
    SearchQuery.parse({"query_text": "x", "top_k": 100, "neighbours": 5})
    SearchQuery.parse({"query_text": "x", "top_k": 101, "neighbours": 0})
    with pytest.raises(InvalidParameterError, match="neighbours can be had for at most 100 results: lower top_k"):
        SearchQuery.parse({"query_text": "x", "top_k": 101, "neighbours": 1})


def test_a_filter_of_the_search_does_not_hide_neighbours(store: WritableStore, collection: str) -> None:
    fill(store, collection, *(chunk(n, "a", n, found=n == 2, kind="x" if n == 2 else "y") for n in range(1, 4)))
    response = look(store, collection, filters={"kind": "x"})
    assert around(response) == [(["a 1"], "a 2", ["a 3"])]


def test_neighbours_are_of_the_callers_tenant_alone(store: WritableStore, collection: str) -> None:
    mine = [chunk(n, "a", n, found=n == 3, tenant="mine") for n in (1, 3, 5)]
    theirs = [chunk(10 + n, "a", n, tenant="theirs") for n in (2, 4)]
    fill(store, collection, *mine, *theirs)
    environ = {"CHUNKPROOF_TENANT_FIELD": "tenant", "CHUNKPROOF_TENANT_CLAIM": "t", "CHUNKPROOF_COLLECTION": collection}
    services = Services(Settings.from_env(environ), store, None).for_tenant("mine")
    response = ask(services, query_vector=list(NEAR), similarity_threshold=0.5, neighbours=2)
    assert around(response) == [(["a 1"], "a 3", ["a 5"])]


def test_a_stored_text_is_returned_as_it_is(store: WritableStore, collection: str) -> None:
    texts = ["\ufeffa\r\n\u0301", "two", "\u200bz\u0000 "]
    points = [
        Point(n, {"text": text, "document_id": "a", "position": n}, vector=NEAR if n == 1 else FAR)
        for n, text in enumerate(texts)
    ]
    fill(store, collection, *points)
    assert around(look(store, collection)) == [([texts[0]], "two", [texts[2]])]


@pytest.mark.server
def test_many_results_take_one_request_and_those_at_an_end_one_more(
    served_qdrant: Any, server_store: WritableStore, collection: str
) -> None:
    points = [chunk(100 * d + n, f"doc {d}", n, found=n == 5) for d in range(1, 9) for n in range(10)]
    fill(server_store, collection, *points)
    counted = _Counting(server_store)
    response = look(counted, collection, top_k=8)
    assert len(around(response)) == 8
    assert counted.scrolls == 1
    counted.scrolls = 0
    assert len(around(look(counted, collection, 5, top_k=8))) == 8
    assert counted.scrolls == 2


class _Counting:
    """Counts pages."""

    def __init__(self, store: WritableStore) -> None:
        self._store = store
        self.scrolls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def scroll(self, *given: Any, **options: Any) -> Any:
        self.scrolls += "where" in options and bool(options["where"])
        return self._store.scroll(*given, **options)


@pytest.mark.server
def test_strict_mode_without_an_index_is_a_note_that_names_the_call(
    server_store: WritableStore, collection: str, deadline: Deadline
) -> None:
    client = sdk(server_store)
    client.create_collection(
        collection,
        vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
        strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
    )
    server_store.upsert(collection, [chunk(n, "a", n, found=n == 2) for n in range(1, 4)], "", deadline)
    response = look(server_store, collection)
    assert [result.text for result in response.results] == ["a 2"]
    assert response.notes == (
        f"neighbours cannot be found. Collection {collection} needs a payload index on document_id to filter by it: "
        f'create_payload_index("{collection}", field_name="document_id", field_schema="keyword")',
    )
    client.create_payload_index(collection, "document_id", "keyword")
    assert 'field_name="position", field_schema="float"' in look(server_store, collection).notes[0]
    client.create_payload_index(collection, "position", "integer")
    assert around(look(server_store, collection)) == [(["a 1"], "a 2", ["a 3"])]
