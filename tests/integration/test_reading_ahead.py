"""Reading a collection in several ranges at a time: the same points in the same order, and nothing left out unseen."""

from collections.abc import Iterator
from contextlib import closing
from threading import Event
from typing import Any

import pytest

from chunkproof.audit.audit_run import _Check
from chunkproof.base.errors import IncompleteScanError, VectorStoreRefusedError
from chunkproof.base.settings import Settings
from chunkproof.collection import reader
from chunkproof.collection.reader import Reader
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service.container import qdrant_store
from chunkproof.stores.store_port import Page, Point, PointId

from support.audits import VECTOR, fill, services_on
from support.stores import MemoryStore

UUIDS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(0, 60, 3)]
IDS: list[PointId] = [*range(0, 100, 2), *UUIDS]
# Points, ids between points, the first point, and the last one.
BOUNDARIES: list[PointId] = [0, 10, 11, 12, 60, 99, 500, UUIDS[3], f"{10:08x}-0000-4000-8000-000000000000", UUIDS[-1]]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setattr(reader, "PAGE_SIZE", 7)
    with closing(MemoryStore()) as store:
        fill(store, "ranges", [Point(one, {"text": f"text {one}"}, vector=VECTOR) for one in IDS])
        yield store


def read_ids(store: MemoryStore, boundaries: list[PointId]) -> list[PointId]:
    pages = Reader(services_on(store), "ranges").pages(boundaries=boundaries)
    return [point.id for page in pages for point in page.points]


@pytest.mark.parametrize("boundaries", [[], BOUNDARIES, IDS, [1], [10_000]])
def test_ranges_have_every_point_once_in_order(store: MemoryStore, boundaries: list[PointId]) -> None:
    assert read_ids(store, boundaries) == IDS


def test_several_ranges_are_read_at_a_time(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    both, scroll = Event(), store.scroll

    def wait_for_the_next(*args: Any, start: PointId | None = None, **options: Any) -> Page:
        if start == 10:
            assert both.wait(10), "the range from 20 on is not read while this one is"
        elif start == 20:
            both.set()
        return scroll(*args, start=start, **options)

    monkeypatch.setattr(store, "scroll", wait_for_the_next)

    assert read_ids(store, [10, 20]) == IDS


@pytest.mark.parametrize("short", [Page((), None), Page((Point(10, {"text": "text 10"}),), None)])
def test_a_range_that_ends_too_early_fails_the_scan(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, short: Page
) -> None:
    scroll = store.scroll

    def end_early(*args: Any, start: PointId | None = None, **options: Any) -> Page:
        return short if start == 10 else scroll(*args, start=start, **options)

    monkeypatch.setattr(store, "scroll", end_early)

    with pytest.raises(IncompleteScanError, match="but it has 70"):
        read_ids(store, [10, 20])


def test_a_range_that_leaves_out_points_fails_the_scan(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scroll = store.scroll

    def leave_out(*args: Any, start: PointId | None = None, **options: Any) -> Page:
        page = scroll(*args, start=start, **options)
        return Page(page.points[1:], page.next_id) if start == 20 else page

    monkeypatch.setattr(store, "scroll", leave_out)

    with pytest.raises(IncompleteScanError, match="69 points of ranges were read, but it has 70"):
        read_ids(store, [10, 20])


def test_what_a_range_cannot_read_is_raised(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scroll = store.scroll

    def refuse(*args: Any, start: PointId | None = None, **options: Any) -> Page:
        if start == 20:
            raise VectorStoreRefusedError("here", "Qdrant refused the request (400)")
        return scroll(*args, start=start, **options)

    monkeypatch.setattr(store, "scroll", refuse)

    with pytest.raises(VectorStoreRefusedError):
        read_ids(store, [10, 20])


def test_pauses_between_attempts_last_after_a_scan(store: MemoryStore) -> None:
    scanned = Reader(services_on(store), "ranges")
    list(scanned.pages(boundaries=[10, 20]))

    assert not scanned._stopped.is_set()


def test_points_are_read_while_the_texts_of_the_batch_before_are_embedded() -> None:
    check, begun = _Check.__new__(_Check), {"first": Event(), "second": Event()}

    def fetch(batch: Any) -> dict[str, Point]:
        begun[batch[0]].set()
        return {}

    check._fetch = fetch  # type: ignore[method-assign]
    batches = check.read_ahead(iter([["first"], ["second"]]))  # type: ignore[list-item]

    assert next(batches) == (["first"], {})
    assert begun["second"].wait(10)
    assert [batch for batch, _ in batches] == [["second"]]


@pytest.mark.parametrize(
    ("url", "compressed"),
    [
        ("http://127.0.0.2:6333", False),
        ("http://localhost", False),
        ("http://[::1]:6333", False),
        ("https://qdrant.example.com", True),
    ],
)
def test_a_server_on_this_machine_need_not_compress(
    monkeypatch: pytest.MonkeyPatch, url: str, compressed: bool
) -> None:
    made: list[bool] = []

    class Noted(DeadlineTransport):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append(options["compressed"])
            super().__init__(*arguments, **options)

    monkeypatch.setattr("chunkproof.net.transport.DeadlineTransport", Noted)
    qdrant_store(Settings.from_env({"QDRANT_URL": url})).close()

    assert made == [compressed]
