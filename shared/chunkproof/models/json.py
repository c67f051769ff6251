"""JSON read strictly: what Python's parser lets through silently is named, with its place."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any

from chunkproof.errors import InvalidParameterError

MAX_DEPTH = 32
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


def read_json(body: str | bytes) -> Any:
    """The document in `body`; values that cannot be kept are `Faulty`, and `faults` lists them."""
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"The request body is not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
        )
    except json.JSONDecodeError as error:
        raise InvalidParameterError(
            f"The request body is not valid JSON: {error.msg.removesuffix(' at')} "
            f"at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidParameterError(f"The request body is nested deeper than {MAX_DEPTH} levels") from None


def find_faults(document: Any) -> list[Fault]:
    """Every fault in the document, in reading order; one that is nested too deeply is refused at once."""
    return list(_walk(document, ()))


def format_path(path: Path) -> str:
    """A path as people write it: `filters.tags[2]`."""
    text = ""
    for step in path:
        text += (
            f"[{step}]" if isinstance(step, int) else f".{display_name(step)}" if text else display_name(step)
        )
    return text or "The request body"


def display_name(name: str, longest: int = 60) -> str:
    """A caller's own name as it may appear in a message: bounded, and nothing that acts on a terminal."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[: longest + 1])
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


def has_lone_surrogate(text: str) -> bool:
    """Whether the text has no UTF-8 form."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _walk(value: Any, path: Path) -> Iterator[Fault]:
    if len(path) > MAX_DEPTH:
        raise InvalidParameterError(f"{format_path(path[:1])} is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, Faulty):
        yield Fault(path, f"{format_path(path)} {value.why}")
    elif isinstance(value, str):
        if has_lone_surrogate(value):
            yield Fault(path, f"{format_path(path)} has a lone surrogate, which is no Unicode text")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))
    elif isinstance(value, dict):
        for name in getattr(value, "names", ()):
            yield Fault((*path, name), f"{format_path((*path, name))} is given twice")
        for name, item in value.items():
            if has_lone_surrogate(name):
                yield Fault((*path, name), f"{format_path((*path, name))} is no Unicode name")
            yield from _walk(item, (*path, name))


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
