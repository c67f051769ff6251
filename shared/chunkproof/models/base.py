"""What all models of the contract share."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from math import isclose
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from chunkproof.errors import MAX_MESSAGES, InvalidParameterError
from chunkproof.models.json import BODY, Faults, Path, display_name, format_path, has_lone_surrogate, read_json

MAX_NAME = 255
# Finding the name that resembles another one takes time in proportion to all of these.
MAX_COMPARED_NAME = 100
MAX_COMPARED_NAMES = 500
# Several times as many as any request has.
MAX_FIELDS = 100
Item = TypeVar("Item")
# Python callers may pass any sequence; the items are as strict as ever.
Items = Annotated[tuple[Item, ...], Field(strict=False)]
Milliseconds = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]

AS_STORED = ConfigDict(allow_inf_nan=True)

# For fields that are left out of a response when they do not apply.
is_none = partial(operator.is_, None)


class Model(BaseModel):
    """Frozen and strict: `"5"` is no integer, `true` is not 1, an unknown field is an error."""

    # NaN and infinities have no JSON. Models of stored values set `AS_STORED`, and write null for them.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    def to_json(self) -> str:
        """The model as it goes over the wire."""
        return self.model_dump_json()


def require_all(schema: dict[str, Any]) -> None:
    """Document every field as present: defaults are for Python callers, and responses have them all."""
    schema["required"] = list(schema["properties"])


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force. The defaults are the contract's hard limits; a deployment may tighten them."""

    min_query_chars: int = 1
    max_query_chars: int = 10_000
    max_top_k: int = 1_000
    max_candidates: int = 1_000


@dataclass(frozen=True, slots=True)
class Reading:
    """How a document is read: the limits in force, and what messages call the document."""

    limits: Limits = Limits()
    subject: str = BODY

    @classmethod
    def of(cls, info: ValidationInfo) -> "Reading":
        """Return the one that `Request.parse` passed, else the default."""
        return info.context if isinstance(info.context, cls) else cls()


class Request(Model):
    """A model that a caller sends: every broken rule is reported, each with a message of the contract."""

    # Requests have messages of their own for such numbers.
    model_config = ConfigDict(allow_inf_nan=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    # Fields with documents of their own, in which faults are looked for when they are read.
    read_later: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **fields: Any) -> None:
        with _unwrapped():
            super().__init__(**fields)

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
        with _unwrapped():
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Read the request from JSON; `InvalidParameterError` lists all of its problems."""
        text = bytes(json_data) if isinstance(json_data, bytearray) else json_data
        return cls.model_validate(read_json(text), **options)

    @classmethod
    def parse(cls, document: object, limits: Limits | None = None, subject: str = BODY) -> Self:
        """Read the request from a JSON document; `InvalidParameterError` lists all of its problems."""
        return cls.model_validate(document, context=Reading(limits or Limits(), subject))

    @model_validator(mode="wrap")
    @classmethod
    def _all_problems_at_once(
        cls, document: Any, validate: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if isinstance(document, cls):
            return document
        reading = Reading.of(info)
        if not isinstance(document, dict):
            raise InvalidParameterError(f"{reading.subject} must be a JSON object")
        if len(document) > MAX_FIELDS and cls.model_config.get("extra") == "forbid":
            raise InvalidParameterError(f"{reading.subject} has {len(document):,} fields; {MAX_FIELDS} are the most")
        faults = Faults(document, reading.subject, without=cls.read_later)
        problems = [fault.message for fault in faults.listed]
        if faults.more:
            raise InvalidParameterError.listing(problems, faults.more)
        more = 0
        fields = cls._canonical(document, problems)
        try:
            request = validate({**cls.defaults(reading.limits), **fields})
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
                messages.append(unknown_field(str(loc[-1]), [*cls.model_fields, *cls.aliases]))
            else:
                messages.append(describe_error(detail))
        return messages, more


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the contract's error itself: pydantic wraps it, as any ValueError of a validator."""
    try:
        yield
    except ValidationError as error:
        raised = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(raised, InvalidParameterError):
            raise raised from None
        raise


class BrokenRules(ValueError):  # noqa: N818 - not an error of its own, a carrier of messages
    """Raised by a validator with messages that are ready to be shown.

    `at` has the item that each is about. `more` problems are only counted.
    """

    def __init__(self, *messages: str, at: Sequence[int] = (), more: int = 0) -> None:
        super().__init__(*messages)
        self.messages = messages
        self.at = at
        self.more = more


class Problems:
    """Collects what is wrong with a value: the first places are described, the others counted."""

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


def check_shown(name: str, shown: float, computed: float) -> None:
    """Refuse a figure that does not follow from the fields that it is computed from."""
    if not isclose(shown, computed, rel_tol=1e-6, abs_tol=1e-6):
        raise BrokenRules(f"{name} must be {computed:g}, as the other fields have it, not {shown:g}")


def unknown_field(name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown field, with the known one that it resembles."""
    near = find_nearest(name, known)
    return f"{display_name(name)} is not a known field" + (f"; did you mean {near}?" if near else "")


def find_nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that resembles this one, if any: names of usual length, and not too many, are compared."""
    if len(name) > MAX_COMPARED_NAME:
        return None
    usual = [other for other in known[:MAX_COMPARED_NAMES] if len(other) <= MAX_COMPARED_NAME]
    return next(iter(get_close_matches(name, usual, n=1)), None)


def describe_error(detail: Any) -> str:
    """Turn one of pydantic's errors into a message of the contract."""
    phrase: str = _PHRASES.get(detail["type"], detail["msg"])
    return f"{format_path(detail['loc'])} {phrase.format_map(detail.get('ctx') or {})}"


def check_name(name: str | None, field: str) -> str | None:
    """Return a caller's name for something if its length is allowed."""
    if name is not None and not (name.strip() and len(name) <= MAX_NAME):
        raise BrokenRules(f"{field} must have 1 to {MAX_NAME} characters")
    return name


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
}
