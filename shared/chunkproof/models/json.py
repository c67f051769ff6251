"""Strict JSON: what Python's parser silently accepts is reported, with its place in the document."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any

from chunkproof.errors import InvalidParameterError

MAX_DEPTH = 32
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


def read_json(body: str | bytes, subject: str = BODY) -> Any:
    """Parse a document; values that JSON or UTF-8 cannot carry become `Faulty`, which `find_faults` lists.

    `subject` is what error messages call the document.
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{subject} is not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int)
    except json.JSONDecodeError as error:
        raise InvalidParameterError(
            f"{subject} is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidParameterError(f"{subject} is nested deeper than {MAX_DEPTH} levels") from None


def find_faults(document: Any, subject: str = BODY) -> list[Fault]:
    """List every fault in reading order; `InvalidParameterError` for a document that is nested too deeply."""
    return list(_walk(document, (), subject))


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
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _walk(value: Any, path: Path, subject: str) -> Iterator[Fault]:
    if len(path) > MAX_DEPTH:
        raise InvalidParameterError(f"{format_path(path[:1])} is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, Faulty):
        yield Fault(path, f"{format_path(path, subject)} {value.why}")
    elif isinstance(value, str):
        if has_lone_surrogate(value):
            yield Fault(path, f"{format_path(path, subject)} has a lone surrogate, which is not valid Unicode")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index), subject)
    elif isinstance(value, dict):
        for name in getattr(value, "names", ()):
            yield Fault((*path, name), f"{format_path((*path, name))} is given twice")
        for name, item in value.items():
            if has_lone_surrogate(name):
                yield Fault(
                    (*path, name),
                    f"{format_path((*path, name))} has a lone surrogate, which is not valid Unicode",
                )
            yield from _walk(item, (*path, name), subject)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeated = Repeated(plain)
    counts = Counter(name for name, _ in pairs)
    repeated.names = tuple(name for name in plain if counts[name] > 1)
    return repeated


def _constant(literal: str) -> Faulty:
    return Faulty(f"must be a finite number, not {literal}")


def _float(literal: str) -> float | Faulty:
    value = float(literal)
    return Faulty("must be a finite number; it is too large") if isinf(value) else value


def _int(literal: str) -> int | Faulty:
    # Python refuses to convert thousands of digits; no field of ours needs more than twenty.
    return int(literal) if len(literal) <= 400 else Faulty("must be a finite number; it is too large")
