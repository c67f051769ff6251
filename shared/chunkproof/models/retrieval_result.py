"""One result as a record of its own, made by code that searches without Chunkproof."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator

from chunkproof.models.base import BrokenRules, Items, Milliseconds, Request
from chunkproof.models.response import SearchResult

# Where payloads keep a field, in order.
TEXT = ("chunk_text", "content", "text", "page_content")
URL = ("source_url", "url", "source")
TITLE = ("page_title", "document_title", "title")
POSITION = ("chunk_index", "position")


def _first(payload: dict[str, Any], names: tuple[str, ...], kind: type) -> Any:
    found = (payload.get(name) for name in names)
    return next((value for value in found if isinstance(value, kind) and not isinstance(value, bool)), None)


def _text(known: dict[str, Any]) -> str | None:
    text: str | None = _first(known["metadata"], TEXT, str)
    return text if text and text.strip() else None


def _url(known: dict[str, Any]) -> str | None:
    url: str | None = _first(known["metadata"], URL, str)
    return url if url and _is_url(url) else None


def _position(known: dict[str, Any]) -> int | None:
    position: int | None = _first(known["metadata"], POSITION, int)
    return position if position is not None and position >= 0 else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)


class RetrievalResult(Request):
    """A search result with the payload it was made from.

    Text, URL, title and position are read from the payload (`metadata`) where they are not given.
    """

    aliases: ClassVar[Mapping[str, str]] = {"score": "similarity_score", "payload": "metadata"}

    id: int | str | None = Field(None, description="The point's id")
    similarity_score: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    metadata: dict[str, JsonValue] = Field(default_factory=dict, description="The payload")
    query_id: str | None = None
    rank: int = Field(1, ge=1)
    chunk_text: str | None = Field(default_factory=_text)
    source_url: str | None = Field(default_factory=_url)
    page_title: str | None = Field(default_factory=lambda known: _first(known["metadata"], TITLE, str))
    section_heading: str | None = Field(
        default_factory=lambda known: _first(known["metadata"], ("section_heading",), str)
    )
    breadcrumb: str | None = Field(default_factory=lambda known: _first(known["metadata"], ("breadcrumb",), str))
    chunk_index: int | None = Field(default_factory=_position, ge=0)
    vector: Items[float] | None = None
    retrieval_time_ms: Milliseconds = Field(0.0, allow_inf_nan=False)

    @property
    def score(self) -> float:
        """The similarity score."""
        return self.similarity_score

    @property
    def payload(self) -> dict[str, JsonValue]:
        """The payload."""
        return self.metadata

    @classmethod
    def of(cls, result: SearchResult, query_id: str | None = None) -> "RetrievalResult":
        """Convert a result of a search."""
        return cls(
            query_id=query_id,
            rank=result.rank,
            similarity_score=result.similarity_score,
            metadata=result.payload or result.metadata.model_dump(mode="json"),
            chunk_text=result.text or None,
            vector=result.vector,
        )

    @field_validator("chunk_text")
    @classmethod
    def _text_is_not_blank(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise BrokenRules("chunk_text cannot be empty")
        return text

    @field_validator("source_url")
    @classmethod
    def _url_is_one(cls, url: str | None) -> str | None:
        if url is not None and not _is_url(url):
            raise BrokenRules("source_url must be a URL")
        return url

    @field_validator("vector")
    @classmethod
    def _vector_is_finite(cls, vector: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if vector is not None and not all(isfinite(value) for value in vector):
            raise BrokenRules("vector must hold finite numbers")
        return vector
