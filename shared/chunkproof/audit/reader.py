"""Reading a collection for hours: ahead of the comparison, and with patience for a server in trouble."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
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
from chunkproof.retrieval.lookup import Lookup, find_points
from chunkproof.retrieval.services import Services

# Measured on loopback: 250 a page is half as fast, 2,000 no faster.
PAGE = 500
BY_IDS = 250
CALL_MS = 30_000
# Between attempts, in seconds: a restart or a rate limit passes, an outage ends the audit where it can go on.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONGEST_PAUSE = 60.0
AHEAD = 2
# Points that a look-up without an index reads in some milliseconds.
SMALL = 5_000

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Reader:
    """One collection, page by page or by ids. What fails in passing is asked again; what does not is raised."""

    def __init__(self, services: Services, collection: str, pauses: Sequence[float] | None = None) -> None:
        self.services = services
        self.collection = collection
        self._pauses = PAUSES if pauses is None else pauses
        self._stopped = Event()
        self._page = PAGE
        self._fields: tuple[Sequence[str] | None] | None = None

    def pages(self, start: PointId | None) -> Iterator[Page]:
        """The collection from this point on, a page or two ahead of whoever takes them."""
        with closing(_ahead(self._pages(start), self._stopped)) as pages:
            yield from pages

    def fetch(self, ids: Sequence[PointId]) -> dict[PointId, Point]:
        """The points that exist among these ids."""
        found: dict[PointId, Point] = {}
        for first in range(0, len(ids), BY_IDS):
            some = ids[first : first + BY_IDS]
            for point in self.patiently(self._fetch_parts, some):
                found[point.id] = point
        return found

    def find(self, homes: dict[str, PointId | None], with_vector: str | None = None) -> Lookup:
        """What each chunk id means: the points that answer to it."""

        def look(wanted: dict[str, PointId | None], fields: Sequence[str] | None) -> Lookup:
            return find_points(
                wanted,
                self.collection,
                services=self.services,
                deadline=Deadline(CALL_MS),
                with_vector=with_vector,
                fields=fields,
            )

        def ask(wanted: dict[str, PointId | None]) -> Lookup:
            if (fields := self._quick_fields()) is None:
                return _in_parts(partial(look, fields=None), wanted)
            found = _in_parts(partial(look, fields=fields), wanted)
            left = {chunk_id: home for chunk_id, home in wanted.items() if chunk_id not in found.points}
            if not left:
                return found
            rest = _in_parts(partial(look, fields=None), left)
            return Lookup(found.points | rest.points, rest.unsearched)

        return self.patiently(ask, homes)

    def _quick_fields(self) -> Sequence[str] | None:
        """The payload fields to look ids up in first; None for all, where that is cheap.

        Without an index, a look-up reads every payload of the collection. So in a large one, ids are looked for
        in indexed fields, and only those that are nowhere else in the others.
        """
        if self._fields is None:
            found = self.services.store.describe(self.collection, Deadline(CALL_MS))
            indexed = [path for path in self.services.payloads.id_paths if path in found.indexed_fields]
            self._fields = (None,) if found.points_count <= SMALL else (indexed,)
        return self._fields[0]

    def _pages(self, start: PointId | None) -> Iterator[Page]:
        while True:
            page = self.patiently(self._next_page, start)
            yield page
            if page.next_id is None:
                return
            start = page.next_id

    def _next_page(self, start: PointId | None) -> Page:
        try:
            page = self.services.store.scroll(
                self.collection, Deadline(CALL_MS), limit=self._page, start=start
            )
        except (ResponseTooLargeError, VectorStoreTimeoutError):
            if self._page == 1:
                raise
            self._page = max(
                1, self._page // 4
            )  # chunks of a megabyte: a page of them is more than an answer
            return self._next_page(start)
        self._page = min(PAGE, self._page * 2)
        return page

    def _fetch_parts(self, ids: Sequence[PointId]) -> list[Point]:
        try:
            return self.services.store.fetch(self.collection, ids, Deadline(CALL_MS))
        except (ResponseTooLargeError, VectorStoreTimeoutError):
            if len(ids) == 1:
                raise
            half = len(ids) // 2
            return self._fetch_parts(ids[:half]) + self._fetch_parts(ids[half:])

    def patiently(self, ask: Callable[[Asked], Answer], about: Asked) -> Answer:
        """The answer, asked for again after a pause when what stands in the way may pass."""
        for pause in self._pauses:
            try:
                return ask(about)
            except (UnavailableError, RateLimitedError) as error:
                if isinstance(error, NotConfiguredError | VectorStoreRefusedError):
                    raise
                self._stopped.wait(min(LONGEST_PAUSE, max(pause, error.retry_after or 0.0)))
        return ask(about)


def _in_parts(
    look: Callable[[dict[str, PointId | None]], Lookup], homes: dict[str, PointId | None]
) -> Lookup:
    try:
        return look(homes)
    except (ResponseTooLargeError, VectorStoreTimeoutError):
        if len(homes) == 1:
            raise
    ids = list(homes)
    halves = (ids[: len(ids) // 2], ids[len(ids) // 2 :])
    first, second = (_in_parts(look, {i: homes[i] for i in half}) for half in halves)
    return Lookup(first.points | second.points, first.unsearched or second.unsearched)


def _ahead(pages: Iterator[Page], stopped: Event) -> Generator[Page, None, None]:
    """The pages, read by a thread of their own while earlier ones are looked at."""
    ready: Queue[Page | BaseException | None] = Queue(AHEAD)

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
        except BaseException as error:  # noqa: BLE001 - raised where the pages are taken
            put(error)

    stopped.clear()
    # A daemon: after an interruption nobody waits for a server that does not answer.
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
