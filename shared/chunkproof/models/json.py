"""Strict JSON: what Python's parser silently accepts is reported, with its place in the document."""

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from math import isinf
from typing import Any

from chunkproof.errors import MAX_MESSAGES, InvalidParameterError

MAX_DEPTH = 32
# Three vectors of the largest size that Qdrant stores. Python takes half a second for as many values as six
# megabytes can have, so a request with more is refused before it is read closely.
MAX_VALUES = 200_000
BODY = "The request body"
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Faulty:
    """Stands in a parsed document where the source had something that JSON or UTF-8 cannot carry."""

    why: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty value, and where it is."""

    path: Path
    message: str


class Repeated(dict[str, Any]):
    """An object whose source gave some names twice."""

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
    if _has_more_values(text, max_values):
        raise InvalidParameterError(f"{subject} has more than {max_values:,} values")
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_CONSTANTS.__getitem__,
            parse_float=_float,
            parse_int=_int,
        )
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
    """Whether the document has more values: what costs Python a microsecond each is counted at memory speed."""
    if _count_openings(text) <= most:  # those in strings included
        return False
    # Each value has at most a name and a string. An escaped quote belongs to a string.
    if text.count('"') - text.count('\\"') > 4 * most:
        return True
    return _count_openings(_STRING.sub("", text)) > most


def _count_openings(text: str) -> int:
    """Count what precedes a value."""
    return text.count(",") + text.count("[") + text.count("{")


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
# Values of these types have no faults.
_SOUND = frozenset({int, float, bool, type(None)})
