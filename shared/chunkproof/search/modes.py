"""What a plan needs for searches by words (text, hybrid), for groups, for diversity, and for pages.

A cursor carries the ids of all results so far, because a place in the ranking moves when points are written or
deleted between two pages. It is bound to its query and its deployment: an HMAC covers the ids and everything that
decides the ranking. Its key is made of the keys of the deployment's services and its addresses, so that all containers
have the same one; after a key is rotated, pages start over.
"""

import base64
import binascii
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from uuid import UUID

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import HasId, Not
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import DEFAULT_K, MAX_CANDIDATES, FusionInForce, Mode, TextSearch
from chunkproof.net.secrets import Keys
from chunkproof.search.filters import map_field
from chunkproof.search.single import CANDIDATES, Plan
from chunkproof.stores.store_port import Features, Fusion, Grouping, Point, PointId
from chunkproof.stores.tenants import check_own_words

START = "start"
# A cursor with this many results has 23,000 characters.
MAX_PAGED = 1_000

_NUMBER, _UUID = b"\x00", b"\x01"
_DIGEST = 16
# What may differ between two pages of one query; `rerank` can only be false where there are pages.
RETURNED = {"include_metadata", "with_payload", "with_vectors", "highlight", "neighbours", "explain"}
_FREE = {"top_k", "cursor", "collection", "query_id", "created_at", "mode", "rerank", *RETURNED}


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a query: the results of those before this one."""

    query: SearchQuery
    collection: Collection
    seen: tuple[PointId, ...] = ()

    @property
    def _room(self) -> int:
        return min(self.query.top_k, MAX_PAGED - len(self.seen))

    def restrict(self, plan: Plan) -> None:
        """Request the results of this page, and one more, to know whether another page follows."""
        is_hybrid = plan.mode is Mode.HYBRID  # without the results of earlier pages, the fused ranks would change
        plan.limit = (len(self.seen) if is_hybrid else 0) + self._room + 1
        if self.seen and not is_hybrid:
            plan.where = (*plan.where, Not((HasId(self.seen),)))

    def select(self, points: Sequence[Point]) -> list[Point]:
        """Return the points of this page."""
        seen = set(self.seen)
        return [point for point in points if point.id not in seen][: self._room]

    def next_cursor(self, points: Sequence[Point]) -> str | None:
        """Return the cursor of the page after this one, if there is one."""
        shown = self._shown_ids(points)
        if not self._has_more(points) or len(shown) >= MAX_PAGED:
            return None
        packed = b"".join(
            _NUMBER + one.to_bytes(8) if isinstance(one, int) else _UUID + UUID(one).bytes for one in shown
        )
        return write_base64(_digest(packed, self.query, self.collection) + packed)

    def notes(self, points: Sequence[Point]) -> list[str]:
        """Say so if the pages end before the results do."""
        if not self._has_more(points) or len(self._shown_ids(points)) < MAX_PAGED:
            return []
        return [f"Pages end after {MAX_PAGED:,} results: narrow the query, or filter"]

    def _shown_ids(self, points: Sequence[Point]) -> tuple[PointId, ...]:
        return (*self.seen, *(point.id for point in self.select(points)))

    def _has_more(self, points: Sequence[Point]) -> bool:
        return not {*self._shown_ids(points)} >= {point.id for point in points}


def read_cursor(query: SearchQuery, collection: Collection) -> Pages:
    """Return the earlier pages; `InvalidParameterError` for an invalid cursor, or the cursor of another query."""
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
        seen = tuple(_unpack(ids))
    except ValueError:
        raise wrong from None
    if len(seen) >= MAX_PAGED:  # without any key, a cursor can be forged
        raise wrong
    return Pages(query, collection, seen)


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


def _unpack(packed: bytes) -> Iterator[PointId]:
    at = 0
    while at < len(packed):
        size = 8 if packed[at : at + 1] == _NUMBER else 16
        content = packed[at + 1 : at + 1 + size]
        if len(content) != size:
            raise ValueError("an id is cut off")
        yield int.from_bytes(content) if size == 8 else str(UUID(bytes=content))
        at += 1 + size


# Of a search with groups, for each result that the groups can have in all.
CANDIDATES_PER_PLACE = 4
# Of both legs together, as many as pages can have in all.
PAGED_CANDIDATES = MAX_PAGED // 2


def add_modes(plan: Plan) -> None:
    """Add groups, the text leg and the fusion to a plan; `InvalidParameterError` says what the store lacks."""
    query, collection = plan.query, plan.collection
    if query.group_by:
        plan.grouping, plan.notes = _grouping(query, collection)
    if plan.mode is not Mode.DENSE or query.diversity is not None:
        features = collection.ask(collection.store.features)
        if plan.mode is Mode.DENSE and not features.mmr:
            raise InvalidParameterError(f"diversity needs Qdrant 1.15 or later, not {features.store}")
        if plan.mode is not Mode.DENSE:
            _add_text(plan, features)
        plan.candidates = _candidates(plan)
    if plan.text and query.diversity and plan.vector:  # results are compared by their vectors
        plan.with_vector = plan.vector.name


def _add_text(plan: Plan, features: Features) -> None:
    query, collection = plan.query, plan.collection
    if plan.mode is Mode.TEXT and query.diversity is not None and collection.tenant:
        raise InvalidParameterError(
            "diversity cannot be used in mode text with tenants: it weighs scores in which all tenants' words count"
        )
    leg = collection.text_leg
    if collection.tenant:
        check_own_words(leg, features)
    if plan.mode is Mode.HYBRID:
        plan.fusion = _fusion(query, features)
    if plan.fusion.method == "dbsf" and collection.tenant:
        raise InvalidParameterError(
            "fusion.method dbsf cannot be used with tenants: it adds scores in which the words of all tenants count"
        )
    plan.text = replace(leg, text=query.query_text or "")


def _candidates(plan: Plan) -> int:
    query = plan.query
    wanted = query.fusion.candidates if query.fusion else None
    if query.cursor is not None:  # the same on every page, or their rankings would differ
        return wanted or PAGED_CANDIDATES
    usual = CANDIDATES
    if plan.grouping is not None:  # the groups are formed of the candidates
        usual = max(usual, min(MAX_CANDIDATES, CANDIDATES_PER_PLACE * query.top_k * plan.grouping.size))
    return max(wanted or usual, query.top_k)


def describe_text_search(plan: Plan) -> TextSearch | None:
    """Return the sparse vector or text index that the search by words uses."""
    if plan.text is None:
        return None
    if plan.text.sparse_vector is not None:
        return TextSearch(by="sparse_vector", name=plan.text.sparse_vector)
    return TextSearch(by="text_index", name=plan.text.field or "")


def describe_fusion(plan: Plan) -> FusionInForce | None:
    """Return how the legs are fused."""
    if plan.mode is not Mode.HYBRID:
        return None
    names = ("dense", "text")
    return FusionInForce(
        method=plan.fusion.method,
        k=plan.fusion.k,
        weights=dict(zip(names, plan.fusion.weights, strict=True)) if plan.fusion.weights else None,
        candidates=plan.candidates,
    )


def _grouping(query: SearchQuery, collection: Collection) -> tuple[Grouping, tuple[str, ...]]:
    """Return the field to group by as the payloads have it, and a note if some of them lack it."""
    name = query.group_by or ""
    field = map_field(name, "group_by", collection)
    notes: list[str] = []
    if "[" not in field:  # only the store reads paths into lists
        values = [collection.services.payloads.stated(field, payload) for payload in collection.sample.payloads]
        lacking = sum(value is None for value in values)
        ungrouped = sum(value is not None and not _is_groupable(value) for value in values)
        for count, which in ((lacking, "without the field"), (ungrouped, "without a text or an integer in the field")):
            if count:
                points = f"{count} of the {len(values)} points looked at"
                notes.append(f"A search grouped by {name} leaves out points {which} {field}: {points}")
    return Grouping(field, query.group_size or 1), tuple(notes)


def _is_groupable(value: object) -> bool:
    """Whether Qdrant forms groups by a value, or by one in a list."""
    if isinstance(value, list):
        return any(map(_is_groupable, value))
    return isinstance(value, str | int) and not isinstance(value, bool)


def _fusion(query: SearchQuery, features: Features) -> Fusion:
    """Return the fusion to request; a store that takes no k has its own, which is not stated."""
    wanted = query.fusion
    if wanted and wanted.method == "dbsf":
        return Fusion("dbsf")
    if wanted and wanted.k is not None and not features.rrf_k:
        raise InvalidParameterError(f"fusion.k needs Qdrant 1.16 or later, not {features.store}")
    if wanted and wanted.weights and not features.rrf_weights:
        raise InvalidParameterError(
            f"fusion.weights needs Qdrant 1.17 or later: {features.store} ignores them. Leave them out, or use dbsf"
        )
    k = (wanted.k if wanted else None) or DEFAULT_K
    weights = (wanted.weights.dense, wanted.weights.text) if wanted and wanted.weights else None
    return Fusion("rrf", k if features.rrf_k else None, weights)
