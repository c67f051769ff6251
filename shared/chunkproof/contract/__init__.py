"""The contract (docs/contract.md) as frozen, strict models: one file per concept.

Names are imported when they are first used: a search makes no model of a validation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chunkproof.contract.model import Limits, Model, Request, read_json
    from chunkproof.contract.query import RetrievalQuery, SearchQuery
    from chunkproof.contract.response import (
        ChunkMetadata,
        CollectionInfo,
        ErrorDetail,
        ExecutionMetadata,
        PayloadField,
        RetrievalResponse,
        SearchResult,
        SourceMetadata,
        VectorInfo,
    )
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

_MODULES = ("model", "query", "response", "validation")


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        if hasattr(found := import_module(f"{__name__}.{module}"), name):
            return globals().setdefault(name, getattr(found, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
