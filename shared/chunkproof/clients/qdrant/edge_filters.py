"""Translate typed conditions into the filters of Qdrant Edge."""

from typing import Any

import qdrant_edge as edge

from chunkproof.clients.qdrant.filters import Json, to_qdrant_filter
from chunkproof.models.filters import Condition


def to_edge_filter(conditions: tuple[Condition, ...]) -> edge.Filter | None:
    """Return a filter that requires all conditions; None when there are none."""
    built = to_qdrant_filter(conditions)
    return None if built is None else build_filter(built)


def build_filter(built: Json) -> edge.Filter:
    """Return the filter for Qdrant's JSON, as `to_qdrant_filter` makes it."""
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
        return edge.FieldCondition(built["key"], range=_range(built["range"]))
    return build_filter(built)


def _match(built: Json) -> Any:
    if "any" in built:
        return edge.MatchAny(built["any"])
    value = built["value"]
    return edge.MatchValue(_NumpyBool(value) if isinstance(value, bool) else value)  # type: ignore[arg-type]


def _range(built: Json) -> Any:
    is_about_time = any(isinstance(bound, str) for bound in built.values())
    return (edge.RangeDateTime if is_about_time else edge.RangeFloat)(**built)


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
