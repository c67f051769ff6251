"""The contract (docs/contract.md) as frozen, strict models: one file per concept."""

from chunkproof.contract.model import Limits, Model, Request, read_json
from chunkproof.contract.query import RetrievalQuery, SearchQuery
from chunkproof.contract.response import (
    ChunkMetadata,
    ErrorDetail,
    ExecutionMetadata,
    RetrievalResponse,
    SearchResult,
    SourceMetadata,
)
from chunkproof.contract.service_info import CollectionInfo, PayloadField, VectorInfo
from chunkproof.contract.validation import (
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
