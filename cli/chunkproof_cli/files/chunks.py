"""Read chunks from `chunks.jsonl` or a BEIR folder. Every line is checked before any is used."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, field_validator

from chunkproof.audit.manifest import number_lines
from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError
from chunkproof.files import replace_file
from chunkproof.models import Request, read_json
from chunkproof.models.base import BrokenRules
from chunkproof.models.filters import parse_time
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import point_id_for

SHOWN_PROBLEMS = 20
USE_FLAGS = "Shorten texts that are too long, or use --truncate to embed only their beginning, or --skip-too-long"
LINE = "The line"  # what messages call a line of the file


class ChunkRecord(Request):
    """A line of `chunks.jsonl`: the fields of docs/contract.md, and any others, which are stored too."""

    model_config = ConfigDict(extra="allow")
    aliases: ClassVar[Mapping[str, str]] = {}

    chunk_id: str
    text: str
    url: str | None = None
    document_id: str | None = None
    document_title: str | None = Field(None, max_length=500)
    position: int | None = Field(None, ge=0)
    timestamp: str | None = None
    section_heading: str | None = None
    section_headers: tuple[str, ...] | None = Field(None, strict=False)
    breadcrumb: str | None = None
    total_chunks: int | None = None
    tokens: int | None = None
    content_type: str | None = None
    has_code: bool | None = None
    content_hash: str | None = None
    embedding_model: str | None = None

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """Check that a given content_hash is the hash of the text."""
        text, given_hash = fields.get("text"), fields.get("content_hash")
        if isinstance(text, str) and isinstance(given_hash, str):
            try:
                if len(given_hash) < 16 or not digest(text).startswith(given_hash.lower()):
                    return ["content_hash is not the SHA-256 of text (16 hex digits or more)"]
            except UnicodeEncodeError:
                return []  # already reported as a lone surrogate
        return []

    @field_validator("chunk_id", "text")
    @classmethod
    def _check_not_blank(cls, value: str, info: Any) -> str:
        if not value.strip():
            raise BrokenRules(f"{info.field_name} cannot be empty")
        return value

    @field_validator("timestamp")
    @classmethod
    def _check_time(cls, value: str | None) -> str | None:
        if value is not None and parse_time(value) is None:
            raise BrokenRules("timestamp must be an ISO 8601 date and time")
        return value

    @property
    def point_id(self) -> PointId:
        """The chunk's id if Qdrant accepts it as a point id, else a uuid5 of it."""
        return point_id_for(self.chunk_id)

    def to_payload(self, model: str) -> dict[str, Any]:
        """Build the payload that is stored with the vector."""
        fields = self.model_dump(exclude_none=True)
        return {**fields, "content_hash": digest(self.text), "embedding_model": model}


@dataclass(frozen=True)
class ChunkFile:
    """A file of chunks whose lines have all been checked; iterating reads it again."""

    path: Path
    count: int
    extra_fields: tuple[str, ...]

    def __iter__(self) -> Iterator[ChunkRecord]:
        for _, line in _read_lines(self.path):
            yield _parse_line(line, _is_beir(self.path))


def check_chunks(path: Path, excess: Callable[[str], str | None]) -> ChunkFile:
    """Check every line of the file; `InvalidParameterError` lists the lines that are not valid chunks."""
    source = _find_file(path)
    problems: list[str] = []
    seen: dict[PointId, int] = {}
    extra: dict[str, None] = {}
    is_too_long = False
    for number, line in _read_lines(source):
        try:
            record = _parse_line(line, _is_beir(source))
            record_problems = [f"text is too long: {why}"] if (why := excess(record.text)) else []
            is_too_long |= bool(why)
            if (first := seen.setdefault(record.point_id, number)) != number:
                record_problems.append(f"chunk_id {record.chunk_id} is already on line {first}")
            extra |= dict.fromkeys(record.model_extra or ())
        except InvalidParameterError as error:
            record_problems = list(error.messages)
        problems += [f"{source.name}:{number}: {problem}" for problem in record_problems]
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        further = [f"… and {more} more"] if more > 0 else []
        raise InvalidParameterError(*problems[:SHOWN_PROBLEMS], *further, *([USE_FLAGS] if is_too_long else []))
    if not seen:
        raise InvalidParameterError(f"{source}: the file has no chunks")
    return ChunkFile(source, len(seen), tuple(extra))


def _find_file(path: Path) -> Path:
    if path.is_dir():
        if not (path / "corpus.jsonl").is_file():
            raise InvalidParameterError(f"{path}: not a BEIR folder, it has no corpus.jsonl")
        return path / "corpus.jsonl"
    if not path.is_file():
        raise InvalidParameterError(f"{path}: no such file")
    return path


def _is_beir(source: Path) -> bool:
    return source.name == "corpus.jsonl"


def _read_lines(source: Path) -> Iterator[tuple[int, bytes]]:
    # As bytes, so that only \n ends a line and invalid UTF-8 is reported with its line.
    with source.open("rb") as file:
        for number, line in number_lines(file):
            if line.strip():
                yield number, line


def _parse_line(line: bytes, is_beir: bool) -> ChunkRecord:
    document = read_json(line, LINE)
    return ChunkRecord.parse(_from_beir(document) if is_beir else document, subject=LINE)


def _from_beir(document: Any) -> Any:
    """Map BEIR's `_id`, `title`, `text` and `metadata`; the text stays unchanged, so that it can be validated."""
    if not isinstance(document, dict) or "_id" not in document:
        return document
    rest = dict(document)
    metadata = rest.pop("metadata", None) or {}
    fields = {"chunk_id": rest.pop("_id"), "document_title": rest.pop("title", None) or None, **rest}
    return {**(metadata if isinstance(metadata, dict) else {}), **fields}


def write_chunks(path: Path, chunks: Iterator[dict[str, Any]]) -> None:
    """Write the chunks to a `chunks.jsonl`."""
    with replace_file(path) as file:
        file.writelines(json.dumps(chunk, ensure_ascii=False).encode() + b"\n" for chunk in chunks)
