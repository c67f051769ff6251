"""Find the payload field that most likely holds the text, in collections of unknown pipelines."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from chunkproof.retrieval.payload import parse_json_object

MAX_DEPTH = 4
# A path, a hash, an id or encoded bytes: one word of characters that these are made of.
_IDENTIFIER = re.compile(r"[\w\-./:+=#?&%@~,;!$*()']*", re.ASCII)


@dataclass(frozen=True, slots=True)
class TextField:
    """A field with texts: its path, their median length, and how different they are, from 0 to 1."""

    path: str
    chars: int
    variety: float


def propose_text_field(payloads: Sequence[Mapping[str, Any]]) -> TextField | None:
    """Return the field with the longest, most varied texts; None when no payload has any text."""
    texts: dict[str, list[str]] = {}
    for payload in payloads:
        for path, text in _read_texts(payload):
            texts.setdefault(path, []).append(text)
    fields = {path: describe_texts(path, found) for path, found in texts.items()}
    ranked = sorted(fields, key=lambda path: _rank(fields[path], len(texts[path]) / len(payloads)))
    return fields[ranked[-1]] if ranked and fields[ranked[-1]].chars else None


def describe_texts(path: str, texts: Sequence[str]) -> TextField:
    """Describe the texts at a path; values that are no sentences, such as hashes, do not count."""
    words = [text for text in texts if not _IDENTIFIER.fullmatch(text.strip())]
    variety = (len(set(words)) - 1) / (len(texts) - 1) if len(texts) > 1 else 1.0
    return TextField(path, int(median(map(len, words))) if words else 0, max(0.0, variety))


def _rank(field: TextField, share: float) -> float:
    return field.chars * field.variety * share


def _read_texts(value: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    """Yield every text of a payload with a path that the payload map can read."""
    for name, inner in value.items():
        if prefix and "." in name:
            continue
        path = prefix + name
        nested = inner if isinstance(inner, Mapping) else parse_json_object(inner)
        if isinstance(nested, Mapping):
            if depth < MAX_DEPTH:
                yield from _read_texts(nested, f"{path}.", depth + 1)
        elif isinstance(inner, str) and inner.strip():
            yield path, inner
