"""Cohere's reranking models."""

from collections.abc import Sequence
from typing import Any

import httpx

from chunkproof.clients.cohere_api import CohereApi
from chunkproof.clients.http_api import Endpoint
from chunkproof.clients.ports import Relevance
from chunkproof.deadline import Deadline
from chunkproof.errors import RerankConnectionError, RerankError, RerankTimeoutError

RERANK = Endpoint(
    "v2/rerank",
    returns="ranking",
    failed=RerankError,
    timed_out=RerankTimeoutError,
    disconnected=RerankConnectionError,
    wrong_request="rerank.model or CHUNKPROOF_RERANK_MODEL",
)
# Tokens that a model reads of each document: the models up to v3.5 have a context of 4,096, later ones of 32,768.
SHORT_CONTEXT, LONG_CONTEXT = 4_096, 32_000
# Longer texts are cut before they are sent, and count as cut: tokens have fewer characters than this.
CHARS_PER_TOKEN = 16
# Scores of Cohere are 0 to 1; other services that speak its API may send logits.
MAX_SCORE = 1e6
# A larger request would take longer to send than any search may take.
MAX_BYTES = 16 * 1024 * 1024


class CohereReranker:
    """A `Reranker` that uses Cohere's API.

    Cohere cuts a document that is longer than its model reads, and does not say so. The number of tokens to read is
    sent, and documents that may have more are counted: a token has at least one byte.
    """

    def __init__(self, transport: httpx.BaseTransport, *, base_url: str | None = None) -> None:
        self._api = CohereApi(transport, base_url)

    def rerank(self, query: str, documents: Sequence[str], model: str, deadline: Deadline) -> Relevance:
        """Return one score per document; Cohere's are 0 to 1."""
        tokens = tokens_read_by(model)
        sent = [document[: tokens * CHARS_PER_TOKEN] for document in documents]
        sizes = [len(document.encode()) for document in sent]
        if sum(sizes) > MAX_BYTES:
            raise RerankError(
                f"the candidates have {sum(sizes):,} bytes of text, more than {MAX_BYTES:,}; lower rerank.candidates"
            )
        body = {"model": model, "query": query, "documents": sent, "max_tokens_per_doc": tokens}
        scores = self._api.post(RERANK, body, deadline, lambda answer: read_scores(answer, len(sent)))
        return Relevance(scores, maybe_cut=sum(size > tokens for size in sizes))

    def close(self) -> None:
        """Close the connections."""
        self._api.close()


def tokens_read_by(model: str) -> int:
    """Return how many tokens of a document the model reads."""
    return SHORT_CONTEXT if "v2" in model or "v3" in model else LONG_CONTEXT


def read_scores(answer: Any, count: int) -> tuple[float, ...]:
    """Return the scores in the order of the documents; `ValueError` unless each has exactly one score."""
    scores: dict[int, float] = {}
    for result in answer["results"]:
        index, score = result["index"], result["relevance_score"]
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise ValueError("an index is unknown or repeated")
        if type(score) not in (int, float) or not -MAX_SCORE < score < MAX_SCORE:
            raise ValueError("a score is not a finite number of a usual size")
        scores[index] = float(score)
    if len(scores) != count:
        raise ValueError("documents are missing")
    return tuple(scores[index] for index in range(count))
