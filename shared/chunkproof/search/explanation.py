"""`explain`: how each result got its rank, what the filter left, and how likely its score is by chance."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from chunkproof.base.errors import ChunkproofError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Collection
from chunkproof.contract.query_options import (
    Confidence,
    FilterEffect,
    FusionScore,
    LegScore,
    QueryExplanation,
    RandomScores,
    RerankScore,
    ResultExplanation,
)
from chunkproof.stores.store_port import Fusion, Point, PointId, StoreQuery

# The 99th percentile of 200 chunks is between the 97th and the 100th of all, with 95 % certainty.
SAMPLE_SIZE = 200
# Qdrant's own, where a request has none.
DEFAULT_RRF_K = 2
# The two scores of a chunk that is found by the index and also drawn at random may differ by this much.
ROUNDING = 1e-6
# Nothing is asked any more when less time than this is left.
MIN_MS = 50.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A result as it was found: the point, its rank before reranking, and the reranker's score."""

    point: Point
    rank_before: int
    rerank_score: float | None = None


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """The explanation of a query and of each of its results."""

    query: QueryExplanation
    results: tuple[ResultExplanation, ...]


def explain(
    query: StoreQuery, ranked: Sequence[Ranked], collection: Collection, times_ms: Mapping[str, float]
) -> SearchExplanation:
    """Explain a finished search; what cannot be found out becomes a note, never an error."""
    asking = _Asking(collection.deadline)
    with collection.trace.stage("search"):
        description = asking.ask("the collection's counts", collection.describe)
        matching = asking.ask("the filter's effect", lambda: collection.count(query.where) if query.where else None)
        scores = _sample(query, collection, asking)
    legs = _search_legs(query, collection, asking)
    points = description.points_count if description else None
    indexed = description.indexed_vectors_count if description else None
    return SearchExplanation(
        QueryExplanation(
            search=None if indexed is None else _method(query, indexed),
            points=points,
            indexed_vectors=indexed,
            filter=None
            if matching is None or points is None
            else FilterEffect(points=max(points, matching), matching=matching),
            times_ms={
                **{name: round(ms, 3) for name, ms in times_ms.items()},
                **{name: leg.time_ms for name, leg in legs.items()},
            },
            random_scores=_summary(scores) if scores else None,
            notes=tuple(asking.notes),
        ),
        tuple(_explain_result(result, query, scores, legs) for result in ranked),
    )


@dataclass(frozen=True, slots=True)
class _Leg:
    """A leg that was searched alone: its time, and the rank of each result."""

    time_ms: float
    ranks: Mapping[PointId, int]


def _search_legs(query: StoreQuery, collection: Collection, asking: "_Asking") -> dict[str, _Leg]:
    """Search each leg once more, alone, unless the search had only one leg.

    A hybrid search is one request, which has one time. A selection for diversity has no ranks of the search by meaning.
    """

    def run(name: str, leg: StoreQuery) -> _Leg:
        with collection.trace.stage(name) as watch:
            (points,) = collection.search([leg])
        return _Leg(watch.ms(), {point.id: rank for rank, point in enumerate(points, start=1)})

    legs = query.single_legs() if query.dense and (query.text or query.diversity is not None) else {}
    found = {name: asking.ask(f"the time of the {name} leg", partial(run, name, leg)) for name, leg in legs.items()}
    return {name: leg for name, leg in found.items() if leg is not None}


def _method(query: StoreQuery, indexed: int) -> Literal["index", "exact"]:
    return "exact" if not indexed or (query.dense is not None and query.dense.exact) else "index"


class _Asking:
    """Asks the store for more, while there is time, and notes what could not be found out."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.notes: list[str] = []

    def ask(self, what: str, call: Callable[[], Result]) -> Result | None:
        if self.deadline.remaining_ms() < MIN_MS:
            self.notes.append(f"There was no time left to find out {what}")
            return None
        try:
            return call()
        except ChunkproofError as error:
            self.notes.append(f"Could not find out {what}: {error}")
            return None


def _sample(query: StoreQuery, collection: Collection, asking: _Asking) -> list[float]:
    """Return the scores of random chunks for the query, without its filter, in ascending order."""
    if query.dense is None:
        asking.notes.append("There is no confidence: a search by words alone has no dense score to compare")
        return []
    drawn = replace(query, limit=SAMPLE_SIZE, text=None, where=(), grouping=None, diversity=None, with_vector=None)
    scores = asking.ask("the scores of random chunks", lambda: collection.store.sample_scores(drawn, asking.deadline))
    if scores == []:
        asking.notes.append("There is no confidence: the store returned no random chunks")
    return sorted(min(1.0, max(0.0, score)) for score in scores or ())


def _summary(scores: Sequence[float]) -> RandomScores:
    def at(share: float) -> float:
        return scores[min(len(scores) - 1, int(share * len(scores)))]

    return RandomScores(sample_size=len(scores), median=at(0.5), p95=at(0.95), highest=scores[-1])


def _explain_result(
    ranked: Ranked, query: StoreQuery, random_scores: Sequence[float], legs: Mapping[str, _Leg]
) -> ResultExplanation:
    point, scores = ranked.point, ranked.point.scores
    dense: LegScore | None = None
    text: LegScore | None = None
    fusion: FusionScore | None = None
    if scores is None:
        is_selection = query.diversity is not None
        rank = ranked.rank_before if not is_selection else legs["dense"].ranks.get(point.id) if legs else None
        dense = LegScore(rank=rank, score=_clamp(point.score))
    else:
        if query.dense is not None:
            dense = LegScore(rank=scores.dense_rank, score=None if scores.dense is None else _clamp(scores.dense))
        if query.text is not None:
            text = LegScore(rank=scores.text_rank, score=scores.text)
        if scores.fused is not None:
            shares = fusion_shares(query.fusion, scores.dense_rank, scores.text_rank)
            fusion = FusionScore(score=scores.fused, dense=shares[0], text=shares[1])
    confidence = None
    if random_scores and dense is not None and dense.score is not None:
        confidence = locate(dense.score, random_scores)
    rerank = None
    if ranked.rerank_score is not None:
        rerank = RerankScore(score=ranked.rerank_score, rank_before=ranked.rank_before)
    return ResultExplanation(dense=dense, text=text, fusion=fusion, rerank=rerank, confidence=confidence)


def locate(score: float, random_scores: Sequence[float]) -> Confidence:
    """Return where the score lies among others, which are in ascending order."""
    below = bisect_left(random_scores, score - ROUNDING)
    ties = bisect_right(random_scores, score + ROUNDING) - below
    percentile = 100 * (below + ties / 2) / len(random_scores)
    return Confidence(percentile=round(percentile, 2), sample_size=len(random_scores))


def fusion_shares(fusion: Fusion, dense_rank: int | None, text_rank: int | None) -> tuple[float | None, float | None]:
    """Return what each leg adds to a fused score, as far as it follows from the ranks (RRF)."""
    if fusion.method != "rrf":
        return None, None
    k = DEFAULT_RRF_K if fusion.k is None else fusion.k

    def share(rank: int | None, weight: float | None) -> float:
        if rank is None or weight == 0:
            return 0.0
        return 1 / (k + rank - 1) if weight is None else 1 / (rank / weight + k - 1)

    weights = fusion.weights or (None, None)
    return share(dense_rank, weights[0]), share(text_rank, weights[1])


def _clamp(score: float) -> float:
    return min(1.0, max(0.0, score))
