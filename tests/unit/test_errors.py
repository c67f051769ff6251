"""Every failure: its code, its HTTP status and its message."""

from collections.abc import Iterator

import pytest

from chunkproof.base import errors
from chunkproof.base.errors import ChunkproofError

# The contract's table.
STATUS_OF = {
    "INVALID_REQUEST": 400, "QUERY_TOO_LONG": 400, "DIMENSION_MISMATCH": 400, "AMBIGUOUS_ID": 400,
    "INDEX_REQUIRED": 400, "UNSUPPORTED_DISTANCE": 400, "FORBIDDEN": 403, "CHUNK_NOT_FOUND": 404,
    "COLLECTION_NOT_FOUND": 404, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "REQUEST_TOO_LARGE": 413,
    "RESPONSE_TOO_LARGE": 413, "RATE_LIMITED": 429, "EMBEDDING_FAILED": 503, "EMBEDDING_TIMEOUT": 503,
    "RERANK_FAILED": 503, "RERANK_TIMEOUT": 503,
    "QDRANT_UNAVAILABLE": 503, "QDRANT_TIMEOUT": 503, "SECRET_TIMEOUT": 503, "NOT_CONFIGURED": 503,
    "INTERNAL": 500, "CORRUPT_CHUNK": 500,
}  # fmt: skip


def tree(root: type[ChunkproofError]) -> Iterator[type[ChunkproofError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


# Only its kinds are raised.
ABSTRACT = {errors.UnavailableError}


@pytest.mark.parametrize("error", [error for error in tree(ChunkproofError) if error not in ABSTRACT])
def test_every_class_has_a_code_of_the_contract_with_that_status(error):
    assert STATUS_OF[error.code] == error.status


@pytest.mark.parametrize(
    ("name", "code", "status"),
    [
        ("ChunkproofError", "INTERNAL", 500),
        ("InvalidParameterError", "INVALID_REQUEST", 400),
        ("QueryTooLongError", "QUERY_TOO_LONG", 400),
        ("DimensionMismatchError", "DIMENSION_MISMATCH", 400),
        ("AmbiguousIdError", "AMBIGUOUS_ID", 400),
        ("IndexRequiredError", "INDEX_REQUIRED", 400),
        ("UnsupportedDistanceError", "UNSUPPORTED_DISTANCE", 400),
        ("ForbiddenError", "FORBIDDEN", 403),
        ("NotFoundError", "NOT_FOUND", 404),
        ("ChunkNotFoundError", "CHUNK_NOT_FOUND", 404),
        ("CollectionNotFoundError", "COLLECTION_NOT_FOUND", 404),
        ("RateLimitedError", "RATE_LIMITED", 429),
        ("EmbeddingError", "EMBEDDING_FAILED", 503),
        ("EmbeddingTimeoutError", "EMBEDDING_TIMEOUT", 503),
        ("VectorStoreUnavailableError", "QDRANT_UNAVAILABLE", 503),
        ("VectorStoreTimeoutError", "QDRANT_TIMEOUT", 503),
        ("SecretTimeoutError", "SECRET_TIMEOUT", 503),
        ("NotConfiguredError", "NOT_CONFIGURED", 503),
        ("SettingsError", "NOT_CONFIGURED", 503),
        ("CorruptChunkError", "CORRUPT_CHUNK", 500),
        ("InternalError", "INTERNAL", 500),
    ],
)
def test_each_class_has_its_code_and_status(name, code, status):
    error = getattr(errors, name)

    assert (error.code, error.status) == (code, status)


@pytest.mark.parametrize("error", list(tree(ChunkproofError)))
def test_the_tree_in_the_docstring_draws_every_class_with_its_code(error):
    [line] = [line for line in (errors.__doc__ or "").splitlines() if error.__name__ in line.replace("─", " ").split()]

    own_code = vars(error).get("code", "")
    assert error is ChunkproofError or own_code in line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.ChunkNotFoundError("7"), "Chunk 7 not found"),
        (errors.CollectionNotFoundError("books"), "Collection books not found"),
        (errors.EmbeddingError("no answer"), "Failed to embed query: no answer"),
        (errors.EmbeddingTimeoutError("too slow"), "Failed to embed query: too slow"),
        (errors.VectorStoreUnavailableError("h:6333", "why"), "Qdrant service unavailable at h:6333"),
        (errors.VectorStoreTimeoutError("h:6333", "why"), "Qdrant service unavailable at h:6333"),
        (
            errors.DimensionMismatchError(3, "books", 1024),
            "query_vector has 3 dimensions, collection books has 1024",
        ),
        (errors.InternalError(), "Internal server error"),
    ],
)
def test_a_message_is_in_the_contracts_words(error, message):
    assert error.message == message


def test_a_missing_index_is_named_with_the_call_that_makes_it():
    error = errors.IndexRequiredError("books", "meta.lang", "keyword")

    assert error.message == (
        "Collection books needs a payload index on meta.lang to filter by it: "
        'create_payload_index("books", field_name="meta.lang", field_schema="keyword")'
    )


def test_the_reason_of_an_unavailable_store_is_a_message_of_its_own():
    assert errors.VectorStoreUnavailableError("h", "The connection failed").messages == (
        "Qdrant service unavailable at h",
        "The connection failed",
    )


def test_all_problems_are_listed_each_once_in_the_order_found():
    assert errors.InvalidParameterError.listing(["b", "a", "b"]).messages == ("b", "a")


def test_an_error_reads_as_all_its_messages():
    assert str(errors.InvalidParameterError("one", "two")) == "one; two"


@pytest.mark.parametrize(
    "error",
    [
        errors.RateLimitedError("slow down", retry_after=1.5),
        errors.EmbeddingError("slow down", retry_after=1.5),
        errors.VectorStoreTimeoutError("h", "slow", retry_after=1.5),
    ],
)
def test_a_time_to_wait_is_kept(error):
    assert error.retry_after == 1.5


def test_without_a_time_to_wait_there_is_none():
    assert errors.RateLimitedError("slow down").retry_after is None
