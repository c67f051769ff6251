"""Reranking a search: Cohere's clients on a loopback server, with the deadline and every way to fail."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.request import Deadline, RequestTrace
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.embedders.cohere import CohereEmbedder, CohereReranker
from chunkproof.net.resilience import CircuitBreaker
from chunkproof.net.transport import DeadlineTransport
from chunkproof.search.single import search
from chunkproof.stores.store_port import Point, WritableStore

from support.chunks import ask, fill
from support.cohere_server import KEY, CohereServer, cohere_server
from support.listeners import silent_server
from support.recording_server import CannedResponse

QUERY = "reset the robot arm"
# The cosine with the query falls from 1 on; the words of the query are in the last ones.
TEXTS = ("wheels and brakes", "a robot", "the arm", "reset the arm", "reset the robot arm")
JSON = {"content-type": "application/json"}


def embed(text: str) -> list[float]:
    """The query is (1, 0)."""
    return [1.0, 0.0]


def point(number: int, text: str, **payload: Any) -> Point:
    cosine = 1 - number / 10
    vector = (cosine, (1 - cosine**2) ** 0.5)
    return Point(number, {"text": text, "chunk_id": f"c{number}", **payload}, vector=vector)


def bearer() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def api() -> Iterator[CohereServer]:
    with cohere_server(embed) as server:
        yield server


@pytest.fixture
def services(api: CohereServer, word_store: WritableStore, collection: str) -> Iterator[Services]:
    fill(word_store, collection, *(point(n, text) for n, text in enumerate(TEXTS, 1)))
    yield from built(api.url, word_store, collection)


def built(url: str, store: WritableStore, collection: str, **settings: str) -> Iterator[Services]:
    embedder = CohereEmbedder(DeadlineTransport(bearer), model="embed-english-v3.0", base_url=url)
    reranker = CohereReranker(DeadlineTransport(bearer), base_url=url)
    environ = {f"CHUNKPROOF_{name}": value for name, value in settings.items()}
    read = Settings.from_env({"CHUNKPROOF_COLLECTION": collection, **environ})
    yield Services(read, store, embedder, reranker=reranker)
    embedder.close()
    reranker.close()


def ids(response: RetrievalResponse) -> list[str]:
    return [result.metadata.chunk_id for result in response.results]


def test_without_rerank_nothing_is_sent_and_the_answer_has_no_new_field(services: Services, api: CohereServer) -> None:
    response = ask(services, query_text=QUERY)
    assert ids(response) == ["c1", "c2", "c3", "c4", "c5"]
    assert api.reranks() == []
    answer = json.loads(response.to_json())
    assert set(answer) == {"query", "query_id", "status", "results", "execution", "errors"}
    assert set(answer["results"][0]) == {"rank", "text", "similarity_score", "point_id", "metadata", "integrity"}
    assert "rerank" not in answer["execution"]


def test_results_are_in_the_order_of_the_reranker_with_both_scores(services: Services, api: CohereServer) -> None:
    response = ask(services, query_text=QUERY, top_k=3, rerank={"model": "rerank-v5.0-fast", "candidates": 5})
    assert ids(response) == ["c5", "c4", "c3"]
    assert [result.rank for result in response.results] == [1, 2, 3]
    assert [round(result.similarity_score, 4) for result in response.results] == [0.5, 0.6, 0.7]
    scores = [result.scores.model_dump() for result in response.results if result.scores]
    assert [(round(one["dense"], 4), one["text"], one["fused"], one["rerank"]) for one in scores] == [
        (0.5, None, None, 1.0),
        (0.6, None, None, 0.75),
        (0.7, None, None, 0.5),
    ]
    assert api.reranks()[0]["documents"] == list(TEXTS)
    assert (api.reranks()[0]["model"], api.reranks()[0]["query"]) == ("rerank-v5.0-fast", QUERY)
    execution = response.execution.rerank
    assert execution is not None
    assert (execution.model, execution.candidates, execution.status) == ("rerank-v5.0-fast", 5, "applied")
    assert (execution.reason, execution.message, execution.maybe_cut) == (None, None, 0)
    assert execution.time_ms > 0


def test_only_so_many_candidates_are_reranked_and_equal_scores_keep_their_order(
    services: Services, api: CohereServer
) -> None:
    response = ask(services, query_text="robot", top_k=2, rerank={"candidates": 3})
    assert api.reranks()[0]["documents"] == list(TEXTS[:3])
    assert ids(response) == ["c2", "c1"]


def test_a_threshold_is_one_of_the_dense_score(services: Services, api: CohereServer) -> None:
    response = ask(services, query_text=QUERY, similarity_threshold=0.65, rerank=True)
    assert api.reranks()[0]["documents"] == list(TEXTS[:3])
    assert ids(response) == ["c3", "c2", "c1"]


def test_true_takes_the_model_and_the_number_of_the_settings(
    api: CohereServer, word_store: WritableStore, collection: str
) -> None:
    fill(word_store, collection, *(point(n, text) for n, text in enumerate(TEXTS, 1)))
    for own in built(api.url, word_store, collection, RERANK_MODEL="rerank-v4.0-pro", RERANK_CANDIDATES="4"):
        ask(own, query_text=QUERY, top_k=2, rerank=True)
        ask(own, query_text=QUERY, top_k=5, rerank={})
    assert [request["model"] for request in api.reranks()] == ["rerank-v4.0-pro"] * 2
    assert [len(request["documents"]) for request in api.reranks()] == [4, 5]


def test_a_deployment_can_rerank_always_and_a_request_can_say_no(
    api: CohereServer, word_store: WritableStore, collection: str
) -> None:
    fill(word_store, collection, *(point(n, text) for n, text in enumerate(TEXTS, 1)))
    for own in built(api.url, word_store, collection, RERANK="always"):
        reranker, own.reranker = own.reranker, None
        marked = ask(own, query_text=QUERY, top_k=1)
        assert ids(marked) == ["c1"]
        assert marked.execution.rerank is not None
        assert marked.execution.rerank.reason == "NOT_CONFIGURED"
        own.reranker = reranker
        assert ids(ask(own, query_text=QUERY, top_k=1)) == ["c5"]
        assert ids(ask(own, query_text=QUERY, top_k=1, rerank=False)) == ["c1"]
        assert ids(ask(own, query_vector=[1.0, 0.0], top_k=1)) == ["c1"]


def test_a_deployment_that_never_reranks_refuses_to(
    api: CohereServer, word_store: WritableStore, collection: str
) -> None:
    fill(word_store, collection, point(1, "one"))
    for own in built(api.url, word_store, collection, RERANK="never"):
        assert ids(ask(own, query_text=QUERY)) == ["c1"]
        with pytest.raises(InvalidParameterError, match="CHUNKPROOF_RERANK"):
            ask(own, query_text=QUERY, rerank=True)


def test_without_a_reranker_a_request_for_it_says_which_key_to_set(services: Services) -> None:
    services.reranker = None
    with pytest.raises(InvalidParameterError, match="no reranker is configured; set COHERE_API_KEY"):
        ask(services, query_text=QUERY, rerank=True)


def test_no_results_are_nothing_to_rerank(services: Services, api: CohereServer) -> None:
    response = ask(services, query_text=QUERY, filters={"chunk_id": "none"}, rerank={"required": True})
    assert response.results == ()
    assert response.execution.rerank is not None
    assert (response.execution.rerank.status, response.execution.rerank.candidates) == ("applied", 0)
    assert api.reranks() == []


def test_texts_that_may_be_cut_are_counted(services: Services, word_store: WritableStore, collection: str) -> None:
    word_store.upsert(collection, [point(6, "robot " * 1_000)], "", Deadline(60_000))
    response = ask(services, query_text=QUERY, top_k=6, rerank=True)
    assert response.execution.rerank is not None
    assert response.execution.rerank.maybe_cut == 1
    assert max(len(result.text) for result in response.results) == 6_000, "the stored text is returned whole"


def ranking(*pairs: tuple[Any, Any]) -> CannedResponse:
    results = [{"index": index, "relevance_score": score} for index, score in pairs]
    return CannedResponse(200, json.dumps({"results": results}).encode(), JSON)


FAILURES = {
    "an error": (CannedResponse(500, b"{}", JSON), "RERANK_FAILED", 503),
    "a limit": (CannedResponse(429, b"{}", JSON | {"retry-after": "30"}), "RATE_LIMITED", 429),
    "a wrong key": (CannedResponse(401, b"{}", JSON), "RERANK_FAILED", 503),
    "another model": (CannedResponse(404, b"{}", JSON), "RERANK_FAILED", 503),
    "garbage": (CannedResponse(200, b"\x00\x01", JSON), "RERANK_FAILED", 503),
    "a wrong index": (ranking((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.1), (9, 0.1)), "RERANK_FAILED", 503),
    "a repeated index": (ranking((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.1), (3, 0.2)), "RERANK_FAILED", 503),
    "a score of NaN": (ranking((0, 0.1), (1, 0.1), (2, 0.1), (3, float("nan")), (4, 0.2)), "RERANK_FAILED", 503),
    "too few": (ranking((0, 0.1)), "RERANK_FAILED", 503),
}


@pytest.mark.parametrize(("response", "code", "status"), FAILURES.values(), ids=FAILURES)
def test_if_the_reranker_fails_the_answer_is_that_of_the_search_and_says_so(
    services: Services,
    api: CohereServer,
    caplog: pytest.LogCaptureFixture,
    response: CannedResponse,
    code: str,
    status: int,
) -> None:
    api.rerank_responses += [response] * 4
    trace = RequestTrace()
    query = SearchQuery.parse({"query_text": QUERY, "top_k": 2, "rerank": True})
    with caplog.at_level(logging.WARNING):
        answer = search(query, services.collection(query.collection, Deadline(3_000), trace))
    assert ids(answer) == ["c1", "c2"]
    assert all(result.scores is None for result in answer.results)
    execution = answer.execution.rerank
    assert execution is not None
    assert (execution.status, execution.reason, execution.candidates) == ("skipped", code, 5)
    assert execution.message
    assert (trace.rerank, trace.rerank_reason) == ("skipped", code)
    assert "Results were not reranked" in caplog.messages
    required_query = SearchQuery.parse({"query_text": QUERY, "rerank": {"required": True}})
    with pytest.raises(ChunkproofError) as required:
        search(required_query, services.collection(required_query.collection, Deadline(3_000)))
    assert (required.value.code, required.value.status) == (code, status)


def test_a_silent_reranker_leaves_time_for_the_answer(
    services: Services, api: CohereServer, word_store: WritableStore, collection: str
) -> None:
    with silent_server() as url:
        services.reranker = silent = CohereReranker(DeadlineTransport(), base_url=url)
        deadline = Deadline(600)
        query = SearchQuery.parse({"query_text": QUERY, "rerank": True, "top_k": 1})
        answer = search(query, services.collection(query.collection, deadline))
        assert deadline.remaining_ms() > 0
        required_query = SearchQuery.parse({"query_text": QUERY, "rerank": {"required": True}})
        with pytest.raises(TimeoutError) as required:
            search(required_query, services.collection(required_query.collection, Deadline(600)))
        silent.close()
    assert ids(answer) == ["c1"]
    assert answer.execution.rerank is not None
    assert (answer.execution.rerank.status, answer.execution.rerank.reason) == ("skipped", "RERANK_TIMEOUT")
    assert isinstance(required.value, ChunkproofError)
    assert required.value.code == "RERANK_TIMEOUT"


def test_without_time_the_reranker_is_not_called(services: Services, api: CohereServer) -> None:
    ask(services, query_text=QUERY)  # the embedding is cached from here on
    answer = search(
        SearchQuery.parse({"query_text": QUERY, "rerank": True}),
        services.collection(None, Deadline(120)),
    )
    assert answer.execution.rerank is not None
    assert (answer.execution.rerank.status, answer.execution.rerank.reason) == ("skipped", "RERANK_TIMEOUT")
    assert "too few for the reranker" in str(answer.execution.rerank.message)
    assert api.reranks() == []


def test_a_reranker_that_keeps_failing_is_not_called_for_a_while_and_embeddings_go_on(
    services: Services, api: CohereServer
) -> None:
    breaker = CircuitBreaker("rerank", max_failures=2)
    services.reranker = reranker = CohereReranker(DeadlineTransport(bearer, breaker=breaker), base_url=api.url)
    api.rerank_responses += [CannedResponse(503, b"{}", JSON)] * 9
    reasons = []
    for number in range(3):
        answer = ask(services, query_text=f"{QUERY} {number}", rerank=True)
        assert answer.execution.rerank is not None
        reasons.append(answer.execution.rerank.message)
        assert len(answer.results) == 5
    reranker.close()
    assert len(api.reranks()) == 2
    assert "paused" in str(reasons[-1])


def test_candidates_that_are_too_large_to_read_are_left_out_and_the_results_reranked(
    served_qdrant: Any, server_store: WritableStore, api: CohereServer, collection: str
) -> None:
    large = [point(n, f"{n} " + "x" * 3_000_000) for n in range(1, 9)]
    for one in large:
        (fill if one is large[0] else lambda s, c, p: s.upsert(c, [p], "", Deadline(60_000)))(
            server_store, collection, one
        )
    for own in built(api.url, server_store, collection):
        answer = ask(own, query_text="2", top_k=2, rerank=True)
    assert ids(answer) == ["c2", "c1"]
    assert answer.execution.rerank is not None
    assert (answer.execution.rerank.candidates, answer.execution.rerank.maybe_cut) == (2, 2)


def test_each_of_several_queries_is_reranked_and_a_silent_reranker_leaves_time_for_all(
    services: Services, api: CohereServer
) -> None:
    request = {"queries": ["reset", "robot", "arm"], "top_k": 1, "rerank": True}
    trace = RequestTrace()
    answer = search(
        SearchQuery.parse(request),
        services.collection(None, Deadline(60_000), trace),
    )
    assert [ids(one) for one in answer.responses or ()] == [["c4"], ["c2"], ["c3"]]
    assert (trace.rerank, trace.stages_ms["rerank"] > 0) == ("applied", True)
    with silent_server() as url:
        services.reranker = silent = CohereReranker(DeadlineTransport(), base_url=url)
        deadline = Deadline(1_200)
        answer = search(SearchQuery.parse(request), services.collection(None, deadline, trace))
        assert deadline.remaining_ms() > 0
        silent.close()
    assert [ids(one) for one in answer.responses or ()] == [["c1"], ["c1"], ["c1"]]
    marks = [one.execution.rerank.status for one in answer.responses or () if one.execution.rerank]
    assert marks == ["skipped"] * 3
    assert (trace.rerank, trace.rerank_reason) == ("skipped", "RERANK_TIMEOUT")


# the request


@pytest.mark.parametrize(
    ("rerank", "problem"),
    [
        (5, "rerank must be an object, true or false"),
        ("yes", "rerank must be an object, true or false"),
        ([], "rerank must be an object, true or false"),
        ({"candidates": "50"}, "rerank.candidates must be an integer"),
        ({"candidates": True}, "rerank.candidates must be an integer"),
        ({"candidates": 0}, "rerank.candidates must be between 1 and 1000"),
        ({"candidates": 1_001}, "rerank.candidates must be between 1 and 1000"),
        ({"candidates": 4}, "rerank.candidates must be at least top_k (5), not 4"),
        ({"required": 1}, "rerank.required must be true or false"),
        ({"model": 3}, "rerank.model must be a string"),
        (
            {"model": "a b"},
            "rerank.model must be 1 to 100 letters, digits, dots, dashes, underscores, colons and slashes",
        ),
        (
            {"model": "m\n"},
            "rerank.model must be 1 to 100 letters, digits, dots, dashes, underscores, colons and slashes",
        ),
        ({"candidate": 10}, "rerank.candidate is not a known field; did you mean candidates?"),
    ],
)
def test_a_wrong_rerank_is_refused_with_its_place(rerank: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        SearchQuery.parse({"query_text": QUERY, "rerank": rerank})
    assert refused.value.messages == (problem,)


@pytest.mark.parametrize("other", [{"group_by": "document_id"}, {"diversity": 0.5}, {"cursor": "start"}])
def test_what_cannot_be_reranked_is_refused_and_left_alone_by_default(
    other: dict[str, Any], api: CohereServer, word_store: WritableStore, collection: str
) -> None:
    with pytest.raises(InvalidParameterError, match=f"rerank and {next(iter(other))} cannot be combined: a reranker"):
        SearchQuery.parse({"query_text": QUERY, "rerank": {}, **other})
    fill(word_store, collection, *(point(n, text, document_id=text) for n, text in enumerate(TEXTS, 1)))
    for own in built(api.url, word_store, collection, RERANK="always"):
        assert ask(own, query_text=QUERY, top_k=1, **other).execution.rerank is None


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_results_of_other_modes_are_reranked_too(services: Services, mode: str) -> None:
    response = ask(services, query_text=QUERY, mode=mode, rerank=True, top_k=2)
    assert ids(response) == ["c5", "c4"]
    assert [one.scores.rerank for one in response.results if one.scores] == [1.0, 0.75]
    assert all(one.scores and one.scores.text is not None for one in response.results)


def test_all_problems_of_rerank_are_reported_at_once() -> None:
    with pytest.raises(InvalidParameterError) as refused:
        SearchQuery.parse({"query_text": "", "rerank": {"candidates": "x", "required": 1}, "neighbours": 6})
    assert set(refused.value.messages) == {
        "query_text cannot be empty",
        "rerank.candidates must be an integer",
        "rerank.required must be true or false",
        "neighbours must be between 0 and 5",
    }


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"rerank": True}, ["rerank needs query_text: a reranker reads the words of a query"]),
        ({"rerank": {}}, ["rerank needs query_text: a reranker reads the words of a query"]),
        ({"highlight": True}, ["highlight needs query_text: a vector has no words to find"]),
        ({"rerank": False, "highlight": False, "explain": True, "neighbours": 2}, []),
    ],
)
def test_what_needs_words_is_refused_with_a_vector(fields: dict[str, Any], problems: list[str]) -> None:
    found: list[str] = []
    try:
        SearchQuery.parse({"query_vector": [1.0, 0.0], **fields})
    except InvalidParameterError as error:
        found = list(error.messages)
    assert found == problems
