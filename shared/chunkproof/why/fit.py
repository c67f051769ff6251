"""Judge whether a stored vector is the embedding of its text, and if not, whose vector it is."""

from dataclasses import dataclass
from functools import cached_property
from math import fsum, sqrt
from statistics import median

from chunkproof.clients.ports import Embedder, Point, Vector
from chunkproof.retrieval.vectors import SIMILAR, cosine
from chunkproof.why.context import Context

# How many chunks show what is usual in the collection.
SAMPLE = 32
# With a usual cosine below this, the vectors of the collection are not this model's.
ANOTHER_MODEL = 0.5
# A vector is stale if its cosine is so much below the usual one, or so many times their spread.
LEAST_GAP, SPREADS = 0.02, 6.0
# Squared cosines of unrelated directions are 1/size on average; those of one model's vectors are several times that.
RELATED = 3.0
# Cosines of unrelated directions have a standard deviation of 1/sqrt(size); six of them are no coincidence.
NEAR = 6.0
NEIGHBOURS = 4
# With fewer texts to compare with, where vectors lie shows nothing.
LEAST_SAMPLE = 16


@dataclass(frozen=True, slots=True)
class Fit:
    """The cosine of a stored vector with the embedding of its text; None where they cannot be compared."""

    cosine: float | None
    usual: float
    is_stale: bool
    is_of_this_model: bool
    named_model: str | None = None


class FitCheck:
    """Compares vectors of one collection with what an embedder makes of their texts."""

    def __init__(self, context: Context, embedder: Embedder | None) -> None:
        self._context = context
        self.embedder = embedder

    @cached_property
    def _sample(self) -> list[tuple[Point, Vector]]:
        """Points with their texts embedded anew: always the same ones."""
        points = self._context.scroll(SAMPLE).points
        self._context.embed_all([self._context.embedded_text_of(point) for point in points], self.embedder)
        fresh = ((point, self.embed(point)) for point in points)
        return [(point, vector) for point, vector in fresh if vector is not None and point.vector]

    @cached_property
    def _cosines(self) -> list[float]:
        return [cosine(point.vector or (), vector) for point, vector in self._sample]

    @cached_property
    def usual(self) -> float:
        """The usual cosine in the collection."""
        return median(self._cosines) if self._cosines else 1.0

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the vectors of the whole collection are not this model's."""
        return bool(self._cosines) and self.usual < ANOTHER_MODEL

    def embed(self, point: Point) -> Vector | None:
        """Embed the text of a point."""
        return self._context.embed(self._context.embedded_text_of(point), self.embedder)

    def judge(self, point: Point, former_text: str | None = None) -> Fit:
        """Judge the vector of a point; it may still be that of a former text."""
        fresh, named = self.embed(point), self._named_model(point)
        if not point.vector or not any(point.vector):
            return Fit(None, self.usual, fresh is not None, True)
        if fresh is None:
            return Fit(None, self.usual, False, True)
        found = cosine(point.vector, fresh)
        spread = median(abs(other - self.usual) for other in self._cosines) if self._cosines else 0.0
        is_stale = found < self.usual - max(LEAST_GAP, SPREADS * spread)
        is_own = not is_stale or (named is None and self._is_own(point, point.vector, former_text))
        return Fit(found, self.usual, is_stale, is_own, named)

    def _named_model(self, point: Point) -> str | None:
        """Return the model that the payload names, if it is not the one in use."""
        named = self._context.payloads.value("embedding_model", point.payload)
        is_other = isinstance(named, str) and self.embedder is not None and named != self.embedder.model
        return named if is_other else None

    def _is_own(self, point: Point, vector: Vector, former_text: str | None) -> bool:
        """Whether this model made a vector, of whatever text: it lies where vectors of this model lie."""
        former = self._context.embed(former_text, self.embedder) if former_text else None
        if former is not None and cosine(vector, former) >= SIMILAR:
            return True
        fresh = [own for _, own in self._sample]
        if (
            len(fresh) < LEAST_SAMPLE
            or fsum(cosine(vector, own) ** 2 for own in fresh) / len(fresh) * len(vector) >= RELATED
        ):
            return True
        return any(self._is_near(other, vector) for other in self._neighbours(point, vector))

    def _neighbours(self, point: Point, vector: Vector) -> list[Point]:
        near = self._context.nearest(vector, NEIGHBOURS, with_vectors=True)
        return [other for other in near if other.id != point.id]

    def _is_near(self, other: Point, vector: Vector) -> bool:
        """Whether a neighbour is close, and itself a vector of this model."""
        fresh = self.embed(other)
        is_close = fresh is not None and cosine(fresh, vector) * sqrt(len(vector)) >= NEAR
        return is_close and fresh is not None and cosine(fresh, other.vector or ()) >= SIMILAR
