"""Find the points of chunk ids, and which ids in payloads are chunk ids.

Pipelines keep the id of a document under the same names.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING, Self
from uuid import UUID

from chunkproof.base.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError, ResponseTooLargeError
from chunkproof.collection.payload_map import PayloadMap, id_at
from chunkproof.contract.conditions import AnyOf, Condition, Either, HasId, Scalar
from chunkproof.contract.response import SourceMetadata
from chunkproof.stores.store_port import Point, PointId

if TYPE_CHECKING:
    from chunkproof.collection.services import Collection

# Values that the store counts for each field, the most frequent ones.
MAX_VALUES = 1_000
# A field in which more than half of the points share their value with others holds no chunk ids.
MOST = 0.5
# The same where only some values are known, so that not every shared one can be left out by itself.
SOME = 0.1
# Up to this many points, counting without an index takes only milliseconds.
SMALL_COLLECTION = 5_000


@dataclass(frozen=True, slots=True)
class IdCounts:
    """How many points have each value of a field; `is_complete` when these are all values that several points have."""

    counts: Mapping[str, int]
    is_complete: bool

    @property
    def repeated(self) -> set[str]:
        """The values that several points have."""
        return {value for value, count in self.counts.items() if count > 1}

    @property
    def is_shared(self) -> bool:
        """Whether the field holds the ids of something that has several points."""
        points = sum(self.counts[value] for value in self.repeated)
        return points > (MOST if self.is_complete else SOME) * sum(self.counts.values())


def read_ids(payload_map: PayloadMap, collection: "Collection") -> PayloadMap:
    """Return the map for a collection in which every id means one point."""
    sample = collection.sample
    shared: list[str] = []
    repeated: set[str] = set()
    left = list(sample.payloads)
    for path in payload_map.id_paths:
        sampled = Counter(value for payload in left if (value := id_at(path, payload)) is not None)
        if not sampled:
            continue
        found = IdCounts(sampled, is_complete=sample.is_complete)
        if not sample.is_complete and not found.is_shared:
            found = _count_ids(path, sampled, collection)
        if found.is_shared:
            shared.append(path)
        else:
            repeated |= found.repeated
            left = [payload for payload in left if id_at(path, payload) is None]
    return payload_map.without_shared_ids(shared, repeated) if shared or repeated else payload_map


def _count_ids(path: str, sampled: Mapping[str, int], collection: "Collection") -> IdCounts:
    """Count the points that have each value; without an index, only those with a sampled value."""
    counts = collection.ask(
        lambda deadline: collection.store.facet(collection.name, path, (), deadline, limit=MAX_VALUES)
    )
    if counts is not None:
        # Beyond the limit there may be more values that are repeated, if the last one is.
        found = IdCounts(counts, is_complete=len(counts) < MAX_VALUES or min(counts.values()) == 1)
        return found if found.is_shared or not found.repeated else _recount(found, path, collection)
    points = sum(sampled.values())
    with suppress(IndexRequiredError):
        if collection.describe().points_count <= SMALL_COLLECTION:
            points = collection.count((AnyOf(path, tuple(sampled)),))
    # It is not known which of them the other points have: count those points under one value.
    unseen = points - sum(sampled.values())
    return IdCounts({**sampled, "": unseen + 1} if unseen > 0 else sampled, is_complete=False)


def _recount(found: IdCounts, path: str, collection: "Collection") -> IdCounts:
    """Count the repeated values exactly: a server that reorganizes its points may have counted some twice."""
    if collection.count((AnyOf(path, tuple(found.repeated)),)) > len(found.repeated):
        return found
    return IdCounts(dict.fromkeys(found.counts, 1), is_complete=found.is_complete)


# The namespace of point ids derived from chunk ids that are no valid point ids; must never change.
NAMESPACE = UUID("6f0d3ad0-8d0c-5c52-9f4c-0f2f6a4f7c11")
# Pages that are cut because their points are large.
MAX_LARGE_PAGES = 4
# Two points with one id show that it is ambiguous; more would show nothing else.
MAX_POINTS_PER_ID = 2
# The ids by which a chunk may be named: its own, its document's, or its URL. The most specific first.
DOCUMENT_FIELDS = ("document_id", "url")
ID_FIELDS = ("chunk_id", *DOCUMENT_FIELDS)
# Longer ones do not fit into the 64-bit integers of a payload.
MAX_DIGITS = 18
_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


def _check_unique(chunk_id: str, found: Sequence[Point]) -> Point:
    if not found:
        raise ChunkNotFoundError(chunk_id)
    if len(found) > 1:
        points = ", ".join(str(point.id) for point in found[:3])
        raise AmbiguousIdError(f"Chunk id {chunk_id} means more than one point: {points}")
    return found[0]


def ids_of(metadata: SourceMetadata) -> tuple[str, ...]:
    """Return every id of a chunk, the most specific first."""
    values = (getattr(metadata, field, None) for field in ID_FIELDS)
    return tuple(dict.fromkeys(str(value) for value in values if value is not None))


def stored_forms(key: str) -> Iterator[Scalar]:
    """Yield the id as text and, if it can be one, as the number that a payload may hold instead."""
    yield key
    if key.isdecimal() and len(key) <= MAX_DIGITS:
        yield int(key)


def parse_point_id(chunk_id: str) -> PointId | None:
    """Parse an id that Qdrant accepts, an unsigned integer or a UUID; None when it is neither."""
    if _CANONICAL.fullmatch(chunk_id):
        return chunk_id
    if _INTEGER.fullmatch(chunk_id):
        return int(chunk_id) if int(chunk_id) < 2**64 else None
    return str(UUID(chunk_id)) if _UUID.fullmatch(chunk_id) else None


def point_id_for(chunk_id: str) -> PointId:
    """Return the point that `load` writes a chunk to: its own id where Qdrant accepts it, else a uuid5 of it."""
    own = parse_point_id(chunk_id)
    return _uuid5(chunk_id) if own is None else own


def _uuid5(name: str) -> str:
    """Compute `str(uuid.uuid5(NAMESPACE, name))` in a fifth of its time; an audit does this for every chunk."""
    octets = bytearray(sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    octets[6] = octets[6] & 0x0F | 0x50
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The points found for each id, two at most.

    `blocked_by` is set where strict mode prevented the search in payloads: an id without a point may be stored all
    the same, and an id with one point may have another.
    """

    points: dict[str, list[Point]]
    blocked_by: IndexRequiredError | None = None

    @classmethod
    def merge(cls, parts: Iterable["Lookup"]) -> Self:
        """Join the results for different ids."""
        points: dict[str, list[Point]] = {}
        blocked_by = None
        for part in parts:
            points |= part.points
            blocked_by = blocked_by or part.blocked_by
        return cls(points, blocked_by)

    def one(self, chunk_id: str) -> Point:
        """Return the only point with this id, or raise what `find_point` would raise."""
        found = self.points.get(chunk_id, [])
        if self.blocked_by and not found:
            raise self.blocked_by
        return _check_unique(chunk_id, found)


def has_id(point: Point, chunk_id: str, payloads: PayloadMap) -> bool:
    """Whether the chunk id is the id of the point, or the id in its payload."""
    return payloads.id_of(point) == chunk_id or point.id == parse_point_id(chunk_id)


def find_points(
    chunk_ids: Iterable[str],
    collection: "Collection",
    *,
    expected: Mapping[str, PointId | None] | None = None,
    fields: Sequence[str] | None = None,
    with_vector: str | None = None,
    as_stored: bool = False,
) -> Lookup:
    """Find the points of many chunk ids at once.

    `expected` may give the point to look at first for each; it counts only if it has the chunk id.
    `fields` are the payload fields to search, by default all that may hold an id. With `as_stored`, ids count as they
    are in the payloads; otherwise one that several points share is looked for only if no point has it as its own.
    """
    wanted, named = dict.fromkeys(chunk_ids), _Named()
    for chunk_id in wanted:
        for point_id in ((expected or {}).get(chunk_id), parse_point_id(chunk_id)):
            if point_id is not None:
                named.setdefault(point_id, set()).add(chunk_id)
    payloads = collection.services.payloads if as_stored else collection.payloads
    blocked_by = None
    try:
        if fields is None:
            found = _find_by_payload(named, wanted, payloads, collection, with_vector)
        else:
            found = _scroll(fields, wanted, payloads, collection, with_vector=with_vector, named=named)
    except IndexRequiredError as error:
        blocked_by, found = error, _scroll((), (), payloads, collection, with_vector=with_vector, named=named)
    points: dict[str, dict[PointId, Point]] = {}
    for point in found:
        for chunk_id in named.of(point, payloads):
            points.setdefault(chunk_id, {})[point.id] = point
    for point in found if fields is None or fields else ():
        own_id = payloads.id_of(point)
        # An id that several points share is not theirs, but it can be looked up: it is ambiguous.
        shared_id = own_id if own_id in wanted else collection.services.payloads.id_of(point)
        if shared_id in wanted:
            points.setdefault(shared_id, {})[point.id] = point
    return Lookup({i: list(them.values())[:MAX_POINTS_PER_ID] for i, them in points.items()}, blocked_by)


class _Named(dict[PointId, set[str]]):
    """Points to look at by their ids, each with the chunk ids that it may have."""

    def of(self, point: Point, payloads: PayloadMap) -> list[str]:
        return [chunk_id for chunk_id in self.get(point.id, ()) if has_id(point, chunk_id, payloads)]


def _find_by_payload(
    named: _Named, chunk_ids: Iterable[str], own: PayloadMap, collection: "Collection", with_vector: str | None = None
) -> list[Point]:
    """Find points with one of these ids, as the id of the point or in its payload.

    Qdrant searches a field without an index point by point. So only fields that hold ids in the collection's
    sample are searched; other fields, and ids that several points share, only for ids that are found nowhere else.
    """
    every = collection.services.payloads
    in_use = own.id_paths_in(collection.sample.payloads)
    others = every.id_paths if own.repeated_ids else [path for path in every.id_paths if path not in in_use]

    def search(first: Sequence[str], then: Sequence[str]) -> tuple[list[Point], set[str]]:
        points = _scroll(first, chunk_ids, own, collection, with_vector=with_vector, named=named)
        missed = {*chunk_ids} - {own.id_of(point) for point in points}
        missed -= {chunk_id for point in points for chunk_id in named.of(point, own)}
        return points + _scroll(then, missed, every, collection, with_vector=with_vector), missed

    try:
        return search(in_use, others)[0]
    except IndexRequiredError:
        # Strict mode: only indexed fields can be searched, and an id in another field cannot be found.
        indexed = collection.describe().indexed_fields
        points, missed = search(*([path for path in each.id_paths if path in indexed] for each in (own, every)))
        if missed and any(path not in indexed for path in in_use):
            raise
        return points


def _scroll(
    fields: Sequence[str],
    chunk_ids: Iterable[str],
    payloads: PayloadMap,
    collection: "Collection",
    *,
    with_vector: str | None,
    named: Iterable[PointId] = (),
) -> list[Point]:
    """Return at most two points with each id in one of these payload fields, and the points that are named."""
    counts, unseen = dict.fromkeys(chunk_ids if fields else (), 0), dict.fromkeys(named)
    if not counts:
        return collection.fetch(list(unseen), with_vector=with_vector) if unseen else []
    found: dict[PointId, Point] = {}
    start: PointId | None = None
    fitting, large_pages = sys.maxsize, 0
    while (wanted := tuple(key for key, count in counts.items() if count < MAX_POINTS_PER_ID)) or unseen:
        either: list[Condition] = [AnyOf(field, wanted) for field in fields if wanted]
        limit = max(10, MAX_POINTS_PER_ID * len(wanted) + len(unseen))
        page = collection.page(
            min(fitting, limit),
            where=(Either((*either, HasId(tuple(unseen))) if unseen else tuple(either)),),
            start=start,
            with_vector=with_vector,
        )
        for point in page.points:
            own_id = payloads.id_of(point)  # `chunk_id` outranks `id`: the only one that a search returns for it
            if point.id in unseen or counts.get(own_id, MAX_POINTS_PER_ID) < MAX_POINTS_PER_ID:
                found[point.id] = point
            unseen.pop(point.id, None)
            counts[own_id] = counts.get(own_id, MAX_POINTS_PER_ID) + 1
        if page.next_id is None:
            break
        start, fitting, large_pages = page.next_id, len(page.points), large_pages + (len(page.points) < limit)
        if large_pages > MAX_LARGE_PAGES:
            raise ResponseTooLargeError("The chunks are too large to be looked up together: send fewer at a time")
    return [*found.values()]
