"""Whether a stored vector is the embedding of the text beside it."""

from collections.abc import Callable
from math import sqrt

from chunkproof.clients.ports import InputType, Point, Vector
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, EmbeddingSizeError, QueryTooLongError
from chunkproof.retrieval.services import Services

# The same model on the same text gives 1.0 but for rounding and quantization; another text or model, far less.
AGREES, SIMILAR = 0.99, 0.90


def cosine_with_text(point: Point, services: Services, deadline: Callable[[], Deadline]) -> float | None:
    """The cosine of the point's vector and its text's embedding made anew.

    None when that cannot be told: no vector came with the point, or it has no text that the model can read.
    """
    embedder = services.embedder
    if embedder is None or point.vector is None:
        return None
    try:
        text = services.payloads.embedded_text(point)
        if not text.strip():
            return None
        again = embedder.embed([text], InputType.DOCUMENT, deadline())[0]
    except (CorruptChunkError, QueryTooLongError):
        return None
    if len(again) != len(point.vector):
        raise EmbeddingSizeError(
            f"{embedder.model} makes {len(again)} values, the collection stores {len(point.vector)}"
        )
    return cosine(again, point.vector)


def cosine(left: Vector, right: Vector) -> float:
    """The cosine of two vectors of one size; a vector of zeros is like nothing."""
    product = sum(a * b for a, b in zip(left, right, strict=True))
    lengths = sqrt(sum(a * a for a in left)) * sqrt(sum(b * b for b in right))
    return product / lengths if lengths else 0.0
