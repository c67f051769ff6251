"""Translate Qdrant's JSON into the objects of Qdrant Edge and back: searches, filters, points, layouts."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from chunkproof.stores.store_port import Json, Layout, PointId

# Qdrant's own, where a request names none.
RRF_K = 2


# Searches


def build_request(search: Json) -> edge.QueryRequest:
    """Return the request for a search."""
    fields = search["with_payload"]
    payload = edge.PayloadSelector.Include(fields) if isinstance(fields, list) else fields
    return edge.QueryRequest(**_ranking(search), with_payload=payload, with_vector=search["with_vector"])


def _ranking(search: Json) -> dict[str, Any]:
    """Return what a request and a prefetch have in common."""
    return {
        "limit": search["limit"],
        "query": _query(search["query"], search.get("using") or ""),
        "prefetches": [edge.Prefetch(**_ranking(leg)) for leg in search.get("prefetch", ())],
        "filter": build_filter(search),
        "score_threshold": search.get("score_threshold"),
        "params": _params(search.get("params") or {}),
    }


def _query(query: Any, using: str) -> Any:
    if not isinstance(query, dict):
        return edge.Query.Nearest(list(query), using=using)
    if "mmr" in query:
        mmr = query["mmr"]
        return edge.Mmr(list(query["nearest"]), 1.0 - mmr["diversity"], mmr["candidates_limit"], using=using)
    if "indices" in query:
        return edge.Query.Nearest(edge.SparseVector(query["indices"], query["values"]), using=using)
    if "sample" in query:
        return edge.Sample.Random
    if "text" in query:
        return edge.TextQuery(using, query["text"]["query"])
    if "rrf" in query:
        return edge.Fusion.Rrf(query["rrf"].get("k", RRF_K), query["rrf"].get("weights"))
    return edge.Fusion.Dbsf() if query["fusion"] == "dbsf" else edge.Fusion.Rrf(RRF_K)


def _params(given: Json) -> edge.SearchParams:
    quantization, idf = given.get("quantization"), given.get("idf")
    return edge.SearchParams(
        exact=given.get("exact", False),
        hnsw_ef=given.get("hnsw_ef"),
        quantization=edge.QuantizationSearchParams(**quantization) if quantization else None,
        idf=edge.IdfParams(corpus=_filter(idf["corpus"])) if idf else None,
    )


# Filters


def build_filter(body: Json) -> edge.Filter | None:
    """Return the filter of a request; None when it has none."""
    return _filter(body["filter"]) if body.get("filter") else None


def _filter(built: Json) -> edge.Filter:
    clauses: dict[str, Any] = {clause: [_condition(condition) for condition in built[clause]] for clause in built}
    return edge.Filter(**clauses)


def _condition(built: Json) -> Any:
    if "has_id" in built:
        return edge.HasIdCondition(set(built["has_id"]))
    if "has_vector" in built:
        return edge.HasVectorCondition(built["has_vector"])
    if "is_empty" in built:
        return edge.IsEmptyCondition(built["is_empty"]["key"])
    if "match" in built:
        return edge.FieldCondition(built["key"], match=_match(built["match"]))
    if "range" in built:
        is_about_time = any(isinstance(bound, str) for bound in built["range"].values())
        kind: Any = edge.RangeDateTime if is_about_time else edge.RangeFloat
        return edge.FieldCondition(built["key"], range=kind(**built["range"]))
    return _filter(built)


def _match(built: Json) -> Any:
    if "any" in built:
        return edge.MatchAny(built["any"])
    value = built["value"]
    return edge.MatchValue(_NumpyBool(value) if isinstance(value, bool) else value)  # type: ignore[arg-type]


class _NumpyBool:
    """A boolean that `MatchValue` does not take for an integer.

    In 0.9.0, `MatchValue(True)` means the integer 1, so that no filter selects booleans. The engine's bindings take a
    boolean of numpy for a boolean, and recognise it by the name of its class.
    """

    def __init__(self, value: bool) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return self._value


_NumpyBool.__module__, _NumpyBool.__name__ = "numpy", "bool_"


# Points


def to_record(record: Any) -> Json:
    """Return a point of Qdrant's REST API, with its score if a search returned it."""
    vectors = record.vector
    if isinstance(vectors, dict):
        vectors = {
            name: {"indices": vector.indices, "values": vector.values}
            if isinstance(vector, edge.SparseVector)
            else vector
            for name, vector in vectors.items()
        }
    score = {"score": record.score} if isinstance(record, edge.ScoredPoint) else {}
    return {"id": plain_id(record.id), "payload": record.payload, "vector": vectors, **score}


def to_edge_point(struct: Json) -> edge.Point:
    """Return a point of the engine for one of Qdrant's REST API, whose vectors all have names."""
    vectors = {
        name: edge.SparseVector(vector["indices"], vector["values"]) if isinstance(vector, Mapping) else vector
        for name, vector in struct["vector"].items()
    }
    return edge.Point(struct["id"], vectors, struct["payload"])


def plain_id(point_id: UUID | PointId) -> PointId:
    """Return an id as in Qdrant's REST API."""
    return str(point_id) if isinstance(point_id, UUID) else point_id


# Layouts


def to_edge_config(layout: Layout) -> edge.EdgeConfig:
    """Return the configuration of a shard; quantization is left out, as only the original vectors are copied.

    The engine's write-ahead log is off: it would let only one process open the shard, and the store has a journal.
    """
    return edge.EdgeConfig(
        vectors={name: _vector_params(params) for name, params in layout.vectors.items()},
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if params.get("modifier") == "idf" else None)
            for name, params in layout.sparse_vectors.items()
        },
        wal_enabled=False,
    )


def word_index(tokenizer: edge.TokenizerType = edge.TokenizerType.Word) -> edge.TextIndexParams:
    """Return an index that ranks texts by their words, without regard to case, accents and English endings.

    A server's BM25 stems English words too.
    """
    stemmer = edge.SnowballParams(edge.SnowballLanguage.English)
    return edge.TextIndexParams(tokenizer=tokenizer, lowercase=True, ascii_folding=True, stemmer=stemmer, scoring=True)


def _vector_params(params: Json) -> edge.EdgeVectorParams:
    datatype = params.get("datatype")
    multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim) if params.get("multivector_config") else None
    return edge.EdgeVectorParams(
        size=params["size"],
        distance=getattr(edge.Distance, params["distance"]),
        multivector_config=multi,
        datatype=getattr(edge.VectorStorageDatatype, datatype.capitalize()) if datatype else None,
    )


def to_edge_index(params: Json) -> Any:
    """Return the index of a payload field."""
    if params["type"] == "text":
        tokenizer = (params.get("tokenizer") or "word").capitalize()
        return word_index(getattr(edge.TokenizerType, tokenizer, edge.TokenizerType.Word))
    if params.get("is_tenant"):
        return (edge.UuidIndexParams if params["type"] == "uuid" else edge.KeywordIndexParams)(is_tenant=True)
    return getattr(edge.PayloadSchemaType, params["type"].capitalize())


def type_name(member: edge.PayloadSchemaType | edge.TokenizerType) -> str:
    """Return the name of a type in Qdrant's REST API."""
    return str(member).rpartition(".")[2].lower()
