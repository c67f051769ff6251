"""What all models of the contract share, and the strict reading of JSON that they are made from."""

import json
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from math import isclose, isinf
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from chunkproof.base.errors import MAX_MESSAGES, InvalidParameterError

MAX_DEPTH = 32
# Three vectors of the largest size that Qdrant stores. Python takes half a second for as many values as six
# megabytes can have, so a request with more is refused before it is read closely.
MAX_VALUES = 200_000
BODY = "The request body"
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Faulty:
    """Replaces a value that JSON or UTF-8 cannot carry in a parsed document."""

    why: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty value, and where it is."""

    path: Path
    message: str


class Repeated(dict[str, Any]):
    """A JSON object with duplicate names."""

    names: tuple[str, ...]


def read_json(body: str | bytes, subject: str = BODY, max_values: int = sys.maxsize) -> Any:
    """Parse a document; values that JSON or UTF-8 cannot carry become `Faulty`, which `find_faults` lists.

    `subject` is what error messages call the document. A document with more than `max_values` values is refused
    before it is parsed.
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{subject} is not UTF-8 at byte {error.start}") from None
    # What precedes a value, in strings too, is counted at memory speed.
    more = len(text) > max_values and text.count(",") + text.count("[") + text.count("{") > max_values
    if more and _has_more_values(text, max_values):
        raise InvalidParameterError(f"{subject} has more than {max_values:,} values")
    try:
        return json.loads(text) if text.startswith("\ufeff") else _DECODER.decode(text)  # it refuses the mark
    except json.JSONDecodeError as error:
        raise InvalidParameterError(
            f"{subject} is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidParameterError(f"{subject} is nested deeper than {MAX_DEPTH} levels") from None


def find_faults(document: Any, subject: str = BODY) -> list[Fault]:
    """List every fault in reading order; `InvalidParameterError` for a document that is nested too deeply."""
    return Faults(document, subject, max_listed=sys.maxsize).listed


class Faults:
    """The faults of a document: the first ones with their places in `listed`, and how many `more` there are.

    Values of the document's fields in `without` are not looked at.
    `InvalidParameterError` for a document that is nested too deeply.
    """

    def __init__(
        self, document: Any, subject: str, max_listed: int = MAX_MESSAGES, without: frozenset[str] = frozenset()
    ) -> None:
        self.listed: list[Fault] = []
        self.more = 0
        self._subject = subject
        self._max_listed = max_listed
        self._without = without
        self._look_at(document, ())

    def _look_at(self, value: Any, path: Path) -> None:
        if len(path) > MAX_DEPTH:
            raise InvalidParameterError(f"{format_path(path[:1])} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, str):
            if has_lone_surrogate(value):
                self._add(path, "has a lone surrogate, which is not valid Unicode")
        elif isinstance(value, list):
            self._look_at_list(value, path)
        elif isinstance(value, Faulty):
            self._add(path, value.why)
        elif isinstance(value, dict):
            self._look_at_object(value, path)

    def _look_at_list(self, items: list[Any], path: Path) -> None:
        kinds = set(map(type, items))
        if kinds <= _SOUND:  # a vector, most often
            return
        if kinds == {str} and not has_lone_surrogate("".join(items)):
            return
        for index, item in enumerate(items):
            if type(item) not in _SOUND:
                self._look_at(item, (*path, index))

    def _look_at_object(self, fields: dict[str, Any], path: Path) -> None:
        for name in getattr(fields, "names", ()):
            self._add((*path, name), "is given twice")
        for name, item in fields.items():
            if has_lone_surrogate(name):
                self._add((*path, name), "has a lone surrogate, which is not valid Unicode")
            if type(item) not in _SOUND and not (name in self._without and not path):
                self._look_at(item, (*path, name))

    def _add(self, path: Path, why: str) -> None:
        if len(self.listed) < self._max_listed:
            self.listed.append(Fault(path, f"{format_path(path, self._subject)} {why}"))
        else:
            self.more += 1


def format_path(path: Path, subject: str = BODY) -> str:
    """Write a path as people do, `filters.tags[2]`; an empty one is the subject itself."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{display_name(step)}" if text else display_name(step)
    return text or subject


def display_name(name: str, longest: int = 60) -> str:
    """Shorten a caller's text for a message and replace what a terminal would act on."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[: longest + 1])
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


def cut_middle(text: str, longest: int = 64) -> str:
    """Cut the middle out of a long id or path: its beginning and its end say more. A SHA-256 stays whole."""
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def has_lone_surrogate(text: str) -> bool:
    """Whether the text cannot be encoded as UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _has_more_values(text: str, most: int) -> bool:
    """Whether the document has more values, each of which costs Python a microsecond."""
    # Each value has at most a name and a string. An escaped quote belongs to a string.
    if text.count('"') - text.count('\\"') > 4 * most:
        return True
    bare = _STRING.sub("", text)
    return bare.count(",") + bare.count("[") + bare.count("{") > most


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeated = Repeated(plain)
    counts = Counter(name for name, _ in pairs)
    repeated.names = tuple(name for name in plain if counts[name] > 1)
    return repeated


def _float(literal: str) -> float | Faulty:
    value = float(literal)
    return _TOO_LARGE if isinf(value) else value


def _int(literal: str) -> int | Faulty:
    # Python refuses to convert thousands of digits; no field of ours needs more than twenty.
    return int(literal) if len(literal) <= 400 else _TOO_LARGE


# Possessive, and the closing quote is optional: every character is looked at once.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_CONSTANTS = {
    literal: Faulty(f"must be a finite number, not {literal}") for literal in ("NaN", "Infinity", "-Infinity")
}
_TOO_LARGE = Faulty("must be a finite number; it is too large")
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_CONSTANTS.__getitem__, parse_float=_float, parse_int=_int
)
# Values of these types have no faults.
_SOUND = frozenset({int, float, bool, type(None)})


MAX_NAME = 255
MAX_ID = 1000
# Finding the name that resembles another one takes time in proportion to all of these.
MAX_COMPARED_NAME = 100
MAX_COMPARED_NAMES = 500
# Several times as many as any request has.
MAX_FIELDS = 100
# Of one document; each takes a fraction of a millisecond.
MAX_SUGGESTIONS = 5
Item = TypeVar("Item")
# Python callers may pass any sequence; the items are as strict as ever. The first that is wrong is named: a list of
# errors takes many times the memory of a long document.
Items = Annotated[tuple[Item, ...], Field(strict=False, fail_fast=True)]
Milliseconds = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]

# Most models are built when they are first used; the models of every search are built at once.
AT_ONCE = ConfigDict(defer_build=False)
AS_STORED = ConfigDict(allow_inf_nan=True, defer_build=False)

# For fields that are left out of a response when they do not apply.
is_none = partial(operator.is_, None)


@cache
def find_renderer() -> "Callable[[Model], str | None] | None":
    """Return the function that shows models in notebooks, which an entry point of the group `chunkproof.html` names."""
    from importlib.metadata import entry_points

    return next((entry.load() for entry in entry_points(group="chunkproof.html")), None)


class Model(BaseModel):
    """Frozen and strict: `"5"` is no integer, `true` is not 1, an unknown field is an error."""

    # NaN and infinities have no JSON. Models of stored values set `AS_STORED`, and write null for them.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, defer_build=True
    )

    def to_json(self) -> str:
        """The model as it goes over the wire."""
        return self.model_dump_json()

    def _repr_html_(self) -> str | None:
        """Show the model in a notebook as the reports of the command do, where its package is installed."""
        show = find_renderer()
        return show(self) if show else None

    def canonical_json(self) -> str:
        """A report as it is written to a file, indented by two spaces."""
        return self.model_dump_json(indent=2) + "\n"


def require_all(schema: dict[str, Any]) -> None:
    """Document every field as present: defaults are for Python callers, and responses have them all."""
    schema["required"] = list(schema["properties"])


def has_fields(model: type[Model], document: object) -> bool:
    """Whether a document has the names of a model; else pydantic copies the document into an error for each of them."""
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    return isinstance(document, dict) and required <= document.keys() and len(document) <= MAX_FIELDS


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force. The defaults are the contract's hard limits; a deployment may tighten them."""

    min_query_chars: int = 1
    max_query_chars: int = 10_000
    max_top_k: int = 1_000
    max_candidates: int = 1_000


@dataclass(frozen=True, slots=True)
class ParseContext:
    """The limits in force, and what messages call the document that is parsed."""

    limits: Limits = Limits()
    subject: str = BODY

    @classmethod
    def of(cls, info: ValidationInfo) -> "ParseContext":
        """Return the context that `Request.parse` passed, else the default."""
        return info.context if isinstance(info.context, cls) else cls()


class Request(Model):
    """A model that a caller sends: every broken rule is reported, each with a message of the contract."""

    # Requests have messages of their own for such numbers.
    model_config = ConfigDict(allow_inf_nan=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    # The field that a document has which is a list.
    list_field: ClassVar[str | None] = None
    # Fields with documents of their own, in which faults are looked for when they are read.
    read_later: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **fields: Any) -> None:
        _unwrap(partial(super().__init__, **fields))

    # To pydantic this is its own `__init__`: models are still made without calling it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def defaults(cls, _limits: Limits) -> Mapping[str, object]:
        """Return defaults of fields that depend on the limits in force."""
        return {}

    @classmethod
    def broken_rules(cls, _fields: Mapping[str, object]) -> list[str]:
        """Check rules that concern several fields, which have their canonical names; return the messages."""
        return []

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Read the request from a dict; `InvalidParameterError` lists all of its problems."""
        return _unwrap(partial(super().model_validate, obj, **options))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Read the request from JSON; `InvalidParameterError` lists all of its problems."""
        text = bytes(json_data) if isinstance(json_data, bytearray) else json_data
        return cls.model_validate(read_json(text), **options)

    @classmethod
    def parse(cls, document: object, limits: Limits | None = None, subject: str = BODY) -> Self:
        """Read the request from a JSON document; `InvalidParameterError` lists all of its problems."""
        if cls.list_field is not None and isinstance(document, list):
            document = {cls.list_field: document}
        return cls.model_validate(document, context=ParseContext(limits or Limits(), subject))

    @model_validator(mode="wrap")
    @classmethod
    def _all_problems_at_once(
        cls, document: Any, validate: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if isinstance(document, cls):
            return document
        context = ParseContext.of(info)
        if not isinstance(document, dict):
            raise InvalidParameterError(f"{context.subject} must be a JSON object")
        if len(document) > MAX_FIELDS and cls.model_config.get("extra") == "forbid":
            raise InvalidParameterError(f"{context.subject} has {len(document):,} fields; {MAX_FIELDS} are the most")
        faults = Faults(document, context.subject, without=cls.read_later)
        problems = [fault.message for fault in faults.listed]
        if faults.more:
            raise InvalidParameterError.listing(problems, faults.more)
        more = 0
        fields = cls._canonical(document, problems)
        try:
            request = validate({**cls.defaults(context.limits), **fields})
        except ValidationError as error:
            faulty = {(cls.aliases.get(str(first), first), *rest) for first, *rest in (f.path for f in faults.listed)}
            found, more = cls._messages(error, without=faulty)
            problems += found
        problems += cls.broken_rules(fields)
        if problems or more:
            raise InvalidParameterError.listing(problems, more)
        return request

    @classmethod
    def _canonical(cls, document: dict[str, Any], problems: list[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, value in document.items():
            if has_lone_surrogate(name):
                continue  # reported by find_faults
            canonical = cls.aliases.get(name, name)
            if value is None and canonical in cls.model_fields and not cls.model_fields[canonical].is_required():
                continue  # the same as nothing
            if canonical in spelled:
                problems.append(f"{spelled[canonical]} and {name} are the same field: give one of them")
                continue
            spelled[canonical] = name
            fields[canonical] = value
        return fields

    @classmethod
    def _messages(cls, error: ValidationError, without: set[tuple[str | int, ...]]) -> tuple[list[str], int]:
        """Return the messages, and the number of problems that are only counted."""
        messages: list[str] = []
        more = 0
        for detail in error.errors(include_url=False, include_input=False):
            loc = detail["loc"]
            if any(loc[:length] in without for length in range(len(loc) + 1)):
                continue
            raised = detail.get("ctx", {}).get("error")
            if isinstance(raised, BrokenRules | InvalidParameterError):
                messages += raised.messages
                more += getattr(raised, "more", 0)
            elif detail["type"] == "extra_forbidden":
                known = [*cls.model_fields, *cls.aliases] if len(messages) < MAX_SUGGESTIONS else []
                messages.append(unknown_field(str(loc[-1]), known))
            else:
                messages.append(describe_error(detail))
        return messages, more


def _unwrap(call: Callable[[], Item]) -> Item:
    """Raise the contract's own error, which pydantic wraps like any ValueError of a validator."""
    try:
        return call()
    except ValidationError as error:
        raised = error.errors()[0].get("ctx", {}).get("error")
        if not isinstance(raised, InvalidParameterError):
            raise
    raise raised  # not within `except`: pydantic's error has it, and neither would ever be freed


class BrokenRules(ValueError):  # noqa: N818 - not an error of its own, a carrier of messages
    """Raised by a validator with messages that are ready to be shown.

    `at` has the item that each is about. `more` problems are only counted.
    """

    def __init__(self, *messages: str, at: Sequence[int] = (), more: int = 0) -> None:
        super().__init__(*messages)
        self.messages = messages
        self.at = at
        self.more = more


def _check_not_blank(text: str, info: ValidationInfo) -> str:
    if not text.strip():
        raise BrokenRules(f"{info.field_name} cannot be empty")
    return text


def _check_name(name: str, info: ValidationInfo) -> str:
    if not name.strip() or len(name) > MAX_NAME:
        raise BrokenRules(f"{info.field_name} must have 1 to {MAX_NAME} characters")
    return name


def between(least: float, most: float) -> AfterValidator:
    """Return the rule that a number is within these bounds; its message names the field."""

    def check(number: float | None, info: ValidationInfo) -> float | None:
        if number is not None and not least <= number <= most:
            raise BrokenRules(f"{info.field_name} must be between {least} and {most}")
        return number

    return AfterValidator(check)


NotBlank = Annotated[str, AfterValidator(_check_not_blank)]
# What a caller calls a collection or a query.
Name = Annotated[str, AfterValidator(_check_name)]


class Problems:
    """Collects the problems of a value: the first ones are described, the rest are counted."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.more = 0

    def add(self, path: Path, why: str) -> None:
        """Add a problem at this place."""
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(f"{format_path(path)} {why}")
        else:
            self.more += 1

    def raise_any(self) -> None:
        """Raise `BrokenRules` if there are problems."""
        if self.messages:
            raise BrokenRules(*self.messages, more=self.more)


def check_derived(name: str, value: float, computed: float) -> None:
    """Check that a derived field equals its computed value."""
    if not isclose(value, computed, rel_tol=1e-6, abs_tol=1e-6):
        raise BrokenRules(f"{name} must be {computed:g}, which follows from the other fields, not {value:g}")


def unknown_field(name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown field, with the known one that it resembles."""
    near = find_nearest(name, known)
    return f"{display_name(name)} is not a known field" + (f"; did you mean {near}?" if near else "")


def find_nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that resembles this one, if any: names of usual length, and not too many, are compared."""
    if len(name) > MAX_COMPARED_NAME:
        return None
    from difflib import get_close_matches

    usual = [other for other in known[:MAX_COMPARED_NAMES] if len(other) <= MAX_COMPARED_NAME]
    return next(iter(get_close_matches(name, usual, n=1)), None)


def describe_error(detail: Any) -> str:
    """Turn one of pydantic's errors into a message of the contract."""
    phrase: str = _PHRASES.get(detail["type"], detail["msg"])
    return f"{format_path(detail['loc'])} {phrase.format_map(detail.get('ctx') or {})}"


def read_name(value: Any) -> str | None:
    """Return a caller's name for something as an error response repeats it; None if it is not one."""
    is_name = isinstance(value, str) and 0 < len(value) <= MAX_NAME and not has_lone_surrogate(value)
    return value if is_name else None


def parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 date or date and time, in UTC unless it has an offset; None when it is not one."""
    if not _ISO.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    offset = time.utcoffset()
    if offset is not None and offset % timedelta(minutes=1):  # Python reads seconds there, ISO 8601 has none
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_ISO = re.compile(r"\d{4}-\d\d-\d\d([Tt ][0-9:.,]+([Zz]|[+-][0-9:]+)?)?", re.ASCII)
_PHRASES = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "datetime_type": "must be an ISO 8601 date and time",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} items",
}
