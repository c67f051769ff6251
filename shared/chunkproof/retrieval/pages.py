"""Read pages of points that may be large."""

from typing import Any

from chunkproof.clients.ports import Page, Point, VectorStore
from chunkproof.deadline import Deadline
from chunkproof.errors import ResponseTooLargeError

# A page of this size costs a fraction of a second to send, to parse and to map.
PAGE_BYTES = 8 * 1024 * 1024
# So many points show how large the others may be.
PROBED_POINTS = 5


def read_page(store: VectorStore, collection: str, deadline: Deadline, *, limit: int, **options: Any) -> Page:
    """Return a page of at most `limit` points: fewer where they are large, and at least one if there is one.

    `options` are the other arguments of `VectorStore.scroll`.
    """
    while True:
        budget = deadline.limit_responses(PAGE_BYTES) if limit > 1 else deadline
        try:
            return store.scroll(collection, budget, limit=limit, **options)
        except ResponseTooLargeError:
            if limit == 1:
                raise
            limit = max(1, limit // 5)


def read_first(store: VectorStore, collection: str, deadline: Deadline, *, limit: int, **options: Any) -> Page:
    """Return the first points as `read_page` does; a few of them are read first, to ask for no more than fits.

    A server reads and writes a page that is refused all the same: a hundred megabytes take it half a second.
    """
    page = read_page(store, collection, deadline, limit=min(limit, PROBED_POINTS), **options)
    size = sum(map(_size, page.points))
    fitting = PAGE_BYTES * len(page.points) // max(size, 1) - len(page.points)
    more = min(limit - len(page.points), fitting)
    if page.next_id is None or more < 1:
        return page
    rest = read_page(store, collection, deadline, limit=more, start=page.next_id, **options)
    return Page(page.points + rest.points, rest.next_id)


def _size(point: Point) -> int:
    try:
        return len(repr((point.payload, point.vector)))
    except RecursionError:
        return PAGE_BYTES
