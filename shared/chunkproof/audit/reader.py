"""Read a collection for hours: ahead of the comparison, and with retries while the server is in trouble."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from itertools import islice
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

from chunkproof.clients.ports import Page, Point, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    NotConfiguredError,
    RateLimitedError,
    ResponseTooLargeError,
    UnavailableError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
)
from chunkproof.retrieval.lookup import Finder, Lookup
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.services import Services

# Measured on loopback: 250 a page is half as fast, 2,000 no faster.
PAGE_SIZE = 500
BATCH_SIZE = 250
CALL_MS = 30_000
# Seconds between attempts: long enough for a restart or a rate limit; an outage stops the audit, to be resumed.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
MAX_PAUSE = 60.0
PAGES_AHEAD = 2
# Up to this many points, a look-up without an index takes only milliseconds.
SMALL_COLLECTION = 5_000

T = TypeVar("T")
Result = TypeVar("Result")


class Reader:
    """Reads one collection, page by page or by ids. Temporary failures are retried, others are raised."""

    def __init__(self, services: Services, collection: str, pauses: Sequence[float] | None = None) -> None:
        self.services = services
        self.collection = collection
        self._pauses = PAUSES if pauses is None else pauses
        self._stopped = Event()
        self._page_size = PAGE_SIZE
        self._fast_fields: tuple[Sequence[str] | None] | None = None

    @cached_property
    def payloads(self) -> PayloadMap:
        """How to read the collection: with point ids where several points share the id in their payloads.

        Findings only show these ids, so that an audit does not stop when they cannot be found out.
        """
        try:
            return self.retry(lambda name: self.services.payloads_of(name, Deadline(CALL_MS)), self.collection)
        except (UnavailableError, RateLimitedError):
            return self.services.payloads

    def pages(self, start: PointId | None, with_vector: str | None = None) -> Iterator[Page]:
        """Yield the collection from this point on; a thread reads a page or two ahead."""
        with closing(_read_ahead(self._pages(start, with_vector), self._stopped)) as pages:
            yield from pages

    def fetch(self, ids: Sequence[PointId], with_vector: str | None = None) -> dict[PointId, Point]:
        """Fetch the points that exist among these ids."""
        fetch = partial(self._fetch, with_vector=with_vector)
        found: dict[PointId, Point] = {}
        for first in range(0, len(ids), BATCH_SIZE):
            for points in self.retry(partial(_in_halves, fetch), ids[first : first + BATCH_SIZE]):
                found |= {point.id: point for point in points}
        return found

    def find(self, point_ids: Mapping[str, PointId | None], with_vector: str | None = None) -> Lookup:
        """Find the points of each chunk id; the mapping gives the point to look at first."""

        def look_up(chunk_ids: Sequence[str], fields: Sequence[str] | None) -> Lookup:
            # As stored: an audit reports ids that several points share.
            finder = Finder(self.services, self.collection, Deadline(CALL_MS), with_vector, as_stored=True)
            return finder.find({chunk_id: point_ids[chunk_id] for chunk_id in chunk_ids}, fields)

        def find_all(chunk_ids: Sequence[str]) -> Lookup:
            fields = self._get_fast_fields()
            found = Lookup.merge(_in_halves(partial(look_up, fields=fields), chunk_ids))
            left = [chunk_id for chunk_id in chunk_ids if chunk_id not in found.points]
            if fields is None or not left:
                return found
            rest = Lookup.merge(_in_halves(partial(look_up, fields=None), left))
            return Lookup(found.points | rest.points, rest.blocked_by)

        return self.retry(find_all, list(point_ids))

    def retry(self, call: Callable[[T], Result], argument: T) -> Result:
        """Call, again after a pause if it fails for a reason that may pass."""
        for pause in self._pauses:
            try:
                return call(argument)
            except (UnavailableError, RateLimitedError) as error:
                if isinstance(error, NotConfiguredError | VectorStoreRefusedError):
                    raise
                self._stopped.wait(min(MAX_PAUSE, max(pause, error.retry_after or 0.0)))
        return call(argument)

    def _get_fast_fields(self) -> Sequence[str] | None:
        """Return the payload fields to look ids up in first; None for all, where that is cheap.

        Without an index, a look-up reads every payload of the collection. So in a large one, ids are looked up in
        indexed fields, and in the other fields only if they were not found.
        """
        if self._fast_fields is None:
            description = self.services.store.describe(self.collection, Deadline(CALL_MS))
            indexed = [path for path in self.services.payloads.id_paths if path in description.indexed_fields]
            self._fast_fields = (None if description.points_count <= SMALL_COLLECTION else indexed,)
        return self._fast_fields[0]

    def _pages(self, start: PointId | None, with_vector: str | None) -> Iterator[Page]:
        while True:
            page = self.retry(partial(self._next_page, with_vector=with_vector), start)
            yield page
            if page.next_id is None:
                return
            start = page.next_id

    def _next_page(self, start: PointId | None, with_vector: str | None) -> Page:
        try:
            page = self.services.store.scroll(
                self.collection, Deadline(CALL_MS), limit=self._page_size, start=start, with_vector=with_vector
            )
        except (ResponseTooLargeError, VectorStoreTimeoutError):
            if self._page_size == 1:
                raise
            # Chunks may be a megabyte each: a whole page of them does not fit into a response.
            self._page_size = max(1, self._page_size // 4)
            return self._next_page(start, with_vector)
        self._page_size = min(PAGE_SIZE, self._page_size * 2)
        return page

    def _fetch(self, ids: Sequence[PointId], with_vector: str | None) -> list[Point]:
        return self.services.store.fetch(self.collection, ids, Deadline(CALL_MS), with_vector=with_vector)


def in_batches(items: Iterable[T], size: int = BATCH_SIZE) -> Iterator[list[T]]:
    """Yield the items in lists of this size, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _in_halves(call: Callable[[Sequence[T]], Result], items: Sequence[T]) -> list[Result]:
    """Call with all items or, when the response is too large or too slow, with ever smaller parts of them."""
    try:
        return [call(items)]
    except (ResponseTooLargeError, VectorStoreTimeoutError):
        if len(items) == 1:
            raise
    half = len(items) // 2
    return _in_halves(call, items[:half]) + _in_halves(call, items[half:])


def _read_ahead(pages: Iterator[Page], stopped: Event) -> Generator[Page, None, None]:
    """Yield the pages, which a thread reads while earlier ones are compared."""
    ready: Queue[Page | BaseException | None] = Queue(PAGES_AHEAD)

    def put(item: Page | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def read() -> None:
        try:
            for page in pages:
                if not put(page):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 - raised where the pages are used
            put(error)

    stopped.clear()
    # A daemon: an interrupted audit must not wait for a server that does not respond.
    thread = Thread(target=read, name="audit-reader", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join(timeout=0.5)
        stopped.clear()
