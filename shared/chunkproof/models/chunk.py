"""A stored chunk's metadata, as an answer shows it."""

from pydantic import Field, JsonValue

from chunkproof.models.base import Model


class SourceMetadata(Model):
    """Where a chunk comes from, and nothing more."""

    chunk_id: str = Field(description="Finds this very chunk again in /validate-chunk")
    url: JsonValue = Field(None, description="Source of the document")


class ChunkMetadata(SourceMetadata):
    """Everything the payload says of a chunk.

    Values are the stored ones, whatever their type: an answer never mends or drops what is in the
    collection; validation says what is wrong with it.
    """

    document_id: JsonValue = None
    position: JsonValue = Field(None, description="Place in the document, as the pipeline counts it")
    timestamp: JsonValue = Field(None, description="ISO 8601, as stored")
    document_title: JsonValue = None
    section_heading: JsonValue = None
    section_headers: JsonValue = Field(default_factory=list)
    breadcrumb: JsonValue = None
    total_chunks: JsonValue = None
    tokens: JsonValue = None
    content_type: JsonValue = None
    has_code: JsonValue = None
    content_hash: JsonValue = None
    embedding_model: JsonValue = None
