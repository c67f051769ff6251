"""Typed conditions → Qdrant's filter."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from qdrant_client import models

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

_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\[\])?")


def to_qdrant(conditions: tuple[Condition, ...]) -> models.Filter | None:
    """All conditions together; None when there are none."""
    return models.Filter(must=[_condition(condition) for condition in conditions]) if conditions else None


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


def _condition(condition: Condition) -> Any:
    match condition:
        case Not(conditions):
            return models.Filter(must_not=[models.Filter(must=[_condition(c) for c in conditions])])
        case All(conditions):
            return models.Filter(must=[_condition(c) for c in conditions])
        case Either(conditions):
            return models.Filter(should=[_condition(c) for c in conditions])
        case Between():
            return _range(condition)
        case HasId(ids):
            return models.HasIdCondition(has_id=list(ids))
        case Absent(field):
            return models.IsEmptyCondition(is_empty=models.PayloadField(key=_key(field)))
        case AnyOf(field, values):
            alternatives = list(_alternatives(_key(field), values))
            return alternatives[0] if len(alternatives) == 1 else models.Filter(should=alternatives)


def _alternatives(key: str, values: tuple[Scalar, ...]) -> Iterator[models.FieldCondition]:
    strings = [v for v in values if isinstance(v, str)]
    integers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    for group in (strings, integers):
        if len(group) == 1:
            yield models.FieldCondition(key=key, match=models.MatchValue(value=group[0]))
        elif group:
            yield models.FieldCondition(key=key, match=models.MatchAny(any=group))
    for value in values:
        if isinstance(value, bool):
            yield models.FieldCondition(key=key, match=models.MatchValue(value=value))
        elif isinstance(value, float):
            yield models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))


def _range(condition: Between) -> models.FieldCondition:
    bounds: dict[str, float | datetime | None] = {
        bound: getattr(condition, bound) for bound in ("gte", "gt", "lte", "lt")
    }
    build: Any = models.DatetimeRange if condition.is_about_time else models.Range
    return models.FieldCondition(key=_key(condition.field), range=build(**bounds))


def _key(field: str) -> str:
    """The path in Qdrant's notation: a segment that is not a plain name is quoted."""
    return ".".join(map(_segment, field.split(".")))


def _segment(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    name = part.removesuffix("[]")
    return f'"{name}"' + part[len(name) :]
