"""Cursors: which results the pages before had, so that the next page has others.

A cursor carries the ids of all results so far, because a place in the ranking moves when points are written or
deleted between two pages. It is bound to its query: a checksum covers the ids and everything that decides the
ranking. It is no secret and grants nothing; all that a forged one could do is leave out results.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from hashlib import sha256
from uuid import UUID

from chunkproof.clients.ports import PointId
from chunkproof.errors import InvalidParameterError
from chunkproof.models import SearchQuery
from chunkproof.models.ranking import Mode

START = "start"
# A cursor of so many results has 23,000 characters.
MAX_PAGED = 1_000

_NUMBER, _UUID = b"\x00", b"\x01"
_DIGEST = 12
# What may differ between two pages of one query; `rerank` can only be false where there are pages.
_RETURNED = {"include_metadata", "with_payload", "with_vectors", "highlight", "neighbours", "explain"}
_FREE = {"top_k", "cursor", "collection", "query_id", "created_at", "mode", "rerank", *_RETURNED}


def read_cursor(query: SearchQuery, collection: str, tenant: str) -> tuple[PointId, ...]:
    """Return the ids of the results so far; `InvalidParameterError` for a cursor of another query, or none at all."""
    if query.cursor in (None, START):
        return ()
    wrong = InvalidParameterError(
        'cursor does not belong to this query: repeat the query with the next_cursor of its response, or "start"'
    )
    try:
        content = base64.urlsafe_b64decode(str(query.cursor).encode("ascii"))
    except (binascii.Error, ValueError):
        raise wrong from None
    digest, ids = content[:_DIGEST], content[_DIGEST:]
    if digest != _digest(ids, query, collection, tenant) or write_base64(content) != query.cursor:
        raise wrong
    try:
        return tuple(_unpack(ids))
    except ValueError:
        raise wrong from None


def write_cursor(ids: Sequence[PointId], query: SearchQuery, collection: str, tenant: str) -> str:
    """Return the cursor of the page after these results."""
    packed = b"".join(map(_pack, ids))
    return write_base64(_digest(packed, query, collection, tenant) + packed)


def write_base64(content: bytes) -> str:
    """Write bytes in characters that need no quoting in a URL or a shell."""
    return base64.urlsafe_b64encode(content).decode()


def _digest(ids: bytes, query: SearchQuery, collection: str, tenant: str) -> bytes:
    ranking = query.model_dump_json(exclude=_FREE)
    mode = query.mode or Mode.DENSE
    parts = (mode.encode(), ranking.encode(), collection.encode(), tenant.encode(), ids)
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()[:_DIGEST]


def _pack(point_id: PointId) -> bytes:
    return _NUMBER + point_id.to_bytes(8) if isinstance(point_id, int) else _UUID + UUID(point_id).bytes


def _unpack(packed: bytes) -> Iterator[PointId]:
    at = 0
    while at < len(packed):
        size = 8 if packed[at : at + 1] == _NUMBER else 16
        content = packed[at + 1 : at + 1 + size]
        if len(content) != size:
            raise ValueError("an id is cut off")
        yield int.from_bytes(content) if size == 8 else str(UUID(bytes=content))
        at += 1 + size
