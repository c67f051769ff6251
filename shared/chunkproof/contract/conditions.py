"""Filters: typed conditions on payload fields. A caller's JSON is never passed on to Qdrant."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from chunkproof.contract.model import BrokenRules, Faulty, Path, Problems, parse_time

Scalar = str | int | float | bool
BOUNDS = ("gte", "gt", "lte", "lt")
INT64 = 2**63
MAX_CONDITIONS = 100
MAX_VALUES = 1_000
MAX_PATH_CHARS = 1_000
# Of all names and values together: filters are written once for each query, leg and payload path.
MAX_FILTER_CHARS = 100_000
# Filters beyond this multiple of the limits are refused without a description of each problem.
CLOSELY = 2
# The filters of all queries of a request together may reach this multiple of the limits: each takes time.
IN_ALL = 4


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field has one of these values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The field lies within these bounds: all numbers, or all points in time."""

    field: str
    gte: float | datetime | None = None
    gt: float | datetime | None = None
    lte: float | datetime | None = None
    lt: float | datetime | None = None

    @property
    def is_about_time(self) -> bool:
        """Whether the bounds are dates."""
        return any(isinstance(bound, datetime) for bound in (self.gte, self.gt, self.lte, self.lt))


@dataclass(frozen=True, slots=True)
class Absent:
    """The payload has no value there."""

    field: str


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of the conditions holds."""

    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class All:
    """All of the conditions hold."""

    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """The conditions do not hold together."""

    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class HasId:
    """The point's own id is one of these."""

    ids: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class HasVector:
    """The point has the vector of this name."""

    name: str


Condition = AnyOf | Between | Absent | Either | All | Not | HasId | HasVector


def parse_filters(value: Any) -> tuple[Condition, ...]:
    """Parse `{"field": …}` into conditions; `BrokenRules` has a message for each one that is wrong."""
    if value is None or isinstance(value, tuple):
        return value or ()
    if not isinstance(value, Mapping):
        raise BrokenRules("filters must be an object")
    conditions, values, chars = _count(value)
    if any(_excess(conditions, values, CLOSELY)):
        raise BrokenRules(*_excess(conditions, values))
    if chars > MAX_FILTER_CHARS:
        raise BrokenRules(f"filters must have at most {MAX_FILTER_CHARS:,} characters in all, not {chars:,}")
    problems = Problems()
    found = tuple(_conditions(value, ("filters",), problems))
    fields = list(fields_of(found))
    named = sum(len(condition.values) for condition in fields if isinstance(condition, AnyOf))
    problems.messages += _excess(len(fields), named)
    problems.raise_any()
    return found


def format_filters(conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """Write conditions of a caller as `parse_filters` reads them."""
    written: dict[str, Any] = {}
    for condition in conditions:
        if isinstance(condition, Not):
            written["not"] = format_filters(condition.conditions)
        elif isinstance(condition, AnyOf):
            written[condition.field] = condition.values[0] if len(condition.values) == 1 else list(condition.values)
        elif isinstance(condition, Between):
            bounds = {bound: getattr(condition, bound) for bound in BOUNDS}
            written[condition.field] = {bound: value for bound, value in bounds.items() if value is not None}
        else:
            raise TypeError(f"a caller's filters have no {type(condition).__name__}")
    return written


def check_all_filters(filters: Iterable[Any]) -> None:
    """Raise `BrokenRules` if the filters of all queries of a request have too many conditions, values or characters."""
    counts = [_count(format_filters(each) if isinstance(each, tuple) else each) for each in filters]
    conditions, values, chars = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    excess = list(_excess(conditions, values, IN_ALL))
    if chars > IN_ALL * MAX_FILTER_CHARS:
        excess.append(f"filters must have at most {IN_ALL * MAX_FILTER_CHARS:,} characters in all, not {chars:,}")
    if excess:
        raise BrokenRules(*(f"{each}, in all queries together: send fewer of them at once" for each in excess))


def _count(value: Any) -> tuple[int, int, int]:
    """Count conditions, values and characters, including repeated ones, without checking them."""
    if not isinstance(value, Mapping):
        return 0, 0, 0
    conditions = values = chars = 0
    for name, wanted in value.items():
        chars += len(name)
        if isinstance(wanted, Mapping):
            inner = _count(wanted) if name == "not" else (1, 0, 0)
            conditions, values, chars = conditions + inner[0], values + inner[1], chars + inner[2]
        else:
            listed = wanted if isinstance(wanted, list) else [wanted]
            conditions, values = conditions + 1, values + len(listed)
            chars += sum(len(one) for one in listed if isinstance(one, str))
    return conditions, values, chars


def _excess(conditions: int, values: int, times: int = 1) -> Iterator[str]:
    """Yield a message for each limit, times `times`, that the numbers of conditions and values exceed."""
    if conditions > times * MAX_CONDITIONS:
        yield f"filters must have at most {times * MAX_CONDITIONS} conditions, not {conditions}"
    if values > times * MAX_VALUES:
        yield f"filters must name at most {times * MAX_VALUES} values, not {values}"


def is_payload_path(text: str) -> bool:
    """Whether it names a payload field: names joined by dots."""
    return bool(_FIELD.fullmatch(text))


def fields_of(conditions: tuple[Condition, ...]) -> Iterator[AnyOf | Between | Absent]:
    """List every condition on a field, at any depth."""
    for condition in conditions:
        if isinstance(condition, Not | Either | All):
            yield from fields_of(condition.conditions)
        elif not isinstance(condition, HasId | HasVector):
            yield condition


def _conditions(value: Mapping[str, Any], path: Path, problems: Problems) -> Iterator[Condition]:
    for name, wanted in value.items():
        here = (*path, name)
        if isinstance(wanted, Faulty):
            continue  # reported by find_faults
        if name == "not":
            if isinstance(wanted, Mapping) and wanted:
                yield Not(tuple(_conditions(wanted, here, problems)))
            else:
                problems.add(here, "must be an object with at least one condition")
        elif len(name) > MAX_PATH_CHARS:
            problems.add(here, f"is not a payload path: it has more than {MAX_PATH_CHARS} characters")
        elif not is_payload_path(name):
            problems.add(here, "is not a payload path: use names joined by dots")
        elif isinstance(wanted, Mapping):
            yield from _between(name, wanted, here, problems)
        else:
            yield from _any_of(name, wanted, here, problems)


def _any_of(name: str, wanted: Any, here: Path, problems: Problems) -> Iterator[AnyOf]:
    listed = isinstance(wanted, list)
    values = wanted if listed else [wanted]
    wrong = [(i, why) for i, v in enumerate(values) if (why := _wrong_value(v))]
    for index, why in wrong:
        problems.add((*here, index) if listed else here, why)
    if listed and not values:
        problems.add(here, "must name at least one value")
    if values and not wrong:
        # By type too: to Python, True and 1.0 are the same as 1.
        yield AnyOf(name, tuple({(type(value), value): value for value in values}.values()))


def _wrong_value(value: Any) -> str | None:
    if value is None:
        return "must not be null"
    if not isinstance(value, str | int | float | bool):
        return None if isinstance(value, Faulty) else "must be a string, a number, true or false"
    if isinstance(value, float) and not isfinite(value):
        return "must be a finite number"
    if isinstance(value, int) and not -INT64 <= value < INT64:
        return "must fit in 64 bits"
    return None


def _between(name: str, wanted: Mapping[str, Any], here: Path, problems: Problems) -> Iterator[Between]:
    unknown = [bound for bound in wanted if bound not in BOUNDS]
    for bound in unknown:
        problems.add((*here, bound), f"is not one of {', '.join(BOUNDS)}")
    if not wanted:
        problems.add(here, f"must have at least one of {', '.join(BOUNDS)}")
    if any(isinstance(value, Faulty) for value in wanted.values()):
        return  # reported by find_faults
    bounds = {bound: _bound(wanted[bound]) for bound in BOUNDS if bound in wanted}
    wrong = [bound for bound, parsed in bounds.items() if parsed is None]
    for bound in wrong:
        problems.add((*here, bound), "must be a number or an ISO 8601 date")
    if len({isinstance(parsed, datetime) for parsed in bounds.values() if parsed is not None}) > 1:
        problems.add(here, "mixes numbers and dates")
    elif bounds and not wrong and not unknown:
        yield Between(name, **bounds)


def _bound(value: Any) -> float | datetime | None:
    if isinstance(value, str):
        return parse_time(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value) if isfinite(value) else None
        except OverflowError:
            return None
    return value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else None


_FIELD = re.compile(r'[^".\\\[\]\x00-\x1f]+(\[\])?(\.[^".\\\[\]\x00-\x1f]+(\[\])?)*')
