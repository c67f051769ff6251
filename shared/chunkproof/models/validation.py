"""A request to validate one chunk, and its verdict."""

import re
from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field, field_validator

from chunkproof.models.base import BrokenRules, Model, Request, named

MAX_ID = 1000
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ChunkValidation(Request):
    """Which chunk, and what its text should be."""

    chunk_id: str = Field(
        description="As an answer gave it, a point id, or the payload's own id",
        json_schema_extra={"minLength": 1, "maxLength": MAX_ID},
    )
    collection: str | None = Field(None, description="Which collection; the deployment's own by default")
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

    @field_validator("chunk_id")
    @classmethod
    def _id_is_not_blank(cls, chunk_id: str) -> str:
        if not chunk_id.strip():
            raise BrokenRules("chunk_id cannot be empty")
        if len(chunk_id) > MAX_ID:
            raise BrokenRules(f"chunk_id must have at most {MAX_ID} characters")
        return chunk_id

    @field_validator("collection")
    @classmethod
    def _collection_is_not_blank(cls, name: str | None) -> str | None:
        return named(name, "collection")

    @field_validator("original_sha256")
    @classmethod
    def _hash_is_a_sha256(cls, digest: str | None) -> str | None:
        if digest is not None and not _SHA256.fullmatch(digest.lower()):
            raise BrokenRules("original_sha256 must be 64 hexadecimal digits")
        return digest.lower() if digest else digest


class MismatchKind(StrEnum):
    """The likely cause of a difference; what it claims is checked, never guessed."""

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
    """A place in a text: byte and char count from 0, line and column from 1."""

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
    """One thing looked at; `passed` is null when it does not apply to this chunk."""

    name: str
    passed: bool | None
    details: str | None = Field(None, description="Why it failed or does not apply")


class ValidationResult(Model):
    """Whether the stored text is the original, byte for byte, and what else was checked."""

    chunk_id: str
    matches: bool
    validation_passed: bool
    stored_text: str
    original_text: str | None
    mismatch_details: str | None
    mismatch: Mismatch | None
    checks: tuple[Check, ...]
    retrieval_time_ms: float
