"""What embedders share: names and prefixes from their config, errors of services, vectors of length 1."""

import re
from collections.abc import Hashable, Sequence
from math import hypot, isfinite
from typing import Any, ClassVar

import httpx

from chunkproof.base import errors
from chunkproof.base.embedder_config import EmbedderConfig
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net.resilience import Endpoint
from chunkproof.net.transport import DirectClient

# No service has an error code for it, only messages such as "too many tokens: …", "This model's maximum context length
# is 512 tokens", "`inputs` must have less than 512 tokens", "the input length exceeds the context length".
_TOO_LONG = re.compile(
    r"too many (input )?tokens|tokens?\b.{0,60}(limit|exceed|maximum)|(exceed|limit|maximum).{0,60}\btokens?"
    r"|context (length|window|size)|less than \d+ tokens|too long|(input|text|prompt|sequence).{0,40}too large"
    r"|expected maxlength",
    re.IGNORECASE | re.DOTALL,
)
# What llama.cpp answers with 500.
_TOO_LARGE = re.compile(r"too large to process|context size", re.IGNORECASE)
# A vector of this length, or nearly, is a unit vector.
ROUNDING = 1e-3


class ConfiguredEmbedder:
    """The fields of an `Embedder` that come from its config; its `identity` is `kind` and everything vectors depend on.

    Queries may have a model of their own, which shares the space of `model`.
    """

    def __init__(self, config: EmbedderConfig, *kind: Hashable, model: str | None = None) -> None:
        self._config = config
        self.model = model or config.model or ""
        self.query_model = config.query_model or self.model
        self.dimension = config.dimension
        self.same_space = config.same_space
        self.document_prefix = config.document_prefix
        prefixes = (config.query_prefix, config.document_prefix)
        self.identity: Hashable = (*kind, self.model, self.query_model, self.dimension, *prefixes)

    def excess(self, _text: str) -> str | None:
        """Return None: only the service, or the function, can count its tokens, when it is called."""
        return None

    def _model_for(self, input_type: InputType) -> str:
        return self.query_model if input_type is InputType.QUERY else self.model

    def _add_prefix(self, texts: Sequence[str], input_type: InputType) -> list[str]:
        prefix = self._config.query_prefix if input_type is InputType.QUERY else self.document_prefix
        return [prefix + text for text in texts] if prefix else list(texts)

    def _to_unit_vectors(self, vectors: Sequence[list[float]], model: str) -> list[list[float]]:
        """Return the vectors at length 1; `EmbeddingSizeError` when a service ignores the size it was asked for."""
        sizes = {len(vector) for vector in vectors if isinstance(vector, list)}
        if self.dimension is not None and sizes and sizes != {self.dimension}:
            setting = self._config.place if self._config.is_own else "CHUNKPROOF_DIMENSION"
            raise errors.EmbeddingSizeError(model, max(sizes), None, self.dimension, setting)
        return [to_unit_length(vector) for vector in vectors]


class ServiceEmbedder(ConfiguredEmbedder):
    """An embedder behind HTTP: its connections, and the endpoint that its errors name.

    `PATH` is its route, `ADDRESS` names the settings of its address, `URL` is the default address, and `KEY` the
    variable of its key.
    """

    service: ClassVar[str]
    PATH: ClassVar[str]
    ADDRESS: ClassVar[str]
    URL: ClassVar[str] = ""
    KEY: ClassVar[str] = ""
    REFUSED: ClassVar[str] = "the key; check {key}"

    def __init__(self, transport: httpx.BaseTransport, config: EmbedderConfig | None = None, **fields: Any) -> None:
        """Take a config, or its fields such as `model="embed-v4.0"`."""
        config = config or EmbedderConfig(provider=self.service, **fields)
        sent = (repr(sorted(config.query_fields.items())), repr(sorted(config.document_fields.items())))
        super().__init__(config, self.service, config.base_url, config.region, *sent)
        self.transport = transport
        self._http = DirectClient(transport)
        self._endpoint = Endpoint(
            self.PATH,
            returns="embedding",
            failed=errors.EmbeddingError,
            timed_out=errors.EmbeddingTimeoutError,
            disconnected=errors.EmbeddingConnectionError,
            wrong_request=config.place if config.is_own else "CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION",
            refused=self.REFUSED.format(key=config.key or self.KEY),
            address=config.place if config.is_own else self.ADDRESS,
        )

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._config.base_url or self.URL

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def too_long(status: int, text: str, model: str) -> errors.QueryTooLongError | None:
    """Return the error of a response that refuses a text for its length; None for any other response."""
    messages = _TOO_LONG if status in (400, 413, 422) else _TOO_LARGE if status == 500 else None
    if messages and messages.search(text[:2_000]):
        return errors.QueryTooLongError(f"query_text is longer than {model} reads; shorten it")
    return None


def to_unit_length(vector: list[float]) -> list[float]:
    """Scale the vector to length 1; return anything but finite numbers unchanged, to be refused later."""
    try:
        length = hypot(*vector)
    except (TypeError, OverflowError):
        return vector
    if not isfinite(length) or length == 0.0 or abs(length - 1.0) < ROUNDING:
        return vector
    return [value / length for value in vector]
