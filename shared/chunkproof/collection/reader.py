"""Read a collection for hours: ahead of the comparison, and with retries while the server is in trouble."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import islice, takewhile
from threading import Event
from typing import TypeVar

from chunkproof.base.errors import RateLimitedError, UnavailableError
from chunkproof.base.request import Deadline
from chunkproof.base.request import start as start_thread
from chunkproof.collection.lookup import Lookup, find_points
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.services import PAUSES, LongRun, Services, next_size
from chunkproof.embedders.embedder_port import call_in_batches
from chunkproof.stores.store_port import Page, Point, PointId

# Measured on loopback: 250 a page is half as fast, 2,000 no faster.
PAGE_SIZE = 500
BATCH_SIZE = 250
CALL_MS = 30_000
PAGES_AHEAD = 3
# Up to this many points, a look-up without an index takes only milliseconds.
SMALL_COLLECTION = 5_000

T = TypeVar("T")


class _Ranges:
    """Reads pages, several at a time: those that begin at boundaries, ahead; a page ends before the next boundary."""

    def __init__(self, read: Callable[[PointId | None, int], Page], boundaries: Sequence[PointId]) -> None:
        self._read, self._boundaries, self._size = read, deque(boundaries), PAGE_SIZE
        self._ahead: deque[tuple[PointId, Future[Page]]] = deque()

    def read(self, start: PointId | None) -> Page:
        """Return the page from this point on."""
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
        if self._ahead and page.next_id is not None and _order(page.next_id) > _order(end := self._ahead[0][0]):
            beyond = list(takewhile(lambda point: _order(point.id) >= _order(end), reversed(page.points)))
            return Page(page.points[: len(page.points) - len(beyond)], end)
        return page


def _order(point_id: PointId) -> tuple[bool, PointId]:
    return isinstance(point_id, str), point_id


class Reader(LongRun):
    """Reads one collection, page by page or by ids. Temporary failures are retried, others are raised."""

    def __init__(self, services: Services, name: str, pauses: Sequence[float] | None = None) -> None:
        self._stopped = Event()
        self.change: tuple[int, int] | None = None
        self._payloads: PayloadMap | None = None
        self._fast_fields: tuple[Sequence[str] | None] | None = None
        pauses = PAUSES if pauses is None else pauses
        super().__init__(services, name, lambda: Deadline(CALL_MS), pauses, self._stopped.wait)

    @property
    def change_note(self) -> str | None:
        """What to say if points were added or removed while they were read."""
        if self.change is None:
            return None
        before, after = self.change
        return f"{self.name} changed from {before:,} to {after:,} points while it was read"

    @property
    def payloads(self) -> PayloadMap:
        """How to read the collection: with point ids where several points share the id in their payloads.

        Findings only show these ids, so that an audit does not stop when they cannot be found out.
        """
        if self._payloads is None:
            try:
                self._payloads = super().payloads
            except (UnavailableError, RateLimitedError):
                self._payloads = self.services.payloads
        return self._payloads

    def pages(
        self,
        start: PointId | None = None,
        with_vector: str | None = None,
        *,
        seen: int = 0,
        boundaries: Sequence[PointId] = (),
    ) -> Iterator[Page]:
        """Yield the collection from this point on, `seen` points after its start; threads read a few pages ahead.

        Where pages may begin at `boundaries`, which are in the order of ids and need not be points, several are read at
        a time. If points are added or removed meanwhile, `change` has how many there were before and after.
        """

        def note(before: int, after: int) -> None:
            self.change = before, after

        ranges = _Ranges(lambda first, size: self.page(size, start=first, with_vector=with_vector), boundaries)
        pages = self.check_scan(ranges.read, start=start, seen=seen, on_change=note)
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
            return self.store.fetch(self.name, some, self.deadline, with_vector=with_vector)

        def fetch_batch(batch: Sequence[PointId]) -> list[Point]:
            return self.ask(lambda _deadline: list(call_in_batches(fetch, batch, BATCH_SIZE, self.TOO_MUCH)))

        return {point.id: point for batch in in_batches(ids) for point in fetch_batch(batch)}

    def look_up(self, expected: Mapping[str, PointId | None], with_vector: str | None = None) -> Lookup:
        """Find the points of each chunk id; the mapping gives the point to look at first."""

        def find(chunk_ids: Sequence[str], fields: Sequence[str] | None) -> Lookup:
            def find_some(some: Sequence[str]) -> list[Lookup]:
                within = self.within(self.deadline)
                # As stored: an audit reports ids that several points share.
                return [
                    find_points(some, within, expected=expected, fields=fields, with_vector=with_vector, as_stored=True)
                ]

            return Lookup.merge(list(call_in_batches(find_some, chunk_ids, BATCH_SIZE, self.TOO_MUCH)))

        def find_all(_deadline: Deadline) -> Lookup:
            fields = self._get_fast_fields()
            lookup = find(list(expected), fields)
            left = [chunk_id for chunk_id in expected if chunk_id not in lookup.points]
            if fields is None or not left:
                return lookup
            rest = find(left, None)
            return Lookup(lookup.points | rest.points, rest.blocked_by)

        return self.ask(find_all)

    def _get_fast_fields(self) -> Sequence[str] | None:
        """Return the payload fields to look ids up in first; None for all, where that is cheap.

        Without an index, a look-up reads every payload of the collection. So in a large one, ids are looked up in
        indexed fields, and in the other fields only if they were not found.
        """
        if self._fast_fields is None:
            description = self.store.describe(self.name, self.deadline)
            indexed = [path for path in self.services.payloads.id_paths if path in description.indexed_fields]
            self._fast_fields = (None if description.points_count <= SMALL_COLLECTION else indexed,)
        return self._fast_fields[0]


def in_batches(items: Iterable[T], size: int = BATCH_SIZE) -> Iterator[list[T]]:
    """Yield the items in lists of this size, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
