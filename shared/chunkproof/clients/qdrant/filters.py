"""Typed conditions → Qdrant's filter, as its API has it in JSON."""

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
    Not,
    Scalar,
    fields_of,
)

Json = dict[str, Any]

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\[\])?")


def to_qdrant(conditions: tuple[Condition, ...]) -> Json | None:
    """All conditions together; None when there are none."""
    return {"must": [_condition(condition) for condition in conditions]} if conditions else None


# Which types of index can answer a condition that one would make the first for.
SERVED_BY = {
    "keyword": {"keyword", "uuid"},
    "integer": {"integer"},
    "float": {"float", "integer"},
    "bool": {"bool"},
    "datetime": {"datetime"},
}


def field_schemas(conditions: tuple[Condition, ...]) -> Iterator[tuple[str, str]]:
    """Each field filtered by, in Qdrant's notation, and the type of index that serves it."""
    for condition in fields_of(conditions):
        key = _key(condition.field)
        if isinstance(condition, Between):
            yield key, "datetime" if condition.is_about_time else "float"
        elif isinstance(condition, AnyOf):
            yield from ((key, schema) for schema in dict.fromkeys(map(_schema_of, condition.values)))


def _schema_of(value: Scalar) -> str:
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
        case Absent(field):
            return {"is_empty": {"key": _key(field)}}
        case AnyOf(field, values):
            alternatives = list(_alternatives(_key(field), values))
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
    return {"key": _key(condition.field), "range": bounds}


def _bound(value: float | datetime) -> float | str:
    return value.isoformat() if isinstance(value, datetime) else value


def _key(field: str) -> str:
    """The path in Qdrant's notation: a segment that is not a plain name is quoted."""
    return ".".join(map(_segment, field.split(".")))


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    name = part.removesuffix("[]")
    return f'"{name}"' + part[len(name) :]
