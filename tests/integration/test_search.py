"""Search on real stores: what an answer guarantees, and what it refuses."""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from qdrant_client import models

from chunkproof.base.errors import (
    CollectionNotFoundError,
    CorruptChunkError,
    DimensionMismatchError,
    EmbeddingSizeError,
    NotConfiguredError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract import RetrievalResponse
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.net.transport import DeadlineTransport
from chunkproof.stores.store_port import (
    Description,
    Features,
    Page,
    Point,
    PointId,
    StoreQuery,
    VectorConfig,
    WritableStore,
)

from support.chunks import ask, fill, make_services
from support.cohere_server import KEY, CohereServer, cohere_server
from support.sdk import sdk
from support.stores import MemoryStore

EAST = [1.0, 0.0]
URL = "https://docs.example.com/a"


def chunk(id_: PointId, x: float = 1.0, y: float = 0.0, /, text: str | None = None, **payload: Any) -> Point:
    full = {"text": text or f"text {id_}", "url": URL, "document_title": "A", **payload}
    return Point(id_, full, vector=(x, y))


THREE = (chunk(1, 1.0, 0.0), chunk(2, 0.8, 0.6), chunk(3, 0.6, 0.8))


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.server)])
def either(request: pytest.FixtureRequest) -> WritableStore:
    """A store in memory and one on a server."""
    chosen: WritableStore = request.getfixturevalue(f"{request.param}_store")
    return chosen


@pytest.fixture(scope="module")
def compass_api() -> Iterator[CohereServer]:
    """A service whose embeddings have two values: `north` is up, everything else is right."""
    with cohere_server(lambda text: [0.0, 1.0] if "north" in text else [1.0, 0.0]) as server:
        yield server


@pytest.fixture(scope="module")
def compass(compass_api: CohereServer) -> Iterator[CohereEmbedder]:
    made = CohereEmbedder(
        DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"}),
        model="embed-english-v3.0",
        base_url=compass_api.url,
    )
    yield made
    made.close()


def scores(answer: RetrievalResponse) -> list[float]:
    return [result.similarity_score for result in answer.results]


def ids(answer: RetrievalResponse) -> list[str]:
    return [result.metadata.chunk_id for result in answer.results]


# the envelope


def test_an_answer_says_what_was_asked_and_done(
    either: WritableStore, collection: str, compass: CohereEmbedder
) -> None:
    fill(either, collection, *THREE)
    text = "Where is the east?\u00a0e\u0301"
    answer = ask(
        make_services(either, collection, compass),
        query_text=text,
        query_id="q-1",
        top_k=2,
        similarity_threshold=0.5,
    )
    assert (answer.query, answer.query_id, answer.status) == (text, "q-1", "success")
    assert answer.errors == ()
    assert "error" not in json.loads(answer.to_json())
    done = answer.execution
    assert (done.result_count, done.requested_top_k, done.threshold_applied) == (2, 2, 0.5)
    assert (done.collection, done.embedding_model) == (collection, "embed-english-v3.0")
    assert (done.skipped, done.embedding_cached) == (0, False)
    assert done.query_embedded_at is not None
    assert done.query_embedded_at.tzinfo is not None
    assert done.embedding_time_ms > 0
    assert done.latency_ms >= (done.qdrant_query_time_ms or 0)


def test_a_vector_instead_of_a_text_needs_no_embedder(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    answer = ask(make_services(either, collection), query_vector=EAST)
    assert ids(answer) == ["1", "2", "3"]
    assert (answer.query, answer.execution.embedding_model) == (None, None)
    assert (answer.execution.query_embedded_at, answer.execution.embedding_time_ms) == (None, 0.0)


def test_a_text_without_an_embedder_says_what_to_set(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, *THREE)
    with pytest.raises(NotConfiguredError, match="COHERE_API_KEY"):
        ask(make_services(memory_store, collection), query_text="anything")


# the invariants


def test_ranks_run_from_one_without_gaps_and_scores_never_increase(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    answer = ask(make_services(either, collection), query_vector=EAST)
    assert [result.rank for result in answer.results] == [1, 2, 3]
    assert scores(answer) == pytest.approx([1.0, 0.8, 0.6], abs=1e-6)
    assert scores(answer) == sorted(scores(answer), reverse=True)


def test_a_score_equal_to_the_threshold_is_a_result(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    services = make_services(either, collection)
    for count, score in enumerate(scores(ask(services, query_vector=EAST)), start=1):
        answer = ask(services, query_vector=EAST, similarity_threshold=score)
        assert len(answer.results) == count
        assert all(found >= score for found in scores(answer))


def test_both_ends_of_the_threshold_are_included(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, 1.0, 0.0), chunk(2, 0.0, 1.0))
    services = make_services(either, collection)
    assert scores(ask(services, query_vector=EAST, similarity_threshold=1.0)) == [1.0]
    assert scores(ask(services, query_vector=EAST, similarity_threshold=0.0)) == [1.0, 0.0]


def test_a_negative_cosine_never_appears(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, 0.6, 0.8), chunk(2, -0.6, 0.8), chunk(3, -1.0, 0.0))
    assert ids(ask(make_services(either, collection), query_vector=EAST)) == ["1"]


def test_scores_stay_within_zero_and_one_whatever_the_rounding(either: WritableStore, collection: str) -> None:
    # The engines find up to 1.0000001 for some of these vectors and themselves.
    vectors = [(n / 97, 1 - n / 89, n / 83 - 0.5) for n in range(1, 25)]
    fill(either, collection, *(Point(n, {"text": "x"}, vector=v) for n, v in enumerate(vectors)), size=3)
    services = make_services(either, collection)
    for vector in vectors:
        answer = ask(services, query_vector=list(vector), top_k=30)
        assert all(0.0 <= score <= 1.0 for score in scores(answer))
        assert scores(answer)[0] == pytest.approx(1.0, abs=1e-6)


class RoundedUp:
    """A store whose only answer is a score just above 1, as engines give it at times."""

    host = "nowhere"

    def collections(self, _deadline: Deadline) -> list[str]:
        return ["docs"]

    def describe(self, collection: str, _deadline: Deadline) -> Description:
        return Description(collection, (VectorConfig("", 2, "Cosine"),), 2, 0, "green", frozenset())

    def features(self, _deadline: Deadline) -> Features:
        return Features("a store of one answer")

    def search(self, _queries: Sequence[StoreQuery], _deadline: Deadline) -> list[list[Point]]:
        return [
            [
                Point("b", {"text": "second by id"}, score=1.0000001),
                Point("a", {"text": "first by id"}, score=1.0),
            ]
        ]

    def fetch(
        self,
        _collection: str,
        _ids: Sequence[PointId],
        _deadline: Deadline,
        *,
        with_vector: str | None = None,
    ) -> list[Point]:
        return []

    def scroll(self, _collection: str, _deadline: Deadline, **_rest: Any) -> Page:
        return Page((), None)


def test_a_score_of_1_0000001_is_clamped_and_then_equal() -> None:
    answer = ask(make_services(RoundedUp(), "docs"), query_vector=EAST)
    assert scores(answer) == [1.0, 1.0]
    assert ids(answer) == ["a", "b"]


@pytest.mark.parametrize("top_k", [1, 2, 3, 1000])
def test_the_count_is_that_of_the_results_and_at_most_top_k(
    memory_store: WritableStore, collection: str, top_k: int
) -> None:
    fill(memory_store, collection, *THREE)
    answer = ask(make_services(memory_store, collection), query_vector=EAST, top_k=top_k)
    assert answer.execution.result_count == len(answer.results) == min(3, top_k)


def test_equal_scores_are_ordered_by_chunk_id(either: WritableStore, collection: str) -> None:
    names = ["m", "z", "a", "10", "9", "B"]
    fill(either, collection, *(chunk(n, chunk_id=name) for n, name in enumerate(names)))
    answer = ask(make_services(either, collection), query_vector=EAST, top_k=10)
    assert len(set(scores(answer))) == 1
    assert ids(answer) == ["10", "9", "B", "a", "m", "z"]


TEXTS = {
    "decomposed": "cafe\u0301 \u1112\u1161\u11ab",
    "windows line ends": "one\r\ntwo\rthree\n\n",
    "NUL and controls": "a\x00b\x1b[31m\x7f",
    "emoji": "\U0001f469\u200d\U0001f527 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "invisible": "\ufeffa\u200bb\u00adc\u2060",
    "outer blanks": "  \t text \n ",
    "JSON in text": '{"text": "\\u0041"} \\ " \u2028 \u2029',
    "one megabyte": "0123456789abcde\n" * 65_536,
}


def test_the_text_is_the_stored_one_byte_for_byte(either: WritableStore, collection: str) -> None:
    fill(either, collection, *(chunk(n, text=text, of=kind) for n, (kind, text) in enumerate(TEXTS.items())))
    services = make_services(either, collection)
    for kind, text in TEXTS.items():
        answer = ask(services, query_vector=EAST, filters={"of": kind})
        assert answer.results[0].text.encode() == text.encode(), kind
        assert json.loads(answer.to_json())["results"][0]["text"] == text, kind


def test_no_match_is_a_success_with_no_results(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, 0.0, 1.0))
    answer = ask(make_services(either, collection), query_vector=EAST, similarity_threshold=0.5)
    assert (answer.status, answer.results, answer.errors) == ("success", (), ())
    assert answer.execution.result_count == 0


def test_an_empty_collection_is_a_success_with_no_results(either: WritableStore, collection: str) -> None:
    fill(either, collection)
    assert ask(make_services(either, collection), query_vector=EAST).results == ()


# what a result shows


def test_payload_and_vector_are_added_when_asked_for(either: WritableStore, collection: str) -> None:
    payload = {"text": "x", "url": URL, "own": {"deep": [1, None, "ü"]}}
    fill(either, collection, Point(7, payload, vector=(0.6, 0.8)))
    services = make_services(either, collection)
    plain = json.loads(ask(services, query_vector=EAST).to_json())["results"][0]
    assert "payload" not in plain
    assert "vector" not in plain
    (full,) = ask(services, query_vector=EAST, with_payload=True, with_vectors=True).results
    assert full.payload == payload
    assert full.vector == pytest.approx((0.6, 0.8))


def test_without_metadata_the_id_and_the_url_remain(either: WritableStore, collection: str) -> None:
    fill(either, collection, chunk(1, chunk_id="c-1", position=4))
    answer = json.loads(ask(make_services(either, collection), query_vector=EAST, include_metadata=False).to_json())
    assert answer["results"][0]["metadata"] == {"chunk_id": "c-1", "url": URL}


def test_odd_metadata_is_shown_as_it_is_stored(either: WritableStore, collection: str) -> None:
    odd = {"url": ["not", 1], "position": -3.5, "timestamp": 17, "document_title": {"de": "Titel"}}
    fill(either, collection, Point(1, {"text": "x", **odd}, vector=(1.0, 0.0)))
    shown = ask(make_services(either, collection), query_vector=EAST).results[0].metadata.model_dump()
    assert {name: shown[name] for name in odd} == odd


# the query's vector


def test_the_length_of_a_query_vector_does_not_matter(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    for length in (5e-324, 1e-30, 1.0, 3e38):
        answer = ask(make_services(either, collection), query_vector=[length, 0.0])
        assert scores(answer) == pytest.approx([1.0, 0.8, 0.6], abs=1e-6)


def test_a_query_vector_of_another_size_names_both_sizes(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    with pytest.raises(DimensionMismatchError) as caught:
        ask(make_services(either, collection), query_vector=[1.0, 0.0, 0.0])
    assert caught.value.message == f"query_vector has 3 dimensions, collection {collection} has 2"
    assert (caught.value.code, caught.value.status) == ("DIMENSION_MISMATCH", 400)


def test_an_embedding_of_another_size_is_a_dimension_mismatch_that_names_both(
    either: WritableStore, collection: str, compass: CohereEmbedder
) -> None:
    fill(either, collection, Point(1, {"text": "x"}, vector=(1.0, 0.0, 0.0)), size=3)
    with pytest.raises(EmbeddingSizeError) as caught:
        ask(make_services(either, collection, compass), query_text="east")
    assert (caught.value.code, caught.value.status) == ("DIMENSION_MISMATCH", 400)
    assert caught.value.message == (
        f"embed-english-v3.0 makes 2 values, collection {collection} stores 3: "
        "set CHUNKPROOF_MODEL to the model that made the collection"
    )


def test_a_query_asked_twice_is_embedded_once(
    memory_store: WritableStore, collection: str, compass: CohereEmbedder, compass_api: CohereServer
) -> None:
    fill(memory_store, collection, *THREE)
    services = make_services(memory_store, collection, compass)
    compass_api.requests.clear()
    first, second = (ask(services, query_text="to the east") for _ in range(2))
    assert (first.execution.embedding_cached, second.execution.embedding_cached) == (False, True)
    assert first.execution.query_embedded_at == second.execution.query_embedded_at
    assert scores(first) == scores(second)
    assert ask(services, query_text="to the east ").execution.embedding_cached is False
    assert [asked["texts"] for asked in compass_api.requests] == [["to the east"], ["to the east "]]


def test_without_a_cache_every_query_is_embedded(
    memory_store: WritableStore, collection: str, compass: CohereEmbedder, compass_api: CohereServer
) -> None:
    fill(memory_store, collection, *THREE)
    services = make_services(memory_store, collection, compass, CACHE_ENTRIES="0")
    compass_api.requests.clear()
    assert not any(ask(services, query_text="east").execution.embedding_cached for _ in range(2))
    assert len(compass_api.requests) == 2


# points that cannot be read


def test_an_unreadable_point_is_left_out_counted_and_logged(
    either: WritableStore, collection: str, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = [{"url": URL}, {"text": None}, {"text": ""}, {"text": 5}, {"text": ["a"]}]
    points = (Point(n, payload, vector=(1.0, 0.0)) for n, payload in enumerate(unreadable, start=10))
    fill(either, collection, *points, chunk(1, 0.8, 0.6), chunk(2, 0.6, 0.8))
    with caplog.at_level(logging.WARNING):
        answer = ask(make_services(either, collection), query_vector=EAST, top_k=10)
    assert ids(answer) == ["1", "2"]
    assert [result.rank for result in answer.results] == [1, 2]
    assert (answer.execution.skipped, answer.execution.result_count) == (5, 2)
    (warning,) = [r for r in caplog.records if r.message == "Required field 'text' missing from payload"]
    assert sorted(getattr(warning, "point_ids", ())) == ["10", "11", "12", "13", "14"]


def test_a_missing_url_or_title_is_logged_and_returned_as_null(
    memory_store: WritableStore, collection: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(memory_store, collection, Point(1, {"text": "x"}, vector=(1.0, 0.0)))
    with caplog.at_level(logging.WARNING):
        (result,) = ask(make_services(memory_store, collection), query_vector=EAST).results
    assert result.metadata.url is None
    assert "Required field 'url' missing from payload" in caplog.messages
    assert "Required field 'document_title' missing from payload" in caplog.messages


@pytest.mark.parametrize("top_k", [1, 3])
def test_points_without_text_do_not_take_the_places_of_results(
    either: WritableStore, collection: str, top_k: int
) -> None:
    empty = [Point(n, {"text": ["a"]}, vector=(1.0, 0.0)) for n in range(10, 50)]
    texts = [Point(n, {"text": f"text {n}"}, vector=(1.0, 0.5)) for n in range(1, 6)]
    fill(either, collection, *empty, *texts)
    answer = ask(make_services(either, collection), query_vector=[1.0, 0.0], top_k=top_k)
    assert (answer.execution.result_count, answer.execution.skipped) == (top_k, 40)
    assert answer.notes == ()


def test_too_many_points_without_text_are_noted(
    either: WritableStore, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkproof.search.steps.MAX_SEARCHED", 10)
    empty = [Point(n, {"text": {"a": 1}}, vector=(1.0, 0.0)) for n in range(10, 19)]
    texts = [Point(n, {"text": f"text {n}"}, vector=(1.0, 0.5)) for n in range(1, 6)]
    fill(either, collection, *empty, *texts)
    answer = ask(make_services(either, collection), query_vector=[1.0, 0.0], top_k=3)
    assert answer.execution.result_count == 1
    assert answer.notes == ("9 of the 10 points found have no readable text: there may be more results",)


@pytest.mark.parametrize("other", [["a", "b"], {"a": "b"}, 5, True])
def test_a_text_beside_something_that_is_none_is_read(either: WritableStore, collection: str, other: object) -> None:
    fill(either, collection, Point(1, {"text": other, "content": "the text"}, vector=(1.0, 0.0)))
    answer = ask(make_services(either, collection), query_vector=[1.0, 0.0])
    assert [result.text for result in answer.results] == ["the text"]


def test_only_unreadable_points_are_a_corrupt_collection(either: WritableStore, collection: str) -> None:
    fill(either, collection, *(Point(n, {"body": "x"}, vector=(1.0, 0.0)) for n in (1, 2)))
    with pytest.raises(CorruptChunkError) as caught:
        ask(make_services(either, collection), query_vector=EAST)
    assert (caught.value.code, caught.value.status) == ("CORRUPT_CHUNK", 500)
    assert "None of the 2 points found has readable text" in caught.value.message


def test_a_payload_map_makes_such_points_readable(either: WritableStore, collection: str) -> None:
    fill(either, collection, Point(1, {"body": {"raw": "here"}, "ref": "r-1"}, vector=(1.0, 0.0)))
    services = make_services(either, collection, PAYLOAD_MAP='{"text": "body.raw", "chunk_id": ["ref"]}')
    (result,) = ask(services, query_vector=EAST).results
    assert (result.text, result.metadata.chunk_id) == ("here", "r-1")


def test_text_that_has_no_utf8_form_is_unreadable(memory_store: MemoryStore, collection: str) -> None:
    fill(memory_store, collection, chunk(1), chunk(2))
    memory_store.changed_texts[1] = "half \ud83d"
    answer = ask(make_services(memory_store, collection), query_vector=EAST)
    assert ids(answer) == ["2"]
    assert answer.to_json()


# the model that embedded the chunks


def test_chunks_of_another_model_are_logged(
    memory_store: WritableStore, collection: str, compass: CohereEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    same = chunk(1, embedding_model="embed-english-v3.0")
    fill(memory_store, collection, same, chunk(2, embedding_model="embed-multilingual-v3.0"))
    with caplog.at_level(logging.WARNING):
        response = ask(make_services(memory_store, collection, compass), query_text="east")
    assert response.notes == (
        "The results were embedded with 2 models (embed-english-v3.0, embed-multilingual-v3.0), the query with "
        "embed-english-v3.0: scores of different models cannot be compared; embed the whole collection with one model",
    )
    warned = [r for r in caplog.records if r.message == "Chunks were embedded with another model"]
    assert [(getattr(r, "stored", None), getattr(r, "query", None)) for r in warned] == [
        ("embed-multilingual-v3.0", "embed-english-v3.0")
    ]


def test_chunks_of_the_same_model_are_not(
    memory_store: WritableStore, collection: str, compass: CohereEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    fill(memory_store, collection, chunk(1, embedding_model="embed-english-v3.0"), chunk(2))
    with caplog.at_level(logging.WARNING):
        response = ask(make_services(memory_store, collection, compass), query_text="east")
    assert "Chunks were embedded with another model" not in caplog.messages
    assert response.notes == ()


def test_chunks_of_another_model_are_logged_without_metadata_too(
    memory_store: WritableStore, collection: str, compass: CohereEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    fill(memory_store, collection, chunk(1, embedding_model="embed-multilingual-v3.0"))
    with caplog.at_level(logging.WARNING):
        ask(make_services(memory_store, collection, compass), query_text="east", include_metadata=False)
    assert "Chunks were embedded with another model" in caplog.messages


@pytest.mark.parametrize("stored", [{"name": "embed-english-v3.0", "size": 1024}, ["embed-english-v3.0"]])
def test_a_model_stored_as_an_object_does_not_fail_the_search(
    either: WritableStore, collection: str, compass: CohereEmbedder, stored: object
) -> None:
    fill(either, collection, chunk(1, embedding_model=stored))
    answer = ask(make_services(either, collection, compass), query_text="east")
    assert answer.results[0].metadata.model_dump()["embedding_model"] == stored


# which collection


def test_an_unknown_collection_is_an_error_and_not_an_empty_answer(either: WritableStore, collection: str) -> None:
    with pytest.raises(CollectionNotFoundError) as caught:
        ask(make_services(either, collection), query_vector=EAST)
    assert (caught.value.code, caught.value.status) == ("COLLECTION_NOT_FOUND", 404)
    assert caught.value.message == f"Collection {collection} not found"


def test_a_collection_that_is_not_allowed_is_as_good_as_unknown(either: WritableStore, collection: str) -> None:
    own, listed, other = (f"{collection}-{n}" for n in ("own", "listed", "other"))
    for name in (own, listed, other):
        fill(either, name, *THREE)
    services = make_services(either, own, ALLOWED_COLLECTIONS=f"{listed}, something-else")
    assert ask(services, query_vector=EAST).execution.collection == own
    assert ask(services, query_vector=EAST, collection=listed).execution.collection == listed
    with pytest.raises(CollectionNotFoundError, match=f"Collection {other} not found"):
        ask(services, query_vector=EAST, collection=other)


@pytest.mark.server
def test_a_collection_made_anew_is_searched_at_the_first_try(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    services = make_services(either, collection)
    ask(services, query_vector=EAST)
    sdk(either).delete_collection(collection)
    fill(either, collection, Point(1, {"text": "new"}, vector=(0.0, 0.0, 1.0)), size=3)
    assert scores(ask(services, query_vector=[0.0, 0.0, 1.0])) == [1.0]


def test_a_local_collection_made_anew_answers_an_old_vector_with_its_size(
    memory_store: WritableStore, collection: str
) -> None:
    fill(memory_store, collection, *THREE)
    services = make_services(memory_store, collection)
    ask(services, query_vector=EAST)
    sdk(memory_store).delete_collection(collection)
    fill(memory_store, collection, Point(1, {"text": "new"}, vector=(0.0, 0.0, 1.0)), size=3)
    with pytest.raises(DimensionMismatchError):
        ask(services, query_vector=EAST)


def test_a_collection_dropped_between_two_searches_is_unknown(either: WritableStore, collection: str) -> None:
    fill(either, collection, *THREE)
    services = make_services(either, collection)
    ask(services, query_vector=EAST)
    sdk(either).delete_collection(collection)
    with pytest.raises(CollectionNotFoundError):
        ask(services, query_vector=EAST)


def test_a_collection_that_appears_after_a_404_is_found(either: WritableStore, collection: str) -> None:
    services = make_services(either, collection)
    with pytest.raises(CollectionNotFoundError):
        ask(services, query_vector=EAST)
    fill(either, collection, *THREE)
    assert len(ask(services, query_vector=EAST).results) == 3


def test_points_written_after_a_search_are_found_by_the_next(either: WritableStore, collection: str) -> None:
    fill(either, collection)
    services = make_services(either, collection)
    assert ask(services, query_vector=EAST).results == ()
    either.upsert(collection, THREE, "", Deadline(60_000))
    assert len(ask(services, query_vector=EAST).results) == 3


def test_a_hybrid_collection_is_searched_by_its_dense_vector(either: WritableStore, collection: str) -> None:
    sdk(either).create_collection(
        collection,
        vectors_config={"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)},
        sparse_vectors_config={"words": models.SparseVectorParams()},
    )
    either.upsert(collection, THREE, "dense", Deadline(60_000))
    answer = ask(make_services(either, collection), query_vector=EAST, with_vectors=True)
    assert answer.results[1].vector == pytest.approx((0.8, 0.6))
