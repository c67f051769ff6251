"""Judge whether a stored vector is the embedding of its text, and if not, whether the same model made it.

Every check of vectors uses these thresholds: `why`, suites, audits, diffs, canaries and doctor.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import atanh, fsum, sqrt
from operator import mul
from statistics import StatisticsError, correlation, median

from chunkproof.base.errors import CorruptChunkError
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.services import Collection
from chunkproof.embedders.embedder_port import Embedder, InputType, embedder_identity
from chunkproof.stores.store_port import Point, Vector

# Cosines of a stored vector and the embedding of its text.
# The same text, embedded by the same model: 32-bit storage costs 1e-7, the hardware of a service up to 1e-4, and one
# changed word in two hundred costs more than this.
SAME = 0.999
# The same model, with vectors that were stored in fewer bits: close enough for a whole collection.
AGREES = 0.99
# Likely the same model, with other preprocessing or another input type; another text or model gives far less.
SIMILAR = 0.90
# With a usual cosine below this, the vectors of the collection are not this model's.
ANOTHER_MODEL = 0.5
# How many chunks show what is usual in a collection. A pipeline that embeds more than the stored text (a title, say)
# has lower cosines throughout: a vector is stale if its cosine is so much below the usual one, or so many times their
# spread.
SAMPLE = 32
LEAST_GAP, SPREADS = 0.02, 6.0
# Cosines of unrelated directions have a standard deviation of 1/sqrt(size); six of them are no coincidence. (A lower
# cosine shows nothing: texts of one model on different subjects are as far apart as vectors of two models.)
COINCIDENCE = 6.0
# Vectors of another model resemble each other as their texts do. With fewer of them nothing is shown; four standard
# errors of a correlation (Fisher) are there once in thirty thousand by chance.
LEAST_OTHERS, CORRELATED = 8, 4.0
# Parts of a text that its vector may be made from: the shortest in characters, and the step from one to the next.
SHORTEST_PART, NEXT_PART = 40, 1.2


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine similarity; 0 with a vector of zeros, and for vectors of different sizes."""
    lengths = sqrt(fsum(map(mul, left, left)) * fsum(map(mul, right, right)))
    return fsum(map(mul, left, right)) / lengths if lengths and len(left) == len(right) else 0.0


def is_no_coincidence(similarity: float, size: int) -> bool:
    """Whether vectors of this size with this cosine are related."""
    return similarity * sqrt(size) >= COINCIDENCE


def is_stale(similarity: float, usual: Sequence[float]) -> bool:
    """Whether a vector with this cosine to its text is not the text's, where these cosines are usual."""
    if not usual:
        return similarity < 1.0 - LEAST_GAP
    middle = median(usual)
    spread = median(abs(other - middle) for other in usual)
    return middle < ANOTHER_MODEL or similarity < middle - max(LEAST_GAP, SPREADS * spread)


def correlate_others(
    stored: Vector, fresh: Vector, others: Sequence[tuple[Vector, Vector]]
) -> tuple[float, int] | None:
    """Return the correlation that shows one other model behind a vector and others, and how many these are.

    `others` are stored vectors that are not this model's, each with what this model makes of its text. None where
    they do not resemble each other as their texts do.
    """
    if len(others) < LEAST_OTHERS:
        return None
    try:
        among_stored = [cosine(stored, other) for other, _ in others]
        agreement = correlation(among_stored, [cosine(fresh, made) for _, made in others])
    except StatisticsError:  # one side does not vary
        return None
    is_shown = atanh(min(agreement, 0.999999)) * sqrt(len(others) - 3) >= CORRELATED
    return (agreement, len(others)) if is_shown else None


class EmbeddedTexts:
    """Embeds each text once per embedder and input type; None for one that is blank or that the model does not take."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._vectors: dict[tuple[Hashable, InputType, str], Vector | None] = {}

    def embed(
        self, texts: Sequence[str], embedder: Embedder | None, input_type: InputType = InputType.DOCUMENT
    ) -> list[Vector | None]:
        """Return the vector of each text, with as few calls as possible."""
        if embedder is None:
            return [None] * len(texts)
        keys = {text: (embedder_identity(embedder), input_type, text) for text in texts}
        new = [text for text, key in keys.items() if text.strip() and key not in self._vectors]
        vectors = self._collection.embed(new, input_type, embedder)
        self._vectors |= {keys[text]: vector for text, vector in zip(new, vectors, strict=True)}
        return [self._vectors.get(keys[text]) for text in texts]


@dataclass(frozen=True, slots=True)
class Fit:
    """The cosine of a stored vector with the embedding of its text; None where they cannot be compared."""

    cosine: float | None
    usual: float
    is_stale: bool
    is_of_this_model: bool


@dataclass
class VectorJudge:
    """Compares vectors of one collection with what an embedder makes of their texts.

    `read_sample` returns points that show what is usual, with their vectors, always the same ones.
    """

    embedder: Embedder | None
    payloads: PayloadMap
    texts: EmbeddedTexts
    read_sample: Callable[[], Sequence[Point]] = tuple

    @cached_property
    def _sample(self) -> list[tuple[Point, Vector]]:
        return [(point, vector) for point, vector in self.embed_again(self.read_sample()) if point.vector]

    @cached_property
    def _cosines(self) -> list[float]:
        return [cosine(point.vector or (), vector) for point, vector in self._sample]

    @cached_property
    def usual(self) -> float:
        """The usual cosine in the collection."""
        return median(self._cosines) if self._cosines else 1.0

    @property
    def is_foreign(self) -> bool:
        """Whether the vectors of the whole collection are not this model's."""
        # Parts of texts, or texts with a title, are far from the whole text too, but by no coincidence near it.
        size = len(self._sample[0][1]) if self._sample else 1
        return self.usual < ANOTHER_MODEL and not is_no_coincidence(self.usual, size)

    def embed_again(self, points: Sequence[Point], prefix: str = "") -> list[tuple[Point, Vector]]:
        """Return the points that have a text that the model takes, each with the vector of its text."""
        texts = [self._text_of(point) for point in points]
        fresh = self.texts.embed([text and prefix + text for text in texts], self.embedder)
        return [(point, vector) for point, vector in zip(points, fresh, strict=True) if vector]

    def judge(self, point: Point) -> Fit:
        """Judge the vector of a point; it is another model's only where that is shown."""
        [fresh] = self.texts.embed([self._text_of(point)], self.embedder)
        if fresh is None or not point.vector or not any(point.vector):
            return Fit(None, self.usual, fresh is not None and not any(point.vector or ()), True)
        similarity = cosine(point.vector, fresh)
        stale = is_stale(similarity, self._cosines)
        is_foreign = stale and (self._names_another_model(point) or self._resembles_others(point, fresh))
        return Fit(similarity, self.usual, stale, not is_foreign)

    def measure_part(self, point: Point) -> int | None:
        """Return how many characters of its text a vector was made from; None where that is all, or is not shown."""
        text, vector = self._text_of(point), point.vector
        if self.embedder is None or not vector:
            return None

        def compare(lengths: Sequence[int]) -> tuple[float, int]:
            made = self.texts.embed([text[:length] for length in lengths], self.embedder)
            return max(
                ((cosine(vector, part), n) for n, part in zip(lengths, made, strict=True) if part), default=(0.0, 0)
            )

        lengths = [len(text)]
        while (shorter := int(lengths[-1] / NEXT_PART)) >= SHORTEST_PART:
            lengths.append(shorter)
        fitting = [length for length in lengths if not self.embedder.excess(text[:length])]
        if not fitting:
            return None
        _, near = compare(fitting)
        upper = min(len(text), int(near * NEXT_PART) + 1)
        similarity, length = compare(range(int(near / NEXT_PART), upper + 1, max(1, near // 50)))
        return length if similarity >= AGREES and length < len(text) / NEXT_PART else None

    def _text_of(self, point: Point) -> str:
        try:
            return self.payloads.embedded_text(point)
        except CorruptChunkError:
            return ""

    def _names_another_model(self, point: Point) -> bool:
        named = self.payloads.value("embedding_model", point.payload)
        return isinstance(named, str) and self.embedder is not None and named != self.embedder.model

    def _resembles_others(self, point: Point, fresh: Vector) -> bool:
        """Whether other vectors of the sample that are not this model's resemble this one as their texts do."""
        pairs = [(other.vector or (), made) for other, made in self._sample if other.id != point.id]
        others = [pair for pair in pairs if not is_no_coincidence(cosine(*pair), len(fresh))]
        return correlate_others(point.vector or (), fresh, others) is not None
