"""Searches with words, groups or diversity: their requests, and what is done with their results.

A query with two legs is four searches of one batch: the fused one, each leg by itself, and the cosines of what the
text leg found. A fused search returns only the fused score, and the other three have neither payloads nor vectors.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import hypot
from operator import mul
from typing import Any

from chunkproof.base.errors import StrictModeError
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import AnyOf, Condition, HasId
from chunkproof.stores.qdrant import (
    QdrantStore,
    dense_leg,
    dense_search,
    filter_field,
    qdrant_key,
    rank_dense,
    round_cosine,
    vector_selector,
)
from chunkproof.stores.store_port import Fusion, Grouping, Json, Point, PointId, Scores, StoreQuery, TextLeg, Vector

if sys.version_info >= (3, 12):
    from math import sumprod
else:

    def sumprod(one: Vector, other: Vector) -> float:
        """Return the sum of the products."""
        return float(sum(map(mul, one, other)))


# Comparing this many vectors with each other takes a fraction of a second.
MAX_COMPARED = 100
# So many times more results are requested when those at hand do not fill the groups.
GROWTH = 4


# On a server


def search_store(store: QdrantStore, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
    """Return the results of each query; queries of one collection are one request, except those with grouping."""
    results: dict[int, list[Point]] = {}
    together: dict[str, list[int]] = {}
    for number, query in enumerate(queries):
        if query.grouping:
            search = _search_groups if is_grouped_by_store(query) else _search_fused_groups
            results[number] = search(store, query, query.grouping, deadline)
        else:
            together.setdefault(query.collection, []).append(number)
    for collection, numbers in together.items():
        batch = [queries[number] for number in numbers]
        results |= zip(numbers, _search_batch(store, collection, batch, deadline), strict=True)
    return [results[number] for number in range(len(queries))]


def _search_batch(
    store: QdrantStore, collection: str, queries: Sequence[StoreQuery], deadline: Deadline
) -> list[list[Point]]:
    if most := store.max_limit(collection):  # so that each leg is searched for as many candidates as are fused
        queries = [
            replace(query, candidates=min(query.depth, most)) if query.text and query.dense else query
            for query in queries
        ]
    searches = [_with_bm25(store, query, searches_of(query), deadline) for query in queries]
    where = tuple(condition for query in queries for condition in query.where)
    results = iter(store.run(collection, [search for own in searches for search in own], where, deadline))
    return [rank_points(query, [next(results) for _ in own]) for query, own in zip(queries, searches, strict=True)]


def search_in_pages(
    store: QdrantStore, collection: str, searches: Sequence[Json], where: tuple[Condition, ...], deadline: Deadline
) -> list[list[Point]]:
    """Return the results of each search, in pages of the highest limit that the collection's strict mode allows.

    A page leaves out what the ones before it had: with an offset, points of the same score could come twice or never.
    The legs of a fused search cannot be read so: they have fewer candidates.
    """
    most = store.max_limit(collection) or 1
    if any(isinstance(search["query"], dict) and "mmr" in search["query"] for search in searches):
        reason = f"strict mode allows at most {most} results with diversity: lower top_k"
        raise StrictModeError(store.host, reason)
    found: list[dict[PointId, Point]] = [{} for _ in searches]
    left = [number for number, search in enumerate(searches) if search["limit"]]
    while left:
        pages = [_next_page(searches[number], list(found[number]), most) for number in left]
        for number, page, points in zip(tuple(left), pages, store.run(collection, pages, where, deadline), strict=True):
            before = len(found[number])
            found[number] |= {point.id: point for point in points if point.id not in found[number]}
            is_last = len(points) < page["limit"] or len(found[number]) == before
            if is_last or len(found[number]) >= searches[number]["limit"]:
                left.remove(number)
    return [list(points.values()) for points in found]


def _next_page(search: Json, found: list[PointId], most: int) -> Json:
    page = {**search, "limit": min(most, search["limit"] - len(found))}
    if "prefetch" in search:
        legs = [{**leg, "limit": min(leg["limit"], most)} for leg in search["prefetch"]]
        return {**page, "prefetch": legs, "offset": len(found)}
    return {**page, "filter": {**search.get("filter", {}), "must_not": [{"has_id": found}]}} if found else page


def _search_groups(store: QdrantStore, query: StoreQuery, grouping: Grouping, deadline: Deadline) -> list[Point]:
    collection, most = query.collection, store.max_limit(query.collection)
    (main,) = _with_bm25(store, query, [main_search(query)], deadline)
    if store.is_embedded or (most is not None and query.limit * grouping.size > most):
        count = store.count(collection, query.where, deadline)
        bare = main | _only_group(grouping)

        def search(limit: int) -> Sequence[Point]:
            return store.run(collection, [{**bare, "limit": limit}], query.where, deadline)[0]

        points = rank_points(query, [group_points(search, query.limit, grouping, count)])
        return _add_payloads(store, query, points, deadline)
    # Qdrant's limit is one of groups, and a field to group by needs an index as one to filter by does.
    body = {**main, "group_by": qdrant_key(grouping.field), "group_size": grouping.size}
    where = (*query.where, AnyOf(grouping.field, ("",)))
    try:
        return rank_points(query, [flatten_groups(store.run_groups(collection, body, where, deadline))])
    except StrictModeError:
        if not store.has_lower_limit(collection, most, deadline):
            raise
        return _search_groups(store, query, grouping, deadline)


def _search_fused_groups(store: QdrantStore, query: StoreQuery, grouping: Grouping, deadline: Deadline) -> list[Point]:
    """Form groups of all candidates, and read the payloads of those that are left."""
    main, *others = _with_bm25(store, query, searches_of(query), deadline)
    results = store.run(query.collection, [main | _only_group(grouping), *others], query.where, deadline)
    return _add_payloads(store, query, rank_points(query, results), deadline)


def _only_group(grouping: Grouping) -> Json:
    """Return the search for groups that are formed here: it reads many more points than are returned."""
    return {"with_payload": [qdrant_key(grouping.field)], "with_vector": False}


def _add_payloads(store: QdrantStore, query: StoreQuery, points: list[Point], deadline: Deadline) -> list[Point]:
    """Return the points as they are stored, those that still exist."""
    if not points:
        return []
    where = (*query.where, HasId(tuple(point.id for point in points)))
    page = store.scroll(query.collection, deadline, limit=len(points), where=where, with_vector=query.with_vector)
    stored = {point.id: point for point in page.points}
    return [
        replace(point, payload=stored[point.id].payload, vector=stored[point.id].vector)
        for point in points
        if point.id in stored
    ]


def _with_bm25(store: QdrantStore, query: StoreQuery, searches: list[Json], deadline: Deadline) -> list[Json]:
    """Return the searches of a query with BM25 vectors, if they are made here."""
    if query.text is None or query.text.sparse_vector is None or not store.makes_vectors(deadline):
        return searches
    return [_make_vectors(search) for search in searches]


def _make_vectors(search: Json) -> Json:
    """Return a search with the sparse vectors of its texts, which a server before 1.15.3 does not make."""
    made = dict(search)
    if isinstance(made["query"], dict) and "model" in made["query"]:
        made["query"] = make_bm25_vector(made["query"]["text"], is_query=True)
    if "prefetch" in made:
        made["prefetch"] = [_make_vectors(leg) for leg in made["prefetch"]]
    return made


def name_bm25_vector(text: str) -> Json:
    """Return what the server replaces by the sparse vector of a text."""
    return {"text": text, "model": "qdrant/bm25"}


def make_bm25_vector(text: str, *, is_query: bool = False) -> Json:
    """Return the sparse vector of a text to store, or of a query, as a server makes it."""
    import qdrant_edge as edge

    made = edge.Bm25().embed_query(text) if is_query else edge.Bm25().embed_document(text)
    return {"indices": made.indices, "values": made.values}


# Requests


def searches_of(query: StoreQuery) -> list[Json]:
    """Return all searches of a query that the store does not group."""
    return [main_search(query), *score_searches(query)]


def main_search(query: StoreQuery) -> Json:
    """Return the search that selects and ranks the results."""
    if query.text is None:
        search = dense_search(query)
        if query.diversity is not None:
            mmr = {"diversity": query.diversity, "candidates_limit": query.depth}
            search["query"] = {"nearest": search["query"], "mmr": mmr}
        return search
    if query.dense:
        legs = (dense_leg(query.dense, query.where), _text(query.text, query.where))
        prefetch = [{**leg, "limit": query.depth} for leg in legs]
        ranking: Json = {"prefetch": prefetch, "query": _fusion(query.fusion), **filter_field(query.where)}
    else:
        ranking = _text(query.text, query.where)
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
    dense, text = dense_leg(query.dense, query.where), _text(query.text, query.where)
    cosines = {**dense, "prefetch": [{**text, "limit": query.depth}]}
    del cosines["score_threshold"]
    bare = {"limit": query.depth, "with_payload": False, "with_vector": False}
    return [{**search, **bare} for search in (dense, text, cosines)]


def is_grouped_by_store(query: StoreQuery) -> bool:
    """Whether the store forms the groups; groups of a fused search are formed by `rank_points`.

    A server searches more candidates for groups than were asked for, so that the ranks of the legs would not be those
    that were fused. And it knows no threshold of fused results, which would leave groups empty.
    """
    return query.grouping is not None and not (query.dense and query.text)


def _limit(query: StoreQuery) -> int:
    """Return how many results to request; all candidates, if a threshold or groups are applied to them here.

    A fused search has one more: what one leg has at rank 3 and the other at rank 5 has the same score as the opposite,
    and of such a pair at the end of the results it must always be the same one that is left out.
    """
    if query.text and query.dense and (query.dense.score_threshold > 0 or query.grouping):
        return 2 * query.depth
    if query.text and query.diversity:
        return _limit_compared(query)
    return query.limit + 1 if query.text and query.dense else query.limit


def _limit_compared(query: StoreQuery) -> int:
    """Return how many of the best results are compared with each other, for diversity."""
    return max(query.limit, min(query.depth, MAX_COMPARED))


def _text(leg: TextLeg, where: tuple[Condition, ...]) -> Json:
    query: Any
    if leg.sparse_vector is not None:
        query, using = name_bm25_vector(leg.text), leg.sparse_vector
    elif leg.field is not None:
        query, using = {"text": {"query": leg.text}}, qdrant_key(leg.field)
    else:
        raise ValueError("a text leg needs a sparse vector or a field")
    params = {"params": {"idf": {"corpus": filter_field(leg.corpus)["filter"]}}} if leg.corpus else {}
    return {"query": query, "using": using, **filter_field(where), **params}


def _fusion(fusion: Fusion) -> Json:
    parameters = {
        **({"k": fusion.k} if fusion.k is not None else {}),
        **({"weights": list(fusion.weights)} if fusion.weights is not None else {}),
    }
    return {"rrf": parameters} if parameters and fusion.method == "rrf" else {"fusion": fusion.method}


# Results


def rank_points(query: StoreQuery, results: Sequence[Sequence[Point]]) -> list[Point]:
    """Merge the results of the searches of a query, in the order of `searches_of`."""
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
        points = rank_dense(query, points)
    else:
        points = [
            replace(point, scores=Scores(text=point.score, text_rank=rank)) for rank, point in enumerate(points, 1)
        ]
    if query.text and query.diversity:
        points = select_diverse(points[: _limit_compared(query)], query.limit, query.diversity)
    return list(points[: query.limit])


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
        for value in dict.fromkeys(values_at(point.payload, grouping.field.split("."))):
            members = groups.setdefault(value, [])
            if len(members) < grouping.size:
                members.append(point)
    return groups


def values_at(value: Any, path: Sequence[str]) -> Iterator[PointId]:
    """Yield the texts and integers at a path of a payload; those in lists as well."""
    if isinstance(value, list):
        for item in value:
            yield from values_at(item, path)
    elif path:
        if isinstance(value, dict):
            yield from values_at(value.get(path[0].removesuffix("[]")), path[1:])
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield value


def group_points(
    search: Callable[[int], Sequence[Point]], limit: int, grouping: Grouping, points_count: int
) -> list[Point]:
    """Return the points of the best groups, from searches with more and more results until the groups are full."""
    wanted = limit * grouping.size
    while True:
        wanted *= GROWTH
        points = search(wanted)
        groups = form_groups(points, grouping)
        full = [group for group in groups if len(groups[group]) == grouping.size]
        if len(full) >= limit or len(points) < wanted or wanted >= points_count:
            return flatten_groups(list(groups.items())[:limit])


def select_diverse(points: Sequence[Point], limit: int, diversity: float) -> list[Point]:
    """Return the points that maximal marginal relevance selects, in that order; they must have their vectors.

    Qdrant's own MMR takes the cosine with the query as the relevance of a result, also when it selects among the
    results of a fused search. What only its words found would then come last. Here, relevance is the score by which the
    search ranks.
    The next point is always the one with the highest `(1 - diversity) * relevance - diversity * similarity`. Relevance
    is the score, scaled so that the best point has 1 and the last 0. Similarity is the highest cosine with a point that
    was selected before; a point without a vector is similar to none. Of equals, the better score decides, then the id.
    """
    points = sorted(points, key=lambda point: (-point.score, str(point.id)))
    vectors = [_to_unit_length(point.vector) for point in points]
    scores = [point.score for point in points]
    spread = scores[0] - scores[-1] if scores else 0.0
    relevance = [(score - scores[-1]) / spread if spread else 1.0 for score in scores]
    similarity = [-1.0] * len(points)
    left, selected = list(range(len(points))), list[Point]()
    while left and len(selected) < limit:
        best = max(left, key=lambda number: (1 - diversity) * relevance[number] - diversity * similarity[number])
        left.remove(best)
        for number in left:
            cosine = sumprod(vectors[number], vectors[best]) if vectors[number] and vectors[best] else 0.0
            similarity[number] = max(similarity[number], cosine)
        selected.append(points[best])
    return selected


def _to_unit_length(vector: Vector | None) -> Vector:
    length = hypot(*vector) if vector else 0.0
    return [value / length for value in vector or ()] if length else ()
