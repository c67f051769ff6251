"""The Cohere reranker against a loopback server: what it sends, and the error that each failure becomes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chunkproof.base.errors import ChunkproofError, RerankError
from chunkproof.base.request import Deadline
from chunkproof.embedders.cohere import CohereReranker, tokens_read_by
from chunkproof.embedders.embedder_port import Relevance
from chunkproof.net.transport import DeadlineTransport

from support.cohere_server import KEY, CohereServer
from support.listeners import refusing_address, silent_server
from support.recording_server import CannedResponse

JSON = {"content-type": "application/json"}
MODEL = "rerank-v3.5"
DOCUMENTS = ["brakes and wheels", "the arm of a robot", "a robot arm calibration"]
QUERY = "robot arm calibration"


def reranker_at(url: str, key: str = KEY) -> CohereReranker:
    return CohereReranker(DeadlineTransport(lambda: {"authorization": f"Bearer {key}"}), base_url=url)


@pytest.fixture
def reranker(cohere_api: CohereServer) -> Iterator[CohereReranker]:
    made = reranker_at(cohere_api.url)
    yield made
    made.close()


def answer(results: Any) -> CannedResponse:
    return CannedResponse(200, json.dumps({"id": "1", "results": results, "meta": {}}).encode(), JSON)


def scored(*pairs: tuple[Any, Any]) -> CannedResponse:
    return answer([{"index": index, "relevance_score": score} for index, score in pairs])


def test_scores_come_back_in_the_order_of_the_documents(
    reranker: CohereReranker, cohere_api: CohereServer, deadline: Deadline
) -> None:
    assert reranker.rerank(QUERY, DOCUMENTS, MODEL, deadline) == Relevance((0.0, 2 / 3, 1.0), maybe_cut=0)
    assert cohere_api.requests == [
        {
            "path": "/v2/rerank",
            "model": "rerank-v3.5",
            "query": QUERY,
            "documents": DOCUMENTS,
            "max_tokens_per_doc": 4096,
        }
    ]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("rerank-english-v3.0", 4_096),
        ("rerank-v3.5", 4_096),
        ("rerank-v4.0-fast", 32_000),
        ("rerank-v5.0-pro", 32_000),
        ("rerank-v5.0-fast", 32_000),
    ],
)
def test_each_model_is_asked_to_read_as_much_as_it_can(model: str, tokens: int) -> None:
    assert tokens_read_by(model) == tokens


def test_a_document_that_may_be_longer_than_the_model_reads_is_counted(
    reranker: CohereReranker, cohere_api: CohereServer, deadline: Deadline
) -> None:
    # 4,096 bytes cannot have more than 4,096 tokens; 1,366 characters of three bytes each can.
    documents = ["x" * 4_096, "x" * 4_097, "字" * 1_366, "y" * 1_000_000]
    assert reranker.rerank(QUERY, documents, MODEL, deadline).maybe_cut == 3
    sent = cohere_api.requests[0]["documents"]
    assert [len(document) for document in sent] == [4_096, 4_097, 1_366, 65_536]


def test_more_text_than_can_be_sent_in_time_is_an_error_and_is_not_sent(
    reranker: CohereReranker, cohere_api: CohereServer, deadline: Deadline
) -> None:
    with pytest.raises(RerankError, match=r"26,214,400 bytes of text.*lower rerank.candidates"):
        reranker.rerank(QUERY, ["z" * 70_000] * 400, MODEL, deadline)
    assert cohere_api.requests == []


NOT_A_RANKING = {
    "no results": CannedResponse(200, b'{"id": "1"}', JSON),
    "results of another type": answer("three"),
    "null results": answer(None),
    "a missing document": scored((0, 0.1), (1, 0.2)),
    "a document too many": scored((0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)),
    "a wrong index": scored((0, 0.1), (1, 0.2), (7, 0.3)),
    "a negative index": scored((0, 0.1), (1, 0.2), (-1, 0.3)),
    "a repeated index": scored((0, 0.1), (1, 0.2), (1, 0.3)),
    "an index that is true": scored((0, 0.1), (True, 0.2), (2, 0.3)),
    "an index that is text": scored((0, 0.1), ("1", 0.2), (2, 0.3)),
    "a score of NaN": scored((0, 0.1), (1, float("nan")), (2, 0.3)),
    "an infinite score": scored((0, 0.1), (1, float("inf")), (2, 0.3)),
    "a score of 400 digits": scored((0, 0.1), (1, 10**400), (2, 0.3)),
    "a score that is null": scored((0, 0.1), (1, None), (2, 0.3)),
    "a score that is text": scored((0, 0.1), (1, "0.2"), (2, 0.3)),
    "a web page": CannedResponse(200, b"<!doctype html>", {"content-type": "text/html"}),
    "nothing": CannedResponse(200, b"", JSON),
}


@pytest.mark.parametrize("response", NOT_A_RANKING.values(), ids=NOT_A_RANKING)
def test_a_response_that_is_not_a_ranking_is_an_error(
    reranker: CohereReranker, cohere_api: CohereServer, deadline: Deadline, response: CannedResponse
) -> None:
    cohere_api.rerank_responses.append(response)
    with pytest.raises(RerankError) as caught:
        reranker.rerank(QUERY, DOCUMENTS, MODEL, deadline)
    host = cohere_api.url.removeprefix("http://")
    assert caught.value.messages == (f"Failed to rerank: {host} sent a response that is not a ranking",)
    assert caught.value.code == "RERANK_FAILED"


STATUSES = [
    (400, "RERANK_FAILED", 503, "answered 400; check rerank.model or CHUNKPROOF_RERANK_MODEL"),
    (401, "RERANK_FAILED", 503, "refused the key; check COHERE_API_KEY"),
    (404, "RERANK_FAILED", 503, "does not know the model rerank-v3.5; check rerank.model"),
    (429, "RATE_LIMITED", 429, "limits the rate of rankings; try again later"),
    (500, "RERANK_FAILED", 503, "answered 500"),
    (504, "RERANK_TIMEOUT", 503, "timed out (504)"),
]


@pytest.mark.parametrize(("status", "code", "http", "reason"), STATUSES, ids=[str(row[0]) for row in STATUSES])
def test_an_error_response_has_our_message_and_not_the_upstream_one(
    reranker: CohereReranker, cohere_api: CohereServer, status: int, code: str, http: int, reason: str
) -> None:
    cohere_api.rerank_responses += [CannedResponse(status, b'{"message": "upstream-s3cr3t"}', JSON)] * 2
    with pytest.raises(ChunkproofError) as caught:
        reranker.rerank(QUERY, DOCUMENTS, MODEL, Deadline(2_000))
    error = caught.value
    assert (error.code, error.status) == (code, http)
    assert error.message.endswith(reason)
    assert "s3cr3t" not in str(error)


def test_a_service_that_is_silent_or_not_there_has_an_error_of_its_own() -> None:
    with silent_server() as url:
        silent = reranker_at(url)
        with pytest.raises(TimeoutError) as late:
            silent.rerank(QUERY, DOCUMENTS, MODEL, Deadline(200))
        silent.close()
    assert isinstance(late.value, RerankError)
    assert late.value.code == "RERANK_TIMEOUT"
    refused = reranker_at(refusing_address())
    with pytest.raises(ConnectionError, match="could not be reached") as gone:
        refused.rerank(QUERY, DOCUMENTS, MODEL, Deadline(2_000))
    refused.close()
    assert isinstance(gone.value, RerankError)
    assert gone.value.code == "RERANK_FAILED"
