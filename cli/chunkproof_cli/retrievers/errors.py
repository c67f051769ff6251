"""The errors of a retriever. Both leave a case in error, and never fail it."""

from chunkproof.errors import ChunkproofError, UnavailableError


class RetrieverError(ChunkproofError):
    """The retriever raised an exception, refused the query, or returned something that has no results."""

    code = "RETRIEVER_FAILED"


class RetrieverUnavailableError(UnavailableError):
    """The retriever could not be reached, or did not respond in time."""

    code = "RETRIEVER_UNAVAILABLE"
