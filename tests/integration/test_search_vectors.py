"""Which vector a search uses, and which distances it accepts."""

import pytest
from qdrant_client import models

from chunkproof.base.errors import InvalidParameterError, UnsupportedDistanceError
from chunkproof.base.request import Deadline
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import ask, make_services
from support.sdk import sdk

COSINE = models.Distance.COSINE
EAST = [1.0, 0.0]


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


def vectors_of(store: WritableStore, collection: str, *names: str) -> None:
    """A collection with vectors of these names; the first two differ in which point is nearest to the east."""
    sdk(store).create_collection(
        collection, vectors_config={name: models.VectorParams(size=2, distance=COSINE) for name in names}
    )
    near, far = [1.0, 0.0], [0.6, 0.8]
    first, second = {names[0]: near}, {names[0]: far}
    for name in names[1:]:
        first[name], second[name] = far, near
    sdk(store).upsert(
        collection,
        [
            models.PointStruct(id=1, vector=dict(first), payload={"text": "one"}),
            models.PointStruct(id=2, vector=dict(second), payload={"text": "two"}),
        ],
        wait=True,
    )


def best(store: WritableStore, collection: str, **settings: str) -> str:
    return ask(make_services(store, collection, **settings), query_vector=EAST).results[0].text


def with_distance(store: WritableStore, collection: str, distance: str, *points: Point) -> None:
    params = models.VectorParams(size=2, distance=models.Distance(distance))
    sdk(store).create_collection(collection, vectors_config=params)
    if points:
        store.upsert(collection, points, "", Deadline(60_000))


def test_the_unnamed_vector_is_used(either: WritableStore, collection: str) -> None:
    vectors_of(either, collection, "", "other")
    assert best(either, collection) == "one"


def test_the_only_vector_is_used_whatever_its_name(either: WritableStore, collection: str) -> None:
    vectors_of(either, collection, "text-dense")
    assert best(either, collection) == "one"
    assert best(either, collection, VECTOR_NAME="something-else") == "one"


def test_of_several_named_vectors_the_setting_chooses(either: WritableStore, collection: str) -> None:
    vectors_of(either, collection, "title", "body")
    assert best(either, collection, VECTOR_NAME="title") == "one"
    assert best(either, collection, VECTOR_NAME="body") == "two"


def test_a_setting_that_names_a_vector_comes_before_the_unnamed_one(either: WritableStore, collection: str) -> None:
    vectors_of(either, collection, "", "other")
    assert best(either, collection) == "one"
    assert best(either, collection, VECTOR_NAME="other") == "two"


@pytest.mark.parametrize("settings", [{}, {"VECTOR_NAME": "summary"}])
def test_several_vectors_without_a_fitting_setting_are_listed(
    either: WritableStore, collection: str, settings: dict[str, str]
) -> None:
    vectors_of(either, collection, "title", "body")
    with pytest.raises(InvalidParameterError) as caught:
        best(either, collection, **settings)
    assert (caught.value.code, caught.value.status) == ("INVALID_REQUEST", 400)
    assert "CHUNKPROOF_VECTOR_NAME" in caught.value.message
    assert "title" in caught.value.message
    assert "body" in caught.value.message


def test_sparse_vectors_alone_cannot_be_searched(either: WritableStore, collection: str) -> None:
    sdk(either).create_collection(
        collection, vectors_config={}, sparse_vectors_config={"words": models.SparseVectorParams()}
    )
    with pytest.raises(InvalidParameterError, match="has no dense vector"):
        best(either, collection)


def test_dot_products_of_unit_vectors_are_cosines(either: WritableStore, collection: str) -> None:
    with_distance(
        either,
        collection,
        "Dot",
        Point(1, {"text": "one"}, vector=(1.0, 0.0)),
        Point(2, {"text": "two"}, vector=(0.6, 0.8)),
    )
    answer = ask(make_services(either, collection), query_vector=[5.0, 0.0])
    assert [result.similarity_score for result in answer.results] == pytest.approx([1.0, 0.6], abs=1e-6)


def test_dot_products_of_other_vectors_are_refused_with_the_point(either: WritableStore, collection: str) -> None:
    with_distance(
        either,
        collection,
        "Dot",
        Point(1, {"text": "one"}, vector=(1.0, 0.0)),
        Point(2, {"text": "two"}, vector=(3.0, 4.0)),
    )
    with pytest.raises(UnsupportedDistanceError) as caught:
        ask(make_services(either, collection), query_vector=EAST)
    assert (caught.value.code, caught.value.status) == ("UNSUPPORTED_DISTANCE", 400)
    assert "point 2: 5.000" in caught.value.message


def test_dot_products_are_checked_once_there_are_points(either: WritableStore, collection: str) -> None:
    with_distance(either, collection, "Dot")
    services = make_services(either, collection)
    assert ask(services, query_vector=EAST).results == ()
    either.upsert(collection, [Point(1, {"text": "one"}, vector=(3.0, 4.0))], "", Deadline(60_000))
    with pytest.raises(UnsupportedDistanceError):
        ask(services, query_vector=EAST)


@pytest.mark.parametrize("distance", ["Euclid", "Manhattan"])
def test_a_distance_that_is_no_similarity_is_refused(either: WritableStore, collection: str, distance: str) -> None:
    with_distance(either, collection, distance, Point(1, {"text": "one"}, vector=(1.0, 0.0)))
    with pytest.raises(UnsupportedDistanceError) as caught:
        ask(make_services(either, collection), query_vector=EAST)
    assert caught.value.code == "UNSUPPORTED_DISTANCE"
    assert f"Collection {collection} measures {distance}" in caught.value.message


def test_vectors_that_no_response_carries_are_refused_before_they_are_read(
    either: WritableStore, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkproof.search.single.MAX_VECTOR_VALUES", 10)
    vectors_of(either, collection, "a")
    services = make_services(either, collection)
    assert len(ask(services, query_vector=EAST, top_k=5, with_vectors=True).results) == 2
    for request in ({"query_vector": EAST, "top_k": 6}, {"queries": [{"query_vector": EAST, "top_k": 3}] * 2}):
        with pytest.raises(InvalidParameterError, match=r"with_vectors asks for 12 numbers.*lower top_k"):
            ask(services, with_vectors=True, **request)
