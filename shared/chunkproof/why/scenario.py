"""Where the expected chunk would be if the search, or the chunk, were another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chunkproof.clients.ports import Point, PointId, Vector
from chunkproof.deadline import Deadline
from chunkproof.models import SearchResult
from chunkproof.models.filters import Condition, HasId, fields_of
from chunkproof.why.fit import Fit
from chunkproof.why.replay import Replay
from chunkproof.why.target import Target, TargetChunk

# Where the index finds less than this share of the exact results, it would not find a new vector either.
HEALTHY_INDEX = 0.6
NEGATIVE = "its cosine is below 0, so that no search returns it"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A search, and the state of the expected chunks in it; the defaults are how they are stored.

    `filters` has a place for each filter of the caller: None where it is dropped. Those in `mended` let the expected
    chunks pass as their payload did before. `space` is an index into the spaces of the replay. `overrides` are other
    fields of the request, such as its mode.
    """

    filters: tuple[Condition | None, ...]
    threshold: float
    top_k: int
    exact: bool = False
    collapsed: bool = False
    put_back: bool = False
    former_text: bool = False
    former_vector: bool = False
    fresh: bool = False
    readable: bool = False
    mended: frozenset[int] = frozenset()
    space: int = 0
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The filters that hold."""
        return tuple(condition for condition in self.filters if condition is not None)

    @property
    def is_of_the_search(self) -> bool:
        """Whether nothing that is stored is another, so that the search itself can be repeated."""
        changed = (self.collapsed, self.put_back, self.former_text, self.former_vector, self.fresh, self.readable)
        return not any((*changed, self.mended, self.space))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a chunk is in a scenario; `reason` says why it is not among the results."""

    chunk: TargetChunk | None
    rank: int | None
    score: float | None
    found: bool
    reason: str | None = None

    @property
    def order(self) -> tuple[bool, int, float]:
        """Sorts the best outcome first."""
        return (not self.found, self.rank or 10**9, -(self.score or -1.0))


class Evaluator:
    """Evaluates scenarios of one question; each is evaluated once."""

    def __init__(
        self,
        replay: Replay,
        target: Target,
        fits: Mapping[PointId, Fit],
        ask: Callable[[Scenario], SearchResult | None],
        *,
        is_foreign: bool = False,
        is_plain: bool = True,
    ) -> None:
        self._replay = replay
        self._ask = ask
        self._is_foreign, self._is_plain = is_foreign, is_plain
        self._context = replay.context
        self._target = target
        self._fits = fits
        self._known: dict[Scenario, Outcome] = {}
        self._passing: dict[tuple[tuple[Condition, ...], str], bool] = {}

    @property
    def tried(self) -> int:
        """How many scenarios were evaluated."""
        return len(self._known)

    def evaluate(self, scenario: Scenario) -> Outcome:
        """Return where the best of the expected chunks is."""
        if scenario not in self._known and scenario.is_of_the_search and (scenario.overrides or not self._is_plain):
            self._known[scenario] = self._repeat(scenario)
        elif scenario not in self._known:
            outcomes = [self._place(chunk, scenario) for chunk in self._target.chunks]
            absent = Outcome(None, None, None, False, "it is not stored")
            self._known[scenario] = min(outcomes, key=lambda outcome: outcome.order, default=absent)
        return self._known[scenario]

    def _repeat(self, scenario: Scenario) -> Outcome:
        """Repeat the whole search, which may use words, fuse rankings, rerank or group."""
        found = self._ask(scenario)
        if found is None:
            return Outcome(None, None, None, False)
        name = found.metadata.chunk_id
        chunk = next((one for one in self._target.chunks if one.name == name), None)
        return Outcome(chunk, found.rank, found.similarity_score, found.rank <= scenario.top_k)

    def _place(self, chunk: TargetChunk, scenario: Scenario) -> Outcome:
        if chunk.point is None and not scenario.put_back:
            return Outcome(chunk, None, None, False, "it is not stored")
        vector = self.vector_of(chunk, scenario)
        if vector is None:
            return Outcome(chunk, None, None, False, "it has no vector that can be compared")
        score = self._score(chunk, vector, scenario)
        if not (chunk.text or scenario.readable or chunk.point is None):
            return Outcome(chunk, None, score, False, "it has no readable text, so that searches leave it out")
        if excluding := self._excluding(chunk, scenario):
            return Outcome(chunk, None, score, False, f"the filter on {excluding} excludes it")
        if score <= 0.0 and self._replay.cosine(vector, scenario.space) < 0.0:
            return Outcome(chunk, None, 0.0, False, NEGATIVE)
        if score < scenario.threshold:
            return Outcome(chunk, None, score, False, f"it scores less than {scenario.threshold:g}")
        return self._rank(chunk, vector, score, scenario)

    def _rank(self, chunk: TargetChunk, vector: Vector, score: float, scenario: Scenario) -> Outcome:
        replay, own = self._replay, self._own_points(scenario)
        ranking, without = replay.ranking(scenario.conditions, scenario.space), own
        if scenario.collapsed:
            distinct = replay.distinct(scenario.conditions, scenario.space, own)
            ranking, without = distinct.ranking, own | distinct.duplicates
            twin = next(
                (n for n, p in enumerate(ranking.points[: scenario.top_k]) if replay.is_like(self._text(chunk), p)),
                None,
            )
            if twin is not None and ranking.points[twin].score >= score:
                found = f"its text is there as {self._context.payloads.id_of(ranking.points[twin])}"
                return Outcome(chunk, twin + 1, ranking.points[twin].score, True, found)
        rank = ranking.place(score, chunk.name, replay.names.of(ranking.points), without)
        if rank is None:
            return Outcome(chunk, None, score, False, f"it is beyond rank {len(ranking.points):,}")
        # Deep down, every index misses some; that is no cause.
        uses_index = rank <= replay.top_k and not scenario.exact and self._context.is_indexed
        if uses_index and not self._is_found_by_index(chunk, vector, scenario, without - own):
            return Outcome(chunk, None, score, False, "the index misses it")
        return Outcome(chunk, rank, score, rank <= scenario.top_k)

    def _is_found_by_index(
        self, chunk: TargetChunk, vector: Vector, scenario: Scenario, without: frozenset[PointId]
    ) -> bool:
        """Search with the index; a vector that is not stored is taken to be found if others are."""
        conditions, replay = scenario.conditions, self._replay
        # An index of vectors that are all made anew would be built with the same parameters.
        space = 0 if replay.spaces[scenario.space].is_anew else scenario.space
        is_stored = chunk.point is not None and vector is chunk.point.vector and not scenario.mended
        if is_stored and chunk.point is not None:
            return chunk.point.id in replay.found_by_index(conditions, replay.top_k, without, space)
        return replay.index_recall(conditions, without, space) >= HEALTHY_INDEX

    def _own_points(self, scenario: Scenario) -> frozenset[PointId]:
        """Return the points that the expected chunks take the place of."""
        own = set(self._target.point_ids)
        if scenario.put_back or scenario.former_text:
            for chunk in self._target.chunks:
                own |= {part.id for part in chunk.parts} | ({chunk.twin.id} if chunk.twin else set())
        return frozenset(own)

    def _score(self, chunk: TargetChunk, vector: Vector, scenario: Scenario) -> float:
        """Return the store's own score where the vector is the stored one: it is rounded to 32 bits there."""
        if chunk.point is not None and vector is chunk.point.vector and not self._replay.spaces[scenario.space].is_anew:
            ranked = self._replay.ranking(scenario.conditions, scenario.space).points
            known = next((point.score for point in ranked if point.id == chunk.point.id), None)
            if known is not None:
                return min(1.0, max(0.0, known))
        return self._replay.score(vector, scenario.space)

    def _text(self, chunk: TargetChunk) -> str:
        return chunk.text or chunk.former_text or ""

    def vector_of(self, chunk: TargetChunk, scenario: Scenario) -> Vector | None:
        """Return the vector that the chunk would have."""
        space = self._replay.spaces[scenario.space]
        point, is_former = chunk.point, chunk.former_text is not None and scenario.former_text
        if self._is_foreign and scenario.space == 0:
            return point.vector if point is not None else None  # this model's vectors cannot be compared with others
        if space.is_anew or scenario.fresh:
            return self._embed(chunk, scenario)
        if point is None:
            return (chunk.former_vector if scenario.space == 0 else None) or self._embed(chunk, scenario)
        if scenario.former_vector and chunk.former_vector is not None:
            return chunk.former_vector
        fit = self._fits.get(point.id)
        if is_former and (fit is None or not fit.is_stale):
            # A pipeline embeds a text that it changes; a vector that does not fit its text was written by another way.
            return (chunk.former_vector if scenario.space == 0 else None) or self._embed(chunk, scenario)
        return point.vector

    def _embed(self, chunk: TargetChunk, scenario: Scenario) -> Vector | None:
        embedder = self._replay.spaces[scenario.space].embedder
        if chunk.former_text is not None and (scenario.former_text or chunk.point is None):
            return self._context.embed(chunk.former_text, embedder)
        if chunk.point is None:
            return None
        return self._context.embed(self._context.embedded_text_of(chunk.point), embedder)

    def _excluding(self, chunk: TargetChunk, scenario: Scenario) -> str | None:
        """Return the filters that exclude the chunk."""
        in_force = [(n, c) for n, c in enumerate(scenario.filters) if c is not None and n not in scenario.mended]
        if not in_force or self._passes(chunk, tuple(condition for _, condition in in_force)):
            return None
        alone = [name_condition(condition) for _, condition in in_force if not self._passes(chunk, (condition,))]
        return ", ".join(dict.fromkeys(alone)) or "all fields together"

    def _passes(self, chunk: TargetChunk, conditions: tuple[Condition, ...]) -> bool:
        if chunk.point is not None:
            return self._replay.allows(conditions, chunk.point.id)
        key = (conditions, chunk.name)
        if key not in self._passing:
            payload = chunk.former.payload if chunk.former else {}
            # Of an expected text, no payload is known: no filter is held against it.
            self._passing[key] = chunk.former is None or meets(payload, self._replay.map(conditions))
        return self._passing[key]


def name_condition(condition: Condition) -> str:
    """Return the field of a condition, as the caller wrote it."""
    return " and ".join(dict.fromkeys(found.field for found in fields_of((condition,)))) or "the id"


def meets(payload: Mapping[str, Any], where: tuple[Condition, ...]) -> bool:
    """Whether a point with these fields, by their dotted paths, would meet conditions: asked of a store in memory."""
    from chunkproof.clients.qdrant.store import QdrantStore  # takes a second to import

    store, deadline = QdrantStore.open_local(None), Deadline(10_000)
    try:
        store.create("scratch", 1, deadline)
        store.upsert("scratch", [Point(1, nest(payload), vector=(1.0,))], "", deadline)
        return store.count("scratch", (*where, HasId((1,))), deadline) > 0
    finally:
        store.close()


def nest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make a payload of fields by their dotted paths."""
    payload: dict[str, Any] = {}
    for path, value in fields.items():
        *outer, last = path.split(".")
        inner = payload
        for step in outer:
            below = inner.setdefault(step, {})
            if not isinstance(below, dict):
                break
            inner = below
        else:
            inner[last] = value
    return payload
