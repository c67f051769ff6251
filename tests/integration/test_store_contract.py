"""The contract of `WritableStore`, tested in a folder, on a server and on a server in strict mode."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import ChunkproofError, CollectionNotFoundError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import parse_filters
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import TEXT_VECTOR, Point, PointId, VectorConfig, WritableStore

from support.chunks import UNNAMED, fill, nearest
from support.sdk import sdk

FOUR = "550e8400-e29b-41d4-a716-446655440000"
POINTS = (
    Point(
        1,
        {
            "text": "one",
            "language": "en",
            "pages": 10,
            "price": 0.25,
            "free": True,
            "published": "2025-12-15T10:30:00Z",
            "meta": {"author": "Ada", "first name": "Augusta"},
            "reading level": "easy",
            "größe": "klein",
            "tags": ["a", "b"],
            "parts": [{"page": 1}, {"page": 2}],
        },
        vector=(1.0, 0.0),
    ),
    Point(
        2,
        {
            "text": "two",
            "language": "de",
            "pages": 20,
            "price": 0.5,
            "free": False,
            "published": "2026-01-01T00:00:00Z",
            "meta": {"author": "Bo"},
            "reading level": "hard",
            "tags": ["b", "c"],
        },
        vector=(0.8, 0.6),
    ),
    Point(
        3,
        {
            "text": "three",
            "language": "fr",
            "pages": 30,
            "price": 0.75,
            "free": False,
            "published": "2026-02-01",
            "meta": {"author": "Ada"},
            "tags": ["c"],
        },
        vector=(0.6, 0.8),
    ),
    Point(FOUR, {"text": "four"}, vector=(0.0, 1.0)),
)
INDEXES = {
    "language": "keyword",
    "pages": "integer",
    "price": "float",
    "free": "bool",
    "published": "datetime",
    "meta.author": "keyword",
    'meta."first name"': "keyword",
    '"reading level"': "keyword",
    '"größe"': "keyword",
    "tags": "keyword",
    "tags[]": "keyword",
    "parts[].page": "integer",
}


@dataclass
class Library:
    """A filled store that tests only read."""

    store: WritableStore
    collection: str = "library"

    def where(self, filters: dict[str, Any]) -> list[PointId]:
        page = self.store.scroll(self.collection, Deadline(60_000), limit=10, where=parse_filters(filters)).points
        return [point.id for point in page]

    def nearest(self, vector: tuple[float, float] = (1.0, 0.0), **rest: Any) -> list[Point]:
        return nearest(self.store, self.collection, vector, **rest)


@pytest.fixture(
    scope="module",
    params=[
        "edge",
        pytest.param("server", marks=pytest.mark.server),
        pytest.param("strict", marks=pytest.mark.server),
    ],
)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """The same four points in every kind of store."""
    store = _open_store(request, tmp_path_factory.mktemp("library"))
    if request.param == "strict":
        sdk(store).create_collection(
            "library-strict",
            vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
            strict_mode_config=models.StrictModeConfig(enabled=True, unindexed_filtering_retrieve=False),
        )
        for field, schema in INDEXES.items():
            sdk(store).create_payload_index("library-strict", field, field_schema=schema, wait=True)
        store.upsert("library-strict", POINTS, "", Deadline(60_000))
        yield Library(store, "library-strict")
    else:
        fill(store, "library", *POINTS)
        yield Library(store)
    store.close()


def _open_store(request: pytest.FixtureRequest, folder: Path) -> WritableStore:
    if request.param in ("server", "strict"):
        return ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    return EdgeStore(folder)


# nearest


def test_nearest_points_are_sorted_best_first_with_their_cosine(library: Library) -> None:
    found = library.nearest()
    assert [point.id for point in found] == [1, 2, 3, FOUR]
    assert [point.score for point in found] == pytest.approx([1.0, 0.8, 0.6, 0.0], abs=1e-6)
    assert found[0].payload == POINTS[0].payload


def test_a_score_equal_to_the_threshold_is_included(library: Library) -> None:
    scores = [point.score for point in library.nearest()]
    for count, score in enumerate(scores, start=1):
        assert len(library.nearest(score_threshold=score)) == count


def test_a_score_just_below_the_threshold_is_excluded(library: Library) -> None:
    assert [point.id for point in library.nearest(score_threshold=0.6001)] == [1, 2]
    assert [point.id for point in library.nearest(score_threshold=0.8001)] == [1]


def test_a_negative_cosine_is_never_returned(library: Library) -> None:
    # cosines with (-0.6, 0.8): -0.6, 0.0, 0.28, 0.8
    assert [point.id for point in library.nearest((-0.6, 0.8))][:2] == [FOUR, 3]
    assert 1 not in [point.id for point in library.nearest((-0.6, 0.8))]
    assert library.nearest((-0.6, -0.8)) == []


def test_no_more_points_than_the_limit_are_returned(library: Library) -> None:
    assert [point.id for point in library.nearest(limit=2)] == [1, 2]


def test_vectors_are_returned_only_if_requested(library: Library) -> None:
    assert all(point.vector is None for point in library.nearest())
    assert library.nearest(with_vector="")[1].vector == pytest.approx((0.8, 0.6))


def test_a_stored_vector_of_zeros_scores_zero(store: WritableStore, collection: str, deadline: Deadline) -> None:
    fill(store, collection, Point(1, {}, vector=(0.0, 0.0)), Point(2, {}, vector=(0.6, 0.8)))
    found = nearest(store, collection, (1.0, 0.0))
    assert [(point.id, round(point.score, 6)) for point in found] == [(2, 0.6), (1, 0.0)]


def test_a_named_vector_is_searched_and_returned_by_its_name(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    sdk(store).create_collection(
        collection,
        vectors_config={
            "title": models.VectorParams(size=2, distance=models.Distance.COSINE),
            "body": models.VectorParams(size=3, distance=models.Distance.COSINE),
        },
    )
    store.upsert(collection, [Point(1, {"text": "x"}, vector=(0.0, 0.6, 0.8))], "body", deadline)
    body = VectorConfig("body", 3, "Cosine")
    found = nearest(store, collection, (0.0, 0.0, 1.0), config=body, with_vector="body")
    assert found[0].score == pytest.approx(0.8)
    assert found[0].vector == pytest.approx((0.0, 0.6, 0.8))
    assert store.fetch(collection, [1], deadline, with_vector="body")[0].vector == pytest.approx((0, 0.6, 0.8))
    page = store.scroll(collection, deadline, limit=1, with_vector="body")
    assert page.points[0].vector == pytest.approx((0.0, 0.6, 0.8))


def test_the_unnamed_vector_is_returned_without_the_sparse_one(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    sdk(store).create_collection(
        collection,
        vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE),
        sparse_vectors_config={"words": models.SparseVectorParams()},
    )
    vector: Any = {"": [0.6, 0.8], "words": models.SparseVector(indices=[3], values=[1.0])}
    sdk(store).upsert(collection, [models.PointStruct(id=1, vector=vector, payload={})], wait=True)
    found = nearest(store, collection, (1.0, 0.0), with_vector="")
    assert found[0].vector == pytest.approx((0.6, 0.8))
    assert store.fetch(collection, [1], deadline, with_vector="")[0].vector == pytest.approx((0.6, 0.8))


def test_the_index_of_sparse_vectors_is_not_counted_as_one_of_dense_vectors(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    store.create(collection, 2, deadline, text_search=True)
    fills = store.features(deadline).bm25
    points = [Point(n, {"text": f"word {n}"}, vector=(1.0, n / 10)) for n in range(5)]
    store.upsert(collection, points, "", deadline, text_vector=TEXT_VECTOR if fills else None)
    assert store.describe(collection, deadline).indexed_vectors_count == 0


# filters

FILTERS: list[tuple[dict[str, Any], list[PointId]]] = [
    ({"language": "de"}, [2]),
    ({"language": "DE"}, []),
    ({"pages": 20}, [2]),
    ({"price": 0.5}, [2]),
    ({"price": 0.50001}, []),
    ({"free": True}, [1]),
    ({"free": False}, [2, 3]),
    ({"language": ["de", "en"]}, [1, 2]),
    ({"pages": [10, 30, 99]}, [1, 3]),
    ({"price": [0.25, 0.75]}, [1, 3]),
    ({"pages": {"gte": 20}}, [2, 3]),
    ({"pages": {"gt": 20}}, [3]),
    ({"pages": {"lt": 20}}, [1]),
    ({"pages": {"gte": 10, "lte": 20}}, [1, 2]),
    ({"price": {"gt": 0.25, "lt": 0.75}}, [2]),
    ({"published": {"gte": "2026-01-01"}}, [2, 3]),
    ({"published": {"gt": "2026-01-01T00:00:00Z"}}, [3]),
    ({"published": {"lte": "2025-12-15T11:30:00+01:00"}}, [1]),
    ({"published": {"gte": "2025-12-15", "lt": "2026-02-01"}}, [1, 2]),
    ({"not": {"language": "de"}}, [1, 3, FOUR]),
    ({"not": {"language": "de", "free": False}}, [1, 3, FOUR]),
    ({"not": {"language": "en", "free": False}}, [1, 2, 3, FOUR]),
    ({"not": {"pages": {"gte": 20}}}, [1, FOUR]),
    ({"not": {"not": {"language": "de"}}}, [2]),
    ({"free": False, "not": {"language": "de"}}, [3]),
    ({"meta.author": "Ada"}, [1, 3]),
    ({"meta.author": "Ada", "free": False}, [3]),
    ({"meta.first name": "Augusta"}, [1]),
    ({"reading level": "hard"}, [2]),
    ({"größe": "klein"}, [1]),
    ({"tags": "b"}, [1, 2]),
    ({"tags[]": "b"}, [1, 2]),
    ({"tags[]": ["a", "c"]}, [1, 2, 3]),
    ({"parts[].page": 2}, [1]),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=[str(filters) for filters, _ in FILTERS])
def test_a_filter_selects_the_same_points_in_every_store(
    library: Library, filters: dict[str, Any], expected: list[PointId]
) -> None:
    assert library.where(filters) == expected
    found = library.nearest(where=parse_filters(filters))
    assert [point.id for point in found] == expected


def test_values_of_different_types_are_never_confused(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    values = {1: 1, 2: "1", 3: True, 4: 2.5}
    fill(store, collection, *(Point(n, {"mixed": v}, vector=(1.0, 0.0)) for n, v in values.items()))
    wanted: list[tuple[object, list[PointId]]] = [
        ([1, "1"], [1, 2]),
        ([1, True], [1, 3]),
        (["1", 2.5, False], [2, 4]),
        (1, [1]),
        (True, [3]),
        (1.0, [1]),
    ]
    for value, expected in wanted:
        page = store.scroll(collection, deadline, limit=10, where=parse_filters({"mixed": value}))
        assert [point.id for point in page.points] == expected, value


def test_a_condition_on_a_field_that_no_point_has_selects_none(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    fill(store, collection, Point(1, {"text": "x"}, vector=(1.0, 0.0)))
    page = store.scroll(collection, deadline, limit=10, where=parse_filters({"nowhere.at all": "x"}))
    assert page.points == ()


def test_a_list_field_with_a_space_in_its_name_can_be_filtered(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    fill(store, collection, Point(1, {"my tags": ["a", "b"]}, vector=(1.0, 0.0)))
    page = store.scroll(collection, deadline, limit=10, where=parse_filters({"my tags[]": "a"}))
    assert [point.id for point in page.points] == [1]


# describe, collections


def test_a_description_has_vectors_and_counts(library: Library, deadline: Deadline) -> None:
    found = library.store.describe(library.collection, deadline)
    assert (found.name, found.vectors, found.points_count) == (library.collection, (UNNAMED,), 4)
    assert found.status == "green"


@pytest.mark.parametrize("distance", ["Cosine", "Dot", "Euclid", "Manhattan"])
def test_a_description_names_the_distance(
    store: WritableStore, collection: str, deadline: Deadline, distance: str
) -> None:
    params = models.VectorParams(size=7, distance=models.Distance(distance))
    sdk(store).create_collection(collection, vectors_config=params)
    assert store.describe(collection, deadline).vectors == (VectorConfig("", 7, distance),)


def test_only_single_dense_vectors_are_described(store: WritableStore, collection: str, deadline: Deadline) -> None:
    sdk(store).create_collection(
        collection,
        vectors_config={
            "title": models.VectorParams(size=2, distance=models.Distance.COSINE),
            "body": models.VectorParams(size=3, distance=models.Distance.DOT),
            "tokens": models.VectorParams(
                size=4,
                distance=models.Distance.COSINE,
                multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            ),
        },
        sparse_vectors_config={"words": models.SparseVectorParams()},
    )
    assert set(store.describe(collection, deadline).vectors) == {
        VectorConfig("title", 2, "Cosine"),
        VectorConfig("body", 3, "Dot"),
    }


def test_a_collection_of_only_sparse_vectors_has_no_dense_one(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    sdk(store).create_collection(
        collection, vectors_config={}, sparse_vectors_config={"words": models.SparseVectorParams()}
    )
    assert store.describe(collection, deadline).vectors == ()


def test_collections_are_listed_by_name(store: WritableStore, collection: str, deadline: Deadline) -> None:
    for suffix in ("b", "a", "c"):
        store.create(f"{collection}-{suffix}", 2, deadline)
    ours = [name for name in store.collections(deadline) if name.startswith(collection)]
    assert ours == [f"{collection}-a", f"{collection}-b", f"{collection}-c"]


# fetch, scroll


def test_fetch_finds_integer_ids_and_uuids_and_omits_missing_points(library: Library, deadline: Deadline) -> None:
    missing = "00000000-0000-0000-0000-000000000000"
    found = library.store.fetch(library.collection, [2, FOUR, 99, missing], deadline)
    assert {point.id: point.payload["text"] for point in found} == {2: "two", FOUR: "four"}
    assert all(point.vector is None for point in found)


def test_fetch_of_no_ids_returns_no_points(library: Library, deadline: Deadline) -> None:
    assert library.store.fetch(library.collection, [], deadline) == []


def test_the_largest_point_id_can_be_fetched(store: WritableStore, collection: str, deadline: Deadline) -> None:
    fill(store, collection, Point(2**64 - 1, {"text": "last"}, vector=(1.0, 0.0)))
    assert [point.id for point in store.fetch(collection, [2**64 - 1], deadline)] == [2**64 - 1]


def test_scroll_goes_through_all_points_in_id_order(store: WritableStore, collection: str, deadline: Deadline) -> None:
    uuids = [f"00000000-0000-0000-0000-0000000000{n:02x}" for n in (160, 3, 11)]
    ids: list[PointId] = [30, 4, 100, *uuids]
    fill(store, collection, *(Point(n, {}, vector=(1.0, 0.0)) for n in ids))
    seen: list[PointId] = []
    page = store.scroll(collection, deadline, limit=2)
    while page.next_id is not None:
        seen += [point.id for point in page.points]
        page = store.scroll(collection, deadline, limit=2, start=page.next_id)
    seen += [point.id for point in page.points]
    assert seen == [4, 30, 100, *sorted(uuids)]


def test_the_last_page_has_no_next_id(library: Library, deadline: Deadline) -> None:
    assert library.store.scroll(library.collection, deadline, limit=4).next_id is None
    assert library.store.scroll(library.collection, deadline, limit=3).next_id == FOUR


def test_scroll_pages_through_the_points_that_a_filter_selects(library: Library, deadline: Deadline) -> None:
    where = parse_filters({"free": False})
    first = library.store.scroll(library.collection, deadline, limit=1, where=where)
    assert [point.id for point in first.points] == [2]
    second = library.store.scroll(library.collection, deadline, limit=1, where=where, start=first.next_id)
    assert [point.id for point in second.points] == [3]


def test_scroll_returns_vectors_if_requested(library: Library, deadline: Deadline) -> None:
    page = library.store.scroll(library.collection, deadline, limit=2, with_vector="")
    assert page.points[1].vector == pytest.approx((0.8, 0.6))


# create, upsert


def test_a_created_collection_has_one_unnamed_cosine_vector(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    store.create(collection, 5, deadline)
    found = store.describe(collection, deadline)
    assert (found.vectors, found.points_count) == ((VectorConfig("", 5, "Cosine"),), 0)


@pytest.mark.server
def test_a_created_collection_on_a_server_has_chunk_id_indexed(
    server_store: WritableStore, collection: str, deadline: Deadline
) -> None:
    server_store.create(collection, 5, deadline)
    assert server_store.describe(collection, deadline).indexed_fields == {"chunk_id": "keyword"}


def test_writing_a_point_again_replaces_it(store: WritableStore, collection: str, deadline: Deadline) -> None:
    fill(store, collection, Point(1, {"text": "old", "extra": 1}, vector=(1.0, 0.0)))
    for _ in range(2):
        store.upsert(collection, [Point(1, {"text": "new"}, vector=(0.0, 1.0))], "", deadline)
    (point,) = store.scroll(collection, deadline, limit=10, with_vector="").points
    assert (point.payload, point.vector) == ({"text": "new"}, (0.0, 1.0))


def test_a_written_point_is_read_back_byte_for_byte(store: WritableStore, collection: str, deadline: Deadline) -> None:
    payload = {
        "text": "e\u0301 \u00e9\r\n\x00 \u200d\U0001f469\u200d\U0001f527 \ufeff\u00ad",
        "deep": {"list": [1, 2.5, None, {"a": True}], "empty": {}, "none": None},
        "large": 2**53 + 1,
    }
    fill(store, collection, Point(1, payload, vector=(1.0, 0.0)))
    (point,) = store.fetch(collection, [1], deadline)
    assert dict(point.payload) == payload


# errors


def test_a_facet_counts_the_points_of_each_text_most_frequent_first(
    store: WritableStore, collection: str, deadline: Deadline
) -> None:
    values = ["a", "b", "b", "c", "c", "c", 5, None]
    store.create(collection, 2, deadline)
    points = [Point(n, {"chunk_id": value, "n": n % 2}, vector=(1.0, 0.0)) for n, value in enumerate(values)]
    store.upsert(collection, points, "", deadline)
    found = store.facet(collection, "chunk_id", (), deadline, limit=2)
    assert found is not None
    assert list(found.items()) == [("c", 3), ("b", 2)]
    if store.facet(collection, "other", (), deadline, limit=2) is not None:
        assert "/" in store.host, "only a server needs an index"


WrongCall = Callable[[WritableStore, str, Deadline], object]
READS_AND_WRITES: dict[str, WrongCall] = {
    "describe": lambda store, name, deadline: store.describe(name, deadline),
    "search": lambda store, name, deadline: nearest(store, name, (1.0, 0.0), deadline=deadline),
    "fetch": lambda store, name, deadline: store.fetch(name, [1], deadline),
    "scroll": lambda store, name, deadline: store.scroll(name, deadline, limit=5),
    "facet": lambda store, name, deadline: store.facet(name, "chunk_id", (), deadline, limit=5),
    "upsert": lambda store, name, deadline: store.upsert(name, [POINTS[0]], "", deadline),
}


@pytest.mark.parametrize("call", READS_AND_WRITES.values(), ids=READS_AND_WRITES.keys())
@pytest.mark.parametrize("name", ["no-such-collection", "with space", "library?x=1"])
def test_every_method_raises_collection_not_found(
    library: Library, deadline: Deadline, call: WrongCall, name: str
) -> None:
    with pytest.raises(CollectionNotFoundError) as caught:
        call(library.store, name, deadline)
    assert caught.value.message == f"Collection {name} not found"


@pytest.mark.server
@pytest.mark.parametrize("name", ["a/b", "..", ".", "library/exists", "a\x00b"])
def test_an_invalid_collection_name_is_not_found(server_store: WritableStore, deadline: Deadline, name: str) -> None:
    with pytest.raises(CollectionNotFoundError):
        server_store.describe(name, deadline)


WRONG_USE: dict[str, WrongCall] = {
    "create twice": lambda store, name, deadline: store.create(name, 2, deadline),
    "vector of another size": lambda store, name, deadline: store.upsert(
        name, [Point(9, {}, vector=(1.0,))], "", deadline
    ),
    "query of another size": lambda store, name, deadline: nearest(store, name, (1.0, 0.0, 0.0), deadline=deadline),
    "unknown vector": lambda store, name, deadline: nearest(
        store, name, (1.0, 0.0), config=VectorConfig("other", 2, "Cosine"), deadline=deadline
    ),
}


@pytest.mark.server
@pytest.mark.parametrize("call", WRONG_USE.values(), ids=WRONG_USE.keys())
def test_a_request_that_the_server_refuses_raises_our_error(
    server_store: WritableStore, collection: str, deadline: Deadline, call: WrongCall
) -> None:
    fill(server_store, collection, POINTS[0])
    with pytest.raises(ChunkproofError):
        call(server_store, collection, deadline)


@pytest.mark.parametrize("call", WRONG_USE.values(), ids=WRONG_USE.keys())
def test_a_request_that_the_engine_refuses_raises_our_error(
    memory_store: WritableStore, collection: str, deadline: Deadline, call: WrongCall
) -> None:
    fill(memory_store, collection, POINTS[0])
    with pytest.raises(ChunkproofError):
        call(memory_store, collection, deadline)


def test_a_folder_keeps_its_points(tmp_path: Path, collection: str, deadline: Deadline) -> None:
    first = EdgeStore(tmp_path / "store")
    fill(first, collection, *POINTS)
    first.close()
    second = EdgeStore(tmp_path / "store")
    assert [point.id for point in second.scroll(collection, deadline, limit=9).points] == [1, 2, 3, FOUR]
    second.close()
