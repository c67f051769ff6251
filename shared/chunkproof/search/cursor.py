"""Cursors: which results the pages before had, so that the next page has others.

A cursor carries the ids of all results so far, because a place in the ranking moves when points are written or
deleted between two pages. It is bound to its query and its deployment: an HMAC covers the ids and everything that
decides the ranking. Its key is made of the keys of the deployment's services and its addresses, so that all containers
have the same one; after a key was rotated, pages begin anew.
"""

import base64
import binascii
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import HasId, Not
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import Mode
from chunkproof.net.secrets import Keys
from chunkproof.stores.store_port import Point, PointId

if TYPE_CHECKING:
    from chunkproof.search.single import Plan

START = "start"
# A cursor of so many results has 23,000 characters.
MAX_PAGED = 1_000

_NUMBER, _UUID = b"\x00", b"\x01"
_DIGEST = 16
# What may differ between two pages of one query; `rerank` can only be false where there are pages.
_RETURNED = {"include_metadata", "with_payload", "with_vectors", "highlight", "neighbours", "explain"}
_FREE = {"top_k", "cursor", "collection", "query_id", "created_at", "mode", "rerank", *_RETURNED}


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a query: the results of those before this one."""

    query: SearchQuery
    collection: Collection
    seen: tuple[PointId, ...] = ()

    @property
    def _room(self) -> int:
        return min(self.query.top_k, MAX_PAGED - len(self.seen))

    def restrict(self, plan: "Plan") -> None:
        """Request the results of this page, and one more, to know whether another page follows."""
        is_hybrid = plan.mode is Mode.HYBRID  # two legs would be ranked anew without the results of earlier pages
        plan.limit = (len(self.seen) if is_hybrid else 0) + self._room + 1
        if self.seen and not is_hybrid:
            plan.where = (*plan.where, Not((HasId(self.seen),)))

    def select(self, points: Sequence[Point]) -> list[Point]:
        """Return the points of this page."""
        seen = set(self.seen)
        return [point for point in points if point.id not in seen][: self._room]

    def next_cursor(self, points: Sequence[Point]) -> str | None:
        """Return the cursor of the page after this one, if there is one."""
        shown = self._shown(points)
        if not self._has_more(points) or len(shown) >= MAX_PAGED:
            return None
        packed = b"".join(map(_pack, shown))
        return write_base64(_digest(packed, self.query, self.collection) + packed)

    def notes(self, points: Sequence[Point]) -> list[str]:
        """Say so if the pages end before the results do."""
        if not self._has_more(points) or len(self._shown(points)) < MAX_PAGED:
            return []
        return [f"Pages end after {MAX_PAGED:,} results: narrow the query, or filter"]

    def _shown(self, points: Sequence[Point]) -> tuple[PointId, ...]:
        return (*self.seen, *(point.id for point in self.select(points)))

    def _has_more(self, points: Sequence[Point]) -> bool:
        return not {*self._shown(points)} >= {point.id for point in points}


def read_cursor(query: SearchQuery, collection: Collection) -> Pages:
    """Return the pages so far; `InvalidParameterError` for a cursor of another query, or none at all."""
    if query.cursor == START:
        return Pages(query, collection)
    wrong = InvalidParameterError(
        'cursor does not belong to this query: repeat the query with the next_cursor of its response, or "start"'
    )
    try:
        content = base64.urlsafe_b64decode(str(query.cursor).encode("ascii"))
    except (binascii.Error, ValueError):
        raise wrong from None
    digest, ids = content[:_DIGEST], content[_DIGEST:]
    if not hmac.compare_digest(digest, _digest(ids, query, collection)) or write_base64(content) != query.cursor:
        raise wrong
    try:
        return Pages(query, collection, tuple(_unpack(ids)))
    except ValueError:
        raise wrong from None


def write_base64(content: bytes) -> str:
    """Write bytes in characters that need no quoting in a URL or a shell."""
    return base64.urlsafe_b64encode(content).decode()


def _digest(ids: bytes, query: SearchQuery, collection: Collection) -> bytes:
    ranking = query.model_dump_json(exclude=_FREE)
    mode = query.mode or Mode.DENSE
    parts = (mode.encode(), ranking.encode(), collection.name.encode(), collection.tenant.encode(), ids)
    message = b"".join(sha256(part).digest() for part in parts)
    with collection.deadline.enforced():
        key = Keys(collection.settings).derive("cursor")
    return hmac.digest(key, message, "sha256")[:_DIGEST]


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
