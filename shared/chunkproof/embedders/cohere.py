"""Cohere's embedding and reranking models, called with the headers of Cohere's SDK.

`cohere.ClientV2` is not used: building one imports a model for every chat event and a tokenizer (0.4 s and 25 MB,
docs/guides/performance.md), and its `embed` handles each number of a vector in Python. `SyncClientWrapper`, on which
`ClientV2` is built, makes the SDK's headers; that is all that these calls need. The layer pins
the SDK, and tests/integration/test_light_sdk_imports.py fails when a release no longer fits.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import httpx
from pydantic_core import to_json

from chunkproof.base.embedder_config import EmbedderConfig
from chunkproof.base.errors import RerankConnectionError, RerankError, RerankTimeoutError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType, Relevance
from chunkproof.embedders.embedding_api import ServiceEmbedder, too_long
from chunkproof.net.resilience import Endpoint, Refusal, Result, ServiceCall
from chunkproof.net.transport import DirectClient, host_of


class _Deferred(ModuleType):
    """A module that is imported when it is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


# Only the SDK's asynchronous client uses it, and it has 29 modules.
sys.modules.setdefault("asyncio", _Deferred("asyncio"))
from cohere.core.client_wrapper import SyncClientWrapper  # noqa: E402

if type(sys.modules["asyncio"]) is _Deferred:
    del sys.modules["asyncio"]

DEFAULT_URL = "https://api.cohere.com"
# The SDK requires a key; the transport replaces this one by the real key.
PLACEHOLDER_KEY = "unset"
RERANK = Endpoint(
    "v2/rerank",
    returns="ranking",
    failed=RerankError,
    timed_out=RerankTimeoutError,
    disconnected=RerankConnectionError,
    wrong_request="rerank.model or CHUNKPROOF_RERANK_MODEL",
)
# Tokens that a reranker reads of each document: the models up to v3.5 have a context of 4,096, later ones of 32,768.
SHORT_CONTEXT, LONG_CONTEXT = 4_096, 32_000
# Longer texts are cut before they are sent, and count as cut: tokens have fewer characters than this.
CHARS_PER_TOKEN = 16
# Scores of Cohere are 0 to 1; other services that speak its API may send logits.
MAX_SCORE = 1e6
# A larger request would take longer to send than any search may take.
MAX_BYTES = 16 * 1024 * 1024


class _CohereApi:
    """Sends requests to Cohere, or to another address that speaks its API; the transport adds the key."""

    def __init__(self, http: DirectClient, base_url: str | None) -> None:
        url = base_url or DEFAULT_URL
        self._http, self._host, self._url = http, host_of(url), url.rstrip("/") + "/"
        sdk = SyncClientWrapper(token=PLACEHOLDER_KEY, base_url=url, max_retries=0, httpx_client=http)
        # Once: for each request, its HTTP client would look at each header in Python, a tenth of a search's calls.
        self._headers = {**sdk.get_headers(), "content-type": "application/json"}

    def post(
        self,
        endpoint: Endpoint,
        body: dict[str, Any],
        deadline: Deadline,
        read: Callable[[Any], Result],
        refusal: Refusal = lambda _status, _text: None,
    ) -> Result:
        """Send a request and return what `read` takes from the response; see `ServiceCall.run`."""
        options = {"content": to_json(body), "headers": self._headers}
        send = partial(self._http.request, "POST", self._url + endpoint.path, **options)
        return ServiceCall(endpoint, self._host, str(body["model"])).run(send, read, deadline, refusal)


class CohereEmbedder(ServiceEmbedder):
    """An `Embedder` that uses Cohere's API, and never lets it truncate a text.

    Queries may have a model of their own: `embed-v5.0-pro` and `embed-v5.0-fast` share one space.
    """

    service = "cohere"
    max_batch = 96
    PATH, ADDRESS, URL, KEY = "v2/embed", "COHERE_BASE_URL", DEFAULT_URL, "COHERE_API_KEY"

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        super().__init__(transport, config, **fields)
        self._api = _CohereApi(self._http, self.url)

    def with_model(self, model: str) -> "CohereEmbedder":
        """Return an embedder of both queries and documents with another model of the same service."""
        fields = {"model": model, "query_model": None}
        return CohereEmbedder(self.transport, self._config.model_copy(update=fields))

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text."""
        model = self.query_model if input_type is InputType.QUERY else self.model
        body: dict[str, Any] = {"model": model, "texts": list(texts), "input_type": input_type.value}
        body |= {"embedding_types": ["float"], "truncate": "NONE"}
        if self.dimension is not None:
            body["output_dimension"] = self.dimension
        return self._api.post(
            self._endpoint,
            body,
            deadline,
            lambda answer: list(answer["embeddings"]["float"]),
            lambda status, text: too_long(status, text, model) if status in (400, 422) else None,
        )


class CohereReranker:
    """A `Reranker` that uses Cohere's API.

    Cohere cuts a document that is longer than its model reads, and does not say so. The number of tokens to read is
    sent, and documents that may have more are counted: a token has at least one byte.
    """

    def __init__(self, transport: httpx.BaseTransport, *, base_url: str | None = None) -> None:
        self._http = DirectClient(transport)
        self._api = _CohereApi(self._http, base_url)

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
        scores = self._api.post(RERANK, body, deadline, lambda answer: _read_scores(answer, len(sent)))
        return Relevance(scores, maybe_cut=sum(size > tokens for size in sizes))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def tokens_read_by(model: str) -> int:
    """Return how many tokens of a document the model reads."""
    return SHORT_CONTEXT if "v2" in model or "v3" in model else LONG_CONTEXT


def _read_scores(answer: Any, count: int) -> tuple[float, ...]:
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
