"""Judge whether a stored vector is the embedding of its text, and if not, whether the same model made it.

Every check of vectors uses these thresholds: `why`, suites, audits, diffs, canaries and doctor.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from math import atanh, fsum, hypot, sqrt
from operator import mul
from statistics import StatisticsError, correlation, median

from chunkproof.base.errors import CorruptChunkError
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.services import Collection
from chunkproof.contract.model import display_name
from chunkproof.embedders.embedder_port import Embedder, InputType, embedder_identity
from chunkproof.embedders.known_models import can_compare
from chunkproof.stores.store_port import Point, Vector

# Cosines of a stored vector and the embedding of its text.
# The same text, embedded by the same model: 32-bit storage costs 1e-7, the hardware of a service up to 1e-4, and one
# changed word in two hundred costs more than this.
SAME = 0.999
# The same model, with vectors that were stored in fewer bits: close enough for a whole collection.
AGREES = 0.99
# A vector for searches by words has at least this many words in common with its text.
LEAST_WORDS = 0.5
# Likely the same model, with other preprocessing or another input type; another text or model gives far less.
SIMILAR = 0.90
# With a usual cosine below this, the vectors of the collection are not this model's.
ANOTHER_MODEL = 0.5
# How many chunks show what is usual in a collection. A pipeline that embeds more than the stored text (a title, say)
# has lower cosines throughout: a vector is stale if its cosine is so much below the usual one, or so many times their
# spread.
SAMPLE = 128
LEAST_GAP, SPREADS = 0.02, 6.0
# Cosines of unrelated directions have a standard deviation of 1/sqrt(size); six of them are no coincidence. (A lower
# cosine shows nothing: texts of one model on different subjects are as far apart as vectors of two models.)
COINCIDENCE = 6.0
# Vectors of another model resemble each other as their texts do. With fewer of them nothing is shown; four standard
# errors of a correlation (Fisher) are there once in thirty thousand by chance.
LEAST_OTHERS, CORRELATED = 8, 4.0
# A vector of a text with a title may be a little nearer to a chunk that is about the title.
NEARER = 0.2
# Vectors of one model lie in the directions of its others more than chance puts them there, even where none is near: of
# two thousand random ones, the farthest is 4.5 standard deviations off. Too many directions would hold any vector.
IN_DIRECTIONS, MOST_DIRECTIONS = 5.0, 0.25
# Parts of a text that its vector may be made from: the shortest in characters, and the step from one to the next.
SHORTEST_PART, NEXT_PART = 40, 1.2


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine similarity; 0 with a vector of zeros, and for vectors of different sizes."""
    lengths = sqrt(fsum(map(mul, left, left)) * fsum(map(mul, right, right)))
    return fsum(map(mul, left, right)) / lengths if lengths and len(left) == len(right) else 0.0


def _unit(vector: Vector) -> Vector:
    length = sqrt(fsum(map(mul, vector, vector)))
    return vector if abs(length - 1.0) < 1e-9 or not length else tuple(value / length for value in vector)


def _dot(left: Vector, right: Vector) -> float:
    return float(sum(map(mul, left, right)))


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


def _find_directions(vectors: Sequence[Vector]) -> list[Vector]:
    """Return directions at right angles to each other that hold these vectors."""
    directions: list[Vector] = []
    for vector in vectors[: int(MOST_DIRECTIONS * len(vectors[0]))] if vectors else ():
        rest = vector
        for axis in directions:
            share = _dot(rest, axis)
            rest = tuple(value - share * along for value, along in zip(rest, axis, strict=True))
        if _dot(rest, rest) > 1.0 - SAME:
            directions.append(_unit(rest))
    return directions


def _measure_share(vector: Vector, directions: Sequence[Vector]) -> float:
    """Return by how many standard deviations more of a vector lies in these directions than of a random one."""
    size, count = len(vector), len(directions)
    share = fsum(_dot(vector, axis) ** 2 for axis in directions) - count / size
    return share * size / sqrt(2 * count * (size - count) / (size + 2)) if count else 0.0


def _correlate(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Return how closely two series agree; None where that may be by chance."""
    with suppress(StatisticsError):  # one of them does not vary
        agreement = correlation(left, right)
        if atanh(max(-0.999999, min(agreement, 0.999999))) * sqrt(max(0, len(left) - 3)) >= CORRELATED:
            return agreement
    return None


class Origin(StrEnum):
    """Which model made a vector, as far as a sample of its collection shows it."""

    THIS_MODEL = "this model"
    ANOTHER_MODEL = "another model"
    UNKNOWN = "unknown"


class VectorOrigins:
    """Judges by a sample of a collection which model made a vector; each pair is a stored vector and its text's.

    Vectors of one model are near to some of each other, and far from those of another model. Those of the sample that
    are far from all that this model makes are another model's if they resemble each other as their texts do.
    """

    def __init__(self, sample: Sequence[tuple[Vector, Vector]]) -> None:
        self._sample = [(_unit(one), _unit(made)) for one, made in sample if any(one) and len(one) == len(made)]

    def nearest(self, stored: Vector, fresh: Vector) -> float:
        """Return the cosine of a vector with the nearest that this model made of another text of the sample."""
        stored, fresh = _unit(stored), _unit(fresh)
        return max((_dot(stored, made) for _, made in self._sample if made != fresh), default=0.0)

    def is_of_another_text(self, stored: Vector, fresh: Vector) -> bool:
        """Whether this model made a vector of a text unlike its own, where others are of their own."""
        own = cosine(stored, fresh)
        is_like = is_no_coincidence(own, len(stored)) and own > self.nearest(stored, fresh) - NEARER
        return not is_like and is_stale(own, [_dot(*pair) for pair in self._sample])

    @cached_property
    def _others(self) -> list[tuple[Vector, Vector]]:
        """The vectors of the sample that this model does not make."""
        return [pair for pair in self._sample if not self._is_near_this_model(*pair)]

    @property
    def is_of_this_model(self) -> bool:
        """Whether this model made most vectors of the sample, be it of other texts."""
        return len(self._others) * 2 < len(self._sample)

    @cached_property
    def _directions(self) -> list[Vector]:
        return _find_directions([made for _, made in self._sample])

    @cached_property
    def _other_directions(self) -> list[Vector]:
        return _find_directions([other for other, _ in self._others])

    @cached_property
    def other_model(self) -> tuple[float, int] | None:
        """The correlation that shows another model behind vectors of the sample, and how many these are."""
        count = len(self._others)
        if count < LEAST_OTHERS:
            return None
        # This model's vectors of other texts may all be just too far off to be seen one by one. Their directions are
        # compared, as vectors of one model have some in common: by chance, all of them lie in such a one or none does.
        shares = [_measure_share(axis, self._directions) for axis in self._other_directions]
        if fsum(shares) >= CORRELATED * sqrt(len(shares)):
            return None
        stored, fresh = ([_dot(a, b) for a, b in combinations(side, 2)] for side in zip(*self._others, strict=True))
        agreement = _correlate(stored, fresh)
        return None if agreement is None else (agreement, count)

    def find(self, stored: Vector, fresh: Vector) -> tuple[Origin, str]:
        """Return which model made a vector, and what shows it; `fresh` is what this model makes of its text."""
        stored, fresh = _unit(stored), _unit(fresh)
        if self._is_near_this_model(stored, fresh):
            return Origin.THIS_MODEL, f"cosine {max(_dot(stored, fresh), self.nearest(stored, fresh)):.3f}"
        rest = [pair for pair in self._others if pair[0] != stored]
        # A vector of the sample must not be judged by itself.
        is_apart = len(rest) == len(self._others)
        own = self._other_directions if is_apart else _find_directions([other for other, _ in rest])
        products = [(_dot(stored, other), _dot(fresh, made)) for other, made in rest]
        if self.other_model is not None and (
            _measure_share(stored, own) >= IN_DIRECTIONS or _correlate(*zip(*products, strict=True)) is not None
        ):
            agreement, count = self.other_model
            return Origin.ANOTHER_MODEL, (
                f"it belongs to the vectors that resemble each other as their texts do (correlation {agreement:.2f} "
                f"over {count}), but not what this model makes of them"
            )
        return Origin.UNKNOWN, "no check shows why"

    def _is_near_this_model(self, stored: Vector, fresh: Vector) -> bool:
        nearest = max(_dot(stored, fresh), self.nearest(stored, fresh))
        return is_no_coincidence(nearest, len(stored)) or _measure_share(stored, self._directions) >= IN_DIRECTIONS


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
    origin: Origin = Origin.UNKNOWN
    evidence: str = ""


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

    @cached_property
    def origins(self) -> VectorOrigins:
        """Which model made the vectors of the collection."""
        return VectorOrigins([(point.vector or (), fresh) for point, fresh in self._sample])

    @property
    def is_foreign(self) -> bool:
        """Whether the vectors of the whole collection do not belong to their texts."""
        # Parts of texts, or texts with a title, are far from the whole text too, but by no coincidence near it.
        size = len(self._sample[0][1]) if self._sample else 1
        return self.usual < ANOTHER_MODEL and not is_no_coincidence(self.usual, size)

    def embed_again(self, points: Sequence[Point], prefix: str = "") -> list[tuple[Point, Vector]]:
        """Return the points that have a text that the model takes, each with the vector of its text."""
        texts = [self.text_of(point) for point in points]
        fresh = self.texts.embed([text and prefix + text for text in texts], self.embedder)
        return [(point, vector) for point, vector in zip(points, fresh, strict=True) if vector]

    def judge(self, point: Point) -> Fit:
        """Judge the vector of a point; it is another model's only where that is shown."""
        [fresh] = self.texts.embed([self.text_of(point)], self.embedder)
        if fresh is None or not point.vector or not any(point.vector):
            return Fit(None, self.usual, fresh is not None and not any(point.vector or ()))
        similarity, length = cosine(point.vector, fresh), hypot(*point.vector)
        others = median(hypot(*other.vector or ()) for other, _ in self._sample) if self._sample else 0.0
        if abs(others - 1.0) <= LEAST_GAP < abs(length - 1.0):  # only with Dot does a store keep lengths
            return Fit(None, self.usual, True, Origin.THIS_MODEL, f"its length is {length:.2f}, not {others:.2f}")
        if not is_stale(similarity, self._cosines):
            return Fit(similarity, self.usual, is_stale=False)
        origin, evidence = self.origins.find(point.vector, fresh)
        named = self.payloads.value("embedding_model", point.payload)
        if isinstance(named, str) and self.embedder is not None and not can_compare(self.embedder, named):
            origin, evidence = Origin.ANOTHER_MODEL, f"its payload says {display_name(named)}"
        return Fit(similarity, self.usual, True, origin, evidence)

    def measure_part(self, point: Point) -> int | None:
        """Return how many characters of its text a vector was made from; None where that is all, or is not shown."""
        text, vector = self.text_of(point), point.vector
        if self.embedder is None or not vector:
            return None

        def compare(lengths: Sequence[int]) -> tuple[float, int]:
            made = self.texts.embed([text[:length] for length in lengths], self.embedder)
            cosines = ((cosine(vector, part), n) for n, part in zip(lengths, made, strict=True) if part)
            return max(cosines, default=(0.0, 0))

        lengths = [len(text)]
        while (shorter := int(lengths[-1] / NEXT_PART)) >= SHORTEST_PART:
            lengths.append(shorter)
        _, near = compare(lengths)
        # Two steps further: a part that is a little too short may be nearer by chance than the next one.
        upper = min(len(text), int(near * NEXT_PART**2) + 1)
        step = max(1, near // 50)
        similarity, length = compare(range(int(near / NEXT_PART), upper + 1, step))
        if SIMILAR <= similarity < AGREES:  # the cut may lie between two of these
            similarity, length = compare(range(max(1, length - step), min(len(text), length + step) + 1))
        is_part = length < len(text) / NEXT_PART or (length < len(text) and self.embedder.excess(text))
        return length if similarity >= AGREES and is_part else None

    def text_of(self, point: Point) -> str:
        """Return the text that was embedded; empty when there is none that can be read."""
        try:
            return self.payloads.embedded_text(point)
        except CorruptChunkError:
            return ""
