"""Several queries in one request: one call to each service, and a response for each query."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chunkproof.base.errors import EmbeddingError, InvalidParameterError, QueryTooLongError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.transport import DeadlineTransport
from chunkproof.search.single import search
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point, PointId, WritableStore

from support.chunks import ask, fill, make_services
from support.stores import MemoryStore

COLLECTION = "batch"
POINTS = (
    Point(1, {"text": "east", "language": "en"}, vector=(1.0, 0.0)),
    Point(2, {"text": "north", "language": "de"}, vector=(0.0, 1.0)),
)
WHERE = {"east": (1.0, 0.0), "north": (0.0, 1.0)}


class Compass:
    """Embeds the names of directions; refuses a text that is too long, and all texts when it is down."""

    model, dimension, max_batch = "compass", None, 96
    is_down = False

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Any, _kind: InputType, _deadline: Deadline) -> list[list[float]]:
        self.calls.append(list(texts))
        if self.is_down:
            raise EmbeddingError("it is down")
        if any("long" in text for text in texts):
            raise QueryTooLongError("query_text is too long")
        return [list(WHERE.get(text, (0.6, 0.8))) for text in texts]


@pytest.fixture(scope="module", params=["memory", pytest.param("server", marks=pytest.mark.server)])
def shelf(request: pytest.FixtureRequest) -> Iterator[WritableStore]:
    """Two points in every kind of store."""
    if request.param == "memory":
        store = MemoryStore()
    else:
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    fill(store, COLLECTION, *POINTS)
    yield store
    store.close()


@pytest.fixture
def embedder() -> Compass:
    return Compass()


@pytest.fixture
def services(shelf: WritableStore, embedder: Compass) -> Services:
    return make_services(shelf, COLLECTION, embedder)


def answers(services: Services, *queries: Any, **shared: Any) -> tuple[RetrievalResponse, ...]:
    answer = ask(services, queries=list(queries), **shared)
    assert answer.responses is not None
    assert len(answer.responses) == len(queries)
    return answer.responses


def first(answer: RetrievalResponse) -> PointId | None:
    return answer.results[0].point_id


def test_each_query_has_its_response_in_order_and_one_embedding_call(services: Services, embedder: Compass) -> None:
    east, north, again = answers(services, "east", {"query_text": "north", "query_id": "n"}, "east")
    assert [first(east), first(north), first(again)] == [1, 2, 1]
    assert (east.query, north.query, north.query_id) == ("east", "north", "n")
    assert east.query_id != again.query_id
    assert embedder.calls == [["east", "north"]]


def test_a_response_equals_that_of_the_query_alone(services: Services) -> None:
    query = {"query_text": "east", "top_k": 2, "similarity_threshold": 0.1, "query_id": "q"}
    alone, (among, _) = ask(services, **query), answers(services, query, "north")
    assert among.results == alone.results
    assert among.execution.threshold_applied == 0.1
    assert (among.status, among.query, among.query_id) == (alone.status, alone.query, alone.query_id)


def test_an_array_is_the_same_as_queries(services: Services) -> None:
    query = SearchQuery.parse([{"query_text": "east"}, "north"])
    answer = search(query, services.collection(query.collection, Deadline(60_000)))
    assert [first(one) for one in answer.responses or ()] == [1, 2]
    assert (answer.status, answer.results, answer.query) == ("success", (), None)


def test_fields_beside_the_queries_apply_to_all_of_them_unless_they_have_their_own(services: Services) -> None:
    one, two = answers(services, "east", {"query_text": "east", "threshold": 0.0}, top_k=1, similarity_threshold=0.9)
    assert (one.execution.requested_top_k, one.execution.threshold_applied) == (1, 0.9)
    assert (two.execution.requested_top_k, two.execution.threshold_applied) == (1, 0.0)
    filtered = answers(services, "east", filters={"language": "de"})[0]
    assert [result.point_id for result in filtered.results] == [2]


def test_an_error_of_one_query_does_not_fail_the_others(services: Services) -> None:
    wrong: list[Any] = [
        {"query_text": "east", "top_k": 0},
        {"query_text": "east", "colour": "red"},
        {"query_vector": [1.0, 0.0, 0.0]},
        {"query_text": "east", "collection": "no-such"},
        {"query_text": "east", "similarity_threshold": float("nan")},
        {"query_text": "a\ud800"},
        {"queries": ["east"]},
        5,
        {"query_text": "so long", "query_id": "mine"},
    ]
    found = answers(services, "east", *wrong, {"query_vector": [0.0, 1.0]})
    assert (first(found[0]), first(found[-1])) == (1, 2)
    codes = [one.error.code if one.error else None for one in found]
    assert codes == [
        None,
        *["INVALID_REQUEST"] * 2,
        "DIMENSION_MISMATCH",
        "COLLECTION_NOT_FOUND",
        *["INVALID_REQUEST"] * 4,
        "QUERY_TOO_LONG",
        None,
    ]
    assert found[1].errors == ("top_k must be between 1 and 1000",)
    assert found[8].errors == ("queries[8] must be a JSON object",)
    assert found[9].query_id == "mine"
    assert all(one.results == () and one.execution.result_count == 0 for one in found if one.error)


def test_a_request_that_the_store_refuses_for_one_query_answers_the_others(
    shelf: WritableStore, services: Services
) -> None:
    whole = shelf.search

    def refuses_one(queries: Any, deadline: Deadline) -> Any:
        bad = [query for query in queries if query.limit == 3]
        return whole([replace(one, collection="gone") if one in bad else one for one in queries], deadline)

    shelf.search = refuses_one  # type: ignore[method-assign]
    try:
        good, bad = answers(services, "east", {"query_text": "north", "top_k": 3})
    finally:
        del shelf.search
    assert first(good) == 1
    assert bad.error is not None
    assert bad.error.code == "COLLECTION_NOT_FOUND"


def test_a_service_that_fails_all_queries_fails_the_request(services: Services, embedder: Compass) -> None:
    embedder.is_down = True
    with pytest.raises(EmbeddingError):
        ask(services, queries=["east", "north"])
    assert embedder.calls == [["east", "north"]]
    found = answers(services, "east", {"query_vector": [1.0, 0.0]})
    assert [one.status for one in found] == ["error", "success"]


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"queries": []}, "queries must have 1 to 32 items, not 0"),
        ({"queries": ["a"] * 33}, "queries must have 1 to 32 items, not 33"),
        ({"queries": "east"}, "queries must be a list"),
        ({"queries": ["a"], "query_text": "b"}, "query_text belongs into one of the queries, not beside them"),
        ({"queries": ["a"], "cursor": "start"}, "cursor belongs into one of the queries, not beside them"),
        ({"queries": ["a"], "top_k": 0}, "top_k must be between 1 and 1000"),
        ({"queries": ["a"] * 11, "top_k": 100}, "the queries want 1,100 results together; 1,000 are the most"),
        (
            {"queries": ["a"] * 5, "filters": {"n": list(range(1_000))}},
            "filters must name at most 4000 values, not 5000, in all queries together: send fewer of them at once",
        ),
        (
            {"queries": [{"query_text": "a", "filters": {f"f{n}": 1 for n in range(81)}}] * 5},
            "filters must have at most 400 conditions, not 405, in all queries together: send fewer of them at once",
        ),
        (
            {"queries": [{"query_text": "a", "filters": {"f": "x" * 81_000}}] * 5},
            "filters must have at most 400,000 characters in all, not 405,005, in all queries together: "
            "send fewer of them at once",
        ),
    ],
)
def test_what_is_wrong_with_the_request_fails_it(
    services: Services, request_fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        ask(services, **request_fields)
    assert caught.value.messages == (message,)


def test_the_response_is_read_back_from_its_json(services: Services) -> None:
    answer = ask(services, queries=["east", {"query_text": ""}])
    assert RetrievalResponse.model_validate_json(answer.to_json()) == answer


@pytest.mark.server
def test_the_queries_of_a_collection_are_one_request(server_store: WritableStore, collection: str) -> None:
    assert isinstance(server_store, ServerStore)
    fill(server_store, collection, *POINTS)
    services = make_services(server_store, collection, Compass())
    ask(services, query_text="east")
    sent: list[str] = []
    call = server_store.call

    def count(operation: str, *rest: Any, **options: Any) -> Any:
        sent.append(operation)
        return call(operation, *rest, **options)

    server_store.call = count  # type: ignore[method-assign]
    answers(services, *(f"text {number}" for number in range(32)))
    assert sent == ["POST /points/query/batch"]
