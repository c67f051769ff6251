"""The Cohere embedder against a loopback server: what it sends, and the error that each failure becomes."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from chunkproof.base.errors import ChunkproofError, EmbeddingError, QueryTooLongError, RateLimitedError
from chunkproof.base.request import Deadline
from chunkproof.collection.embedding import QueryEmbedder
from chunkproof.embedders.cohere import CohereEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.resilience import RETRIED_STATUSES
from chunkproof.net.transport import DeadlineTransport

from support.cohere_server import KEY, CohereServer
from support.listeners import dripping_server, refusing_address, silent_server
from support.recording_server import CannedResponse

JSON = {"content-type": "application/json"}
UPSTREAM = "upstream-s3cr3t"


def embedder_at(url: str, *, dimension: int | None = None, key: str = KEY) -> CohereEmbedder:
    return CohereEmbedder(
        DeadlineTransport(lambda: {"authorization": f"Bearer {key}"}),
        model="embed-english-v3.0",
        dimension=dimension,
        base_url=url,
    )


@pytest.fixture
def embedder(cohere_api: CohereServer) -> Iterator[CohereEmbedder]:
    made = embedder_at(cohere_api.url)
    yield made
    made.close()


def error_response(status: int, message: str = UPSTREAM, **headers: str) -> CannedResponse:
    return CannedResponse(status, json.dumps({"message": message}).encode(), {**JSON, **headers})


def embeddings(value: Any) -> CannedResponse:
    body = {"id": "1", "embeddings": value, "texts": ["a"], "response_type": "embeddings_by_type"}
    return CannedResponse(200, json.dumps(body).encode(), JSON)


def failure(embedder: CohereEmbedder, cohere_api: CohereServer, response: CannedResponse) -> ChunkproofError:
    """The error of an embedding when the service always sends this response."""
    cohere_api.responses += [response] * 5
    queries = QueryEmbedder(embedder, cache_entries=0)
    with pytest.raises(ChunkproofError) as caught:
        queries.embed("What is ROS 2?", Deadline(2_000))
    is_repeated = response.status in RETRIED_STATUSES and "retry-after" not in response.headers
    assert len(cohere_api.requests) == (2 if is_repeated else 1), "repeated once, and not by the SDK"
    for secret in (KEY, UPSTREAM, "/v2/embed", "Bearer", "http://", "content-type"):
        assert secret not in str(caught.value)
    return caught.value


# what is sent


@pytest.mark.parametrize(
    ("input_type", "sent"), [(InputType.QUERY, "search_query"), (InputType.DOCUMENT, "search_document")]
)
def test_the_request_asks_for_floats_and_no_truncation(
    embedder: CohereEmbedder, cohere_api: CohereServer, deadline: Deadline, input_type: InputType, sent: str
) -> None:
    embedder.embed(["one", "zwei é\u0301 🤖"], input_type, deadline)
    assert cohere_api.requests == [
        {
            "path": "/v2/embed",
            "model": "embed-english-v3.0",
            "texts": ["one", "zwei é\u0301 🤖"],
            "input_type": sent,
            "embedding_types": ["float"],
            "truncate": "NONE",
        }
    ]


def test_a_dimension_is_sent_only_if_one_is_set(cohere_api: CohereServer, deadline: Deadline) -> None:
    embedder = embedder_at(cohere_api.url, dimension=256)
    embedder.embed(["one"], InputType.QUERY, deadline)
    embedder.close()
    assert cohere_api.requests[0]["output_dimension"] == 256


def test_a_full_batch_is_sent_in_one_call(
    embedder: CohereEmbedder, cohere_api: CohereServer, deadline: Deadline
) -> None:
    texts = [f"text {n}" for n in range(embedder.max_batch)]
    assert len(embedder.embed(texts, InputType.DOCUMENT, deadline)) == 96
    assert len(cohere_api.requests) == 1


# responses


@pytest.mark.parametrize(
    "response",
    [
        error_response(400, "too many tokens: max tokens per text is 512, got 700"),
        error_response(400, "invalid request: the text exceeds the maximum number of tokens"),
        error_response(422, "texts[0] is over the token limit"),
    ],
    ids=lambda response: response.body.decode(),
)
def test_a_text_that_the_service_refuses_to_truncate_is_too_long(
    embedder: CohereEmbedder, cohere_api: CohereServer, response: CannedResponse
) -> None:
    error = failure(embedder, cohere_api, response)
    assert isinstance(error, QueryTooLongError)
    assert (error.code, error.status) == ("QUERY_TOO_LONG", 400)
    assert error.message == "query_text is longer than embed-english-v3.0 reads; shorten it"


STATUSES = [
    (400, "EMBEDDING_FAILED", "{host} answered 400; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION"),
    (401, "EMBEDDING_FAILED", "{host} refused the key; check COHERE_API_KEY"),
    (403, "EMBEDDING_FAILED", "{host} refused the key; check COHERE_API_KEY"),
    (404, "EMBEDDING_FAILED", "{host} does not know the model embed-english-v3.0; check CHUNKPROOF_MODEL"),
    (408, "EMBEDDING_TIMEOUT", "{host} timed out (408)"),
    (422, "EMBEDDING_FAILED", "{host} answered 422; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION"),
    (500, "EMBEDDING_FAILED", "{host} answered 500"),
    (502, "EMBEDDING_FAILED", "{host} answered 502"),
    (503, "EMBEDDING_FAILED", "{host} answered 503"),
    (504, "EMBEDDING_TIMEOUT", "{host} timed out (504)"),
    (302, "EMBEDDING_FAILED", "{host} answered 302"),
]


@pytest.mark.parametrize(("status", "code", "reason"), STATUSES, ids=[str(row[0]) for row in STATUSES])
def test_an_error_response_has_our_message_and_not_the_upstream_one(
    embedder: CohereEmbedder, cohere_api: CohereServer, status: int, code: str, reason: str
) -> None:
    error = failure(embedder, cohere_api, error_response(status))
    host = cohere_api.url.removeprefix("http://")
    assert (error.code, error.status) == (code, 503)
    assert error.messages == ("Failed to embed query: " + reason.format(host=host),)


def test_an_error_response_that_is_not_json_gets_the_same_message(
    embedder: CohereEmbedder, cohere_api: CohereServer
) -> None:
    error = failure(
        embedder,
        cohere_api,
        CannedResponse(502, f"<html>{UPSTREAM}</html>".encode(), {"content-type": "text/html"}),
    )
    assert error.code == "EMBEDDING_FAILED"


@pytest.mark.parametrize(("headers", "seconds"), [({"retry-after": "3"}, 3.0), ({}, None)])
def test_a_rate_limit_is_a_429_with_retry_after(
    embedder: CohereEmbedder, cohere_api: CohereServer, headers: dict[str, str], seconds: float | None
) -> None:
    started = monotonic()
    error = failure(embedder, cohere_api, error_response(429, **headers))
    assert monotonic() - started < 2, "without a pause in between"
    assert isinstance(error, RateLimitedError)
    assert (error.code, error.status, error.retry_after) == ("RATE_LIMITED", 429, seconds)


def test_retry_after_of_an_outage_is_passed_on(embedder: CohereEmbedder, cohere_api: CohereServer) -> None:
    assert failure(embedder, cohere_api, error_response(503, **{"retry-after": "7"})).retry_after == 7.0


UNUSABLE = {
    "garbage": CannedResponse(200, b"<html>", JSON),
    "another content type": CannedResponse(200, b"<html>hi</html>", {"content-type": "text/html"}),
    "nothing": CannedResponse(200, b"", JSON),
    "no UTF-8": CannedResponse(200, b'\xff\xfe{"', JSON),
    "a list": CannedResponse(200, b"[1]", JSON),
    "no floats": embeddings({}),
    "plain lists": embeddings([[1.0, 0.0]]),
    "an empty list": embeddings({"float": []}),
    "an empty embedding": embeddings({"float": [[]]}),
    "two for one": embeddings({"float": [[1.0], [1.0]]}),
    "NaN": embeddings({"float": [[float("nan"), 1.0]]}),
    "infinity": embeddings({"float": [[float("inf"), 1.0]]}),
    "null inside": embeddings({"float": [[None, 1.0]]}),
    "text inside": embeddings({"float": [["a", 1.0]]}),
    "an integer beyond float": embeddings({"float": [[10**400]]}),
    "zeros": embeddings({"float": [[0.0, 0.0]]}),
    "beyond a unit vector": embeddings({"float": [[5.0, 0.0]]}),
}


@pytest.mark.parametrize("response", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_response_without_embeddings_is_an_embedding_error(
    embedder: CohereEmbedder, cohere_api: CohereServer, response: CannedResponse
) -> None:
    error = failure(embedder, cohere_api, response)
    assert isinstance(error, EmbeddingError)
    assert (error.code, error.status) == ("EMBEDDING_FAILED", 503)
    assert error.message.startswith("Failed to embed query: ")


MALFORMED = {
    "no embeddings": CannedResponse(200, b'{"id": "1"}', JSON),
    "embeddings null": embeddings(None),
    "null": CannedResponse(200, b"null", JSON),
    "a number for the list": embeddings({"float": 5}),
    "a number for a vector": embeddings({"float": [5]}),
    "a broken encoding": CannedResponse(200, b"this is no gzip", {**JSON, "content-encoding": "gzip"}),
}


@pytest.mark.parametrize("response", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_response_is_an_embedding_error(
    embedder: CohereEmbedder, cohere_api: CohereServer, response: CannedResponse
) -> None:
    assert failure(embedder, cohere_api, response).code == "EMBEDDING_FAILED"


def test_a_wrong_key_is_named_and_not_shown(cohere_api: CohereServer, deadline: Deadline) -> None:
    embedder = embedder_at(cohere_api.url, key="wrong-key-99")
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(["one"], InputType.QUERY, deadline)
    embedder.close()
    assert "check COHERE_API_KEY" in caught.value.message
    assert "wrong-key-99" not in str(caught.value)


# no response


def test_a_refused_connection_is_an_embedding_error(deadline: Deadline) -> None:
    url = refusing_address()
    embedder = embedder_at(url)
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(["one"], InputType.QUERY, deadline)
    embedder.close()
    assert caught.value.code == "EMBEDDING_FAILED"
    host = url.removeprefix("http://")
    assert caught.value.message == (
        f"Failed to embed query: {host} could not be reached; check the network and COHERE_BASE_URL"
    )


def test_a_silent_service_times_out_within_the_deadline() -> None:
    with silent_server() as url:
        embedder = embedder_at(url)
        started = monotonic()
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed(["one"], InputType.QUERY, Deadline(150))
        assert monotonic() - started < 0.6
        embedder.close()
    assert (caught.value.code, caught.value.status) == ("EMBEDDING_TIMEOUT", 503)
    assert caught.value.message.endswith("did not answer in time")


def test_a_service_that_sends_byte_by_byte_times_out_within_the_deadline() -> None:
    with dripping_server(every_seconds=0.05, times=20) as url:
        embedder = embedder_at(url)
        started = monotonic()
        with pytest.raises(EmbeddingError):
            embedder.embed(["one"], InputType.QUERY, Deadline(150))
        took = monotonic() - started
        embedder.close()
    assert took < 0.6


def test_no_request_is_sent_when_no_time_is_left(embedder: CohereEmbedder, cohere_api: CohereServer) -> None:
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(["one"], InputType.QUERY, Deadline(0))
    assert caught.value.code == "EMBEDDING_TIMEOUT"
    assert cohere_api.requests == []
