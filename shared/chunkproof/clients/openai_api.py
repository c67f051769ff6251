"""Embedding models behind OpenAI's API: OpenAI, vLLM, TEI, Ollama, LM Studio, Voyage and others."""

import re
import sys
from array import array
from base64 import b64decode
from collections.abc import Hashable, Iterator, Sequence
from math import fsum
from operator import mul
from typing import Any

import httpx

from chunkproof.clients.embedding_api import (
    add_prefix,
    check_size,
    embed_endpoint,
    model_for,
    to_unit_length,
    too_long,
)
from chunkproof.clients.http_api import Call
from chunkproof.clients.known_models import find_model
from chunkproof.clients.ports import InputType
from chunkproof.clients.transport import DirectClient, host_of
from chunkproof.deadline import Deadline
from chunkproof.embedder_config import EmbedderConfig
from chunkproof.errors import ChunkproofError, EmbeddingError, QueryTooLongError

DEFAULT_URL = "https://api.openai.com/v1"
# No model of a service reads less, so that a shorter text was certainly read to its end.
LEAST_TOKENS = 128
# A text and the same text with much more behind it: two vectors as near as this are those of a text that was cut.
CUT = 0.9999
FILLER = " Zebra violin harbour tax granite umbrella seven lantern orbit cinnamon fjord ballot."
_BATCH_TOO_LARGE = re.compile(r"batch size|batch.{0,40}(maximum|limit|exceed|too large)", re.IGNORECASE)


class OpenAiEmbedder:
    """An `Embedder` behind `POST /embeddings`.

    Some services (Ollama, TEI by its settings) cut a text that is longer than their model reads, and do not say so.
    A text that may be too long is therefore sent twice, the second time with a long addition: when both have the same
    vector, neither was read to its end, and the text is refused. A text with no more bytes than the model reads tokens
    needs no such check, nor does any text once the service has refused one for its length.
    """

    service = "openai"
    # What TEI takes in one request unless it is configured otherwise; OpenAI takes 2,048.
    max_batch = 32

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        """Take a config, or its fields such as `model="text-embedding-3-small"`."""
        self._config = config = config or EmbedderConfig(provider="openai", **fields)
        self.model = model_for(config, InputType.DOCUMENT)
        self.query_model = model_for(config, InputType.QUERY)
        self.dimension = config.dimension
        self.same_space = config.same_space
        self.document_prefix = config.document_prefix
        self._url = f"{config.base_url or DEFAULT_URL}/embeddings"
        self._http = DirectClient(transport)
        self._refuses_long_texts = self._is_voyage or not config.base_url
        fields_sent = (repr(sorted(config.query_fields.items())), repr(sorted(config.document_fields.items())))
        prefixes = (config.query_prefix, config.document_prefix)
        self.identity: Hashable = (
            *("openai", self._url, self.model, self.query_model, self.dimension),
            *prefixes,
            *fields_sent,
        )
        key = config.key or "OPENAI_API_KEY"
        refused = f"the key; check {key}"
        self._endpoint = embed_endpoint("embeddings", config, refused=refused, address="OPENAI_BASE_URL")

    def excess(self, _text: str) -> str | None:
        """Return None: only the service can count its tokens, when it is called."""
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text, of length 1."""
        sent = add_prefix(texts, self._config, input_type)
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
                model = model_for(self._config, input_type)
                raise QueryTooLongError(f"query_text is longer than {model} reads, and the service cuts it; shorten it")
        return vectors

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

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
        vectors: list[list[float]] = []
        for first in range(0, len(texts), self.max_batch):
            vectors += self._embed_batch(texts[first : first + self.max_batch], input_type, deadline)
        return vectors

    def _embed_batch(self, texts: list[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        model = model_for(self._config, input_type)
        body = {"model": model, "input": texts, **self._options(input_type)}

        def send() -> httpx.Response:
            return self._http.request("POST", self._url, json=body)

        def refuse(status: int, text: str) -> ChunkproofError | None:
            if len(texts) > 1 and status in (400, 413, 422) and _BATCH_TOO_LARGE.search(text[:2_000]):
                return _BatchTooLargeError()
            found = too_long(status, text, model)
            if found is not None:
                self._refuses_long_texts = True
            return found

        host = host_of(self._url)
        try:
            vectors = Call(self._endpoint, host, model).run(
                send, lambda answer: _read_vectors(answer, len(texts), host), deadline, refuse
            )
        except _BatchTooLargeError:
            half = len(texts) // 2
            parts = (texts[:half], texts[half:])
            return [vector for part in parts for vector in self._embed_batch(part, input_type, deadline)]
        check_size(vectors, self._config, model)
        return [to_unit_length(vector) for vector in vectors]

    def _options(self, input_type: InputType) -> dict[str, Any]:
        """Return what a request has beside the model and the texts."""
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
    """Return the vectors in the order of the texts, which is that of their indexes and not that of the list."""
    items = answer["data"]
    if not isinstance(items, list) or len(items) != count:
        raise EmbeddingError(f"{host} returned {len(items)} embeddings for {count} texts")
    indexes = [item.get("index", n) for n, item in enumerate(items)]
    if any(type(index) is not int for index in indexes) or sorted(indexes) != list(range(count)):
        raise EmbeddingError(f"{host} returned embeddings with wrong indexes")
    vectors: list[list[float]] = [[] for _ in items]
    for index, vector in zip(indexes, _decode_all(items), strict=True):
        vectors[index] = vector
    return vectors


def _decode_all(items: list[Any]) -> Iterator[list[float]]:
    for item in items:
        vector = item["embedding"]
        if isinstance(vector, str):  # 32-bit floats, little-endian
            numbers = array("f", b64decode(vector, validate=True))
            if sys.byteorder == "big":
                numbers.byteswap()
            vector = numbers.tolist()
        yield vector
