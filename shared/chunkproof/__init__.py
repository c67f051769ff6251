"""Chunkproof: retrieval that proves it returns what was stored.

    import chunkproof

    with chunkproof.connect(collection="handbook") as proof:
        for result in proof.search("How do I rotate a key?").results:
            print(result.rank, result.similarity_score, result.metadata.url)

What `__all__` lists is stable; docs/python.md describes it. Names are imported when they are first used, because a
Lambda function imports this package and needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
CONTRACT_VERSION = "1.0"

if TYPE_CHECKING:
    from chunkproof.audit.audit_report import AuditReport
    from chunkproof.base.errors import (
        AmbiguousIdError,
        ChunkNotFoundError,
        ChunkproofError,
        CollectionNotFoundError,
        DimensionMismatchError,
        EmbeddingError,
        EmbeddingTimeoutError,
        IndexRequiredError,
        InvalidParameterError,
        NotConfiguredError,
        QueryTooLongError,
        RateLimitedError,
        VectorStoreTimeoutError,
        VectorStoreUnavailableError,
    )
    from chunkproof.base.settings import Settings
    from chunkproof.client import Chunkproof, connect
    from chunkproof.contract import (
        ChunkMetadata,
        CollectionInfo,
        ExecutionMetadata,
        RetrievalQuery,
        RetrievalResponse,
        SearchQuery,
        SearchResult,
        ValidationResult,
    )
    from chunkproof.contract.profiles import Query, QueryEmbedding
    from chunkproof.contract.response import RetrievalResult
    from chunkproof.suite.cases import Suite
    from chunkproof.suite.judge import MissingDocumentError, PerformanceError, RelevanceError
    from chunkproof.suite.outcome import TestCaseResult as TestCase
    from chunkproof.suite.outcome import TestStatus
    from chunkproof.suite.suite_report import SuiteReport, TestSuiteResult, ValidationReport
    from chunkproof.why.causes import WhyReport

__all__ = [
    "CONTRACT_VERSION",
    "AmbiguousIdError",
    "AuditReport",
    "ChunkMetadata",
    "ChunkNotFoundError",
    "Chunkproof",
    "ChunkproofError",
    "CollectionInfo",
    "CollectionNotFoundError",
    "DimensionMismatchError",
    "EmbeddingError",
    "EmbeddingTimeoutError",
    "ExecutionMetadata",
    "IndexRequiredError",
    "InvalidParameterError",
    "MissingDocumentError",
    "NotConfiguredError",
    "PerformanceError",
    "Query",
    "QueryEmbedding",
    "QueryTooLongError",
    "RateLimitedError",
    "RelevanceError",
    "RetrievalQuery",
    "RetrievalResponse",
    "RetrievalResult",
    "SearchQuery",
    "SearchResult",
    "Settings",
    "Suite",
    "SuiteReport",
    "TestCase",
    "TestStatus",
    "TestSuiteResult",
    "ValidationReport",
    "ValidationResult",
    "VectorStoreTimeoutError",
    "VectorStoreUnavailableError",
    "WhyReport",
    "__version__",
    "connect",
]

# Where the names are that are neither errors nor parts of the contract.
_MODULES = {
    "audit.audit_report": "AuditReport",
    "base.settings": "Settings",
    "client": "Chunkproof connect",
    "contract.profiles": "Query QueryEmbedding",
    "contract.response": "RetrievalResult",
    "suite.cases": "Suite",
    "suite.judge": "MissingDocumentError PerformanceError RelevanceError",
    "suite.outcome": "TestStatus",
    "suite.suite_report": "SuiteReport TestSuiteResult ValidationReport",
    "why.causes": "WhyReport",
}
_ELSEWHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "TestCase":  # with status and results; a suite file's cases have neither
        value = import_module("chunkproof.suite.outcome").TestCaseResult
    else:
        module = _ELSEWHERE.get(name, "base.errors" if name.endswith("Error") else "contract")
        value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
