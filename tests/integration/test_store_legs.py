"""The contract of `VectorStore.search`: legs, fusion, grouping, diversity and several queries, on every store."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkproof.base.errors import CollectionNotFoundError, InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import parse_filters
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import (
    TEXT_VECTOR,
    DenseLeg,
    Fusion,
    Grouping,
    Point,
    PointId,
    StoreQuery,
    TextLeg,
    VectorConfig,
    WritableStore,
)

from support.recording_server import CannedResponse, RecordedRequest, recording_server
from support.stores import MemoryStore

COLLECTION = "legs"
UNNAMED = VectorConfig("", 2, "Cosine")
CODE = "ERR-4711-X"
# The cosines with EAST are 1.0, 0.8, 0.6, 0.0 and -1.0; only the last two texts have the code.
EAST = (1.0, 0.0)
POINTS = (
    Point(1, {"text": "the pump stops", "doc": "a", "tenant": "t"}, vector=(1.0, 0.0)),
    Point(2, {"text": "the pump runs hot", "doc": "a", "tenant": "u"}, vector=(0.8, 0.6)),
    Point(3, {"text": "a valve leaks", "doc": "b", "tenant": "t"}, vector=(0.6, 0.8)),
    Point(4, {"text": f"on {CODE} change the fuse", "doc": "b", "tenant": "t"}, vector=(0.0, 1.0)),
    Point(5, {"text": f"{CODE} is listed among many other codes of the drive unit", "tenant": "u"}, vector=(-1.0, 0.0)),
)


@dataclass
class Shelf:
    """A filled store that tests only read, and how its texts are searched."""

    store: WritableStore
    leg: TextLeg

    @property
    def weighs_words_of_tenants(self) -> bool:
        return self.leg.sparse_vector is not None and self.store.features(Deadline(60_000)).idf_corpus

    def search(self, *queries: StoreQuery) -> list[list[Point]]:
        return self.store.search(queries, Deadline(60_000))

    def one(self, *, text: str | None = CODE, east: bool = True, threshold: float = 0.0, **rest: Any) -> list[Point]:
        return self.search(self.query(text=text, east=east, threshold=threshold, **rest))[0]

    def query(
        self, *, text: str | None = CODE, east: bool = True, threshold: float = 0.0, limit: int = 10, **rest: Any
    ) -> StoreQuery:
        dense = DenseLeg(UNNAMED, EAST, threshold) if east else None
        words = replace(self.leg, text=text) if text else None
        return StoreQuery(COLLECTION, limit, dense, words, **rest)


@pytest.fixture(scope="module", params=["edge", "indexed", pytest.param("server", marks=pytest.mark.server)])
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """The same points in every kind of store, searchable by words in each way that the store has."""
    if request.param in ("edge", "indexed"):
        store = MemoryStore(words=True)
    else:
        store = ServerStore(request.getfixturevalue("served_qdrant").url, DeadlineTransport())
    deadline = Deadline(60_000)
    store.create(COLLECTION, 2, deadline, text_search=True)
    makes_vectors = store.features(deadline).bm25 and request.param != "indexed"
    store.upsert(COLLECTION, POINTS, "", deadline, text_vector=TEXT_VECTOR if makes_vectors else None)
    yield Shelf(store, TextLeg("", sparse_vector=TEXT_VECTOR) if makes_vectors else TextLeg("", field="text"))
    store.close()


def ids(points: list[Point]) -> list[PointId]:
    return [point.id for point in points]


def test_the_text_leg_finds_points_by_their_words_best_first(shelf: Shelf) -> None:
    found = shelf.one(east=False)
    assert ids(found) == [4, 5]
    assert found[0].score > found[1].score > 0
    assert [point.scores and (point.scores.text, point.scores.text_rank) for point in found] == [
        (found[0].score, 1),
        (found[1].score, 2),
    ]
    assert found[0].payload == POINTS[3].payload


def test_words_that_no_point_has_find_nothing(shelf: Shelf) -> None:
    assert shelf.one(text="zebra", east=False) == []


def test_fused_results_follow_the_formula_of_rrf(shelf: Shelf) -> None:
    found = shelf.one(fusion=Fusion(k=60), candidates=10)
    # Dense: 1, 2, 3, 4 (a negative cosine is no candidate). Text: 4, 5. Ranks count from 0 in the formula.
    expected = {4: 1 / 63 + 1 / 60, 1: 1 / 60, 5: 1 / 61, 2: 1 / 61, 3: 1 / 62}
    assert ids(found)[:2] == [4, 1]
    assert set(ids(found)[2:4]) == {2, 5}
    assert {point.id: point.score for point in found} == pytest.approx(expected, abs=1e-6)
    assert all(point.scores and point.scores.fused == point.score for point in found)


def test_every_result_has_the_score_and_rank_of_each_leg(shelf: Shelf) -> None:
    scores = {point.id: point.scores for point in shelf.one(candidates=10) if point.scores}
    cosines = {point_id: one.dense for point_id, one in scores.items()}
    assert cosines == pytest.approx({1: 1.0, 2: 0.8, 3: 0.6, 4: 0.0, 5: -1.0}, abs=1e-6)
    assert {point_id: one.dense_rank for point_id, one in scores.items()} == {1: 1, 2: 2, 3: 3, 4: 4, 5: None}
    assert {point_id: one.text_rank for point_id, one in scores.items()} == {4: 1, 5: 2, 1: None, 2: None, 3: None}
    assert [scores[point_id].text for point_id in (1, 2, 3)] == [None] * 3
    by_words = {point.id: point.score for point in shelf.one(east=False)}
    assert {4: scores[4].text, 5: scores[5].text} == pytest.approx(by_words)


def test_dbsf_adds_the_scaled_scores_of_both_legs(shelf: Shelf) -> None:
    found = shelf.one(fusion=Fusion("dbsf"), candidates=10)
    assert set(ids(found)) == {1, 2, 3, 4, 5}
    assert [point.score for point in found] == sorted((point.score for point in found), reverse=True)
    # Of two scores the better one lies 0.7071 standard deviations above their mean: (0.7071 + 3) / 6.
    alone = shelf.one(fusion=Fusion("dbsf"), threshold=0.99, candidates=10)
    assert ids(alone) == [1]
    assert next(point.score for point in found if point.id == 5) == pytest.approx((3 - 0.5**0.5) / 6, abs=1e-4)


def test_a_store_takes_weights_or_says_that_it_does_not(shelf: Shelf) -> None:
    dense_only, text_only = (shelf.one(fusion=Fusion(k=60, weights=weights)) for weights in ((1.0, 0.0), (0.0, 1.0)))
    if shelf.store.features(Deadline(60_000)).rrf_weights:
        assert ids(dense_only)[0] == 1
        assert ids(text_only)[:2] == [4, 5]
    else:
        assert {point.id: point.score for point in dense_only} == {point.id: point.score for point in text_only}


@pytest.mark.parametrize(("threshold", "expected"), [(0.6, {1, 2, 3}), (0.81, {1}), (1.0, {1})])
def test_the_threshold_applies_to_the_cosine_of_every_fused_result(
    shelf: Shelf, threshold: float, expected: set[PointId]
) -> None:
    assert set(ids(shelf.one(threshold=threshold))) == expected


def test_results_below_the_threshold_do_not_take_the_places_of_others(shelf: Shelf) -> None:
    assert ids(shelf.one(threshold=0.6, limit=3, fusion=Fusion(k=60))) == [1, 2, 3]


def test_filters_apply_to_both_legs(shelf: Shelf) -> None:
    where = parse_filters({"doc": "b"})
    assert set(ids(shelf.one(where=where))) == {3, 4}
    assert ids(shelf.one(where=where, east=False)) == [4]


def test_no_more_points_than_the_limit_are_returned(shelf: Shelf) -> None:
    assert len(shelf.one(limit=2)) == 2
    assert len(shelf.one(limit=1, east=False)) == 1


def test_vectors_are_returned_with_every_kind_of_search(shelf: Shelf) -> None:
    for found in (shelf.one(with_vector=""), shelf.one(with_vector="", east=False)):
        vectors = {point.id: point.vector for point in found}
        assert vectors[4] == pytest.approx((0.0, 1.0))
        assert vectors[5] == pytest.approx((-1.0, 0.0))


def test_groups_have_at_most_their_size_and_results_are_best_first(shelf: Shelf) -> None:
    found = shelf.one(text=None, grouping=Grouping("doc"))
    assert [(point.id, point.group) for point in found] == [(1, "a"), (3, "b")]
    found = shelf.one(text=None, grouping=Grouping("doc", 2))
    assert [(point.id, point.group) for point in found] == [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert len(shelf.one(text=None, grouping=Grouping("doc", 2), limit=3)) == 3


def test_fused_results_can_be_grouped_and_keep_the_scores_of_each_leg(shelf: Shelf) -> None:
    found = shelf.one(grouping=Grouping("doc"), fusion=Fusion(k=60), candidates=10)
    assert [(point.id, point.group) for point in found] == [(4, "b"), (1, "a")]
    assert found[0].scores is not None
    assert found[0].scores.text_rank == 1
    assert found[0].scores.dense == pytest.approx(0.0, abs=1e-6)


def test_groups_of_fused_results_are_filled_with_what_reaches_the_threshold(shelf: Shelf) -> None:
    # The best of group b by both legs is 4, whose cosine is 0.
    found = shelf.one(grouping=Grouping("doc"), threshold=0.6, candidates=10, with_vector="")
    assert [(point.id, point.group) for point in found] == [(1, "a"), (3, "b")]
    assert [point.payload for point in found] == [POINTS[0].payload, POINTS[2].payload]
    assert found[1].vector == pytest.approx((0.6, 0.8))


def test_the_ranks_of_grouped_results_are_those_that_were_fused(store: WritableStore, collection: str) -> None:
    deadline, draw = Deadline(60_000), Random(4)
    words = ("pump", "valve", "fuse", "sheet", "code")
    points = [
        Point(
            number,
            {"text": " ".join(draw.choices(words, k=6)), "doc": f"d{number % 20}"},
            vector=(draw.uniform(-1, 1), draw.uniform(-1, 1)),
        )
        for number in range(120)
    ]
    store.create(collection, 2, deadline, text_search=True)
    name = next(iter(store.describe(collection, deadline).sparse_vectors), None)
    store.upsert(collection, points, "", deadline, text_vector=name)
    leg = TextLeg("pump fuse", sparse_vector=name, field=None if name else "text")
    for threshold, size in ((0.0, 1), (0.0, 3), (0.9, 1), (0.9, 2)):
        query = StoreQuery(collection, 10, DenseLeg(UNNAMED, EAST, threshold), leg, fusion=Fusion(k=60), candidates=15)
        grouped, every = store.search(
            [replace(query, grouping=Grouping("doc", size)), replace(query, limit=30)], deadline
        )
        shown = {point.group for point in grouped}
        assert len(shown) == min(10, len({point.payload["doc"] for point in every})) or len(grouped) == 10
        for point in grouped:
            assert point.scores is not None
            ranks = [rank for rank in (point.scores.dense_rank, point.scores.text_rank) if rank]
            assert sum(1 / (59 + rank) for rank in ranks) == pytest.approx(point.score)
            better = [one for one in every if one.score > point.score and one.payload["doc"] == point.group]
            assert len(better) < size


def test_diversity_prefers_results_that_differ(shelf: Shelf) -> None:
    relevant = shelf.one(text=None, limit=2, candidates=10, diversity=0.0)
    diverse = shelf.one(text=None, limit=2, candidates=10, diversity=0.9)
    assert ids(relevant) == [1, 2]
    assert ids(diverse) == [1, 4]
    assert [point.score for point in diverse] == pytest.approx([1.0, 0.0], abs=1e-6)


def test_several_queries_are_answered_in_their_order(shelf: Shelf) -> None:
    dense, words = shelf.query(text=None, limit=2), shelf.query(east=False)
    grouped, both = shelf.query(text=None, grouping=Grouping("doc")), shelf.query(limit=2, candidates=10)
    found = shelf.search(grouped, dense, both, words)
    assert [ids(points) for points in found] == [[1, 3], [1, 2], [4, 1], [4, 5]]
    assert shelf.search() == []


def test_a_query_of_an_unknown_collection_fails_all(shelf: Shelf) -> None:
    with pytest.raises(CollectionNotFoundError):
        shelf.search(shelf.query(), replace(shelf.query(), collection="no-such"))


def test_the_parameters_of_the_index_are_accepted(shelf: Shelf) -> None:
    query = shelf.query(text=None)
    assert query.dense is not None
    for leg in (replace(query.dense, hnsw_ef=64, rescore=True, oversampling=2.0), replace(query.dense, exact=True)):
        assert ids(shelf.search(replace(query, dense=leg))[0]) == [1, 2, 3, 4]


QUERIES = st.fixed_dictionaries(
    {
        "text": st.sampled_from([None, CODE, "the pump", "pump fuse valve codes"]),
        "east": st.booleans(),
        "threshold": st.sampled_from([0.0, 0.0, 0.5]),
        "limit": st.integers(1, 5),
        "candidates": st.integers(0, 10),
        "fusion": st.sampled_from([Fusion(), Fusion(k=60), Fusion("dbsf")]),
        "with_vector": st.sampled_from([None, ""]),
        "diversity": st.sampled_from([None, None, 0.5]),
        "grouping": st.sampled_from([None, None, Grouping("doc"), Grouping("text", 2)]),
        "where": st.sampled_from([(), parse_filters({"not": {"doc": "b"}}), parse_filters({"not": {"tenant": "t"}})]),
    }
).filter(lambda query: (query["text"] or query["east"]) and not (query["grouping"] and query["diversity"] is not None))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queries=st.lists(QUERIES, min_size=1, max_size=4), tenant=st.sampled_from(["t", "u", "nobody"]))
def test_a_tenant_finds_only_its_own_points_by_any_leg(
    shelf: Shelf, queries: list[dict[str, Any]], tenant: str
) -> None:
    own = shelf.store.for_tenant("tenant", tenant)
    if any(query["text"] for query in queries) and not shelf.weighs_words_of_tenants:
        with pytest.raises(InvalidParameterError, match="off for tenants"):
            own.search([shelf.query(**query) for query in queries], Deadline(60_000))
        queries = [{**query, "text": None, "east": True} for query in queries]
    found = own.search([shelf.query(**query) for query in queries], Deadline(60_000))
    assert {point.payload["tenant"] for points in found for point in points} <= {tenant}
    assert all(point.scores.text is None for points in found for point in points if point.scores)
    # What others store changes neither ranks nor candidates.
    for points in found:
        for rank in ("dense_rank", "text_rank"):
            ranks = [getattr(point.scores, rank) for point in points if point.scores]
            assert all(value is None or value <= 3 for value in ranks)


WORDS = ("pump", "valve", "fuse", "drive", "motor", "seal", "filter", "sensor")


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), min_size=3, max_size=8),
    others=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=40),
    wanted=st.lists(st.sampled_from(WORDS), min_size=2, max_size=4, unique=True),
)
def test_what_others_store_changes_no_result_of_a_tenant_by_words(
    texts: list[list[str]], others: list[list[str]], wanted: list[str]
) -> None:
    def points(stored: list[list[str]], tenant: str, start: int) -> list[Point]:
        return [
            Point(number, {"text": " ".join(words), "tenant": tenant}, vector=(1.0, number / 100))
            for number, words in enumerate(stored, start)
        ]

    answers = []
    for stored in (points(texts, "t", 1), points(texts, "t", 1) + points(others, "u", 100)):
        store, deadline = MemoryStore(), Deadline(60_000)
        store.create(COLLECTION, 2, deadline, text_search=True)
        store.upsert(COLLECTION, stored, "", deadline, text_vector=TEXT_VECTOR)
        text = TextLeg(" ".join(wanted), TEXT_VECTOR)
        legs = (StoreQuery(COLLECTION, 50, None, text), StoreQuery(COLLECTION, 50, DenseLeg(UNNAMED, EAST), text))
        found = store.for_tenant("tenant", "t").search(legs, deadline)
        answers.append([{point.id: point.score for point in result} for result in found])
        store.close()
    assert answers[0][0] == answers[1][0]
    if len(set(answers[0][0].values())) == len(answers[0][0]):  # of equal texts, the engine ranks any first
        assert answers[0][1] == answers[1][1]


def test_a_server_is_asked_to_weigh_words_within_the_tenant() -> None:
    def answer(request: RecordedRequest) -> CannedResponse:
        body = {"version": "1.19.0"} if request.method == "GET" else {"result": {"points": []}, "status": "ok"}
        return CannedResponse(body=json.dumps(body).encode(), headers={"content-type": "application/json"})

    query = StoreQuery("docs", 3, text=TextLeg("pump", TEXT_VECTOR))
    with recording_server(answer) as server:
        store = ServerStore(server.url, DeadlineTransport())
        assert store.for_tenant("tenant", "t").search([query], Deadline(60_000)) == [[]]
        store.close()
    own = {"must": [{"key": "tenant", "match": {"value": "t"}}]}
    sent = json.loads(server.requests[-1].body)
    assert (sent["filter"], sent["params"]) == (own, {"idf": {"corpus": own}})
