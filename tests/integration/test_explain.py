"""`explain` and `highlight` of a search: what they add, and that they change nothing else."""

import json
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any

import pytest

from chunkproof.base.errors import VectorStoreTimeoutError
from chunkproof.base.request import Deadline, RequestTrace
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.embedders.cohere import CohereEmbedder, CohereReranker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.search.explanation import fusion_shares, locate
from chunkproof.search.single import search
from chunkproof.stores.store_port import Fusion, Point, StoreQuery, WritableStore

from support.chunks import SECONDS_60, ask, fill, make_services
from support.cohere_server import KEY, CohereServer, cohere_server

ALL = {"highlight": True, "neighbours": 1, "explain": True}


def at(cosine: float) -> tuple[float, float]:
    """The unit vector with this cosine to the query, which is (1, 0)."""
    return cosine, (1 - cosine**2) ** 0.5


def points(*cosines: float, **payload: Any) -> list[Point]:
    return [
        Point(n, {"text": f"text {n}", "document_id": "d", "position": n, **payload}, vector=at(cosine))
        for n, cosine in enumerate(cosines, 1)
    ]


def look(services: Services, **request: Any) -> RetrievalResponse:
    return ask(services, query_vector=[1.0, 0.0], explain=True, **request)


# confidence


def test_the_percentile_is_the_share_of_random_scores_below_and_ties_count_half() -> None:
    scores = [0.1, 0.2, 0.2, 0.4]
    assert locate(0.05, scores).percentile == 0.0
    assert locate(0.2, scores).percentile == 50.0
    assert locate(0.3, scores).percentile == 75.0
    assert locate(0.9, scores).percentile == 100.0
    assert locate(0.9, scores).sample_size == 4


def test_in_process_all_points_are_the_sample_so_that_the_percentile_is_exact(
    memory_store: WritableStore, collection: str
) -> None:
    fill(memory_store, collection, *points(0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.05, 0.15, 0.25))
    response = look(make_services(memory_store, collection), top_k=2)
    confidences = [result.explain.confidence for result in response.results if result.explain]
    assert [(one.percentile, one.sample_size) for one in confidences if one] == [(95.0, 10), (85.0, 10)]
    assert response.explain is not None
    assert response.explain.random_scores is not None
    summary = {name: round(value, 4) for name, value in response.explain.random_scores.model_dump().items()}
    assert summary == {"sample_size": 10, "median": 0.25, "p95": 0.9, "highest": 0.9}
    assert response.explain.notes == ()


@pytest.mark.server
def test_a_server_draws_random_chunks_of_the_whole_collection_whatever_the_filter_is(
    server_store: WritableStore, collection: str
) -> None:
    # 300 points between 0 and 0.6, and one at 0.95.
    fill(server_store, collection, *points(0.95, *(n / 500 for n in range(300)), kind="a"))
    services = make_services(server_store, collection)
    response = look(services, top_k=1, filters={"position": 1})
    assert response.explain is not None
    assert response.explain.random_scores is not None
    assert response.explain.random_scores.sample_size == 200
    assert 0.2 < response.explain.random_scores.median < 0.4
    explained = response.results[0].explain
    assert explained is not None
    assert explained.confidence is not None
    assert explained.confidence.percentile >= 99.5
    assert response.explain.filter is not None
    assert (response.explain.filter.points, response.explain.filter.matching) == (301, 1)


def test_the_sample_is_of_the_callers_tenant_alone(store: WritableStore, collection: str) -> None:
    mine = points(0.5, 0.4, 0.3, tenant="mine")
    theirs = [Point(100 + n, {"text": "x", "tenant": "theirs"}, vector=at(0.99)) for n in range(20)]
    fill(store, collection, *mine, *theirs)
    environ = {"CHUNKPROOF_TENANT_FIELD": "tenant", "CHUNKPROOF_TENANT_CLAIM": "t", "CHUNKPROOF_COLLECTION": collection}
    services = Services(Settings.from_env(environ), store, None).for_tenant("mine")
    response = look(services, filters={"position": {"lt": 3}})
    assert response.explain is not None
    assert response.explain.random_scores is not None
    assert response.explain.random_scores.sample_size == 3
    assert round(response.explain.random_scores.highest, 4) == 0.5
    assert response.explain.filter is not None
    assert (response.explain.filter.points, response.explain.filter.matching) == (3, 2)
    assert response.explain.points == 3


# the query and its results


def test_an_explanation_has_rank_score_and_times(store: WritableStore, collection: str) -> None:
    fill(store, collection, *points(0.9, 0.5))
    response = look(make_services(store, collection))
    explained = [result.explain for result in response.results if result.explain]
    assert [one.dense and (one.dense.rank, round(one.dense.score or 0, 4)) for one in explained] == [(1, 0.9), (2, 0.5)]
    assert [(one.text, one.fusion, one.rerank) for one in explained] == [(None, None, None)] * 2
    assert response.explain is not None
    assert (response.explain.search, response.explain.points, response.explain.filter) == ("exact", 2, None)
    assert set(response.explain.times_ms) == {"embed", "search"}


def test_the_share_of_each_leg_follows_from_its_rank() -> None:
    assert fusion_shares(Fusion("rrf"), 1, 3) == (1 / 2, 1 / 4)
    assert fusion_shares(Fusion("rrf", k=60), 1, None) == (1 / 60, 0.0)
    assert fusion_shares(Fusion("rrf", k=60, weights=(2.0, 0.0)), 3, 1) == (1 / (3 / 2 + 59), 0.0)
    assert fusion_shares(Fusion("dbsf"), 1, 1) == (None, None)


class Constant:
    """Embeds every text as (1, 0)."""

    model, dimension, max_batch = "m", 2, 8

    def excess(self, _text: str) -> None:
        return None

    def embed(self, texts: Any, _kind: Any, _deadline: Deadline) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


def test_a_hybrid_search_is_explained_leg_by_leg_and_the_shares_add_up(
    word_store: WritableStore, collection: str
) -> None:
    fill(word_store, collection, *points(0.9, 0.5, 0.4))
    services = make_services(word_store, collection, Constant())
    response = ask(services, query_text="text 3", mode="hybrid", explain=True, top_k=3)
    explained = {result.text: result.explain for result in response.results}
    third = explained["text 3"]
    assert third is not None
    assert third.dense is not None
    assert third.text is not None
    assert (third.dense.rank, third.text.rank) == (3, 1)
    for one in explained.values():
        assert one is not None
        assert one.fusion is not None
        assert (one.fusion.dense or 0) + (one.fusion.text or 0) == pytest.approx(one.fusion.score)
    words = ask(services, query_text="text 3", mode="text", explain=True, top_k=1)
    assert words.explain is not None
    assert "a search by words alone has no dense score" in words.explain.notes[0]
    assert words.results[0].explain is not None
    assert (words.results[0].explain.dense, words.results[0].explain.confidence) == (None, None)


# the time of each leg


class _Watched:
    """A store that keeps what it was asked to search for; a search by words alone can be made slow, or fail."""

    def __init__(self, store: WritableStore, *, text_seconds: float = 0.0, text_fails: bool = False) -> None:
        self._store, self._text_seconds, self._text_fails = store, text_seconds, text_fails
        self.searches: list[StoreQuery] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        self.searches += queries
        if any(query.text and not query.dense for query in queries):
            sleep(self._text_seconds)
            if self._text_fails:
                raise VectorStoreTimeoutError("host", "too late")
        return self._store.search(queries, deadline)


def fill_with_words(store: WritableStore, collection: str) -> None:
    deadline = Deadline(SECONDS_60)
    store.create(collection, 2, deadline, text_search=True)
    text_vector = next(iter(store.describe(collection, deadline).sparse_vectors), None)
    store.upsert(collection, points(0.9, 0.5, 0.4), "", deadline, text_vector=text_vector)


def legs_of(searches: Sequence[StoreQuery]) -> list[tuple[bool, bool, bool]]:
    return [(bool(one.dense), bool(one.text), one.with_payload) for one in searches]


@pytest.mark.parametrize("extra", [{}, {"group_by": "position"}, {"cursor": "start"}, {"similarity_threshold": 0.45}])
def test_each_leg_of_an_explained_hybrid_search_is_timed_by_itself(
    store: WritableStore, collection: str, extra: dict[str, Any]
) -> None:
    fill_with_words(store, collection)
    watched = _Watched(store, text_seconds=0.05)
    services, trace = make_services(watched, collection, Constant()), RequestTrace()  # type: ignore[arg-type]
    query = SearchQuery.parse({"query_text": "text 3", "mode": "hybrid", "explain": True, **extra})
    response = search(query, services.collection(query.collection, Deadline(SECONDS_60), trace))
    assert response.explain is not None
    assert set(response.explain.times_ms) == {"embed", "search", "dense", "text"}
    assert response.explain.times_ms["text"] >= 50
    assert response.explain.notes == ()
    assert legs_of(watched.searches) == [(True, True, True), (True, False, False), (False, True, False)]
    assert {one.limit for one in watched.searches[1:]} == {
        response.execution.fusion and response.execution.fusion.candidates
    }
    assert trace.stages_ms["text"] == pytest.approx(response.explain.times_ms["text"], abs=1.0)
    assert {"dense", "text"} <= set(trace.server_timing(1.0).replace(";", " ").replace(",", " ").split())


@pytest.mark.parametrize("request_", [{"mode": "hybrid"}, {"mode": "text", "explain": True}, {"explain": True}])
def test_no_leg_is_searched_again_without_explain_or_a_second_leg(
    memory_store: WritableStore, collection: str, request_: dict[str, Any]
) -> None:
    fill_with_words(memory_store, collection)
    watched = _Watched(memory_store)
    response = ask(make_services(watched, collection, Constant()), query_text="text 3", **request_)  # type: ignore[arg-type]
    assert len(watched.searches) == 1
    assert response.explain is None or set(response.explain.times_ms) == {"embed", "search"}


def test_a_leg_that_fails_or_has_no_time_is_a_note(memory_store: WritableStore, collection: str) -> None:
    fill_with_words(memory_store, collection)
    request = {"query_text": "text 3", "mode": "hybrid", "explain": True}
    failing = make_services(_Watched(memory_store, text_fails=True), collection, Constant())  # type: ignore[arg-type]
    response = ask(failing, **request)
    assert response.explain is not None
    assert set(response.explain.times_ms) == {"embed", "search", "dense"}
    assert response.explain.notes[0].startswith("Could not find out the time of the text leg: ")
    hurried = make_services(memory_store, collection, Constant())
    ask(hurried, **request)
    response = search(SearchQuery.parse(request), hurried.collection(None, Deadline(60)))
    assert response.explain is not None
    assert response.explain.notes[-1] == "There was no time left to find out the time of the text leg"
    assert len(response.results) == 3


def test_the_rank_of_a_diverse_result_is_that_of_the_search_by_meaning(store: WritableStore, collection: str) -> None:
    fill(store, collection, *points(0.9, 0.89, 0.3, 0.88))
    response = look(make_services(store, collection), diversity=0.9, top_k=2)
    explained = [result.explain for result in response.results if result.explain]
    assert [one.dense and (one.dense.rank, round(one.dense.score or 0, 4)) for one in explained] == [(1, 0.9), (4, 0.3)]
    assert response.explain is not None
    assert set(response.explain.times_ms) == {"embed", "search", "dense"}


def test_each_query_of_several_has_the_times_of_its_legs(memory_store: WritableStore, collection: str) -> None:
    fill_with_words(memory_store, collection)
    services, trace = make_services(memory_store, collection, Constant()), RequestTrace()
    queries = [{"query_text": "text 3", "mode": mode} for mode in ("hybrid", "text", "hybrid")]
    request = SearchQuery.parse({"queries": queries, "explain": True})
    responses = search(request, services.collection(request.collection, Deadline(SECONDS_60), trace)).responses or ()
    times = [response.explain.times_ms for response in responses if response.explain]
    assert [set(one) & {"dense", "text"} for one in times] == [{"dense", "text"}, set(), {"dense", "text"}]
    for leg in ("dense", "text"):
        assert trace.stages_ms[leg] == pytest.approx(sum(one.get(leg, 0.0) for one in times), abs=1.0)
    assert trace.mode is None
    assert (trace.dense_results, trace.text_results) == (6, 9)


class _Failing:
    """A store that can be searched and nothing else."""

    def __init__(self, store: WritableStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in ("count", "sample_scores"):
            raise VectorStoreTimeoutError("host", "too late")
        return getattr(self._store, name)


def test_what_cannot_be_found_out_is_a_note_and_the_results_stay(memory_store: WritableStore, collection: str) -> None:
    fill(memory_store, collection, *points(0.9, 0.5))
    services = make_services(_Failing(memory_store), collection)  # type: ignore[arg-type]
    response = look(services, filters={"position": 1})
    assert len(response.results) == 1
    assert response.explain is not None
    assert (response.explain.filter, response.explain.random_scores) == (None, None)
    assert [note.partition(":")[0] for note in response.explain.notes] == [
        "Could not find out the filter's effect",
        "Could not find out the scores of random chunks",
    ]


# with Cohere's clients


def embed(text: str) -> list[float]:
    """The query is (1, 0), and a sentence about keys is near to it."""
    return list(at(1.0 if text == "How do keys expire?" else 0.9 if "Keys" in text else 0.3))


TEXT = "Doors open at nine. Keys are valid for 90 days. Ask the office."


@pytest.fixture
def api() -> Iterator[CohereServer]:
    with cohere_server(embed) as server:
        yield server


@pytest.fixture
def services(api: CohereServer, memory_store: WritableStore, collection: str) -> Iterator[Services]:
    texts = ("Nothing here.", TEXT, "All about keys that expire.")
    stored = [
        Point(n, {"text": text, "document_id": "d", "position": n}, vector=at(1 - n / 10))
        for n, text in enumerate(texts, 1)
    ]
    fill(memory_store, collection, *stored)

    def bearer() -> dict[str, str]:
        return {"authorization": f"Bearer {KEY}"}

    embedder = CohereEmbedder(DeadlineTransport(bearer), model="embed-english-v3.0", base_url=api.url)
    reranker = CohereReranker(DeadlineTransport(bearer), base_url=api.url)
    settings = Settings.from_env({"CHUNKPROOF_COLLECTION": collection})
    yield Services(settings, memory_store, embedder, reranker=reranker)
    embedder.close()
    reranker.close()


def test_sentences_of_all_results_are_embedded_as_documents_in_one_call(services: Services, api: CohereServer) -> None:
    response = ask(services, query_text="How do keys expire?", highlight=True)
    sent = [(request["input_type"], len(request["texts"])) for request in api.requests]
    assert sent == [("search_query", 1), ("search_document", 5)]
    highlight = response.results[1].highlight
    assert highlight is not None
    assert highlight.sentence is not None
    assert highlight.sentence.text == "Keys are valid for 90 days."
    assert TEXT[highlight.sentence.start : highlight.sentence.end] == highlight.sentence.text
    assert (highlight.sentence.by, round(highlight.sentence.score, 4)) == ("embedding", 0.9)
    assert [(match.term, TEXT[match.start : match.end]) for match in highlight.terms] == [("keys", "Keys")]


def test_reranking_is_explained_with_the_rank_before(services: Services) -> None:
    response = ask(services, query_text="How do keys expire?", rerank=True, explain=True)
    explained = [result.explain for result in response.results if result.explain]
    # The server counts words between spaces: two texts have one of the four.
    assert [one.rerank and (one.rerank.rank_before, one.rerank.score) for one in explained] == [
        (2, 0.25),
        (3, 0.25),
        (1, 0.0),
    ]
    assert response.explain is not None
    assert set(response.explain.times_ms) == {"embed", "search", "rerank"}


@pytest.mark.parametrize("rerank", [False, True])
def test_additions_never_change_the_results(services: Services, rerank: bool) -> None:
    def answered(**additions: Any) -> list[Any]:
        response = ask(services, query_text="How do keys expire?", rerank=rerank, **additions)
        kept = json.loads(response.to_json())["results"]
        return [{name: value for name, value in result.items() if name not in ALL} for result in kept]

    assert answered(**ALL) == answered()


def test_with_little_time_the_answer_comes_without_what_takes_longer(services: Services, api: CohereServer) -> None:
    ask(services, query_text="How do keys expire?")
    deadline = Deadline(130)
    query = SearchQuery.parse({"query_text": "How do keys expire?", "highlight": True, "explain": True})
    response = search(query, services.collection(query.collection, deadline))
    assert len(response.results) == 3
    assert [request["input_type"] for request in api.requests] == ["search_query"]
    highlight = response.results[1].highlight
    assert highlight is not None
    assert highlight.sentence is not None
    assert highlight.sentence.by == "terms"


def test_points_that_take_the_places_of_those_without_a_text_are_explained(
    store: WritableStore, collection: str
) -> None:
    unread = [Point(n, {"image": "a.png"}, vector=at(0.95)) for n in range(10, 14)]
    fill(store, collection, *points(0.9, 0.8), *unread)
    response = ask(make_services(store, collection), query_vector=[1.0, 0.0], top_k=2, explain=True, neighbours=1)
    assert [(result.metadata.chunk_id, result.explain is not None) for result in response.results] == [
        ("1", True),
        ("2", True),
    ]
