"""Read a collection for hours: ahead of the comparison, and with retries while the server is in trouble."""

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice, pairwise, takewhile
from threading import Event
from typing import Any, TypeVar

from chunkproof.base import errors
from chunkproof.base.request import Deadline
from chunkproof.base.request import start as start_thread
from chunkproof.collection.lookup import Lookup, find_points
from chunkproof.collection.payload_map import ID_PATHS, PayloadMap
from chunkproof.collection.services import PAUSES, Collection, LongRun, Services, next_size
from chunkproof.contract.conditions import Absent, Condition, Either, HasId, HasVector, Not
from chunkproof.embedders.embedder_port import call_in_batches
from chunkproof.stores.store_port import Page, Point, PointId

# Measured on loopback: 250 a page is half as fast, 2,000 no faster.
PAGE_SIZE = 500
BATCH_SIZE = 250
CALL_MS = 30_000
PAGES_AHEAD = 3
# Up to this many points, a look-up without an index takes only milliseconds.
SMALL_COLLECTION = 5_000

# At the end of a scan, points are read again; if this many and half of them differ, they are another collection's.
READ_AGAIN, MOST_READ_AGAIN, MOST_FIELDS, MOST_COUNTED, MIN_SWAPPED = 100, 1_000, 1_000, 32, 10
UUID_CHARS = 36
GROUPS = {"a text": frozenset(PayloadMap().text_paths), "an id": frozenset(ID_PATHS)}
# A server in strict mode refuses some counts.
NOT_COUNTED = errors.VectorStoreRefusedError, errors.IndexRequiredError, errors.VectorStoreTimeoutError
OR_WRITTEN = "if it was written to meanwhile, run this again, else the server"
_PLAIN = frozenset({str, int, float, bool})
_SPECIAL = re.compile(r'[."\[\]\\]')

T = TypeVar("T")


class _Ranges:
    """Reads pages, several at a time: those that begin at boundaries, ahead; a page ends before the next boundary."""

    def __init__(self, read: Callable[[PointId | None, int], Page], boundaries: Sequence[PointId]) -> None:
        self._read, self._boundaries, self._size = read, deque(boundaries), PAGE_SIZE
        self._ahead: deque[tuple[PointId, Future[Page]]] = deque()

    def read(self, start: PointId | None) -> Page:
        """Return the page from this point on."""
        while True:
            ready = None
            while self._ahead and start is not None and _order(self._ahead[0][0]) <= _order(start):
                first, future = self._ahead.popleft()
                ready = future if first == start else None
            while self._boundaries and len(self._ahead) < PAGES_AHEAD:
                first = self._boundaries.popleft()
                if start is None or _order(first) > _order(start):
                    self._ahead.append((first, start_thread(partial(self._read, first, self._size))))
            page = ready.result() if ready else self._read(start, self._size)
            self._size = next_size(self._size, page)
            if not self._ahead or page.next_id is None or _order(page.next_id) <= _order(end := self._ahead[0][0]):
                return page
            if kept := tuple(takewhile(lambda point: _order(point.id) < _order(end), page.points)):
                return Page(kept, end)
            start = end  # no point is before the boundary


def _order(point_id: PointId) -> tuple[bool, PointId]:
    return isinstance(point_id, str), point_id


class Reader(LongRun):
    """Reads one collection, page by page or by ids. Temporary failures are retried, others are raised."""

    def __init__(self, services: Services, name: str, pauses: Sequence[float] | None = None) -> None:
        self._stopped = Event()
        # What to say if points were added, removed or rewritten while they were read, and how many at least.
        self.change_note: str | None = None
        self.added_or_removed = self.rewritten = 0
        pauses = PAUSES if pauses is None else pauses
        super().__init__(services, name, lambda: Deadline(CALL_MS), pauses, self._stopped.wait)

    @cached_property
    def payloads(self) -> PayloadMap:
        """How to read the collection: with point ids where several points share the id in their payloads.

        Findings only show these ids, so that an audit does not stop when they cannot be found out.
        """
        try:
            return super().payloads
        except (errors.UnavailableError, errors.RateLimitedError):
            return self.services.payloads

    def pages(self, with_vector: str | None = None, *, boundaries: Sequence[PointId] = ()) -> Iterator[Page]:
        """Yield the collection; threads read a few pages ahead.

        Where pages may begin at `boundaries`, which are in the order of ids and need not be points, several are read at
        a time. If points change meanwhile, `change_note` says so.
        """

        def note(change: str, added_or_removed: int, rewritten: int) -> None:
            self.change_note, self.added_or_removed, self.rewritten = change, added_or_removed, rewritten

        ranges = _Ranges(lambda first, size: self.page(size, start=first, with_vector=with_vector), boundaries)
        pages = self.check_scan(ranges.read, with_vector=with_vector, on_change=note)
        following = start_thread(lambda: next(pages, None))
        try:
            while page := following.result():
                following = start_thread(lambda: next(pages, None))
                yield page
        finally:
            self._stopped.set()  # ends the pauses between the attempts of a call
            wait([following], timeout=0.5)
            self._stopped.clear()

    def read_points(self, ids: Sequence[PointId], with_vector: str | None = None) -> dict[PointId, Point]:
        """Return the points that exist among these ids."""

        def fetch(some: Sequence[PointId]) -> list[Point]:
            return _Exact(self.services, self.name, self.deadline).fetch(some, with_vector=with_vector)

        def fetch_batch(batch: Sequence[PointId]) -> list[Point]:
            return self.ask(lambda _deadline: list(call_in_batches(fetch, batch, BATCH_SIZE, self.TOO_MUCH)))

        return {point.id: point for batch in in_batches(ids) for point in fetch_batch(batch)}

    def look_up(self, expected: Mapping[str, PointId | None], with_vector: str | None = None) -> Lookup:
        """Find the points of each chunk id; the mapping gives the point to look at first."""

        def find(chunk_ids: Sequence[str], fields: Sequence[str] | None) -> Lookup:
            def find_some(some: Sequence[str]) -> list[Lookup]:
                within = _Exact(self.services, self.name, self.deadline)
                # As stored: an audit reports ids that several points share.
                return [
                    find_points(some, within, expected=expected, fields=fields, with_vector=with_vector, as_stored=True)
                ]

            return Lookup.merge(list(call_in_batches(find_some, chunk_ids, BATCH_SIZE, self.TOO_MUCH)))

        def find_all(_deadline: Deadline) -> Lookup:
            fields = self._fast_fields
            lookup = find(list(expected), fields)
            left = [chunk_id for chunk_id in expected if chunk_id not in lookup.points]
            if fields is None or not left:
                return lookup
            rest = find(left, None)
            return Lookup(lookup.points | rest.points, rest.blocked_by)

        return self.ask(find_all)

    @cached_property
    def _fast_fields(self) -> Sequence[str] | None:
        """The payload fields to look ids up in first; None for all, where that is cheap.

        Without an index, a look-up reads every payload of the collection. So in a large one, ids are looked up in
        indexed fields, and in the other fields only if they were not found.
        """
        description = self.store.describe(self.name, self.deadline)
        indexed = [path for path in self.services.payloads.id_paths if path in description.indexed_fields]
        return None if description.points_count <= SMALL_COLLECTION else indexed


class _Exact(Collection):
    """Looks points up, and asks again for those that Qdrant has but does not return: they are not missing."""

    __slots__ = ()

    def fetch(self, ids: Sequence[PointId], *, with_vector: str | None = None) -> list[Point]:
        """Return the points with these ids that exist, all of them."""

        def read() -> Page:
            return Page(tuple(self.store.fetch(self.name, ids, self.deadline, with_vector=with_vector)), None)

        return list(self._check(read, (HasId(tuple(ids)),), with_vector, most=len(set(ids))).points)

    def page(self, limit: int, *, where: tuple[Condition, ...] = (), **options: Any) -> Page:
        """Return a page of points; where it is all that meets the conditions, it is complete."""
        read = partial(super().page, limit, where=where, **options)
        most = 0 if options.get("start") is not None else limit
        return self._check(read, where, options.get("with_vector"), most)

    def _check(
        self, read: Callable[[], Page], where: tuple[Condition, ...], with_vector: str | None, most: int
    ) -> Page:
        try:
            return self._compare(read(), where, with_vector, most)
        except errors.IncompleteScanError:
            return self._compare(read(), where, with_vector, most)

    def _compare(self, page: Page, where: tuple[Condition, ...], with_vector: str | None, most: int) -> Page:
        points, ids = page.points, HasId(tuple(point.id for point in page.points))
        if len(points) < most and page.next_id is None and (counted := self.count(where)) != len(points):
            found = f"Qdrant counts {counted:,} points for a look-up in {self.name}, but sends {len(points):,}"
            raise errors.IncompleteScanError(self.store.host, found)
        contents = Contents(self.name, self.store.host, lambda also: self.count((ids, *also)))
        for point in points:
            contents.add(point.payload)
        if with_vector is not None:
            contents.vectors[with_vector] = sum(bool(point.vector) for point in points)
        contents.check(len(points))
        return page


class Contents:
    """Counts how many points have each field and each vector, and compares that with what Qdrant counts.

    Where every point has a field, or a text and an id, nothing was left out, and nothing is asked.
    """

    def __init__(self, name: str, host: str, count: Callable[[tuple[Condition, ...]], int]) -> None:
        self._name, self._host, self._count = name, host, count
        self._fields, self.vectors = Counter[str](), Counter[str]()
        self._groups = Counter[str](dict.fromkeys(GROUPS, 0))
        # Fields by what decides them, because most points have the fields of others; and how many points have each set.
        self._fields_of: dict[tuple[object, ...], frozenset[str]] = {}
        self._alike = Counter[frozenset[str]]()

    def add(self, payload: Mapping[str, Any]) -> None:
        """Count the fields of a point."""
        inner = [(name, _shape(value)) for name, value in payload.items() if value.__class__ not in _PLAIN]
        fields = self._fields_of.get(shape := (*payload, *inner))
        if fields is None:
            if len(self._fields_of) >= MOST_FIELDS:
                self._count_alike()
            fields = self._fields_of[shape] = frozenset(_list_filled(payload))
        self._alike[fields] += 1

    def _count_alike(self) -> None:
        for fields, points in self._alike.items():
            counted = fields if len(self._fields) < MOST_FIELDS else fields & self._fields.keys()
            groups = [what for what, paths in GROUPS.items() if not paths.isdisjoint(fields)]
            self._fields.update(dict.fromkeys(counted, points))
            self._groups.update(dict.fromkeys(groups, points))
        self._alike.clear()
        self._fields_of.clear()

    def check(self, points: int, changed: int = 0) -> None:
        """Raise `IncompleteScanError` if Qdrant counts more of something than came with these points."""
        self._count_alike()
        has: list[tuple[str, Condition, int]] = [
            *((f"the vector {name}", HasVector(name), seen) for name, seen in self.vectors.items()),
            *((what, _has_any(GROUPS[what]), seen) for what, seen in self._groups.items()),
            *((f"the field {field}", _has_any([field]), seen) for field, seen in self._fields.most_common()),
        ]
        for what, condition, seen in [each for each in has if each[2] < points][:MOST_COUNTED]:
            counted = 0
            with suppress(*NOT_COUNTED):
                counted = self._count((condition,))
            if counted > seen + changed:
                found = f"{counted:,} points of {self._name} have {what}, but {seen:,} were sent with it"
                raise errors.IncompleteScanError(self._host, f"{found}: {OR_WRITTEN} leaves out payloads or vectors")


def _has_any(paths: Iterable[str]) -> Either:
    return Either(tuple(Not((Absent(path),)) for path in paths))


class ScanCheck:
    """Checks the pages of a scan: every point once, in the order of ids, as many as Qdrant counts, and none behind.

    Where some points lack a payload field or a vector that others have, Qdrant must count them in the same way. At the
    end some points are read again. Without `on_change`, nothing may change meanwhile.
    """

    def __init__(
        self,
        name: str,
        host: str,
        *,
        count: Callable[[tuple[Condition, ...]], int],
        look: Callable[[PointId], Sequence[PointId]],
        read_again: Callable[[Sequence[PointId]], Iterable[Point]] = lambda _ids: (),
        on_change: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._name, self._error = name, partial(errors.IncompleteScanError, host)
        self._count, self._look, self._read_again, self._on_change = count, look, read_again, on_change
        self._seen, self._before = 0, count(())
        self.contents = Contents(name, host, count)
        # Some points from all over the scan, with a hash of what they have.
        self._sample, self._step = dict[PointId, int](), 1 + self._before // MOST_READ_AGAIN

    def add(
        self,
        points: Sequence[Point],
        start: PointId | None,
        next_id: PointId | None,
        vectors: Iterable[str] | Mapping[str, int] = (),
    ) -> PointId | None:
        """Check a page that was to begin with `start`, or behind it if that was deleted; return the next start.

        `vectors` are the names of all vectors that these points have, or how many have each.
        """
        ids = [point.id for point in points]
        order = [_order(point_id) for point_id in (*ids, *(() if next_id is None else (next_id,)))]
        is_behind = start is not None and bool(order) and order[0] < _order(start)
        stands_still = next_id is not None and (next_id == start or not ids)
        is_odd = any(isinstance(point_id, str) and len(point_id) != UUID_CHARS for point_id in ids)
        if is_behind or stands_still or is_odd or any(a >= b for a, b in pairwise(order)):
            raise self._error(f"points of {self._name} came twice, not at all, or in another order")
        for number, point in enumerate(points, self._seen):
            self.contents.add(point.payload)
            if number % self._step == 0:
                self._sample[point.id] = _fingerprint(point)
        while len(self._sample) > MOST_READ_AGAIN:
            self._sample, self._step = dict(islice(self._sample.items(), 0, None, 2)), 2 * self._step
        self.contents.vectors.update(vectors)
        self._seen += len(ids)
        return self._check_end(ids) if next_id is None else next_id

    def _check_end(self, ids: Sequence[PointId]) -> PointId | None:
        """Look behind the last point: what is there was added meanwhile, or left out."""
        before, after = self._before, self._count(())
        behind = self._look(ids[-1]) if ids else ()
        following = next((point_id for point_id in behind if point_id != ids[-1]), None)
        if following is not None and (before != after or ids[-1] not in behind):
            self._seen -= ids[-1] not in behind
            return following
        least, most = (min(before, after), max(before, after)) if self._on_change else (after, after)
        if following is None and least <= self._seen <= most:
            self.contents.check(self._seen, abs(after - before))
            self._check_again(before, after)
            return None
        has = "more" if following is not None else f"{after:,}"
        found = f"{self._seen:,} points of {self._name} were read, but it has {has}"
        raise self._error(f"{found}: {OR_WRITTEN} returns other points than it counts")

    def _check_again(self, before: int, after: int) -> None:
        """Read some points again, and say what has changed."""
        name, first = self._name, self._sample
        now = {point.id: _fingerprint(point) for point in self._read_again(list(first))}
        changed = sum(now.get(point_id, value) != value for point_id, value in first.items())
        if changed > max(MIN_SWAPPED, len(first) / 2):
            raise self._error(f"{changed:,} of {len(first):,} points of {name} were others when they were read again")
        notes = [f"{name} changed from {before:,} to {after:,} points while it was read"] if before != after else []
        notes += [f"{changed:,} of {len(first):,} points of {name} were rewritten while it was read"] if changed else []
        if notes and self._on_change:
            self._on_change("; ".join(notes), abs(after - before), changed)


def _list_filled(payload: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of what Qdrant does not call empty, two levels deep, as far as their names are plain."""
    for name, value in payload.items():
        if value is not None and value != [] and name and not _SPECIAL.search(name):
            yield path + name
            if not path and isinstance(value, Mapping):
                yield from _list_filled(value, f"{name}.")


def _shape(value: Any) -> object:
    """Return what decides which fields a value has."""
    if isinstance(value, Mapping):
        return tuple([name for name, inner in value.items() if inner is not None and inner != []])
    return value is not None and value != []


def _fingerprint(point: Point) -> int:
    return hash((json.dumps(point.payload, sort_keys=True, ensure_ascii=False), point.vector))


def in_batches(items: Iterable[T], size: int = BATCH_SIZE) -> Iterator[list[T]]:
    """Yield the items in lists of this size, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
