"""Requests to validate chunks, and the results."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract.model import (
    MAX_ID,
    BrokenRules,
    Count,
    Items,
    Milliseconds,
    Model,
    Name,
    NotBlank,
    Request,
    is_none,
    require_all,
)
from chunkproof.contract.response import ErrorDetail

MAX_CHUNKS = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ChunkOriginal(Request):
    """A chunk, and what its text should be."""

    chunk_id: NotBlank = Field(
        description="A chunk_id of a search result, a point id, or the payload's own id",
        max_length=MAX_ID,
        json_schema_extra={"minLength": 1},
    )
    original_text: str | None = Field(None, description="What the text should be")
    original_sha256: str | None = Field(
        None,
        description="SHA-256 of what the text should be, 64 hex digits",
        json_schema_extra={"pattern": "^[0-9a-fA-F]{64}$"},
    )

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """One original to compare with, or none."""
        if fields.get("original_text") is not None and fields.get("original_sha256") is not None:
            return ["Give original_text or original_sha256, not both"]
        return []

    @field_validator("original_sha256")
    @classmethod
    def _hash_is_a_sha256(cls, digest: str | None) -> str | None:
        if digest is not None and not _SHA256.fullmatch(digest.lower()):
            raise BrokenRules("original_sha256 must be 64 hexadecimal digits")
        return digest.lower() if digest else digest


def _document_alias(schema: dict[str, Any]) -> None:
    about = schema["properties"]["collection"]
    schema["properties"]["collection_name"] = {**about, "description": "Alias of collection", "deprecated": True}


class OfCollection(Request):
    """A request about one collection."""

    model_config = ConfigDict(json_schema_extra=_document_alias)
    aliases: ClassVar[Mapping[str, str]] = {"collection_name": "collection"}

    collection: Name | None = Field(None, description="Which collection; the deployment's own by default")
    strict: bool = Field(
        False, description="Fail for wrong metadata too (no web address, a malformed time), which is otherwise a note"
    )


class ChunkValidation(ChunkOriginal, OfCollection):
    """Which chunk, and what its text should be."""


class ChunkValidations(OfCollection):
    """Up to a hundred chunks of one collection, and what their texts should be."""

    chunks: tuple[ChunkOriginal, ...] = Field(
        description="The chunks to validate; results have the same order",
        json_schema_extra={"minItems": 1, "maxItems": MAX_CHUNKS},
    )

    @field_validator("chunks", mode="before")
    @classmethod
    def _all_chunks_are_right(cls, chunks: object) -> object:
        if not isinstance(chunks, list):
            return chunks
        if not 1 <= len(chunks) <= MAX_CHUNKS:
            raise BrokenRules(f"chunks must have 1 to {MAX_CHUNKS} items")
        read: list[ChunkOriginal] = []
        problems: list[str] = []
        for number, chunk in enumerate(chunks):
            try:
                read.append(ChunkOriginal.parse(chunk, subject=f"chunks[{number}]"))
            except InvalidParameterError as error:
                problems += [_locate(message, f"chunks[{number}]") for message in error.messages]
        if problems:
            raise BrokenRules(*problems)
        return tuple(read)


def _locate(message: str, item: str) -> str:
    """Put the item before a message about one of its fields."""
    return message if message.startswith(item) else f"{item}.{message}"


class MismatchKind(StrEnum):
    """The likely cause of a difference; each claim is checked."""

    TRUNCATED = "truncated"
    EXTENDED = "extended"
    UNICODE_NORMALIZATION = "unicode_normalization"
    LINE_ENDINGS = "line_endings"
    WHITESPACE = "whitespace"
    INVISIBLE_CHARACTERS = "invisible_characters"
    CASE = "case"
    MOJIBAKE = "mojibake"
    HTML_ENTITIES = "html_entities"
    EMPTY = "empty"
    DIFFERENT = "different"


class TextPosition(Model):
    """A position in a text: byte and char count from 0, line and column from 1."""

    byte: int
    char: int
    line: int
    column: int


class Mismatch(Model):
    """What differs. Fields about the original's text are null when only its hash was given."""

    kind: MismatchKind
    first_difference: TextPosition | None
    stored_excerpt: str
    original_excerpt: str | None
    stored_bytes: int
    original_bytes: int | None
    stored_sha256: str
    original_sha256: str


class Check(Model):
    """The result of one check; `passed` is null when it does not apply to this chunk.

    `metadata` decides only with `strict`.
    """

    name: str
    passed: bool | None
    details: str | None = Field(None, description="Why it failed or does not apply")


class ValidationResult(Model):
    """Whether the stored text is the original, byte for byte, and what else was checked."""

    model_config = ConfigDict(json_schema_extra=require_all)

    chunk_id: str
    point_id: int | str | None = Field(None, exclude_if=is_none, description="Id of the point in Qdrant")
    matches: bool
    validation_passed: bool
    stored_text: str
    original_text: str | None = None
    mismatch_details: str | None = None
    mismatch: Mismatch | None = None
    checks: Items[Check] = ()
    retrieval_time_ms: Milliseconds = 0.0

    def __bool__(self) -> bool:
        """Whether the validation passed."""
        return self.validation_passed

    @model_validator(mode="after")
    def _adds_up(self) -> "ValidationResult":
        if self.validation_passed and not self.matches:
            raise BrokenRules("validation_passed is true only where matches is")
        if not self.matches and not self.mismatch_details:
            raise BrokenRules("mismatch_details must say what differs where matches is false")
        return self


class ChunkVerdict(Model):
    """The result of one chunk of several, or the error."""

    chunk_id: str = Field(description="The id as in the request")
    status: Literal["success", "error"]
    result: ValidationResult | None = None
    error: ErrorDetail | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> "ChunkVerdict":
        if (self.status == "success") != (self.error is None):
            raise BrokenRules("a success has no error, and an error has one")
        if (self.status == "success") != (self.result is not None):
            raise BrokenRules("a success has a result, and an error has none")
        return self


class ValidationResults(Model):
    """A result for every chunk of the request, in the same order."""

    total: Count
    passed: Count = Field(description="Chunks that passed: text and hashes and, with strict, metadata")
    failed: Count = Field(description="Chunks with a failed check")
    errors: Count = Field(description="Chunks without a result: not found, ambiguous, unreadable")
    results: Items[ChunkVerdict]
    retrieval_time_ms: Milliseconds

    def __bool__(self) -> bool:
        """Whether every chunk passed."""
        return self.passed == self.total

    @model_validator(mode="after")
    def _adds_up(self) -> "ValidationResults":
        if not self.total == self.passed + self.failed + self.errors == len(self.results):
            raise BrokenRules("total must be passed + failed + errors, and the number of results")
        return self
