"""The metadata of a stored chunk."""

from typing import Annotated

from pydantic import Field, JsonValue, WithJsonSchema

from chunkproof.models.base import AS_STORED, Model

# Any JSON value. Most are of the first types, which pydantic checks without calling Python.
Stored = Annotated[str | bool | int | float | JsonValue | None, Field(union_mode="left_to_right"), WithJsonSchema({})]


class SourceMetadata(Model):
    """The id and the source of a chunk."""

    model_config = AS_STORED

    chunk_id: str = Field(description="The id to use in /validate-chunk")
    url: Stored = Field(None, description="Source of the document")


class ChunkMetadata(SourceMetadata):
    """The metadata of a chunk.

    Values are returned as stored, whatever their type; validation reports what is wrong with them.
    """

    document_id: Stored = None
    position: Stored = Field(None, description="Position in the document, as the pipeline counts")
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
