"""Finding the points that ids mean."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha1
from uuid import UUID

from chunkproof.clients.ports import Point, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError
from chunkproof.models.filters import AnyOf, Either
from chunkproof.retrieval.services import Services

# Names the space of point ids made from chunk ids that Qdrant does not take; never to change.
NAMESPACE = UUID("6f0d3ad0-8d0c-5c52-9f4c-0f2f6a4f7c11")
ENOUGH = 2  # points with the same id: more would say no more
_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


def find_point(chunk_id: str, collection: str, *, services: Services, deadline: Deadline) -> Point:
    """The point with this point id or this payload id; two different ones are `AmbiguousIdError`."""
    found: dict[PointId, Point] = {}
    point_id = as_point_id(chunk_id)
    if point_id is not None:
        found = {point.id: point for point in services.store.fetch(collection, [point_id], deadline)}
    try:
        others = _by_payload([chunk_id] if found else [], [chunk_id], collection, services, deadline)
        found |= {point.id: point for point in others}
    except IndexRequiredError:
        if not found:
            raise
    return _only(chunk_id, list(found.values()))


def _only(chunk_id: str, found: Sequence[Point]) -> Point:
    if not found:
        raise ChunkNotFoundError(chunk_id)
    if len(found) > 1:
        points = ", ".join(str(point.id) for point in found[:3])
        raise AmbiguousIdError(f"Chunk id {chunk_id} means more than one point: {points}")
    return found[0]


def as_point_id(chunk_id: str) -> PointId | None:
    """The id as Qdrant takes it: an unsigned integer or a UUID; None when it is neither."""
    if _CANONICAL.fullmatch(chunk_id):
        return chunk_id
    if _INTEGER.fullmatch(chunk_id):
        return int(chunk_id) if int(chunk_id) < 2**64 else None
    return str(UUID(chunk_id)) if _UUID.fullmatch(chunk_id) else None


def point_id_for(chunk_id: str) -> PointId:
    """The point that `load` writes a chunk to: its own id where Qdrant takes it, else a uuid5 of it."""
    own = as_point_id(chunk_id)
    return _uuid5(chunk_id) if own is None else own


def _uuid5(name: str) -> str:
    """`str(uuid.uuid5(NAMESPACE, name))` in a fifth of its time, which an audit spends on every chunk."""
    made = bytearray(sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    made[6] = made[6] & 0x0F | 0x50
    made[8] = made[8] & 0x3F | 0x80
    text = made.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The points of each id that has any, two at most.

    `unsearched` is set where strict mode kept the payloads' own ids from being looked up: an id without a
    point may be there all the same, and one with a point may have another.
    """

    points: dict[str, list[Point]]
    unsearched: IndexRequiredError | None = None

    def only(self, chunk_id: str) -> Point:
        """The one point with this id, or the error that `find_point` would raise."""
        found = self.points.get(chunk_id, [])
        if self.unsearched and not found:
            raise self.unsearched
        return _only(chunk_id, found)


def find_points(
    homes: dict[str, PointId | None],
    collection: str,
    *,
    services: Services,
    deadline: Deadline,
    with_vector: str | None = None,
    fields: Sequence[str] | None = None,
) -> Lookup:
    """What each chunk id means, found for all of them at once; an id may come with the point to look at first.

    That point answers only if the id is its own or its payload's, as for `find_point`. `fields` are the payload
    fields to look in, if not all that may hold an id.
    """
    asked: dict[PointId, set[str]] = {}
    for chunk_id, home in homes.items():
        for point_id in {home, as_point_id(chunk_id)} - {None}:
            asked.setdefault(point_id, set()).add(chunk_id)  # type: ignore[arg-type]
    found: dict[str, dict[PointId, Point]] = {}
    if asked:
        for point in services.store.fetch(collection, list(asked), deadline, with_vector=with_vector):
            for chunk_id in asked[point.id]:
                if answers_to(chunk_id, point, services):
                    found.setdefault(chunk_id, {})[point.id] = point
    unsearched = None
    others: list[Point] = []
    try:
        if fields is None:
            others = _by_payload(found, homes, collection, services, deadline, with_vector=with_vector)
        elif fields:
            others = _with_any(fields, homes, collection, services, deadline, with_vector=with_vector)
    except IndexRequiredError as error:
        unsearched = error
    for point in others:
        found.setdefault(services.payloads.id_of(point), {})[point.id] = point
    return Lookup({i: list(points.values())[:ENOUGH] for i, points in found.items()}, unsearched)


def answers_to(chunk_id: str, point: Point, services: Services) -> bool:
    """Whether the id is the point's own, or the one in its payload."""
    return services.payloads.id_of(point) == chunk_id or point.id == as_point_id(chunk_id)


def _by_payload(
    known: Collection[str],
    chunk_ids: Collection[str],
    collection: str,
    services: Services,
    deadline: Deadline,
    *,
    with_vector: str | None = None,
) -> list[Point]:
    """The points that keep one of these ids in their payload; `known` are those that some point has for its own.

    A field without an index is searched point by point. So only those are that the collection's sample keeps ids
    in; the others only for ids that are found nowhere else.
    """

    def with_any(fields: Sequence[str], wanted: Collection[str]) -> list[Point]:
        if not fields or not wanted:
            return []
        return _with_any(fields, wanted, collection, services, deadline, with_vector=with_vector)

    in_use = services.payloads.id_paths_in(services.sample(collection, deadline).payloads)
    unused = [field for field in services.payloads.id_paths if field not in in_use]
    try:
        found = with_any(in_use, chunk_ids)
        missed = set(chunk_ids) - set(known) - {services.payloads.id_of(point) for point in found}
        return found + with_any(unused, missed)
    except IndexRequiredError:
        # Strict mode: only indexed fields can be asked for, and an id kept in another one cannot be found.
        indexed = services.store.describe(collection, deadline).indexed_fields
        found = with_any([field for field in services.payloads.id_paths if field in indexed], chunk_ids)
        missed = set(chunk_ids) - {services.payloads.id_of(point) for point in found}
        if missed and any(field not in indexed for field in in_use):
            raise
        return found


def _with_any(
    fields: Sequence[str],
    chunk_ids: Collection[str],
    collection: str,
    services: Services,
    deadline: Deadline,
    *,
    with_vector: str | None,
) -> list[Point]:
    """At most two of the points that show each id."""
    found: dict[str, list[Point]] = {chunk_id: [] for chunk_id in chunk_ids}
    start: PointId | None = None
    while wanted := tuple(chunk_id for chunk_id, points in found.items() if len(points) < ENOUGH):
        where = (Either(tuple(AnyOf(field, wanted) for field in fields)),)
        limit = max(10, ENOUGH * len(wanted))
        page = services.store.scroll(
            collection, deadline, limit=limit, where=where, start=start, with_vector=with_vector
        )
        for point in page.points:
            # `chunk_id` outranks `id`: a point answers only to the id that a search shows for it.
            points = found.get(services.payloads.id_of(point))
            if points is not None and len(points) < ENOUGH:
                points.append(point)
        if page.next_id is None:
            break
        start = page.next_id
    return [point for points in found.values() for point in points]
