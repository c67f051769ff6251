"""The client of Amazon Bedrock: boto3 against a loopback server that checks its signatures."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from chunkproof.base.errors import ChunkproofError, EmbeddingError, NotConfiguredError, QueryTooLongError
from chunkproof.base.request import Deadline
from chunkproof.embedders.bedrock import BedrockEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.resilience import CircuitBreaker
from chunkproof.net.transport import DeadlineTransport

from support.bedrock_server import (
    ACCESS_KEY,
    CREDENTIALS,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    BedrockServer,
    bedrock_server,
    error,
)
from support.listeners import dripping_server, refusing_address, silent_server
from support.recording_server import CannedResponse

TITAN, COHERE = "amazon.titan-embed-text-v2:0", "cohere.embed-english-v3"
UPSTREAM = "upstream-s3cr3t"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def api() -> Iterator[BedrockServer]:
    with bedrock_server() as server:
        yield server


OPENED: list[BedrockEmbedder] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(embedder: BedrockEmbedder) -> BedrockEmbedder:
    OPENED.append(embedder)
    return embedder


def embedder_at(url: str, model: str = TITAN, breaker: CircuitBreaker | None = None, **fields: Any) -> BedrockEmbedder:
    return opened(
        BedrockEmbedder(DeadlineTransport(breaker=breaker), base_url=url, region=REGION, model=model, **fields)
    )


def embed(embedder: BedrockEmbedder, *texts: str, as_: InputType = InputType.QUERY) -> list[list[float]]:
    return embedder.embed(texts, as_, Deadline(20_000))


def test_titan_gets_one_text_in_a_call(api: BedrockServer) -> None:
    embed(embedder_at(api.url, dimension=512), "one", "two")
    assert sorted(api.requests, key=lambda request: request["inputText"]) == [
        {"model": TITAN, "inputText": "one", "dimensions": 512, "normalize": True},
        {"model": TITAN, "inputText": "two", "dimensions": 512, "normalize": True},
    ]


def test_the_first_version_of_titan_gets_the_text_alone(api: BedrockServer) -> None:
    embed(embedder_at(api.url, "amazon.titan-embed-text-v1"), "one")
    assert api.requests == [{"model": "amazon.titan-embed-text-v1", "inputText": "one"}]


def test_cohere_gets_all_texts_and_their_type(api: BedrockServer) -> None:
    model = "us.cohere.embed-v4:0"
    embed(embedder_at(api.url, model, dimension=256, query_model=COHERE), "one", "two", as_=InputType.DOCUMENT)
    assert api.requests == [
        {
            "model": model,
            "texts": ["one", "two"],
            "input_type": "search_document",
            "truncate": "NONE",
            "embedding_types": ["float"],
            "output_dimension": 256,
        }
    ]
    embed(embedder_at(api.url, model, query_model=COHERE), "one")
    assert (api.requests[-1]["model"], api.requests[-1]["input_type"]) == (COHERE, "search_query")


def test_the_plain_list_of_older_models_is_read(api: BedrockServer) -> None:
    vector = [1.0] + [0.0] * 1023
    api.responses.append(CannedResponse(200, json.dumps({"embeddings": [vector]}).encode()))
    assert embed(embedder_at(api.url, COHERE), "one") == [vector]


def failure(api: BedrockServer, response: CannedResponse, **fields: Any) -> ChunkproofError:
    """The error of an embedding when the service always sends this response."""
    api.responses += [response] * 5
    with pytest.raises(ChunkproofError) as caught:
        embedder_at(api.url, **fields).embed(["What is ROS 2?"], InputType.QUERY, Deadline(20_000))
    secrets = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, UPSTREAM, "/model", "AWS4", "http://")
    for secret in secrets:
        assert secret not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("response", "code", "message"),
    [
        ((429, "ThrottlingException"), "RATE_LIMITED", "limits the rate of embeddings; try again later"),
        ((400, "ServiceQuotaExceededException"), "RATE_LIMITED", "limits the rate of embeddings; try again later"),
        (
            (403, "AccessDeniedException"),
            "EMBEDDING_FAILED",
            "refused the call; the role needs bedrock:InvokeModel, and the account access to the model",
        ),
        ((403, "ExpiredTokenException"), "EMBEDDING_FAILED", "and the account access to the model"),
        (
            (404, "ResourceNotFoundException"),
            "EMBEDDING_FAILED",
            f"does not know the model {TITAN}; check CHUNKPROOF_MODEL",
        ),
        (
            (400, "ValidationException"),
            "EMBEDDING_FAILED",
            "answered 400; check CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION",
        ),
        ((408, "ModelTimeoutException"), "EMBEDDING_TIMEOUT", "timed out (408)"),
        ((500, "InternalServerException"), "EMBEDDING_FAILED", "answered 500"),
        ((503, "ServiceUnavailableException"), "EMBEDDING_FAILED", "answered 503"),
    ],
)
def test_an_error_response_has_our_message_and_not_the_upstream_one(
    api: BedrockServer, response: tuple[int, str], code: str, message: str
) -> None:
    found = failure(api, error(*response, UPSTREAM))
    assert found.code == code
    assert found.message.endswith(message)


def test_a_model_that_bedrock_does_not_know_is_named(api: BedrockServer) -> None:
    unknown = error(400, "ValidationException", "The provided model identifier is invalid.")
    assert failure(api, unknown).message.endswith(f"does not know the model {TITAN}; check CHUNKPROOF_MODEL")


@pytest.mark.parametrize(
    "message",
    [
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9000",
        "Malformed input request: #/texts/0: expected maxLength: 2048, actual: 5000, please reformat your input",
    ],
)
def test_a_text_that_is_too_long_is_refused(api: BedrockServer, message: str) -> None:
    assert isinstance(failure(api, error(400, "ValidationException", message)), QueryTooLongError)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"embedding": null}', b"[]", b""])
def test_a_response_that_is_not_an_embedding_is_an_error(api: BedrockServer, body: bytes) -> None:
    found = failure(api, CannedResponse(200, body, {"content-type": "application/json"}))
    assert found.code == "EMBEDDING_FAILED"
    assert found.message.endswith("sent a response that is not an embedding")


def test_a_failed_call_is_repeated_once_and_not_by_boto3(api: BedrockServer) -> None:
    failure(api, error(503, "ServiceUnavailableException", UPSTREAM))
    assert len(api.requests) == 2


def test_the_circuit_opens_after_five_failures_in_a_row(api: BedrockServer) -> None:
    api.responses += [error(500, "InternalServerException", UPSTREAM)] * 20
    embedder = embedder_at(api.url, breaker=CircuitBreaker("bedrock"))
    for _ in range(3):
        with pytest.raises(EmbeddingError):
            embed(embedder, "one")
    asked = len(api.requests)
    with pytest.raises(EmbeddingError, match="failed repeatedly; calls to it are paused"):
        embed(embedder, "one")
    assert (asked, len(api.requests)) == (5, 5)


@pytest.mark.parametrize("server", [silent_server, lambda: dripping_server(0.05, 1000)], ids=["silent", "slow"])
def test_a_service_that_does_not_answer_is_given_up_at_the_deadline(server: Any) -> None:
    with server() as url:
        embedder = embedder_at(url)
        embedder.prepare()
        embedder._client_with_credentials()  # boto3 takes its time to start on a busy machine
        started = monotonic()
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed(["text"], InputType.QUERY, Deadline(500))
        assert monotonic() - started < 2
    assert caught.value.code == "EMBEDDING_TIMEOUT"


def test_a_service_that_is_not_there_names_the_setting() -> None:
    with pytest.raises(EmbeddingError, match="could not be reached; check the network and AWS_ENDPOINT_URL_BEDROCK"):
        embed(embedder_at(refusing_address()), "text")


def test_without_credentials_or_region_the_message_says_so(
    api: BedrockServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(NotConfiguredError, match="there are no AWS credentials"):
        embed(embedder_at(api.url), "text")
    with pytest.raises(NotConfiguredError, match="no region is set: set CHUNKPROOF_BEDROCK_REGION or AWS_REGION"):
        embed(opened(BedrockEmbedder(DeadlineTransport(), model=TITAN)), "text")
