"""The ids by which a case may name a chunk: the chunk's own, its document's, or its URL."""

from collections.abc import Iterator

from chunkproof.models.chunk import SourceMetadata
from chunkproof.models.filters import Scalar

# The most specific first.
DOCUMENT_FIELDS = ("document_id", "url")
ID_FIELDS = ("chunk_id", *DOCUMENT_FIELDS)
# Longer ones do not fit into the 64-bit integers of a payload.
MAX_DIGITS = 18


def ids_of(metadata: SourceMetadata) -> tuple[str, ...]:
    """Return every id of a chunk, the most specific first."""
    values = (getattr(metadata, field, None) for field in ID_FIELDS)
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def stored_forms(key: str) -> Iterator[Scalar]:
    """Yield the id as text and, if it can be one, as the number that a payload may hold instead."""
    yield key
    if key.isdecimal() and len(key) <= MAX_DIGITS:
        yield int(key)
