"""Translate a `StoreQuery` into the JSON of Qdrant's searches, and their results into points.

A query with two legs is four searches of one batch: the fused one, each leg by itself, and the cosines of what the
text leg found. A fused search returns only the fused score, and the other three have neither payloads nor vectors.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from chunkproof.clients.ports import DenseLeg, Fusion, Grouping, Point, PointId, Scores, StoreQuery, TextLeg
from chunkproof.clients.qdrant.diversity import select_diverse
from chunkproof.clients.qdrant.filters import Json, qdrant_key, to_qdrant_filter
from chunkproof.clients.qdrant.store import SCORE_STEP, round_cosine, vector_selector
from chunkproof.models.filters import Condition

# Comparing so many vectors with each other takes a fraction of a second.
MAX_COMPARED = 100
# A store in this process scores so many points in some ten milliseconds.
MAX_SCORED = 10_000


def bm25_vector(text: str) -> Json:
    """Return what the server replaces by the sparse vector of a text."""
    return {"text": text, "model": "qdrant/bm25"}


def main_search(query: StoreQuery) -> Json:
    """Return the search that selects and ranks the results."""
    if query.dense and query.text:
        legs = [_leg(_dense(query.dense, query.where), query), _leg(_text(query.text, query.where), query)]
        ranking: Json = {"prefetch": legs, "query": _fusion(query.fusion), **filter_field(query.where)}
    elif query.dense:
        ranking = _dense(query.dense, query.where)
        if query.diversity is not None:
            mmr = {"diversity": query.diversity, "candidates_limit": _candidates(query)}
            ranking["query"] = {"nearest": query.dense.vector, "mmr": mmr}
    elif query.text:
        ranking = _text(query.text, query.where)
    else:
        raise ValueError("a search needs a dense leg or a text leg")
    return {
        **ranking,
        "limit": _limit(query),
        "with_payload": query.with_payload,
        "with_vector": vector_selector(query.with_vector),
    }


def score_searches(query: StoreQuery) -> list[Json]:
    """Return the searches for the scores of each leg; none unless there are two."""
    if not (query.dense and query.text):
        return []
    dense, text = _dense(query.dense, query.where), _text(query.text, query.where)
    cosines = {**dense, "prefetch": [_leg(text, query)]}
    del cosines["score_threshold"]
    bare = {"limit": _candidates(query), "with_payload": False, "with_vector": False}
    return [{**search, **bare} for search in (dense, text, cosines)]


def is_grouped_by_store(query: StoreQuery) -> bool:
    """Whether the store forms the groups; those of a fused search are formed by `rank_points`.

    A server searches more candidates for groups than were asked for, so that the ranks of the legs would not be those
    that were fused. And it knows no threshold of fused results, which would leave groups empty.
    """
    return query.grouping is not None and not (query.dense and query.text)


def searches_of(query: StoreQuery) -> list[Json]:
    """Return all searches of a query that the store does not group."""
    return [main_search(query), *score_searches(query)]


def group_search(query: StoreQuery) -> Json:
    """Return the search for a query that the store groups: Qdrant's limit is one of groups."""
    if query.grouping is None:
        raise ValueError("the query has no grouping")
    return {
        **main_search(query),
        "group_by": qdrant_key(query.grouping.field),
        "group_size": query.grouping.size,
    }


def sample_search(query: StoreQuery, *, of_all: bool = False) -> Json:
    """Return the search for the scores of random points, or of all (up to the limit), for the dense leg."""
    if query.dense is None:
        raise ValueError("the query has no dense leg")
    bare = {"limit": query.limit, "with_payload": False, "with_vector": False}
    search = {
        "query": query.dense.vector,
        **({"using": query.dense.config.name} if query.dense.config.name else {}),
        **filter_field(query.where),
        **bare,
    }
    drawn = {"query": {"sample": "random"}, "limit": query.limit, **filter_field(query.where)}
    return search if of_all else {**search, "prefetch": [drawn]}


def flatten_groups(groups: Sequence[tuple[PointId, Sequence[Point]]]) -> list[Point]:
    """Return the points of all groups, best first, each once.

    A point with several values of the field is in several groups, and counts in the first.
    """
    points: dict[PointId, Point] = {}
    for group, found in groups:
        for point in found:
            points.setdefault(point.id, replace(point, group=group))
    return sorted(points.values(), key=lambda point: -point.score)


def form_groups(points: Sequence[Point], grouping: Grouping) -> dict[PointId, list[Point]]:
    """Return the points of each group, as many as fit; the group of the best point comes first."""
    groups: dict[PointId, list[Point]] = {}
    for point in points:
        for value in values_at(point.payload, grouping.field.split(".")):
            members = groups.setdefault(value, [])
            if len(members) < grouping.size:
                members.append(point)
    return groups


def values_at(payload: Any, path: Sequence[str]) -> Iterator[PointId]:
    """Yield the texts and integers at a path, each once; those in lists as well."""
    seen: dict[PointId, None] = {}
    _collect(payload, path, seen)
    yield from seen


def _collect(value: Any, path: Sequence[str], found: dict[PointId, None]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, path, found)
    elif path:
        if isinstance(value, dict):
            _collect(value.get(path[0].removesuffix("[]")), path[1:], found)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        found[value] = None


def rank_points(query: StoreQuery, results: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the results of a query from those of its searches, in the order of `searches_of`."""
    points = results[0]
    if query.dense and query.text:
        # Of points with the same fused score, Qdrant returns one or the other first.
        points = sorted(_with_scores(points, *results[1:]), key=lambda point: (-point.score, str(point.id)))
        if query.dense.score_threshold > 0:
            points = [point for point in points if _cosine(point) >= query.dense.score_threshold]
        if query.grouping:
            groups = form_groups(points, query.grouping)
            points = flatten_groups(list(groups.items())[: query.limit])
    elif query.dense:
        points = [replace(point, score=round_cosine(point.score)) for point in points]
        points = [point for point in points if point.score >= query.dense.score_threshold]
    else:
        points = [
            replace(point, scores=Scores(text=point.score, text_rank=rank)) for rank, point in enumerate(points, 1)
        ]
    if query.text and query.diversity:
        points = select_diverse(points[: _limit_compared(query)], query.limit, query.diversity)
    return list(points[: query.limit])


def are_finite(points: Sequence[Point]) -> bool:
    """Whether all scores are finite numbers."""
    return all(math.isfinite(point.score) for point in points)


def filter_field(where: tuple[Condition, ...]) -> Json:
    """Return the `filter` of a request, if it has conditions."""
    return {"filter": to_qdrant_filter(where)} if where else {}


def _with_scores(
    points: Sequence[Point], dense: Sequence[Point], text: Sequence[Point], cosines: Sequence[Point]
) -> list[Point]:
    dense_ranks = {point.id: rank for rank, point in enumerate(dense, 1)}
    text_ranks = {point.id: (rank, point.score) for rank, point in enumerate(text, 1)}
    known = {point.id: round_cosine(point.score) for point in (*cosines, *dense)}

    def scores(point: Point) -> Scores:
        text_rank, text_score = text_ranks.get(point.id, (None, None))
        return Scores(known.get(point.id), text_score, point.score, dense_ranks.get(point.id), text_rank)

    return [replace(point, scores=scores(point)) for point in points]


def _cosine(point: Point) -> float:
    return -1.0 if point.scores is None or point.scores.dense is None else point.scores.dense


def _candidates(query: StoreQuery) -> int:
    return query.candidates or query.limit


def _limit(query: StoreQuery) -> int:
    """Return how many results to request; all candidates, if a threshold or groups are applied to them here.

    A fused search has one more: what one leg has at rank 3 and the other at rank 5 has the same score as the opposite,
    and of such a pair at the end of the results it must always be the same one that is left out.
    """
    if query.text and query.dense and (query.dense.score_threshold > 0 or query.grouping):
        return 2 * _candidates(query)
    if query.text and query.diversity:
        return _limit_compared(query)
    return query.limit + 1 if query.text and query.dense else query.limit


def _limit_compared(query: StoreQuery) -> int:
    """Return how many of the best results are compared with each other, for diversity."""
    return max(query.limit, min(_candidates(query), MAX_COMPARED))


def _leg(search: Json, query: StoreQuery) -> Json:
    return {**search, "limit": _candidates(query)}


def _dense(leg: DenseLeg, where: tuple[Condition, ...]) -> Json:
    return {
        "query": leg.vector,
        # A server returns only scores strictly above the threshold.
        "score_threshold": leg.score_threshold - SCORE_STEP,
        **({"using": leg.config.name} if leg.config.name else {}),
        **filter_field(where),
        **({"params": params} if (params := _params(leg)) else {}),
    }


def _params(leg: DenseLeg) -> Json:
    quantization = {"rescore": leg.rescore, "oversampling": leg.oversampling}
    given = {name: value for name, value in quantization.items() if value is not None}
    return {
        **({"exact": True} if leg.exact else {}),
        **({"hnsw_ef": leg.hnsw_ef} if leg.hnsw_ef is not None else {}),
        **({"quantization": given} if given else {}),
    }


def _text(leg: TextLeg, where: tuple[Condition, ...]) -> Json:
    query: Any
    if leg.sparse_vector is not None:
        query, using = bm25_vector(leg.text), leg.sparse_vector
    elif leg.field is not None:
        query, using = {"text": {"query": leg.text}}, qdrant_key(leg.field)
    else:
        raise ValueError("a text leg needs a sparse vector or a field")
    return {"query": query, "using": using, **filter_field(where)}


def _fusion(fusion: Fusion) -> Json:
    parameters = {
        **({"k": fusion.k} if fusion.k is not None else {}),
        **({"weights": list(fusion.weights)} if fusion.weights is not None else {}),
    }
    return {"rrf": parameters} if parameters and fusion.method == "rrf" else {"fusion": fusion.method}
