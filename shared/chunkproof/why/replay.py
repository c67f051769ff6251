"""Predict where an expected chunk would be under changes of the search or of the chunk, without writing anything.

A change of the request alone is tried by a real search. For all others, the store's rankings are read, and the chunk
is put in where its score places it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from chunkproof.base.errors import (
    InvalidParameterError,
    NotConfiguredError,
    ResponseTooLargeError,
    VectorStoreRefusedError,
)
from chunkproof.base.request import Deadline
from chunkproof.contract import SearchQuery
from chunkproof.contract.conditions import Condition, HasId, Not, fields_of
from chunkproof.contract.query import MAX_DIVERSE
from chunkproof.contract.query_options import Mode
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.proof.near_text import shingles, similarity
from chunkproof.proof.vector_judge import LEAST_WORDS, SIMILAR, Fit, VectorJudge, cosine
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.store_port import Point, PointId, StoreQuery, Vector, WritableStore
from chunkproof.why.causes import Cause
from chunkproof.why.examined import ExaminedCollection, Where
from chunkproof.why.target import Expectation, TargetChunk

# How deep a ranking is read. Ranks beyond it are not known.
DEPTH = 1_000
# Duplicates may fill a whole ranking: then it is read again without them.
MAX_ROUNDS = 5
# Up to so many texts are embedded anew to try another model for the whole collection.
MAX_EMBEDDED = 2_000
# A score within this of another is equal to it.
EQUAL = 1e-6
# Share of common shingles from which on two texts are the same but for small changes.
NEAR_DUPLICATE = 0.65
# Where the index finds less than this share of the exact results, it would not find a new vector either.
HEALTHY_INDEX = 0.6
# How many results are read to leave out those that repeat others.
COLLAPSED = 100
# Chunks that show how the BM25 vectors of a collection are made.
SAMPLED_WORDS = 16
MISSED = "compared exactly it would be there, but this search misses it"
_WORD = re.compile(r"\w{2,}")
NO_DIFFERENCE = "by meaning alone and exactly, it is there without this change"
REFUSED = "the collection cannot be searched so"
NO_WORDS = "its text has no word of the question"
NEGATIVE = "its cosine is below 0, so that no search returns it"


@dataclass(frozen=True)
class QuerySpace:
    """What queries and vectors are compared in: the stored vectors, with the query embedded by `embedder`.

    With `is_anew`, every text of the collection is embedded anew, in memory.
    """

    name: str
    embedder: Embedder | None
    query: Vector
    is_anew: bool = False


@dataclass(frozen=True, slots=True)
class RankedPoints:
    """Points by score, best first; `is_whole` when there are no others."""

    points: Sequence[Point]
    is_whole: bool

    def place(self, score: float, without: frozenset[PointId]) -> int | None:
        """Return the rank of a chunk with this score among the points; None when it is beyond the last one known.

        It comes last of those with the same score: which of them a search returns depends on how they are stored.
        """
        others = [point.score for point in self.points if point.id not in without]
        above = sum(other >= score - EQUAL for other in others)
        return above + 1 if self.is_whole or above < len(others) else None


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
    rewritten: bool = False
    mended: frozenset[int] = frozenset()
    space: int = 0
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def conditions(self) -> Where:
        """The filters that hold."""
        return tuple(condition for condition in self.filters if condition is not None)

    @property
    def is_of_the_search(self) -> bool:
        """Whether only the request changes, so that the real search can be repeated."""
        of_chunks = (self.put_back, self.former_text, self.former_vector, self.fresh, self.readable, self.rewritten)
        return not any((*of_chunks, self.collapsed, self.mended, self.space))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a chunk is in a scenario; `reason` says why it is not among the results."""

    chunk: TargetChunk | None
    rank: int | None = None
    score: float | None = None
    found: bool = False
    reason: str | None = None


class Rankings:
    """The store's rankings of one question, each read once."""

    def __init__(self, collection: ExaminedCollection, spaces: Sequence[QuerySpace], top_k: int) -> None:
        self.collection = collection
        self.spaces = spaces
        self.top_k = top_k
        # False where the store forbids exact searches: then rankings are what the index finds.
        self.is_exact = True
        self._depth = DEPTH
        self._shingles: dict[PointId, set[int]] = {}
        self.map = cache(collection.map)
        self.allows = cache(self._allows)
        self.ranking = cache(self._rank)
        self.found_by_index = cache(self._find_by_index)

    def _allows(self, conditions: Where, point_id: PointId) -> bool:
        """Whether a stored point meets the conditions, as the store sees it."""
        return not conditions or self.collection.count((*self.map(conditions), HasId((point_id,)))) > 0

    def _rank(self, conditions: Where, space: int = 0) -> RankedPoints:
        """Return the exact ranking under these conditions, as deep as it is read."""
        rank = self._rank_anew if self.spaces[space].is_anew else self._rank_stored
        return rank(self.map(conditions), self.spaces[space])

    def _rank_stored(self, where: Where, space: QuerySpace) -> RankedPoints:
        depth = self._depth
        while True:
            try:
                points = self.collection.nearest(space.query, depth, where, exact=self.is_exact)
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
                return RankedPoints(points, len(points) < depth)

    def _rank_anew(self, where: Where, space: QuerySpace) -> RankedPoints:
        """Embed the texts of all points that meet the conditions, and rank them by the query."""
        judge, is_whole = self.collection.judge(space.embedder), True
        ranked: list[Point] = []
        for page in self.collection.pages(where):
            if len(ranked) >= MAX_EMBEDDED:
                is_whole = False
                break
            for point, vector in judge.embed_again(page):
                ranked.append(replace(point, score=max(0.0, cosine(space.query, vector)), vector=None))
        return RankedPoints(sorted(ranked, key=lambda point: -point.score), is_whole)

    def distinct(
        self, conditions: Where, space: int, own: frozenset[PointId]
    ) -> tuple[RankedPoints, frozenset[PointId]]:
        """Return the ranking without near-duplicates, of which the best one stays, and the ids of the others."""
        duplicates: set[PointId] = set()
        ranking = self.ranking(conditions, space)
        for _ in range(MAX_ROUNDS):
            before = len(duplicates)
            kept: list[Point] = []
            groups: list[set[int]] = []
            for point in ranking.points:
                if point.id in own:
                    continue
                words = self.words(point)
                # Beyond top_k groups, no place is lost to a duplicate any more.
                if len(groups) <= self.top_k and any(similarity(words, group) >= NEAR_DUPLICATE for group in groups):
                    duplicates.add(point.id)
                    continue
                kept.append(point)
                groups.append(words)
            is_enough = ranking.is_whole or len(kept) > self.top_k or len(duplicates) == before
            if is_enough or self.spaces[space].is_anew:
                break
            ranking = self._rank_stored(self._without(self.map(conditions), duplicates), self.spaces[space])
        return RankedPoints(kept, ranking.is_whole), frozenset(duplicates)

    @staticmethod
    def _without(where: Where, points: set[PointId] | frozenset[PointId]) -> Where:
        return (*where, Not((HasId(tuple(sorted(points, key=str))),))) if points else where

    def words(self, point: Point) -> set[int]:
        """Return the shingles of a point's text."""
        if point.id not in self._shingles:
            self._shingles[point.id] = shingles(self.collection.text_of(point))
        return self._shingles[point.id]

    def _find_by_index(self, conditions: Where, without: frozenset[PointId], space: int = 0) -> frozenset[PointId]:
        """Search with the index, as callers do, and return the points found."""
        where = self._without(self.map(conditions), without)
        points = self.collection.nearest(self.spaces[space].query, self.top_k, where, exact=False)
        return frozenset(point.id for point in points)

    def index_recall(self, conditions: Where, without: frozenset[PointId], space: int = 0) -> float:
        """Return how much of the exact results the index finds."""
        ranked = self.ranking(conditions, space).points
        exact = [point.id for point in ranked if point.id not in without][: self.top_k]
        return len(self.found_by_index(conditions, without, space).intersection(exact)) / len(exact) if exact else 1.0


class Replay:
    """Predicts where the expected chunks of one question are in a scenario; each scenario is evaluated once."""

    def __init__(
        self, collection: ExaminedCollection, query: SearchQuery, target: Expectation, other_models: Sequence[Embedder]
    ) -> None:
        self.collection = collection
        self.query = query
        self.target = target
        self._other_models = other_models
        self.is_plain = compares_vectors_alone(query)
        self.present = Scenario(tuple(query.filters), query.similarity_threshold, query.top_k)
        # Where the best of the expected chunks is.
        self.evaluate = cache(self._evaluate)
        self._rank_by_words = cache(self._rank_words)
        # The results that nearly repeat a better one, where the whole search was repeated to find them.
        self.repeated: set[PointId | None] = set()
        self._passing: dict[tuple[Where, str], bool] = {}

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the whole collection is embedded with another model."""
        embedder = None if self.is_by_words else self.collection.embedder
        return embedder is not None and self.collection.judge(embedder).is_foreign

    @property
    def foreign_cause(self) -> Cause:
        """What is wrong with a collection whose vectors are not those of its texts: another model, if that is shown."""
        is_shown = self.judge.embedder is not self.collection.embedder or self.judge.origins.other_model
        return Cause.OTHER_MODEL if is_shown else Cause.STALE_VECTOR

    @property
    def is_by_words(self) -> bool:
        """Whether the search compares words alone."""
        return self.query.mode is Mode.TEXT

    @cached_property
    def judge(self) -> VectorJudge:
        """The judge with the model that the collection is embedded with, where it is one of the other models."""
        others = (*self._other_models, *self.collection.services.embedders.values()) if self.is_foreign else ()
        judges = (self.collection.judge(other) for other in others)
        own = self.collection.judge(self.collection.embedder)
        return next((judge for judge in judges if judge.usual >= SIMILAR), own)

    @cached_property
    def fits(self) -> dict[PointId, Fit]:
        """How well the vectors of the expected chunks fit their texts."""
        if self.is_foreign and self.judge.embedder is self.collection.embedder:
            return {}
        return {point.id: self.judge.judge(point) for point, _ in self.target.stored}

    @cached_property
    def rankings(self) -> Rankings:
        """The rankings of the store, in each space that the query may be compared in."""
        return Rankings(self.collection, list(self._list_spaces()), self.query.top_k)

    def _list_spaces(self) -> Iterator[QuerySpace]:
        text, collection = self.query.query_text or "", self.collection
        if self.is_by_words:
            return
        asked = collection.embed_query(text)
        yield QuerySpace("the model in use", collection.embedder, asked.vector)
        if not self.is_foreign or collection.embedder is None:
            return
        own = self.judge.embedder
        if own is not None and own is not collection.embedder:
            vector = collection.embed_text(text, own, InputType.QUERY)
            if vector is not None and len(vector) == collection.vector.size:
                yield QuerySpace(own.model, own, vector)
                return
        yield QuerySpace(collection.embedder.model, collection.embedder, asked.vector, is_anew=True)

    def _evaluate(self, scenario: Scenario) -> Placement:
        if scenario.is_of_the_search and (scenario.overrides or not self.is_plain):
            return self.repeat(scenario)
        if scenario.collapsed and not self.is_plain:
            return self._collapse(scenario)
        placement = self._predict(scenario)
        if scenario.is_of_the_search and scenario.top_k == self.query.top_k:
            # A search that can be repeated shows more than any prediction.
            if (repeated := self.repeat(scenario)).found:
                return repeated
            return replace(placement, rank=None, found=False, reason=MISSED) if placement.found else placement
        if not placement.found or scenario.is_of_the_search or scenario.rewritten or self.is_by_words:
            return placement
        # What is predicted to be found without the change of the chunk is not found by it.
        unchanged = replace(self.present, filters=scenario.filters, threshold=scenario.threshold, top_k=scenario.top_k)
        is_no_cure = self._predict(unchanged).found
        return replace(placement, found=False, reason=NO_DIFFERENCE) if is_no_cure else placement

    def _predict(self, scenario: Scenario) -> Placement:
        place = self._place_by_words if scenario.rewritten or self.is_by_words else self._place
        gone = partial(Placement, reason="it is not stored")
        placements = (place(c, scenario) if c.point or scenario.put_back else gone(c) for c in self.target.chunks)
        return min(placements, key=lambda each: (not each.found, each.rank or 10**9, -(each.score or -1.0)))

    @property
    def most_results(self) -> int:
        """How many results the search can be asked for, with its other options."""
        query, others = self.query, list[int | None]()
        others += [each.candidates for each in (query.rerank, query.fusion) if each and not isinstance(each, bool)]
        others += [MAX_DIVERSE] if query.diversity is not None and query.mode in (Mode.TEXT, Mode.HYBRID) else []
        return min(self.collection.settings.limits.max_top_k, *filter(None, others), DEPTH)

    def repeat(self, scenario: Scenario) -> Placement:
        """Repeat the whole search, which may use words, fuse rankings, rerank or group."""
        changes = {
            "filters": scenario.conditions,
            "similarity_threshold": scenario.threshold,
            "top_k": min(scenario.top_k, self.most_results),
            **dict(scenario.overrides),
        }
        try:
            response = self.collection.answer(self.query.model_copy(update=changes), exact=scenario.exact)
        except (InvalidParameterError, NotConfiguredError):
            return Placement(None, reason=REFUSED)
        result = self.target.find(response.results)
        if result is None:
            return Placement(None)
        chunk = next((each for each in self.target.chunks if each.name == result.metadata.chunk_id), None)
        return Placement(chunk, result.rank, result.similarity_score, result.rank <= scenario.top_k)

    def _collapse(self, scenario: Scenario) -> Placement:
        """Repeat the whole search as deep as it goes, and leave out results that nearly repeat a better one."""
        depth = min(COLLAPSED, self.most_results)
        changes = {"filters": scenario.conditions, "similarity_threshold": scenario.threshold, "top_k": depth}
        response = self.collection.answer(self.query.model_copy(update=changes | dict(scenario.overrides)))
        kept: list[set[int]] = []
        for result in response.results:
            self.collection.check_time()
            words = shingles(result.text)
            if self.target.find([result]) is not None:
                chunk, rank = next(iter(self.target.chunks)), len(kept) + 1
                is_cure = rank <= scenario.top_k < result.rank
                return Placement(chunk, rank, result.similarity_score, is_cure)
            if any(similarity(words, other) >= NEAR_DUPLICATE for other in kept):
                self.repeated.add(result.point_id)
            else:
                kept.append(words)
        return Placement(None, reason=f"it is not among the first {depth} results")

    def _place_by_words(self, chunk: TargetChunk, scenario: Scenario) -> Placement:
        """Say whether a search by words would find a chunk as it was or should be; at which rank is not known."""
        is_former = chunk.former_text is not None and (scenario.former_text or chunk.point is None)
        text = chunk.former_text if is_former else chunk.text
        if excluding := self._excluding(chunk, scenario):
            return Placement(chunk, reason=f"the filter on {excluding} excludes it")
        shared = self.shared_words(text or "")
        if not shared:
            return Placement(chunk, reason=NO_WORDS)
        if self.indexed_text is None:  # what a text index makes of words is not known
            if scenario.former_text and len(shared) <= len(self.shared_words(chunk.text)):
                return Placement(chunk, reason="its text has as many words of the question now")
            return Placement(chunk, found=not scenario.is_of_the_search)
        words = _index_words(text or "")
        for point, stored in self._read_words(chunk.point.id, 1) if chunk.point and not is_former else ():
            words = _index_words(self.indexed_text(point)) if scenario.rewritten else stored
        score = fsum(weight * words.get(index, 0.0) for index, weight in self._word_weights.items())
        rank = self._rank_by_words(scenario.conditions).place(score, self._own_points(scenario))
        return Placement(chunk, rank, found=rank is not None and rank <= scenario.top_k)

    @cached_property
    def _word_weights(self) -> Mapping[int, float]:
        """The weight of each word of the question in the score of a text, as searches for it alone show."""
        weights: dict[int, float] = {}
        for word in _WORD.findall((self.query.query_text or "").casefold()):
            for index in _index_words(word):
                for best in self._search_words(word, 1):
                    [(_, own)] = self._read_words(best.id, 1)
                    weights[index] = best.score / own[index]
        return weights

    def _search_words(self, text: str, limit: int, where: Where = ()) -> list[Point]:
        collection = self.collection
        leg = replace(collection.text_leg, text=text)
        return collection.search([StoreQuery(collection.name, limit, text=leg, where=where)])[0]

    def _rank_words(self, conditions: Where) -> RankedPoints:
        """Return the ranking by words alone under these conditions."""
        points = self._search_words(self.query.query_text or "", DEPTH, self.rankings.map(conditions))
        return RankedPoints(points, len(points) < DEPTH)

    def shared_words(self, text: str) -> list[str]:
        """Return the words of the question that a text has, in any form that BM25 takes for the same, each once."""
        own, indexed = set(_WORD.findall(text.casefold())), _index_words(text).keys()
        words = dict.fromkeys(_WORD.findall((self.query.query_text or "").casefold()))
        return [word for word in words if word in own or not indexed.isdisjoint(_index_words(word))]

    @cached_property
    def lacking_words(self) -> list[str]:
        """Words of the question that a chunk's text has, and its BM25 vector has not."""
        if self.query.mode not in (Mode.TEXT, Mode.HYBRID) or self.indexed_text is None:
            return []
        for point, chunk in self.target.stored:
            words = {word: _index_words(word) for word in self.shared_words(chunk.text)}
            for read, own in self._read_words(point.id, 1):
                lacking = [word for word, indices in words.items() if not indices.keys() <= own.keys()]
                is_half = len(lacking) * 2 >= sum(map(bool, words.values()))  # a stop word has no index
                if lacking and (is_half or _share(self.indexed_text, read, own) < LEAST_WORDS):
                    return lacking
        return []

    def has_stale_words(self, point: Point) -> bool:
        """Whether a point lacks the BM25 vector that others have, or has one with few of the words of its text."""
        read = self.indexed_text
        return read is not None and any(_share(read, *own) < LEAST_WORDS for own in self._read_words(point.id, 1))

    @cached_property
    def _usual_words(self) -> Mapping[Callable[[Point], str], float]:
        """How many words BM25 vectors usually share with the stored texts, and with those that LlamaIndex embeds."""
        read = self._read_words(None, SAMPLED_WORDS)
        sample = [(point, words) for point, words in read if words and self.collection.text_of(point)]
        texts = (self.collection.text_of, self.collection.judge(None).text_of)
        return {text_of: median(_share(text_of, *each) for each in sample) for text_of in texts} if sample else {}

    @property
    def has_other_words(self) -> bool:
        """Whether the search uses BM25 vectors that were made of other words than those of the texts."""
        return self.query.mode in (Mode.TEXT, Mode.HYBRID) and max(self._usual_words.values(), default=1) < LEAST_WORDS

    @cached_property
    def indexed_text(self) -> Callable[[Point], str] | None:
        """What BM25 vectors are made of here: the stored text or, as in LlamaIndex, the embedded one; else None."""
        usual = self._usual_words
        best = max(usual, key=lambda read: usual[read], default=None)
        return best if best is not None and usual[best] >= LEAST_WORDS else None

    def _read_words(self, start: PointId | None, count: int) -> list[tuple[Point, Mapping[int, float]]]:
        """Read points, from an id on, with the words in their BM25 vectors."""
        collection, store = self.collection, self.collection.store
        name: str | None = None
        with suppress(InvalidParameterError):
            name = collection.text_leg.sparse_vector
        if name is None or not isinstance(store, WritableStore) or not find_spec("qdrant_edge"):
            return []
        structs, _ = collection.ask(partial(store.read_points, collection.name, start, count))
        nothing: dict[str, Sequence[float]] = {"indices": (), "values": ()}
        points = [(Point(one["id"], one["payload"]), one["vector"].get(name, nothing)) for one in structs]
        return [(point, dict(zip(own["indices"], own["values"], strict=True))) for point, own in points]

    def _place(self, chunk: TargetChunk, scenario: Scenario) -> Placement:
        vector = self.vector_of(chunk, scenario)
        if vector is None:
            return Placement(chunk, reason="it has no vector that can be compared")
        score = self._score(chunk, vector, scenario)
        if not (chunk.text or scenario.readable or chunk.point is None):
            return Placement(chunk, score=score, reason="it has no readable text, so that searches leave it out")
        if excluding := self._excluding(chunk, scenario):
            return Placement(chunk, score=score, reason=f"the filter on {excluding} excludes it")
        if score <= 0.0 and cosine(vector, self.rankings.spaces[scenario.space].query) < 0.0:
            return Placement(chunk, score=0.0, reason=NEGATIVE)
        if score < scenario.threshold:
            return Placement(chunk, score=score, reason=f"it scores less than {scenario.threshold:g}")
        return self._rank(chunk, vector, score, scenario)

    def _rank(self, chunk: TargetChunk, vector: Vector, score: float, scenario: Scenario) -> Placement:
        rankings, own = self.rankings, self._own_points(scenario)
        ranking, duplicates = rankings.ranking(scenario.conditions, scenario.space), frozenset[PointId]()
        if scenario.collapsed:
            before = ranking.place(score, own)
            if before is not None and before <= scenario.top_k:
                return Placement(chunk, score=score, reason=NO_DIFFERENCE)
            ranking, duplicates = rankings.distinct(scenario.conditions, scenario.space, own)
            text = chunk.text or chunk.former_text or ""
            for rank, point in enumerate(ranking.points, start=1):
                if rank > scenario.top_k or point.score < score:
                    break
                if similarity(shingles(text), rankings.words(point)) >= NEAR_DUPLICATE:
                    name = self.collection.payloads.id_of(point)
                    return Placement(chunk, rank, point.score, True, f"its text is there as {name}")
        placed = ranking.place(score, own | duplicates)
        if placed is None:
            return Placement(chunk, score=score, reason=f"it is beyond rank {len(ranking.points):,}")
        # Deep down, every index misses some; that is no cause.
        uses_index = placed <= rankings.top_k and not scenario.exact and self.collection.is_indexed
        if uses_index and not self._is_found_by_index(chunk, vector, scenario, duplicates - own):
            return Placement(chunk, score=score, reason="the index misses it")
        return Placement(chunk, placed, score, placed <= scenario.top_k)

    def _is_found_by_index(
        self, chunk: TargetChunk, vector: Vector, scenario: Scenario, without: frozenset[PointId]
    ) -> bool:
        """Search with the index; a vector that is not stored is taken to be found if others are."""
        conditions, rankings = scenario.conditions, self.rankings
        # An index of vectors that are all made anew would be built with the same parameters.
        space = 0 if rankings.spaces[scenario.space].is_anew else scenario.space
        if chunk.point is not None and vector is chunk.point.vector and not scenario.mended:
            return chunk.point.id in rankings.found_by_index(conditions, without, space)
        return rankings.index_recall(conditions, without, space) >= HEALTHY_INDEX

    def _own_points(self, scenario: Scenario) -> frozenset[PointId]:
        """Return the points that the expected chunks take the place of."""
        own = set(self.target.point_ids)
        if scenario.put_back or scenario.former_text:
            for chunk in self.target.chunks:
                own |= {part.id for part in chunk.parts} | ({chunk.twin.id} if chunk.twin else set())
        return frozenset(own)

    def _score(self, chunk: TargetChunk, vector: Vector, scenario: Scenario) -> float:
        """Return the score that a search gives: the store's own where the vector is stored, as it is rounded there."""
        score, is_anew = None, self.rankings.spaces[scenario.space].is_anew
        if chunk.point is not None and vector is chunk.point.vector and not is_anew:
            ranked = self.rankings.ranking(scenario.conditions, scenario.space).points
            score = next((point.score for point in ranked if point.id == chunk.point.id), None)
        query = self.rankings.spaces[scenario.space].query
        return min(1.0, max(0.0, cosine(query, vector) if score is None else score))

    def vector_of(self, chunk: TargetChunk, scenario: Scenario) -> Vector | None:
        """Return the vector that the chunk would have."""
        space, point = self.rankings.spaces[scenario.space], chunk.point
        if self.is_foreign and scenario.space == 0:
            return point.vector if point is not None else None  # this model's vectors cannot be compared with others
        if space.is_anew or scenario.fresh:
            return self._embed(chunk, scenario)
        if point is not None and scenario.former_vector and chunk.former_vector is not None:
            return chunk.former_vector
        fit = self.fits.get(point.id) if point is not None else None
        # A pipeline embeds a text that it changes; a vector that does not fit its text was written by another way.
        is_former = chunk.former_text is not None and scenario.former_text and not (fit and fit.is_stale)
        if point is None or is_former:
            return (chunk.former_vector if scenario.space == 0 else None) or self._embed(chunk, scenario)
        return point.vector

    def _embed(self, chunk: TargetChunk, scenario: Scenario) -> Vector | None:
        embedder = self.rankings.spaces[scenario.space].embedder
        if chunk.former_text is not None and (scenario.former_text or chunk.point is None):
            return self.collection.embed_text(chunk.former_text, embedder)
        again = self.collection.judge(embedder).embed_again([chunk.point] if chunk.point else [])
        return again[0][1] if again else None

    def _excluding(self, chunk: TargetChunk, scenario: Scenario) -> str | None:
        """Return the filters that exclude the chunk."""
        in_force = tuple(c for n, c in enumerate(scenario.filters) if c is not None and n not in scenario.mended)
        if not in_force or self.passes(chunk, in_force):
            return None
        alone = [name_condition(condition) for condition in in_force if not self.passes(chunk, (condition,))]
        return ", ".join(dict.fromkeys(alone)) or "all fields together"

    def passes(self, chunk: TargetChunk, conditions: Where) -> bool:
        """Whether an expected chunk meets the conditions, as it is stored or was."""
        if chunk.point is not None:
            return self.rankings.allows(conditions, chunk.point.id)
        # Of an expected text, no payload is known: no filter is held against it.
        former, key = chunk.former, (conditions, chunk.name)
        if former is not None and key not in self._passing:
            self._passing[key] = meets(former.payload, self.rankings.map(conditions))
        return former is None or self._passing[key]


def compares_vectors_alone(query: SearchQuery) -> bool:
    """Whether a search compares vectors and nothing else."""
    others = (query.rerank, query.group_by, query.diversity, query.require_integrity)
    return query.mode in (None, Mode.DENSE) and not any(others)


@lru_cache(256)
def _index_words(text: str) -> Mapping[int, float]:
    """Return the words of a text as a BM25 vector has them; none without Qdrant's engine, which makes it."""
    made = make_bm25_vector(text) if find_spec("qdrant_edge") else {"indices": (), "values": ()}
    return dict(zip(made["indices"], made["values"], strict=True))


def _share(read: Callable[[Point], str], point: Point, words: Mapping[int, float]) -> float:
    """Return how many words a point's BM25 vector has in common with its text."""
    made = _index_words(read(point)).keys()
    return len(made & words.keys()) / max(1, len(made | words.keys()))


def name_condition(condition: Condition) -> str:
    """Return the field of a condition, as the caller wrote it."""
    return " and ".join(dict.fromkeys(found.field for found in fields_of((condition,)))) or "the id"


def meets(payload: Mapping[str, Any], where: Where) -> bool:
    """Whether a point with these fields, by their dotted paths, would meet conditions: asked of a temporary store."""
    from chunkproof.stores.qdrant import open_edge_store  # with the engine, which few questions need

    deadline = Deadline(10_000)
    with TemporaryDirectory() as folder, closing(open_edge_store(Path(folder))) as store:
        store.create("scratch", 1, deadline)
        store.upsert("scratch", [Point(1, nest(payload), vector=(1.0,))], "", deadline)
        return store.count("scratch", (*where, HasId((1,))), deadline) > 0


def nest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make a payload of fields by their dotted paths."""
    payload: dict[str, Any] = {}
    for path, value in fields.items():
        *outer, last = path.split(".")
        inner: Any = payload
        for step in outer:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[last] = value
    return payload
