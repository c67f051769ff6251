"""A manifest: what should be stored, one JSON object per line."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from pydantic import JsonValue, field_validator
from pydantic_core import from_json

from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError
from chunkproof.models import Request, read_json
from chunkproof.models.base import BrokenRules
from chunkproof.models.validation import MAX_ID
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import as_point_id, point_id_for

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMES = dict.fromkeys(("chunk_id", "point_id", "original_text", "original_sha256", "metadata")).keys()
_SCALARS = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Entry:
    """One chunk as it should be; `point_id` where it is known to be on another point than `load` would use."""

    chunk_id: str
    original_text: str | None = None
    original_sha256: str | None = None
    metadata: Mapping[str, Any] | None = None
    point_id: PointId | None = None

    @property
    def home(self) -> PointId:
        """The point to look at first."""
        return point_id_for(self.chunk_id) if self.point_id is None else self.point_id

    @property
    def sha256(self) -> str:
        """The original's SHA-256, given or computed."""
        return self.original_sha256 or digest(self.original_text or "")

    def says_the_same_as(self, other: "Entry") -> bool:
        """Whether both want the same text and metadata."""
        return self.sha256 == other.sha256 and (self.metadata or {}) == (other.metadata or {})

    def to_line(self) -> bytes:
        """The entry as a line of a manifest."""
        fields = {name: getattr(self, name) for name in _NAMES}
        given = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class ManifestLine(Request):
    """A line as it is read strictly: every rule it breaks has a message."""

    chunk_id: str
    point_id: int | str | None = None
    original_text: str | None = None
    original_sha256: str | None = None
    metadata: dict[str, JsonValue] | None = None

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """One original to compare with."""
        given = [name for name in ("original_text", "original_sha256") if fields.get(name) is not None]
        return [] if len(given) == 1 else ["Give original_text or original_sha256, one of them"]

    @field_validator("chunk_id")
    @classmethod
    def _id_can_be_one(cls, chunk_id: str) -> str:
        if not _can_be_id(chunk_id):
            raise BrokenRules(f"chunk_id must have 1 to {MAX_ID} characters")
        return chunk_id

    @field_validator("point_id")
    @classmethod
    def _point_can_be_one(cls, point_id: PointId | None) -> PointId | None:
        if point_id is not None and _point(point_id) is None:
            raise BrokenRules("point_id must be an unsigned integer or a UUID")
        return point_id

    @field_validator("original_sha256")
    @classmethod
    def _hash_is_a_sha256(cls, value: str | None) -> str | None:
        if value is not None and not _SHA256.fullmatch(value.lower()):
            raise BrokenRules("original_sha256 must be 64 hexadecimal digits")
        return value


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each line with its number; the mark that some editors put before a file is no part of the first one."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def read_entry(line: bytes) -> Entry:
    """The entry on this line, or `InvalidParameterError` with all that is wrong with it."""
    quick = _quick(line)
    if quick is not None:
        return quick
    try:
        read = ManifestLine.parse(read_json(line))
    except InvalidParameterError as error:
        messages = (message.replace("The request body", "The line") for message in error.messages)
        raise InvalidParameterError(*messages) from None
    return _entry(read.model_dump())


def _quick(line: bytes) -> Entry | None:
    """The entry on a line that has nothing unusual about it: a tenth of the time of the strict way."""
    try:
        found = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    if type(found) is not dict:
        return None
    metadata = found.get("metadata") or {}
    # Every name once: one that is there twice would silently have its last value.
    if type(metadata) is not dict or line.count(b'":') != len(found) + len(metadata):
        return None
    chunk_id, point_id = found.get("chunk_id"), found.get("point_id")
    text, sha256 = found.get("original_text"), found.get("original_sha256")
    usual = (
        type(chunk_id) is str
        and _can_be_id(chunk_id)
        and (type(text) is str) != (type(sha256) is str)
        and (text is None or sha256 is None)
        and (sha256 is None or _SHA256.fullmatch(sha256))
        and (point_id is None or (type(point_id) in (int, str) and _point(point_id) is not None))
        and found.keys() <= _NAMES
        and _SCALARS.issuperset(map(type, metadata.values()))
        and inf not in metadata.values()
        and -inf not in metadata.values()
    )
    return _entry(found) if usual else None


def entry_on(line: bytes) -> Entry:
    """The entry on a line that was read before."""
    return _entry(from_json(line))


def _entry(fields: Mapping[str, Any]) -> Entry:
    point_id, sha256 = fields.get("point_id"), fields.get("original_sha256")
    return Entry(
        chunk_id=fields["chunk_id"],
        original_text=fields.get("original_text"),
        original_sha256=sha256.lower() if sha256 else None,
        metadata=fields.get("metadata") or None,
        point_id=None if point_id is None else _point(point_id),
    )


def _can_be_id(chunk_id: str) -> bool:
    return bool(chunk_id.strip()) and len(chunk_id) <= MAX_ID


def _point(point_id: PointId) -> PointId | None:
    return as_point_id(str(point_id))
