"""Neighbours: the chunks before and after a result in its document."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from chunkproof.base.errors import CorruptChunkError, IndexRequiredError
from chunkproof.collection.payload_map import PayloadMap, lies_in_json_string
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import All, AnyOf, Between, Condition, Either, is_payload_path
from chunkproof.contract.query_options import Neighbour, Neighbours
from chunkproof.stores.store_port import Point, PointId

# Documents whose positions are not consecutive are read whole, up to this many chunks in all.
MAX_READ = 500
# Reading stops after this many pages that were cut because their chunks are large.
MAX_LARGE_PAGES = 2

Position = int | float


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """Where a chunk is: its document, by the payload field that names it, and its position there."""

    document_path: str
    document: str | int
    position_path: str
    position: Position

    @property
    def key(self) -> tuple[str, str | int, str]:
        """The document."""
        return self.document_path, self.document, self.position_path


@dataclass(frozen=True, slots=True)
class FoundNeighbours:
    """The neighbours of each point that has any, and what could not be found."""

    by_point: Mapping[PointId, Neighbours]
    notes: tuple[str, ...] = ()


def find_neighbours(points: Sequence[Point], count: int, collection: Collection) -> FoundNeighbours:
    """Find up to `count` chunks before and after each point, with one request for all of them.

    A second request reads the documents of points that have fewer neighbours than that: positions may be page
    numbers or offsets, so that the next chunk is not at the next number. Filters of the search do not apply.
    """
    reader = _Documents(collection)
    places = {point.id: place for point in points if (place := find_place(point.payload, reader.payloads))}
    if not places:
        return FoundNeighbours({}, _why_none(points, collection.name))
    try:
        distinct = {*places.values()}
        is_whole = reader.read(_around(distinct, count), limit=2 * (2 * count + 1) * len(distinct))
        open_ended = [place for place in places.values() if not reader.is_certain(place, count)]
        documents = dict.fromkeys(AnyOf(place.document_path, (place.document,)) for place in open_ended)
        if documents:
            is_whole &= reader.read(Either(tuple(documents)), limit=MAX_READ)
    except IndexRequiredError as error:
        return FoundNeighbours({}, (f"neighbours cannot be found. {error.message}",))
    found = {point: reader.neighbours(place, count) for point, place in places.items() if reader.has(point, place)}
    notes = []
    if not is_whole:
        why = "large chunks" if reader.large_pages >= MAX_LARGE_PAGES else f"more than {MAX_READ} chunks"
        notes.append(f"neighbours may be incomplete: the documents have {why}")
    if lost := len(points) - len(found):
        notes.append(f"{lost} of {len(points)} results have no document and position that neighbours can be found by")
    return FoundNeighbours(found, tuple(notes))


def find_place(payload: Mapping[str, object], payloads: PayloadMap) -> DocumentPlace | None:
    """Return where a chunk is, as far as the store can look it up; None when its payload does not say."""
    position_path = payloads.path_in("position", payload)
    position = payloads.value("position", payload)
    if position_path is None or not _is_number(position) or not _can_filter(position_path, payload):
        return None
    for field in ("document_id", "url"):
        path = payloads.path_in(field, payload)
        if path is None and field == "document_id":
            path = payloads.shared_path(payload)
        if path is None or not _can_filter(path, payload):
            continue
        value = payloads.stated(path, payload)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return DocumentPlace(path, value, position_path, position)
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and abs(value) < 2**53


def _can_filter(path: str, payload: Mapping[str, object]) -> bool:
    return is_payload_path(path) and not lies_in_json_string(path, payload)


def _why_none(points: Sequence[Point], collection: str) -> tuple[str, ...]:
    if not points:
        return ()
    return (
        f"neighbours cannot be found: payloads of {collection} name no document with a number as the position; "
        "set CHUNKPROOF_PAYLOAD_MAP if they do so under other names",
    )


def _around(places: Iterable[DocumentPlace], count: int) -> Condition:
    """Return the condition for what is near these places: ranges of each document, joined where they overlap.

    A store without an index compares every point with every condition.
    """
    documents: dict[tuple[str, str | int, str], list[tuple[Position, Position]]] = {}
    for place in sorted(places, key=lambda place: place.position):
        ranges = documents.setdefault(place.key, [])
        first, last = place.position - count, place.position + count
        if ranges and first <= ranges[-1][1]:
            first = ranges.pop()[0]
        ranges.append((first, last))
    near = (
        All((AnyOf(path, (document,)), Either(tuple(Between(at, gte=first, lte=last) for first, last in ranges))))
        for (path, document, at), ranges in documents.items()
    )
    return Either(tuple(near))


class _Documents:
    """Chunks of documents, in the order of their positions."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.payloads = collection.payloads
        self._documents: dict[tuple[str, str | int, str], dict[PointId, tuple[Position, Point]]] = {}
        self.large_pages = 0

    def read(self, where: Condition, *, limit: int) -> bool:
        """Read at most `limit` points; return whether these were all."""
        start: PointId | None = None
        while limit > 0 and self.large_pages < MAX_LARGE_PAGES:
            page = self._collection.page(limit, where=(where,), start=start)
            for point in page.points:
                place = find_place(point.payload, self.payloads)
                if place is not None:
                    self._documents.setdefault(place.key, {})[point.id] = (place.position, point)
            if page.next_id is None:
                return True
            self.large_pages += len(page.points) < limit
            start, limit = page.next_id, limit - len(page.points)
        return False

    def has(self, point: PointId, place: DocumentPlace) -> bool:
        """Whether the store found the chunk itself; otherwise it cannot look up this document."""
        return point in self._documents.get(place.key, {})

    def is_certain(self, place: DocumentPlace, count: int) -> bool:
        """Whether no other chunks of the document can be nearer: all are there, or the document begins here."""
        positions = {position for position, _ in self._documents.get(place.key, {}).values()}
        expected = [place.position + step for step in range(-count, count + 1) if place.position + step >= 0]
        return all(position in positions for position in expected)

    def neighbours(self, place: DocumentPlace, count: int) -> Neighbours:
        """Return the nearest chunks before and after this place."""
        ordered = sorted(self._documents.get(place.key, {}).values(), key=lambda item: (item[0], str(item[1].id)))
        before = [item for item in ordered if item[0] < place.position]
        after = [item for item in ordered if item[0] > place.position]
        return Neighbours(before=tuple(self._write(before[-count:])), after=tuple(self._write(after[:count])))

    def _write(self, items: Iterable[tuple[Position, Point]]) -> Iterator[Neighbour]:
        for position, point in items:
            try:
                text = self.payloads.text_of(point)
            except CorruptChunkError:
                continue
            yield Neighbour(chunk_id=self.payloads.id_of(point), point_id=point.id, position=position, text=text)
