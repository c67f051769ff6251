"""Embedding models behind OpenAI's API: OpenAI, vLLM, TEI, Ollama, LM Studio, Voyage and others."""

import re
import sys
from array import array
from base64 import b64decode
from collections.abc import Sequence
from math import fsum
from operator import mul
from typing import Any

import httpx

from chunkproof.base.embedder_config import EmbedderConfig
from chunkproof.base.errors import ChunkproofError, EmbeddingError, QueryTooLongError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType, call_in_batches
from chunkproof.embedders.embedding_api import ServiceEmbedder, too_long
from chunkproof.embedders.known_models import find_model
from chunkproof.net.resilience import ServiceCall
from chunkproof.net.transport import host_of

DEFAULT_URL = "https://api.openai.com/v1"
# No model of a service reads less, so that a shorter text was certainly read to its end.
LEAST_TOKENS = 128
# If a text and the same text with much more behind it have vectors this near, the service cut the text.
CUT = 0.9999
FILLER = " Zebra violin harbour tax granite umbrella seven lantern orbit cinnamon fjord ballot."
_BATCH_TOO_LARGE = re.compile(r"batch size|batch.{0,40}(maximum|limit|exceed|too large)", re.IGNORECASE)


class OpenAiEmbedder(ServiceEmbedder):
    """An `Embedder` behind `POST /embeddings`.

    Some services (Ollama, TEI by its settings) cut a text that is longer than their model reads, and do not say so.
    A text that may be too long is therefore sent twice, the second time with a long addition: when both have the same
    vector, neither was read to its end, and the text is refused. A text with no more bytes than the model reads tokens
    needs no such check, nor does any text once the service has refused one for its length.
    """

    service = "openai"
    # What TEI takes in one request unless it is configured otherwise; OpenAI takes 2,048.
    max_batch = 32
    PATH, ADDRESS, URL, KEY = "embeddings", "OPENAI_BASE_URL", DEFAULT_URL, "OPENAI_API_KEY"

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        super().__init__(transport, config, **fields)
        self._url = f"{self.url}/embeddings"
        self._host = host_of(self._url)
        self._refuses_long_texts = self._is_voyage or not self._config.base_url

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text, of length 1."""
        sent = self._add_prefix(texts, input_type)
        doubtful = [] if self._refuses_long_texts else [n for n, text in enumerate(sent) if self._may_be_cut(text)]
        if not doubtful:
            return self._embed(sent, input_type, deadline)
        longer = [sent[n] + FILLER * (1 + len(sent[n]) // len(FILLER)) for n in doubtful]
        vectors = self._embed(sent, input_type, deadline)
        try:
            probes = self._embed(longer, input_type, deadline)
        except QueryTooLongError:
            self._refuses_long_texts = True
            return vectors
        for n, probe in zip(doubtful, probes, strict=True):
            if len(vectors[n]) == len(probe) and fsum(map(mul, vectors[n], probe)) > CUT:
                model = self._model_for(input_type)
                raise QueryTooLongError(f"query_text is longer than {model} reads, and the service cuts it; shorten it")
        return vectors

    @property
    def _is_voyage(self) -> bool:
        return self.model.startswith("voyage-")

    def _may_be_cut(self, text: str) -> bool:
        """Whether the text may have more tokens than the model reads: a token has a byte at least."""
        known = find_model(self.model)
        tokens = self._config.max_tokens or (known.max_tokens if known else LEAST_TOKENS)
        return len(text.encode("utf-8", "replace")) > tokens - 2  # two are the model's own

    def _embed(self, texts: list[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Embed the texts in as many requests as the service needs."""

        def embed(batch: Sequence[str]) -> list[list[float]]:
            return self._embed_batch(batch, input_type, deadline)

        return list(call_in_batches(embed, texts, self.max_batch, _BatchTooLargeError))

    def _embed_batch(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        model = self._model_for(input_type)
        body = {"model": model, "input": texts, **self._options(input_type)}

        def send() -> httpx.Response:
            return self._http.request("POST", self._url, json=body)

        def read(answer: Any) -> list[list[float]]:
            return _read_vectors(answer, len(texts), self._host)

        def refuse(status: int, text: str) -> ChunkproofError | None:
            if len(texts) > 1 and status in (400, 413, 422) and _BATCH_TOO_LARGE.search(text[:2_000]):
                return _BatchTooLargeError()
            error = too_long(status, text, model)
            self._refuses_long_texts |= error is not None
            return error

        vectors = ServiceCall(self._endpoint, self._host, model).run(send, read, deadline, refuse)
        return self._to_unit_vectors(vectors, model)

    def _options(self, input_type: InputType) -> dict[str, Any]:
        """Return the optional fields of a request."""
        config = self._config
        is_query = input_type is InputType.QUERY
        options: dict[str, Any] = {}
        if config.encoding == "base64":  # a list of numbers is the default everywhere, and Voyage has no word for it
            options["encoding_format"] = "base64"
        if config.dimension is not None:
            options["output_dimension" if self._is_voyage else "dimensions"] = config.dimension
        if self._is_voyage:
            options |= {"input_type": "query" if is_query else "document", "truncation": False}
        return options | (config.query_fields if is_query else config.document_fields)


class _BatchTooLargeError(ChunkproofError):
    """The service takes fewer texts in one request."""


def _read_vectors(answer: Any, count: int, host: str) -> list[list[float]]:
    """Return the vectors in the order of the texts, which their indexes state; the list may have another order."""
    items = answer["data"]
    if not isinstance(items, list) or len(items) != count:
        raise EmbeddingError(f"{host} returned {len(items)} embeddings for {count} texts")
    indexes = [item.get("index", n) for n, item in enumerate(items)]
    if any(type(index) is not int for index in indexes) or sorted(indexes) != list(range(count)):
        raise EmbeddingError(f"{host} returned embeddings with wrong indexes")
    return [_decode(items[indexes.index(index)]["embedding"]) for index in range(count)]


def _decode(vector: Any) -> Any:
    """Decode a vector that is 32-bit floats, little-endian, in base64."""
    if not isinstance(vector, str):
        return vector
    numbers = array("f", b64decode(vector, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
