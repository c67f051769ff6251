"""What a Qdrant server and Qdrant's engine have in common: names, filters, and searches by vector, as Qdrant's JSON."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from chunkproof.base.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.contract.conditions import (
    Absent,
    All,
    AnyOf,
    Between,
    Condition,
    Either,
    HasId,
    HasVector,
    Not,
    Scalar,
    fields_of,
)
from chunkproof.contract.model import MAX_NAME
from chunkproof.stores.store_port import DenseLeg, Json, Point, StoreQuery

if TYPE_CHECKING:
    from chunkproof.stores.edge import EdgeStore

NO_EDGE = (
    "collections in a folder need Qdrant Edge, which is not installed (there are builds for Linux with glibc and for "
    "macOS): pip install qdrant-edge-py, or set QDRANT_URL to use a server"
)
# More than the rounding of a 32-bit score, and less than any difference that matters.
SCORE_STEP = 1e-6
# For each type of index to create: all types that serve the same conditions.
USABLE_INDEXES = {
    "keyword": {"keyword", "uuid"},
    "integer": {"integer"},
    "float": {"float", "integer"},
    "bool": {"bool"},
    "datetime": {"datetime"},
}
# Qdrant refuses such names, and in a URL these characters would mean something else.
_FORBIDDEN = re.compile(r'[/\\<>:"|?*\x00-\x1f\x7f]')
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\[\])?")


def has_edge() -> bool:
    """Whether Qdrant Edge can be imported on this machine."""
    try:
        import_module("qdrant_edge")
    except ImportError:
        return False
    return True


def open_edge_store(folder: Path) -> "EdgeStore":
    """Open the embedded store in a folder; raise `VectorStoreUnavailableError` on a machine without Qdrant Edge."""
    if not has_edge():
        raise VectorStoreUnavailableError(str(folder), NO_EDGE)
    from chunkproof.stores.edge import EdgeStore

    return EdgeStore(folder)


def is_invalid_collection_name(collection: str) -> bool:
    """Whether no collection can have this name."""
    return bool(_FORBIDDEN.search(collection)) or collection in ("", ".", "..") or len(collection) > MAX_NAME


def check_collection_name(collection: str) -> None:
    """Raise `InvalidParameterError` if no collection can have this name."""
    if is_invalid_collection_name(collection):
        raise InvalidParameterError(f"No collection can be named {collection}")


# Searches


def dense_search(query: StoreQuery) -> Json:
    """Return the search of a query that has a dense leg alone."""
    if query.dense is None:
        raise ValueError("a search needs a dense leg or a text leg")
    return {
        **dense_leg(query.dense, query.where),
        "limit": query.limit,
        "with_payload": query.with_payload,
        "with_vector": vector_selector(query.with_vector),
    }


def rank_dense(query: StoreQuery, points: Sequence[Point]) -> list[Point]:
    """Return the results of a dense search that reach the threshold; identical vectors have a cosine of 1."""
    threshold = query.dense.score_threshold if query.dense else 0.0
    rounded = [replace(point, score=1.0) if point.score > 1.0 - SCORE_STEP else point for point in points]
    return [point for point in rounded if point.score >= threshold][: query.limit]


def sample_search(query: StoreQuery, *, of_all: bool = False) -> Json:
    """Return the search for the scores of random points, or of all (up to the limit), for the dense leg."""
    if query.dense is None:
        raise ValueError("the query has no dense leg")
    search = {
        "query": query.dense.vector,
        **({"using": query.dense.config.name} if query.dense.config.name else {}),
        **filter_field(query.where),
        "limit": query.limit,
        "with_payload": False,
        "with_vector": False,
    }
    drawn = {"query": {"sample": "random"}, "limit": query.limit, **filter_field(query.where)}
    return {**search, "params": {"exact": True}} if of_all else {**search, "prefetch": [drawn]}


def dense_leg(leg: DenseLeg, where: tuple[Condition, ...]) -> Json:
    """Return the search of a dense leg, without a limit."""
    quantization = {"rescore": leg.rescore, "oversampling": leg.oversampling}
    chosen = {name: value for name, value in quantization.items() if value is not None}
    params: Json = {
        **({"exact": True} if leg.exact else {}),
        **({"hnsw_ef": leg.hnsw_ef} if leg.hnsw_ef is not None else {}),
        **({"quantization": chosen} if chosen else {}),
    }
    return {
        "query": leg.vector,
        # A server returns only scores strictly above the threshold.
        "score_threshold": leg.score_threshold - SCORE_STEP,
        **({"using": leg.config.name} if leg.config.name else {}),
        **filter_field(where),
        **({"params": params} if params else {}),
    }


def vector_selector(name: str | None) -> bool | list[str]:
    """Return Qdrant's `with_vector` value: False for no vector, True for the unnamed one, or a list with a name."""
    return False if name is None else [name] if name else True


def round_cosine(score: float) -> float:
    """Return 1.0 for scores such as 0.9999999 and 1.0000001, which identical vectors get."""
    return 1.0 if score > 1.0 - SCORE_STEP else score


# Filters


def filter_field(where: tuple[Condition, ...]) -> Json:
    """Return the `filter` of a request, if it has conditions."""
    return {"filter": to_qdrant_filter(where)} if where else {}


def to_qdrant_filter(conditions: tuple[Condition, ...]) -> Json | None:
    """Return a filter that requires all conditions; None when there are none."""
    return {"must": [_condition(condition) for condition in conditions]} if conditions else None


def required_indexes(conditions: tuple[Condition, ...]) -> Iterator[tuple[str, str]]:
    """Yield each field of the conditions, in Qdrant's notation, and the type of index to create for it."""
    for condition in fields_of(conditions):
        key = qdrant_key(condition.field)
        if isinstance(condition, Between):
            yield key, "datetime" if condition.is_about_time else "float"
        elif isinstance(condition, AnyOf):
            yield from ((key, index_type) for index_type in dict.fromkeys(map(_index_type, condition.values)))


def _index_type(value: Scalar) -> str:
    if isinstance(value, bool):
        return "bool"
    return "keyword" if isinstance(value, str) else "integer" if isinstance(value, int) else "float"


def _condition(condition: Condition) -> Json:
    match condition:
        case Not(conditions):
            return {"must_not": [{"must": [_condition(c) for c in conditions]}]}
        case All(conditions):
            return {"must": [_condition(c) for c in conditions]}
        case Either(conditions):
            return {"should": [_condition(c) for c in conditions]}
        case Between():
            given = {bound: getattr(condition, bound) for bound in ("gte", "gt", "lte", "lt")}
            bounds = {
                bound: value.isoformat() if isinstance(value, datetime) else value
                for bound, value in given.items()
                if value is not None
            }
            return {"key": qdrant_key(condition.field), "range": bounds}
        case HasId(ids):
            return {"has_id": list(ids)}
        case HasVector(name):
            return {"has_vector": name}
        case Absent(field):
            return {"is_empty": {"key": qdrant_key(field)}}
        case AnyOf(field, values):
            alternatives = list(_alternatives(qdrant_key(field), values))
            return alternatives[0] if len(alternatives) == 1 else {"should": alternatives}


def _alternatives(key: str, values: tuple[Scalar, ...]) -> Iterator[Json]:
    strings = [v for v in values if isinstance(v, str)]
    integers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    for group in (strings, integers):
        if len(group) == 1:
            yield {"key": key, "match": {"value": group[0]}}
        elif group:
            yield {"key": key, "match": {"any": group}}
    for value in values:
        if isinstance(value, bool):
            yield {"key": key, "match": {"value": value}}
        elif isinstance(value, float):
            yield {"key": key, "range": {"gte": value, "lte": value}}


def qdrant_key(field: str) -> str:
    """Return the path in Qdrant's notation, where a segment that is not a plain name is quoted."""
    return ".".join(map(_segment, field.split(".")))


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    name = part.removesuffix("[]")
    return f'"{name}"' + part[len(name) :]
