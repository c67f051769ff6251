"""Find the points of chunk ids."""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Self
from uuid import UUID

from chunkproof.clients.ports import Point, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError
from chunkproof.models.filters import AnyOf, Either
from chunkproof.retrieval.pages import read_page
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.services import Services

# The namespace of point ids derived from chunk ids that are no valid point ids; must never change.
NAMESPACE = UUID("6f0d3ad0-8d0c-5c52-9f4c-0f2f6a4f7c11")
# Two points with one id show that it is ambiguous; more would show nothing else.
MAX_POINTS_PER_ID = 2
_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


def find_point(chunk_id: str, collection: str, *, services: Services, deadline: Deadline) -> Point:
    """Find the point with this point id or payload id; raise `AmbiguousIdError` for two different points."""
    found: dict[PointId, Point] = {}
    point_id = parse_point_id(chunk_id)
    if point_id is not None:
        found = {point.id: point for point in services.store.fetch(collection, [point_id], deadline)}
    finder = Finder(services, collection, deadline)
    try:
        others = finder.find_by_payload([chunk_id] if found else [], [chunk_id])
        found |= {point.id: point for point in others}
    except IndexRequiredError:
        if not found:
            raise
    return _check_unique(chunk_id, list(found.values()))


def _check_unique(chunk_id: str, found: Sequence[Point]) -> Point:
    if not found:
        raise ChunkNotFoundError(chunk_id)
    if len(found) > 1:
        points = ", ".join(str(point.id) for point in found[:3])
        raise AmbiguousIdError(f"Chunk id {chunk_id} means more than one point: {points}")
    return found[0]


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


def find_points(chunk_ids: Iterable[str], collection: str, *, services: Services, deadline: Deadline) -> Lookup:
    """Find the points of many chunk ids at once."""
    return Finder(services, collection, deadline).find(dict.fromkeys(chunk_ids))


def has_id(point: Point, chunk_id: str, payloads: PayloadMap) -> bool:
    """Whether the chunk id is the id of the point, or the id in its payload."""
    return payloads.id_of(point) == chunk_id or point.id == parse_point_id(chunk_id)


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds points by chunk ids.

    With `as_stored`, ids count as they are in the payloads; otherwise one that several points share is looked for
    only if no point has it as its own.
    """

    services: Services
    collection: str
    deadline: Deadline
    with_vector: str | None = None
    as_stored: bool = False

    @property
    def payloads(self) -> PayloadMap:
        """What the ids are read with."""
        services = self.services
        return services.payloads if self.as_stored else services.payloads_of(self.collection, self.deadline)

    def find(self, point_ids: Mapping[str, PointId | None], fields: Sequence[str] | None = None) -> Lookup:
        """Find the points of many chunk ids; the mapping may give the point to look at first for each.

        That point counts only if it has the chunk id, as for `find_point`. `fields` are the payload fields to search,
        by default all that may hold an id.
        """
        candidates: dict[PointId, set[str]] = {}
        for chunk_id, expected in point_ids.items():
            for point_id in (expected, parse_point_id(chunk_id)):
                if point_id is not None:
                    candidates.setdefault(point_id, set()).add(chunk_id)
        found: dict[str, dict[PointId, Point]] = {}
        fetched = self._fetch(list(candidates)) if candidates else []
        payloads = self.payloads
        for point in fetched:
            for chunk_id in candidates[point.id]:
                if has_id(point, chunk_id, payloads):
                    found.setdefault(chunk_id, {})[point.id] = point
        blocked_by = None
        others: list[Point] = []
        try:
            if fields is None:
                others = self.find_by_payload(found, point_ids)
            elif fields:
                others = self._scroll(fields, point_ids, payloads)
        except IndexRequiredError as error:
            blocked_by = error
        for point in others:
            own_id = payloads.id_of(point)
            # An id that several points share is not theirs, but it can be looked up: it is ambiguous.
            wanted = own_id if own_id in point_ids else self.services.payloads.id_of(point)
            found.setdefault(wanted, {})[point.id] = point
        return Lookup({i: list(points.values())[:MAX_POINTS_PER_ID] for i, points in found.items()}, blocked_by)

    def _fetch(self, ids: Sequence[PointId]) -> list[Point]:
        return self.services.store.fetch(self.collection, ids, self.deadline, with_vector=self.with_vector)

    def find_by_payload(self, known: Collection[str], chunk_ids: Collection[str]) -> list[Point]:
        """Find points with one of these ids in their payload; `known` are the ids that were found as point ids.

        Qdrant searches a field without an index point by point. So only fields that hold ids in the collection's
        sample are searched; other fields, and ids that several points share, only for ids that are found nowhere else.
        """
        own, every = self.payloads, self.services.payloads
        in_use = own.id_paths_in(self.services.sample(self.collection, self.deadline).payloads)
        others = every.id_paths if own.has_repeated_ids else [path for path in every.id_paths if path not in in_use]
        try:
            found = self._scroll(in_use, chunk_ids, own)
            missed = set(chunk_ids) - set(known) - {own.id_of(point) for point in found}
            return found + self._scroll(others, missed, every)
        except IndexRequiredError:
            # Strict mode: only indexed fields can be searched, and an id in another field cannot be found.
            indexed = self.services.store.describe(self.collection, self.deadline).indexed_fields
            found = self._scroll([field for field in own.id_paths if field in indexed], chunk_ids, own)
            missed = set(chunk_ids) - {own.id_of(point) for point in found}
            if missed and any(field not in indexed for field in in_use):
                raise
            others = [field for field in every.id_paths if field in indexed]
            return found + self._scroll(others, missed - set(known), every)

    def _scroll(self, fields: Sequence[str], chunk_ids: Collection[str], payloads: PayloadMap) -> list[Point]:
        """Return at most two points with each id in one of these payload fields."""
        found: dict[str, list[Point]] = {chunk_id: [] for chunk_id in chunk_ids} if fields else {}
        start: PointId | None = None
        fitting = sys.maxsize
        while wanted := tuple(chunk_id for chunk_id, points in found.items() if len(points) < MAX_POINTS_PER_ID):
            page = read_page(
                self.services.store,
                self.collection,
                self.deadline,
                limit=min(fitting, max(10, MAX_POINTS_PER_ID * len(wanted))),
                where=(Either(tuple(AnyOf(field, wanted) for field in fields)),),
                start=start,
                with_vector=self.with_vector,
            )
            for point in page.points:
                # `chunk_id` outranks `id`: a point has only the id that a search returns for it.
                points = found.get(payloads.id_of(point))
                if points is not None and len(points) < MAX_POINTS_PER_ID:
                    points.append(point)
            if page.next_id is None:
                break
            start, fitting = page.next_id, len(page.points)
        return [point for points in found.values() for point in points]
