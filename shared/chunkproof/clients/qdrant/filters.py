"""Translate typed conditions into the JSON of Qdrant's filters."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from chunkproof.models.filters import (
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

Json = dict[str, Any]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\[\])?")


def to_qdrant_filter(conditions: tuple[Condition, ...]) -> Json | None:
    """Return a filter that requires all conditions; None when there are none."""
    return {"must": [_condition(condition) for condition in conditions]} if conditions else None


# For each type of index to create: all types that serve the same conditions.
USABLE_INDEXES = {
    "keyword": {"keyword", "uuid"},
    "integer": {"integer"},
    "float": {"float", "integer"},
    "bool": {"bool"},
    "datetime": {"datetime"},
}


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
            return _range(condition)
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


def _range(condition: Between) -> Json:
    given = {bound: getattr(condition, bound) for bound in ("gte", "gt", "lte", "lt")}
    bounds = {bound: _bound(value) for bound, value in given.items() if value is not None}
    return {"key": qdrant_key(condition.field), "range": bounds}


def _bound(value: float | datetime) -> float | str:
    return value.isoformat() if isinstance(value, datetime) else value


def qdrant_key(field: str) -> str:
    """Return the path in Qdrant's notation, where a segment that is not a plain name is quoted."""
    return ".".join(map(_segment, field.split(".")))


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    name = part.removesuffix("[]")
    return f'"{name}"' + part[len(name) :]
