"""Finding the one point that an id means."""

import re
from uuid import UUID

from chunkproof.clients import Point, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError
from chunkproof.models.filters import AnyOf, Either
from chunkproof.services import Services

_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


def find_point(chunk_id: str, collection: str, *, using: Services, deadline: Deadline) -> Point:
    """The point with this point id or this payload id; two different ones are `AmbiguousIdError`."""
    found: dict[PointId, Point] = {}
    point_id = as_point_id(chunk_id)
    if point_id is not None:
        found = {point.id: point for point in using.store.fetch(collection, [point_id], deadline)}
    try:
        found |= {point.id: point for point in _by_payload(chunk_id, collection, using, deadline)}
    except IndexRequiredError:
        if not found:
            raise
    if not found:
        raise ChunkNotFoundError(chunk_id)
    if len(found) > 1:
        points = ", ".join(str(point) for point in list(found)[:3])
        raise AmbiguousIdError(f"Chunk id {chunk_id} means more than one point: {points}")
    return next(iter(found.values()))


def as_point_id(chunk_id: str) -> PointId | None:
    """The id as Qdrant takes it: an unsigned integer or a UUID; None when it is neither."""
    if _INTEGER.fullmatch(chunk_id):
        return int(chunk_id) if int(chunk_id) < 2**64 else None
    return str(UUID(chunk_id)) if _UUID.fullmatch(chunk_id) else None


def _by_payload(chunk_id: str, collection: str, using: Services, deadline: Deadline) -> list[Point]:
    fields = using.payloads.id_paths
    try:
        return _with_any(fields, chunk_id, collection, using, deadline)
    except IndexRequiredError:
        # Strict mode: only indexed fields can be asked for, and an id kept in another one cannot be found.
        indexed = using.store.describe(collection, deadline).indexed_fields
        usable = tuple(field for field in fields if field in indexed)
        found = _with_any(usable, chunk_id, collection, using, deadline) if usable else []
        in_use = using.payloads.id_paths_in(using.sample(collection, deadline).payloads)
        if not found and any(field not in indexed for field in in_use):
            raise
        return found


def _with_any(
    fields: tuple[str, ...], chunk_id: str, collection: str, using: Services, deadline: Deadline
) -> list[Point]:
    """At most two of the points that show this id."""
    where = (Either(tuple(AnyOf(field, (chunk_id,)) for field in fields)),)
    found: list[Point] = []
    start: PointId | None = None
    while len(found) < 2:
        page = using.store.scroll(collection, deadline, limit=10, where=where, start=start)
        # `chunk_id` outranks `id`: a point answers only to the id that a search shows for it.
        found += [point for point in page.points if using.payloads.id_of(point) == chunk_id]
        if page.next_id is None:
            break
        start = page.next_id
    return found
