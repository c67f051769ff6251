"""Reading chunks from a file: `chunks.jsonl`, or a BEIR folder. Every line is checked before any is used."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, field_validator

from chunkproof.audit.manifest import number_lines
from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError
from chunkproof.models import Request, read_json
from chunkproof.models.base import BrokenRules
from chunkproof.models.filters import parse_time
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import point_id_for

SHOWN_PROBLEMS = 20


class ChunkRecord(Request):
    """A line of `chunks.jsonl`: the contract's fields, and any more that are to be stored along."""

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
        """A hash that comes along must be the text's."""
        text, stated = fields.get("text"), fields.get("content_hash")
        if isinstance(text, str) and isinstance(stated, str):
            try:
                if len(stated) < 16 or not digest(text).startswith(stated.lower()):
                    return ["content_hash is not the SHA-256 of text (16 hex digits or more)"]
            except UnicodeEncodeError:
                return []  # reported as a lone surrogate already
        return []

    @field_validator("chunk_id", "text")
    @classmethod
    def _not_blank(cls, value: str, info: Any) -> str:
        if not value.strip():
            raise BrokenRules(f"{info.field_name} cannot be empty")
        return value

    @field_validator("timestamp")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None and parse_time(value) is None:
            raise BrokenRules("timestamp must be an ISO 8601 date and time")
        return value

    @property
    def point_id(self) -> PointId:
        """The chunk's own id where Qdrant takes it, else a uuid5 of it."""
        return point_id_for(self.chunk_id)

    def payload(self, model: str) -> dict[str, Any]:
        """What is stored beside the vector."""
        fields = self.model_dump(exclude_none=True)
        return {**fields, "content_hash": digest(self.text), "embedding_model": model}


@dataclass(frozen=True)
class ChunkFile:
    """A file of chunks that was read whole and found good."""

    path: Path
    count: int
    extra_fields: tuple[str, ...]

    def __iter__(self) -> Iterator[ChunkRecord]:
        for _, line in _lines(self.path):
            yield _record(line, _is_beir(self.path))


def check_chunks(path: Path, excess: Callable[[str], str | None]) -> ChunkFile:
    """The file, if every line of it is a good chunk; otherwise `InvalidParameterError` lists the lines."""
    source = _source(path)
    problems: list[str] = []
    seen: dict[PointId, int] = {}
    extra: dict[str, None] = {}
    for number, line in _lines(source):
        try:
            record = _record(line, _is_beir(source))
            record_problems = [f"text is too long: {why}"] if (why := excess(record.text)) else []
            if (first := seen.setdefault(record.point_id, number)) != number:
                record_problems.append(f"chunk_id {record.chunk_id} is on line {first} already")
            extra |= dict.fromkeys(record.model_extra or ())
        except InvalidParameterError as error:
            record_problems = [m.replace("The request body", "The line") for m in error.messages]
        problems += [f"{source.name}:{number}: {problem}" for problem in record_problems]
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        raise InvalidParameterError(*problems[:SHOWN_PROBLEMS], *([f"… and {more} more"] if more > 0 else []))
    if not seen:
        raise InvalidParameterError(f"{source}: no chunks in it")
    return ChunkFile(source, len(seen), tuple(extra))


def _source(path: Path) -> Path:
    if path.is_dir():
        if not (path / "corpus.jsonl").is_file():
            raise InvalidParameterError(f"{path} is a folder without corpus.jsonl: not a BEIR data set")
        return path / "corpus.jsonl"
    if not path.is_file():
        raise InvalidParameterError(f"{path}: no such file")
    return path


def _is_beir(source: Path) -> bool:
    return source.name == "corpus.jsonl"


def _lines(source: Path) -> Iterator[tuple[int, bytes]]:
    with source.open("rb") as file:  # bytes: only \n ends a line, and bad UTF-8 is named by line
        for number, line in number_lines(file):
            if line.strip():
                yield number, line


def _record(line: bytes, is_beir: bool) -> ChunkRecord:
    document = read_json(line)
    return ChunkRecord.parse(_from_beir(document) if is_beir else document)


def _from_beir(document: Any) -> Any:
    """BEIR's `_id`, `title`, `text`, `metadata`; the text stays as it is, so that it can be proved."""
    if not isinstance(document, dict) or "_id" not in document:
        return document
    given = dict(document)
    metadata = given.pop("metadata", None) or {}
    fields = {"chunk_id": given.pop("_id"), "document_title": given.pop("title", None) or None, **given}
    return {**(metadata if isinstance(metadata, dict) else {}), **fields}


def write_chunks(path: Path, chunks: Iterator[dict[str, Any]]) -> None:
    """A `chunks.jsonl` of these chunks."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in chunks)
