"""Every way a request can fail: class, code and HTTP status.

ChunkproofError
├── InvalidParameterError          INVALID_REQUEST       400
│   ├── QueryTooLongError          QUERY_TOO_LONG
│   ├── DimensionMismatchError     DIMENSION_MISMATCH
│   ├── AmbiguousIdError           AMBIGUOUS_ID
│   ├── IndexRequiredError         INDEX_REQUIRED
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
│   │   └── EmbeddingSizeError
│   ├── VectorStoreUnavailableError  QDRANT_UNAVAILABLE
│   │   ├── VectorStoreTimeoutError  QDRANT_TIMEOUT
│   │   └── VectorStoreRefusedError
│   └── NotConfiguredError         NOT_CONFIGURED
│       └── SettingsError
├── CorruptChunkError              CORRUPT_CHUNK         500
└── InternalError                  INTERNAL              500
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import ClassVar

MAX_MESSAGES = 100


class ChunkproofError(Exception):
    """A failure with a message written for the caller: no trace, key, header or upstream body."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, *messages: str, retry_after: float | None = None) -> None:
        super().__init__(*messages)
        self.messages: tuple[str, ...] = messages or ("Internal server error",)
        self.retry_after = retry_after

    @property
    def message(self) -> str:
        """The first message, which is the one to show when there is room for one."""
        return self.messages[0]

    def __str__(self) -> str:
        return "; ".join(self.messages)


def error_classes(kind: type[ChunkproofError] = ChunkproofError) -> list[type[ChunkproofError]]:
    """The class and everything below it, as far as imported."""
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in error_classes(child))]


class InvalidParameterError(ChunkproofError):
    """The request breaks a rule; every broken rule has a message of its own."""

    code, status = "INVALID_REQUEST", HTTPStatus.BAD_REQUEST

    @classmethod
    def listing(cls, problems: Sequence[str]) -> "InvalidParameterError":
        """All problems of a request at once, each once, in the order found; a flood of them is counted."""
        distinct = list(dict.fromkeys(problems))
        more = len(distinct) - MAX_MESSAGES
        return cls(*distinct[:MAX_MESSAGES], *([f"… and {more} more"] if more > 0 else []))


class QueryTooLongError(InvalidParameterError):
    """The text is longer than the embedding model reads; it is never cut silently."""

    code = "QUERY_TOO_LONG"


class DimensionMismatchError(InvalidParameterError):
    """The given vector has not the collection's dimension."""

    code = "DIMENSION_MISMATCH"

    def __init__(self, given: int, collection: str, expected: int) -> None:
        super().__init__(f"query_vector has {given} dimensions, collection {collection} has {expected}")


class AmbiguousIdError(InvalidParameterError):
    """More than one point answers to this id."""

    code = "AMBIGUOUS_ID"


class IndexRequiredError(InvalidParameterError):
    """The server's strict mode refuses to filter on a payload field without an index."""

    code = "INDEX_REQUIRED"

    def __init__(self, collection: str, field: str, schema: str) -> None:
        super().__init__(
            f"Collection {collection} needs a payload index on {field} to filter by it: "
            f'create_payload_index("{collection}", field_name="{field}", field_schema="{schema}")'
        )


class UnsupportedDistanceError(InvalidParameterError):
    """Scores of this collection are not cosine similarities."""

    code = "UNSUPPORTED_DISTANCE"


class ForbiddenError(ChunkproofError):
    """The caller's identity does not carry what the deployment asks for."""

    code, status = "FORBIDDEN", HTTPStatus.FORBIDDEN


class NotFoundError(ChunkproofError):
    """Nothing is at this address."""

    code, status = "NOT_FOUND", HTTPStatus.NOT_FOUND


class ChunkNotFoundError(NotFoundError):
    """No point has this id."""

    code = "CHUNK_NOT_FOUND"

    def __init__(self, chunk_id: str) -> None:
        super().__init__(f"Chunk {chunk_id} not found")


class CollectionNotFoundError(NotFoundError):
    """The collection does not exist, or the deployment does not allow it."""

    code = "COLLECTION_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"Collection {name} not found")


class MethodNotAllowedError(ChunkproofError):
    """The address exists, for other methods."""

    code, status = "METHOD_NOT_ALLOWED", HTTPStatus.METHOD_NOT_ALLOWED


class RequestTooLargeError(ChunkproofError):
    """The body, or what it unpacks to, is more than a request may bring."""

    code, status = "REQUEST_TOO_LARGE", HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class ResponseTooLargeError(ChunkproofError):
    """The answer is more than Lambda can return; it is never cut."""

    code, status = "RESPONSE_TOO_LARGE", HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class RateLimitedError(ChunkproofError):
    """A dependency asks to slow down."""

    code, status = "RATE_LIMITED", HTTPStatus.TOO_MANY_REQUESTS


class UnavailableError(ChunkproofError):
    """A dependency could not do its part; what is raised is one of its kinds."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class EmbeddingError(UnavailableError):
    """The embedder failed, or its answer cannot be an embedding."""

    code = "EMBEDDING_FAILED"

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"Failed to embed query: {reason}", retry_after=retry_after)


class EmbeddingTimeoutError(EmbeddingError):
    """The embedder did not answer within the time left."""

    code = "EMBEDDING_TIMEOUT"


class EmbeddingSizeError(EmbeddingError):
    """The embedder's vectors have not the collection's size; the message names both."""


class VectorStoreUnavailableError(UnavailableError):
    """Qdrant could not be reached, or failed (document 003's ConnectionError)."""

    code = "QDRANT_UNAVAILABLE"

    def __init__(self, host: str, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"Qdrant service unavailable at {host}", reason, retry_after=retry_after)


class VectorStoreTimeoutError(VectorStoreUnavailableError):
    """Qdrant did not answer within the time left (document 003's TimeoutError)."""

    code = "QDRANT_TIMEOUT"


class VectorStoreRefusedError(VectorStoreUnavailableError):
    """Qdrant answered that the request does not fit: what is known of the collection may be old."""


class NotConfiguredError(UnavailableError):
    """A key, an address or a secret is missing or malformed."""

    code = "NOT_CONFIGURED"


class SettingsError(NotConfiguredError):
    """A setting has a value that is not allowed; the message names the variable."""


class CorruptChunkError(ChunkproofError):
    """A stored point has no text that can be read."""

    code = "CORRUPT_CHUNK"


class InternalError(ChunkproofError):
    """A bug of ours; the message says nothing more than the request id to quote."""
