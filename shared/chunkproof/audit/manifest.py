"""Manifests: one JSON object per line for each chunk that should be stored."""

import json
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Any, Literal

from pydantic import JsonValue, field_validator
from pydantic_core import from_json

from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError
from chunkproof.models import Request, read_json
from chunkproof.models.base import BrokenRules
from chunkproof.models.validation import MAX_ID
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import parse_point_id, point_id_for

MAX_SHOWN_PROBLEMS = 20
LINE = "The line"  # what messages call a line of a manifest
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.I)


@dataclass(frozen=True, slots=True)
class Entry:
    """One chunk as it should be stored; `point_id` is set where it is not the point that `load` would use.

    Of one that is only `present`, the text is unknown: any will do.
    """

    chunk_id: str
    original_text: str | None = None
    original_sha256: str | None = None
    metadata: Mapping[str, Any] | None = None
    point_id: PointId | None = None
    present: bool | None = None

    @property
    def expected_point_id(self) -> PointId:
        """The point to look at first."""
        return point_id_for(self.chunk_id) if self.point_id is None else self.point_id

    @property
    def sha256(self) -> str:
        """The SHA-256 of the original, given or computed; empty where the text is unknown."""
        if self.original_text is None:
            return self.original_sha256 or ""
        return digest(self.original_text)

    def has_same_content_as(self, other: "Entry") -> bool:
        """Whether both expect the same text and metadata."""
        return self.sha256 == other.sha256 and (self.metadata or {}) == (other.metadata or {})

    def to_line(self) -> bytes:
        """Write the entry as a line of a manifest."""
        fields = {name: getattr(self, name) for name in ManifestLine.model_fields}
        given = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class ManifestLine(Request):
    """A line of a manifest, read strictly: every broken rule has a message."""

    chunk_id: str
    point_id: int | str | None = None
    original_text: str | None = None
    original_sha256: str | None = None
    present: Literal[True] | None = None
    metadata: dict[str, JsonValue] | None = None

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """Require exactly one original to compare with."""
        given = [name for name in ("original_text", "original_sha256", "present") if fields.get(name) is not None]
        if len(given) == 1:
            return []
        return ["Give original_text or original_sha256, one of them; present: true where the text is unknown"]

    @field_validator("chunk_id")
    @classmethod
    def _check_chunk_id(cls, chunk_id: str) -> str:
        if not chunk_id.strip() or len(chunk_id) > MAX_ID:
            raise BrokenRules(f"chunk_id must have 1 to {MAX_ID} characters")
        return chunk_id

    @field_validator("point_id")
    @classmethod
    def _check_point_id(cls, point_id: PointId | None) -> PointId | None:
        if point_id is not None and parse_point_id(str(point_id)) is None:
            raise BrokenRules("point_id must be an unsigned integer or a UUID")
        return point_id

    @field_validator("original_sha256")
    @classmethod
    def _check_sha256(cls, value: str | None) -> str | None:
        if value is not None and not _SHA256.fullmatch(value):
            raise BrokenRules("original_sha256 must be 64 hexadecimal digits")
        return value


def read_lines(file: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a manifest; raise `InvalidParameterError` when it is a damaged archive."""
    try:
        yield from file
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise cannot_decompress(name, error) from None


def cannot_decompress(name: object, error: Exception) -> InvalidParameterError:
    """The error for an archive that is cut or damaged."""
    return InvalidParameterError(f"{name} cannot be decompressed: {error}")


def number_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, the first one without the byte order mark that some editors write."""
    for number, line in enumerate(lines, start=1):
        yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def check_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[Entry, bytes]]:
    """Yield each entry with its line; at the end, raise `InvalidParameterError` if lines were wrong."""
    problems: list[str] = []
    unshown = 0
    is_empty = True
    for number, line in number_lines(lines):
        if not line.strip():
            continue
        is_empty = False
        try:
            entry = parse_entry(line)
        except InvalidParameterError as error:
            room = MAX_SHOWN_PROBLEMS - len(problems)
            problems += [f"{name}:{number}: {message}" for message in error.messages[:room]]
            unshown += max(0, len(error.messages) - room)
            continue
        if not problems:
            yield entry, line.rstrip(b"\r\n") + b"\n"
    if problems:
        more = [f"… and {unshown} more"] if unshown else []
        if any("text is not a known field" in problem for problem in problems):
            more.append("If it is a chunks.jsonl, run chunkproof manifest to make a manifest from it.")
        raise InvalidParameterError(*problems, *more)
    if is_empty:
        raise InvalidParameterError(f"{name}: the manifest has no chunks")


def parse_entry(line: bytes) -> Entry:
    """Parse a line; raise `InvalidParameterError` with everything that is wrong with it."""
    return _make_entry(vars(ManifestLine.parse(read_json(line, LINE), subject=LINE)))


def parse_checked_line(line: bytes) -> Entry:
    """Parse a line that `parse_entry` has accepted before, without checking it again."""
    return _make_entry(from_json(line))


def _make_entry(fields: Mapping[str, Any]) -> Entry:
    point_id, sha256 = fields.get("point_id"), fields.get("original_sha256")
    return Entry(
        chunk_id=fields["chunk_id"],
        original_text=fields.get("original_text"),
        original_sha256=sha256.lower() if sha256 else None,
        metadata=fields.get("metadata") or None,
        point_id=None if point_id is None else parse_point_id(str(point_id)),
        present=fields.get("present"),
    )
