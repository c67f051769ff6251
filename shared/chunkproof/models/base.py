"""What every model of the contract has in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import Faulty, faults, place


class Model(BaseModel):
    """Frozen and strict: `"5"` is no integer, `true` is not 1, an unknown field is an error."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    def to_json(self) -> str:
        """The model as it goes over the wire."""
        return self.model_dump_json()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force. The defaults are the contract's hard limits; a deployment may tighten them."""

    min_query_chars: int = 1
    max_query_chars: int = 10_000
    max_top_k: int = 1_000


class Request(Model):
    """A model read from a caller: every broken rule is reported, each in the contract's words."""

    aliases: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def broken_rules(cls, _fields: Mapping[str, object]) -> list[str]:
        """Messages for rules that concern several fields; names are canonical by now."""
        return []

    @classmethod
    def parse(cls, document: object, limits: Limits | None = None) -> Self:
        """The request in this JSON document, or `InvalidParameterError` with all of its problems."""
        if not isinstance(document, dict):
            raise InvalidParameterError("The request body must be a JSON object")
        found = faults(document)
        problems = [fault.message for fault in found]
        fields = cls._canonical(document, problems)
        try:
            request = cls.model_validate(fields, context=limits or Limits())
        except ValidationError as error:
            faulty = {fault.path for fault in found}
            problems += cls._messages(error, without=faulty)
        problems += cls.broken_rules(fields)
        if problems:
            raise InvalidParameterError.listing(problems)
        return request

    @classmethod
    def _canonical(cls, document: dict[str, Any], problems: list[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, value in document.items():
            canonical = cls.aliases.get(name, name)
            if canonical in spelled:
                problems.append(f"{spelled[canonical]} and {name} are the same field: give one of them")
                continue
            spelled[canonical] = name
            fields[canonical] = value
        return fields

    @classmethod
    def _messages(cls, error: ValidationError, without: set[tuple[str | int, ...]]) -> list[str]:
        messages: list[str] = []
        for detail in error.errors():
            loc = detail["loc"]
            if any(loc[: len(path)] == path for path in without):
                continue
            raised = detail.get("ctx", {}).get("error")
            if isinstance(raised, BrokenRules):
                messages += raised.messages
            elif detail["type"] == "extra_forbidden":
                messages.append(cls._unknown(str(loc[-1])))
            else:
                phrase = _PHRASES.get(detail["type"], detail["msg"])
                messages.append(f"{place(loc)} {phrase.format_map(detail.get('ctx', {}))}")
        return messages

    @classmethod
    def _unknown(cls, name: str) -> str:
        near = get_close_matches(name, [*cls.model_fields, *cls.aliases], n=1)
        return f"{shown(name)} is not a known field" + (f"; did you mean {near[0]}?" if near else "")


class BrokenRules(ValueError):  # noqa: N818 - not an error of its own, a carrier of messages
    """Raised by a validator whose messages are already in the contract's words."""

    def __init__(self, *messages: str) -> None:
        super().__init__(*messages)
        self.messages = messages


def shown(name: str, longest: int = 60) -> str:
    """A caller's own name as it may appear in a message: bounded, and nothing that acts on a terminal."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


_PHRASES = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "datetime_type": "must be an ISO 8601 date and time",
    "greater_than_equal": "must be at least {ge}",
    "string_too_long": "must have at most {max_length} characters",
}

__all__ = ["BrokenRules", "Faulty", "Limits", "Model", "Request", "shown"]
