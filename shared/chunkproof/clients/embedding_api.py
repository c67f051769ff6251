"""What the clients of embedding services share: their errors, and vectors of length 1."""

import re
from collections.abc import Sequence
from math import hypot, isfinite

from chunkproof.clients.http_api import Endpoint
from chunkproof.clients.ports import InputType
from chunkproof.embedder_config import EmbedderConfig
from chunkproof.errors import (
    EmbeddingConnectionError,
    EmbeddingError,
    EmbeddingSizeError,
    EmbeddingTimeoutError,
    QueryTooLongError,
)

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


def embed_endpoint(path: str, config: EmbedderConfig, *, refused: str, address: str) -> Endpoint:
    """Return the endpoint that embeds, with the settings that its error messages name."""
    if config.is_own:
        wrong = address = config.place
    else:
        wrong = "CHUNKPROOF_MODEL and CHUNKPROOF_DIMENSION"
    return Endpoint(
        path,
        returns="embedding",
        failed=EmbeddingError,
        timed_out=EmbeddingTimeoutError,
        disconnected=EmbeddingConnectionError,
        wrong_request=wrong,
        refused=refused,
        address=address,
    )


def too_long(status: int, text: str, model: str) -> QueryTooLongError | None:
    """Return the error of a response that refuses a text for its length; None for any other response."""
    messages = _TOO_LONG if status in (400, 413, 422) else _TOO_LARGE if status == 500 else None
    if messages and messages.search(text[:2_000]):
        return QueryTooLongError(f"query_text is longer than {model} reads; shorten it")
    return None


def model_for(config: EmbedderConfig, input_type: InputType) -> str:
    """Return the model that embeds texts of this type."""
    model = config.query_model if input_type is InputType.QUERY else None
    return model or config.model or ""


def add_prefix(texts: Sequence[str], config: EmbedderConfig, input_type: InputType) -> list[str]:
    """Return the texts with the prefix of their type before each."""
    prefix = config.query_prefix if input_type is InputType.QUERY else config.document_prefix
    return [prefix + text for text in texts] if prefix else list(texts)


def to_unit_length(vector: list[float]) -> list[float]:
    """Return the vector at length 1; what is no vector of finite numbers is returned as it is, to be refused later."""
    try:
        length = hypot(*vector)
    except (TypeError, OverflowError):
        return vector
    if not isfinite(length) or length == 0.0 or abs(length - 1.0) < ROUNDING:
        return vector
    return [value / length for value in vector]


def check_size(vectors: Sequence[Sequence[float]], config: EmbedderConfig, model: str) -> None:
    """Raise `EmbeddingSizeError` when a service ignores the size that it was asked for."""
    sizes = {len(vector) for vector in vectors if isinstance(vector, list)}
    if config.dimension is not None and sizes and sizes != {config.dimension}:
        setting = config.place if config.is_own else "CHUNKPROOF_DIMENSION"
        raise EmbeddingSizeError(model, max(sizes), None, config.dimension, setting)
