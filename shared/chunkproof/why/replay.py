"""Repeat a search with changes and without writing: rankings of the store, the expected chunk put in by its score."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from chunkproof.clients.ports import Embedder, InputType, Point, PointId, Vector
from chunkproof.errors import ResponseTooLargeError, VectorStoreRefusedError
from chunkproof.models.filters import Condition, HasId, Not
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.near_text import shingles
from chunkproof.retrieval.vectors import cosine
from chunkproof.why.context import Context
from chunkproof.why.texts import are_near_duplicates

# How deep a ranking is read. Ranks beyond it are not known.
DEPTH = 1_000
# Duplicates may fill a whole ranking: then it is read again without them.
MAX_ROUNDS = 5
PAGE = 500
# Up to so many texts are embedded anew to try another model for the whole collection.
MAX_EMBEDDED = 2_000
# A score within this of another is equal to it.
EQUAL = 1e-6

Where = tuple[Condition, ...]


@dataclass(frozen=True)
class Space:
    """What queries and vectors are compared in: the stored vectors, with the query embedded by `embedder`.

    With `is_anew`, every text of the collection is embedded anew, in memory.
    """

    name: str
    embedder: Embedder | None
    query: Vector
    is_anew: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """Points by score, best first; `is_whole` when there are no others."""

    points: tuple[Point, ...]
    is_whole: bool

    def place(self, score: float, name: str, names: Sequence[str], without: frozenset[PointId]) -> int | None:
        """Return the rank of a chunk with this score among the points; None when it is beyond the last one known."""
        above = 0
        for point, other in zip(self.points, names, strict=True):
            if point.id in without:
                continue
            if point.score < score - EQUAL or (point.score <= score + EQUAL and other > name):
                return above + 1
            above += 1
        return above + 1 if self.is_whole else None


@dataclass(frozen=True, slots=True)
class Distinct:
    """A ranking without near-duplicates, and the ids of those."""

    ranking: Ranking
    duplicates: frozenset[PointId]


class Replay:
    """The rankings of one question, each read once."""

    def __init__(self, context: Context, spaces: Sequence[Space], top_k: int) -> None:
        self.context = context
        self.spaces = spaces
        self.top_k = top_k
        # False where the store forbids exact searches: then rankings are what the index finds.
        self.is_exact = True
        self._depth = DEPTH
        self._rankings: dict[tuple[int, Where], Ranking] = {}
        self._found: dict[tuple[Where, int, int], frozenset[PointId]] = {}
        self._allowed: dict[tuple[Where, PointId], bool] = {}
        self._anew: dict[PointId, Vector | None] = {}
        self._shingles: dict[PointId, set[int]] = {}
        self._mapped: dict[Where, Where] = {}

    def map(self, conditions: Where) -> Where:
        """Return a caller's conditions as the store takes them."""
        if conditions not in self._mapped:
            context = self.context
            self._mapped[conditions] = (
                map_filters(conditions, context.collection, context.services, context.new_deadline())
                if conditions
                else ()
            )
        return self._mapped[conditions]

    def allows(self, conditions: Where, point_id: PointId) -> bool:
        """Whether a stored point meets the conditions, as the store sees it."""
        if not conditions:
            return True
        key = (conditions, point_id)
        if key not in self._allowed:
            where = (*self.map(conditions), HasId((point_id,)))
            found = self.context.store.count(self.context.collection, where, self.context.new_deadline())
            self._allowed[key] = found > 0
        return self._allowed[key]

    def score(self, vector: Vector, space: int) -> float:
        """Return the score of a vector for the query, as a search gives it."""
        return min(1.0, max(0.0, self.cosine(vector, space)))

    def cosine(self, vector: Vector, space: int) -> float:
        """Return the cosine of a vector with the query."""
        return cosine(self.spaces[space].query, vector)

    def ranking(self, conditions: Where, space: int = 0) -> Ranking:
        """Return the exact ranking under these conditions, as deep as it is read."""
        key = (space, conditions)
        if key not in self._rankings:
            self._rankings[key] = (
                self._rank_anew(conditions, self.spaces[space])
                if self.spaces[space].is_anew
                else self._rank_stored(self.map(conditions), self.spaces[space].query)
            )
        return self._rankings[key]

    def _rank_stored(self, where: Where, query: Vector) -> Ranking:
        depth = self._depth
        while True:
            try:
                points = self.nearest(where, query, depth, exact=self.is_exact)
            except (ResponseTooLargeError, VectorStoreRefusedError) as error:
                # Strict mode may limit how many results a search has, and forbid exact ones.
                if depth > self.top_k:
                    depth = max(self.top_k, depth // 5)
                elif self.is_exact and isinstance(error, VectorStoreRefusedError):
                    self.is_exact, depth = False, self._depth
                else:
                    raise
            else:
                self._depth = depth
                return Ranking(tuple(points), len(points) < depth)

    def nearest(self, where: Where, query: Vector, limit: int, *, exact: bool) -> list[Point]:
        """Search the store, and order equal scores as a search does."""
        points = self.context.nearest(query, limit, where, exact=exact)
        return sorted(points, key=lambda point: (-point.score, self.context.payloads.id_of(point)))

    def _rank_anew(self, conditions: Where, space: Space) -> Ranking:
        """Embed the texts of all points that meet the conditions, and rank them by the query."""
        ranked: list[Point] = []
        where, start, is_whole = self.map(conditions), None, True
        while len(ranked) < MAX_EMBEDDED:
            page = self.context.scroll(PAGE, where, start)
            self.context.embed_all([self.context.embedded_text_of(point) for point in page.points], space.embedder)
            for point in page.points:
                if point.id not in self._anew:
                    self._anew[point.id] = self.context.embed(self.context.embedded_text_of(point), space.embedder)
                if (vector := self._anew[point.id]) is not None:
                    ranked.append(Point(point.id, point.payload, max(0.0, cosine(space.query, vector)), None))
            start = page.next_id
            if start is None:
                break
        else:
            is_whole = start is None
        ranked.sort(key=lambda point: (-point.score, self.context.payloads.id_of(point)))
        return Ranking(tuple(ranked), is_whole)

    def distinct(self, conditions: Where, space: int, own: frozenset[PointId]) -> Distinct:
        """Return the ranking without near-duplicates; of each group, the best one stays."""
        kept: list[Point] = []
        groups: list[set[int]] = []
        duplicates: set[PointId] = set()
        ranking = self.ranking(conditions, space)
        for _ in range(MAX_ROUNDS):
            before = len(duplicates)
            kept, groups = [], []
            for point in ranking.points:
                if point.id in own:
                    continue
                words = self._words(point)
                # Beyond top_k groups, no place is lost to a duplicate any more.
                if len(groups) <= self.top_k and any(are_near_duplicates(words, group) for group in groups):
                    duplicates.add(point.id)
                    continue
                kept.append(point)
                groups.append(words)
            if ranking.is_whole or len(kept) > self.top_k or len(duplicates) == before:
                break
            if self.spaces[space].is_anew:
                break
            where = (*self.map(conditions), Not((HasId(tuple(sorted(duplicates, key=str))),)))
            ranking = self._rank_stored(where, self.spaces[space].query)
        return Distinct(Ranking(tuple(kept), ranking.is_whole), frozenset(duplicates))

    def _words(self, point: Point) -> set[int]:
        if point.id not in self._shingles:
            self._shingles[point.id] = shingles(self.context.text_of(point))
        return self._shingles[point.id]

    def is_like(self, text: str, point: Point) -> bool:
        """Whether a point nearly duplicates a text."""
        return are_near_duplicates(shingles(text), self._words(point))

    def found_by_index(
        self, conditions: Where, limit: int, without: frozenset[PointId], space: int = 0
    ) -> frozenset[PointId]:
        """Search with the index, as callers do, and return the points found."""
        where = self.map(conditions)
        if without:
            where = (*where, Not((HasId(tuple(sorted(without, key=str))),)))
        key = (where, limit, space)
        if key not in self._found:
            points = self.nearest(where, self.spaces[space].query, limit, exact=False)
            self._found[key] = frozenset(point.id for point in points)
        return self._found[key]

    def index_recall(self, conditions: Where, without: frozenset[PointId], space: int = 0) -> float:
        """Return how much of the exact results the index finds."""
        ranked = self.ranking(conditions, space).points
        exact = [point.id for point in ranked if point.id not in without][: self.top_k]
        found = self.found_by_index(conditions, self.top_k, without, space)
        return sum(point_id in found for point_id in exact) / len(exact) if exact else 1.0

    @cached_property
    def names(self) -> "Names":
        """The chunk ids of points."""
        return Names(self.context)


class Names:
    """Chunk ids, read once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[PointId, str] = {}

    def of(self, points: Sequence[Point]) -> list[str]:
        """Return the ids of these points."""
        for point in points:
            if point.id not in self._known:
                self._known[point.id] = self._context.payloads.id_of(point)
        return [self._known[point.id] for point in points]


def embed_query(context: Context, text: str, embedder: Embedder) -> Vector | None:
    """Embed a question with some embedder."""
    return context.embed(text, embedder, InputType.QUERY)
