"""The contract (docs/contract.md) as frozen, strict models: one file per concept."""

from chunkproof.models.base import Limits, Model, Request
from chunkproof.models.chunk import ChunkMetadata, SourceMetadata
from chunkproof.models.collection import CollectionInfo, PayloadField, VectorInfo
from chunkproof.models.json import read_json
from chunkproof.models.query import RetrievalQuery, SearchQuery
from chunkproof.models.response import ErrorDetail, ExecutionMetadata, RetrievalResponse, SearchResult
from chunkproof.models.validation import (
    Check,
    ChunkOriginal,
    ChunkValidation,
    ChunkValidations,
    ChunkVerdict,
    Mismatch,
    MismatchKind,
    TextPosition,
    ValidationResult,
    ValidationResults,
)

__all__ = [
    "Check",
    "ChunkMetadata",
    "ChunkOriginal",
    "ChunkValidation",
    "ChunkValidations",
    "ChunkVerdict",
    "CollectionInfo",
    "ErrorDetail",
    "ExecutionMetadata",
    "Limits",
    "Mismatch",
    "MismatchKind",
    "Model",
    "PayloadField",
    "Request",
    "RetrievalQuery",
    "RetrievalResponse",
    "SearchQuery",
    "SearchResult",
    "SourceMetadata",
    "TextPosition",
    "ValidationResult",
    "ValidationResults",
    "VectorInfo",
    "read_json",
]
