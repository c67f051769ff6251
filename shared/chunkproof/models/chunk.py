"""A stored chunk's metadata, as an answer shows it."""

from typing import Annotated

from pydantic import Field, JsonValue, WithJsonSchema

from chunkproof.models.base import Model

# Whatever JSON holds. Mostly that is one of the first, which pydantic tells without a call of Python for each value.
Stored = Annotated[
    str | bool | int | float | JsonValue | None, Field(union_mode="left_to_right"), WithJsonSchema({})
]


class SourceMetadata(Model):
    """Where a chunk comes from, and nothing more."""

    chunk_id: str = Field(description="Finds this very chunk again in /validate-chunk")
    url: Stored = Field(None, description="Source of the document")


class ChunkMetadata(SourceMetadata):
    """Everything the payload says of a chunk.

    Values are the stored ones, whatever their type: an answer never mends or drops what is in the
    collection; validation says what is wrong with it.
    """

    document_id: Stored = None
    position: Stored = Field(None, description="Place in the document, as the pipeline counts it")
    timestamp: Stored = Field(None, description="ISO 8601, as stored")
    document_title: Stored = None
    section_heading: Stored = None
    section_headers: Stored = Field(default_factory=list)
    breadcrumb: Stored = None
    total_chunks: Stored = None
    tokens: Stored = None
    content_type: Stored = None
    has_code: Stored = None
    content_hash: Stored = None
    embedding_model: Stored = None
