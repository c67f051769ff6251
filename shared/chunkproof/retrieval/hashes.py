"""Recognise what the hashes in payloads were made from, by trying it on the first points of a collection."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import new as new_hash
from itertools import islice
from typing import Any

from chunkproof.models.json import has_lone_surrogate
from chunkproof.retrieval.payload import PayloadMap, id_at

# Fewer digits than this could agree by chance.
MIN_DIGITS = 16
# Points to try each kind of hash on.
TRIED_POINTS = 30
ALGORITHMS = {"SHA-256": "sha256", "SHA-1": "sha1", "MD5": "md5", "SHA-512": "sha512"}
FORMS = (
    "text",
    "url and text",
    "text and a newline",
    "text without surrounding whitespace",
    'text and "None"',  # Dify
)
_HASH = re.compile(r"(?:(?:sha-?256|sha-?1|sha-?512|md5)[:=-])?([0-9a-f]{16,128})", re.I)


@dataclass(frozen=True, slots=True)
class HashKind:
    """An algorithm, and what of a chunk it was computed from."""

    algorithm: str
    form: str

    def __str__(self) -> str:
        return f"{self.algorithm} of {self.form}"

    def fits(self, digits: str, text: str, url: object) -> bool:
        """Whether the digits are the beginning of this hash, or all of it."""
        content = _content(self.form, text, url)
        if content is None:
            return False
        digest = new_hash(ALGORITHMS[self.algorithm], content.encode(), usedforsecurity=False).hexdigest()
        return digest.startswith(digits)


@dataclass(frozen=True, slots=True)
class Hashes:
    """What `content_hash` and the chunk ids of a collection are hashes of; None when they prove nothing.

    `is_per_source` when chunks with different texts have the same `content_hash`.
    """

    content_hash: HashKind | None = None
    chunk_id: HashKind | None = None
    is_per_source: bool = False


def hash_digits(stored: object) -> str | None:
    """Return the hexadecimal digits of a hash, None when the value is none."""
    found = _HASH.fullmatch(stored) if isinstance(stored, str) else None
    return found[1].lower() if found else None


def recognise_hashes(payload_map: PayloadMap, payloads: Sequence[Mapping[str, Any]]) -> Hashes:
    """Find the kinds of hashes that fit these payloads.

    A content_hash has to fit at least half of them: a hash of the whole source fits sources of one chunk. An id
    belongs to one chunk, so one that fits is enough.
    """
    hashed = list(_read_hashes("content_hash", payload_map, payloads))
    ids = islice(_read_hashes("chunk_id", payload_map, payloads), TRIED_POINTS)
    texts: dict[str, str] = {}
    is_per_source = any(texts.setdefault(digits, text) != text for digits, text, _ in hashed)
    content_hash = None if is_per_source else _find_kind(hashed[:TRIED_POINTS], 0.5)
    return Hashes(content_hash, _find_kind(list(ids), 0.0), is_per_source)


def _find_kind(hashed: Sequence[tuple[str, str, object]], least_share: float) -> HashKind | None:
    kinds = [HashKind(algorithm, form) for form in FORMS for algorithm in ALGORITHMS]
    for kind in kinds if hashed else ():
        fitting = sum(kind.fits(*one) for one in hashed)
        if fitting and fitting >= least_share * len(hashed):
            return kind
    return None


def _read_hashes(
    field: str, payload_map: PayloadMap, payloads: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, object]]:
    """Yield the hash, text and URL of each payload that has them; `field` is where the hash is."""
    for payload in payloads:
        path = payload_map.id_path(payload)
        id_ = id_at(path, payload) if path else None
        digits = hash_digits(payload_map.value(field, payload) if field == "content_hash" else id_)
        text, url = payload_map.value("text", payload), payload_map.value("url", payload)
        if digits is not None and isinstance(text, str) and text and not has_lone_surrogate(f"{text}{url}"):
            yield digits, text, url


def _content(form: str, text: str, url: object) -> str | None:
    match form:
        case "text":
            return text
        case "url and text":
            return url + text if isinstance(url, str) else None
        case "text and a newline":
            return text + "\n"
        case "text without surrounding whitespace":
            return text.strip()
        case _:
            return text + "None"
