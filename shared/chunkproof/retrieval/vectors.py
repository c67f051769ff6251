"""Compare stored vectors with the embedding of the text that is stored with them."""

from collections.abc import Callable
from math import fsum, sqrt
from operator import mul

from chunkproof.clients.ports import InputType, Point, Vector
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, EmbeddingSizeError, QueryTooLongError
from chunkproof.retrieval.services import Services

# Cosines of a stored vector and the embedding of its text.
# The same text, embedded by the same model: 32-bit storage costs 1e-7, the hardware of a service up to 1e-4, and one
# changed word in two hundred costs more than this.
SAME = 0.999
# The same model, with vectors that were stored in fewer bits: close enough for a whole collection.
AGREES = 0.99
# Likely the same model, with other preprocessing or another input type; another text or model gives far less.
SIMILAR = 0.90


def cosine_with_text(
    point: Point, collection: str, services: Services, deadline: Callable[[], Deadline]
) -> float | None:
    """Embed the text of a point and return the cosine with its vector.

    None when they cannot be compared: the point came without a vector, or has no text that the model can embed.
    """
    embedder = services.embedder_of(collection)
    if embedder is None or point.vector is None:
        return None
    try:
        text = services.payloads.embedded_text(point)
        if not text.strip():
            return None
        fresh = embedder.embed([text], InputType.DOCUMENT, deadline())[0]
    except (CorruptChunkError, QueryTooLongError):
        return None
    if len(fresh) != len(point.vector):
        setting = services.model_setting(collection)
        raise EmbeddingSizeError(embedder.model, len(fresh), collection, len(point.vector), setting)
    return cosine(fresh, point.vector)


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine similarity; 0 with a vector of zeros, and for vectors of different sizes."""
    lengths = sqrt(fsum(map(mul, left, left)) * fsum(map(mul, right, right)))
    return fsum(map(mul, left, right)) / lengths if lengths and len(left) == len(right) else 0.0
