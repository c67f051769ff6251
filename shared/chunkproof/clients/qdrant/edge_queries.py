"""Translate the JSON of Qdrant's searches into requests of Qdrant Edge, and form the groups that it does not."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import qdrant_edge as edge

from chunkproof.clients.ports import Grouping, Point, PointId
from chunkproof.clients.qdrant.edge_filters import build_filter
from chunkproof.clients.qdrant.filters import Json
from chunkproof.clients.qdrant.queries import flatten_groups

# Qdrant's own, where a request names none.
RRF_K = 2
# So many times more results are requested when those at hand do not fill the groups.
GROWTH = 4


def build_request(search: Json) -> edge.QueryRequest:
    """Return the request for a search."""
    return edge.QueryRequest(
        **_ranking(search), with_payload=search["with_payload"], with_vector=_vector_selector(search["with_vector"])
    )


def bm25_vector(text: str, *, is_query: bool) -> Json:
    """Return the sparse vector of a text, as a server makes it."""
    made = edge.Bm25().embed_query(text) if is_query else edge.Bm25().embed_document(text)
    return {"indices": made.indices, "values": made.values}


def group_points(
    search: Callable[[int], Sequence[Point]], limit: int, grouping: Grouping, points_count: int
) -> list[Point]:
    """Return the points of the best groups, from searches with more and more results until the groups are full."""
    wanted = limit * grouping.size
    while True:
        wanted *= GROWTH
        found = search(wanted)
        groups = _form_groups(found, grouping)
        full = [group for group in groups if len(groups[group]) == grouping.size]
        if len(full) >= limit or len(found) < wanted or wanted >= points_count:
            return flatten_groups(list(groups.items())[:limit])


def _form_groups(points: Sequence[Point], grouping: Grouping) -> dict[PointId, list[Point]]:
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


def _ranking(search: Json) -> dict[str, Any]:
    """Return what a request and a prefetch have in common."""
    return {
        "limit": search["limit"],
        "query": _query(search["query"], search.get("using") or ""),
        "prefetches": [edge.Prefetch(**_ranking(leg)) for leg in search.get("prefetch", ())],
        "filter": build_filter(search["filter"]) if search.get("filter") else None,
        "score_threshold": search.get("score_threshold"),
        "params": _params(search.get("params") or {}),
    }


def _query(query: Any, using: str) -> Any:
    if not isinstance(query, dict):
        return edge.Query.Nearest(list(query), using=using)
    if "mmr" in query:
        mmr = query["mmr"]
        return edge.Mmr(list(query["nearest"]), 1.0 - mmr["diversity"], mmr["candidates_limit"], using=using)
    if "model" in query:
        words = bm25_vector(query["text"], is_query=True)
        return edge.Query.Nearest(edge.SparseVector(words["indices"], words["values"]), using=using)
    if "sample" in query:
        return edge.Sample.Random
    if "text" in query:
        return edge.TextQuery(using, query["text"]["query"])
    if "rrf" in query:
        return edge.Fusion.Rrf(query["rrf"].get("k", RRF_K), query["rrf"].get("weights"))
    return edge.Fusion.Dbsf() if query["fusion"] == "dbsf" else edge.Fusion.Rrf(RRF_K)


def _params(given: Json) -> edge.SearchParams:
    quantization = given.get("quantization")
    return edge.SearchParams(
        exact=given.get("exact", False),
        hnsw_ef=given.get("hnsw_ef"),
        quantization=edge.QuantizationSearchParams(**quantization) if quantization else None,
    )


def _vector_selector(with_vector: bool | list[str]) -> bool | list[str]:
    """Return the selector for the vectors; for the unnamed one alone, where a server returns all."""
    return [""] if with_vector is True else with_vector
