"""The client of OpenAI's API against a loopback server: what it sends, and the error that each failure becomes."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from chunkproof.base.errors import ChunkproofError, EmbeddingError, QueryTooLongError, RateLimitedError
from chunkproof.base.request import Deadline
from chunkproof.collection.embedding import QueryEmbedder
from chunkproof.embedders.embedder_port import InputType, embedder_identity
from chunkproof.embedders.openai_api import FILLER, OpenAiEmbedder
from chunkproof.net.resilience import RETRIED_STATUSES
from chunkproof.net.transport import DeadlineTransport

from support.listeners import dripping_server, refusing_address, silent_server
from support.openai_server import KEY, OpenAiServer, openai_server
from support.recording_server import CannedResponse

JSON = {"content-type": "application/json"}
UPSTREAM = "upstream-s3cr3t"
MODEL = "text-embedding-3-small"


@pytest.fixture
def api() -> Iterator[OpenAiServer]:
    with openai_server() as server:
        yield server


OPENED: list[OpenAiEmbedder] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(embedder: OpenAiEmbedder) -> OpenAiEmbedder:
    OPENED.append(embedder)
    return embedder


def embedder_at(url: str, **fields: Any) -> OpenAiEmbedder:
    transport = DeadlineTransport(lambda: {"authorization": f"Bearer {KEY}"})
    return opened(OpenAiEmbedder(transport, base_url=url, **{"model": MODEL, **fields}))


def embed(embedder: OpenAiEmbedder, *texts: str, as_: InputType = InputType.QUERY) -> list[list[float]]:
    return embedder.embed(texts, as_, Deadline(5_000))


def last_request(api: OpenAiServer) -> dict[str, Any]:
    return {name: value for name, value in api.requests[-1].items() if name not in ("path", "authorization")}


def test_a_request_has_the_model_and_the_texts_and_nothing_that_some_service_refuses(api: OpenAiServer) -> None:
    embed(embedder_at(api.url), "one", "two")
    assert last_request(api) == {"model": MODEL, "input": ["one", "two"]}


def test_what_is_configured_is_sent(api: OpenAiServer) -> None:
    embedder = embedder_at(
        api.url,
        query_model="text-embedding-3-small-q",
        dimension=256,
        encoding="base64",
        query_prefix="query: ",
        document_prefix="passage: ",
        query_fields={"task": "retrieval.query"},
        document_fields={"task": "retrieval.passage"},
    )
    embed(embedder, "one")
    common = {"encoding_format": "base64", "dimensions": 256}
    assert last_request(api) == {
        "model": "text-embedding-3-small-q",
        "input": ["query: one"],
        "task": "retrieval.query",
        **common,
    }
    embed(embedder, "one", as_=InputType.DOCUMENT)
    assert last_request(api) == {"model": MODEL, "input": ["passage: one"], "task": "retrieval.passage", **common}


def test_voyage_gets_the_names_that_it_knows_and_is_asked_not_to_cut(api: OpenAiServer) -> None:
    embedder = embedder_at(api.url, model="voyage-3-large", dimension=512)
    embed(embedder, "one", as_=InputType.DOCUMENT)
    assert last_request(api) == {
        "model": "voyage-3-large",
        "input": ["one"],
        "output_dimension": 512,
        "input_type": "document",
        "truncation": False,
    }


def test_a_service_that_needs_no_key_gets_none(api: OpenAiServer) -> None:
    api.key = None
    embed(opened(OpenAiEmbedder(DeadlineTransport(), base_url=api.url, model="m")), "a")
    assert api.requests[-1]["authorization"] is None


@pytest.mark.parametrize("words", [130, 500])
def test_a_text_that_a_service_reads_to_its_end_is_embedded(api: OpenAiServer, words: int) -> None:
    api.cuts = True
    assert len(embed(embedder_at(api.url, model="unknown"), "word " * words)) == 1


def test_a_text_that_the_service_would_cut_silently_is_refused(api: OpenAiServer) -> None:
    api.cuts = True
    embedder = embedder_at(api.url, model="unknown")
    with pytest.raises(QueryTooLongError, match="query_text is longer than unknown reads, and the service cuts it"):
        embed(embedder, "short", "word " * 600)


def test_a_text_that_surely_fits_costs_one_request(api: OpenAiServer) -> None:
    api.cuts = True
    embed(embedder_at(api.url), "word " * 100)  # 500 bytes, of a model that reads 8191 tokens
    assert len(api.requests) == 1
    embed(embedder_at(api.url, model="unknown", max_tokens=600), "word " * 100)
    assert len(api.requests) == 2


def test_a_service_that_refuses_long_texts_is_no_longer_tested(api: OpenAiServer) -> None:
    embedder = embedder_at(api.url, model="unknown")
    embed(embedder, "word " * 450)  # with the addition it has more than 512 words, which the server refuses
    assert FILLER in api.requests[-1]["input"][0]
    embed(embedder, "word " * 450)
    assert len(api.requests) == 3


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens"),
        (413, "Input validation error: `inputs` must have less than 512 tokens. Given: 700"),
        (400, "the input length exceeds the context length"),
        (400, "The example at index 0 has too many tokens and does not fit into the model's context window"),
        (500, "input is too large to process. increase the physical batch size"),
    ],
)
def test_the_words_of_each_service_for_a_long_text_are_known(api: OpenAiServer, status: int, message: str) -> None:
    api.responses += [error_response(status, message)] * 2
    with pytest.raises(QueryTooLongError):
        embed(embedder_at(api.url), "text")


def error_response(status: int, message: str = UPSTREAM, **headers: str) -> CannedResponse:
    return CannedResponse(status, json.dumps({"error": {"message": message}}).encode(), {**JSON, **headers})


def answer(data: Any) -> CannedResponse:
    return CannedResponse(200, json.dumps({"object": "list", "data": data}).encode(), JSON)


def failure(api: OpenAiServer, response: CannedResponse, **fields: Any) -> ChunkproofError:
    """The error of an embedding when the service always sends this response."""
    api.responses += [response] * 5
    queries = QueryEmbedder(embedder_at(api.url, **fields), cache_entries=0)
    with pytest.raises(ChunkproofError) as caught:
        queries.embed("What is ROS 2?", Deadline(2_000))
    is_repeated = response.status in RETRIED_STATUSES and "retry-after" not in response.headers
    assert len(api.requests) == (2 if is_repeated else 1)
    for secret in (KEY, UPSTREAM, "/v1", "Bearer", "http://", "content-type"):
        assert secret not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "EMBEDDING_FAILED", "answered 400; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION"),
        (401, "EMBEDDING_FAILED", "refused the key; check OPENAI_API_KEY"),
        (403, "EMBEDDING_FAILED", "refused the key; check OPENAI_API_KEY"),
        (404, "EMBEDDING_FAILED", f"does not know the model {MODEL}; check CHUNKPROOF_MODEL"),
        (408, "EMBEDDING_TIMEOUT", "timed out (408)"),
        (429, "RATE_LIMITED", "limits the rate of embeddings; try again later"),
        (500, "EMBEDDING_FAILED", "answered 500"),
        (503, "EMBEDDING_FAILED", "answered 503"),
        (504, "EMBEDDING_TIMEOUT", "timed out (504)"),
    ],
)
def test_an_error_response_has_our_message_and_not_the_upstream_one(
    api: OpenAiServer, status: int, code: str, message: str
) -> None:
    error = failure(api, error_response(status))
    assert error.code == code
    assert error.message.endswith(message)


def test_the_time_to_wait_is_passed_on(api: OpenAiServer) -> None:
    error = failure(api, error_response(429, **{"retry-after": "7"}))
    assert isinstance(error, RateLimitedError)
    assert error.retry_after == 7


def test_messages_name_the_entry_of_a_collection_and_its_key(api: OpenAiServer) -> None:
    place = "CHUNKPROOF_MODELS (docs)"
    assert f"check {place}" in failure(api, error_response(404), place=place).message
    api.requests.clear()
    api.responses.clear()
    error = failure(api, error_response(401), place=place, key="VOYAGE_API_KEY")
    assert error.message.endswith("refused the key; check VOYAGE_API_KEY")


VECTOR = [1.0] + [0.0] * 1535


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        [{"index": 0}],
        [{"embedding": VECTOR, "index": 1}],
        [{"embedding": VECTOR, "index": "0"}],
        [{"embedding": VECTOR, "index": True}],
        [{"embedding": VECTOR, "index": 0}, {"embedding": VECTOR, "index": 1}],
        [{"embedding": "not base64!", "index": 0}],
        [{"embedding": "AAA=", "index": 0}],
        [{"embedding": ["a"] * 1536, "index": 0}],
        [{"embedding": [float("nan")] * 1536, "index": 0}],
        [{"embedding": [0.0] * 1536, "index": 0}],
        [{"embedding": [], "index": 0}],
        [[1.0, 2.0]],
    ],
)
def test_a_response_that_is_not_an_embedding_is_an_error(api: OpenAiServer, data: Any) -> None:
    assert failure(api, answer(data)).code == "EMBEDDING_FAILED"


def test_a_service_that_ignores_the_size_is_a_mismatch_of_both_sizes(api: OpenAiServer) -> None:
    api.ignores_dimensions = True
    with pytest.raises(ChunkproofError) as caught:
        embed(embedder_at(api.url, dimension=256), "text")
    assert caught.value.code == "DIMENSION_MISMATCH"
    assert caught.value.message == (f"{MODEL} makes 1536 values where 256 were asked for: check CHUNKPROOF_DIMENSION")


@pytest.mark.parametrize("server", [silent_server, lambda: dripping_server(0.05, 1000)], ids=["silent", "slow"])
def test_a_service_that_does_not_answer_is_given_up_at_the_deadline(server: Any) -> None:
    with server() as url:
        started = monotonic()
        with pytest.raises(EmbeddingError) as caught:
            embedder_at(f"{url}/v1").embed(["text"], InputType.QUERY, Deadline(300))
        assert monotonic() - started < 2
    assert caught.value.code == "EMBEDDING_TIMEOUT"


def test_a_service_that_is_not_there_names_the_setting() -> None:
    with pytest.raises(EmbeddingError, match="could not be reached; check the network and OPENAI_BASE_URL"):
        embed(embedder_at(refusing_address()), "text")


def test_embedders_that_make_other_vectors_have_another_identity() -> None:
    url = "http://localhost:1/v1"
    variants: list[dict[str, Any]] = [
        {},
        {"model": "other"},
        {"query_model": "other"},
        {"dimension": 256},
        {"query_prefix": "query: "},
        {"query_fields": {"task": "q"}},
    ]
    found = {embedder_identity(embedder_at(url, **fields)) for fields in variants}
    found.add(embedder_identity(embedder_at("http://localhost:2/v1")))
    assert len(found) == len(variants) + 1
