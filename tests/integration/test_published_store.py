"""Searching without a server: a published collection is fetched, searched, and replaced between two requests."""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import pytest

from chunkproof.base.errors import CollectionNotFoundError, VectorStoreTimeoutError, VectorStoreUnavailableError
from chunkproof.base.request import Deadline
from chunkproof.net.s3 import Bucket
from chunkproof.service import container
from chunkproof.stores import published as module_published
from chunkproof.stores import published_store
from chunkproof.stores.published import PublishedCollections, list_version
from chunkproof.stores.published_store import PublishedStore
from chunkproof.stores.store_port import DenseLeg, Point, StoreQuery, VectorConfig

from support.api import EVENTS, committed_event, invoke, new_process
from support.chunks import make_services
from support.cloud import published_host
from tools.checks.invoke import promised_status

edge = pytest.importorskip("chunkproof.stores.edge", reason="Qdrant's engine has no wheel for this system")

CONFIG = VectorConfig("", 2, "Cosine")


@pytest.fixture
def published(s3_bucket: Bucket) -> PublishedCollections:
    return PublishedCollections(s3_bucket)


def publish(published: PublishedCollections, folder: Path, *texts: str) -> None:
    """Write a collection `docs` with these texts, and publish it."""
    from chunkproof.stores.edge_folder import locked_files

    store = edge.EdgeStore(folder)
    if "docs" not in store.collections(Deadline(1000)):
        store.create("docs", 2, Deadline(10_000))
    points = [Point(n, {"chunk_id": str(n), "text": text}, vector=(1.0, n / 10)) for n, text in enumerate(texts)]
    store.upsert("docs", points, "", Deadline(10_000))
    store.close()
    with locked_files(folder, "docs") as (where, paths):
        published.publish(where, list_version(where, paths, "docs", len(texts)), lambda _: None)


@pytest.fixture
def store(published: PublishedCollections, tmp_path: Path) -> Iterator[PublishedStore]:
    made = PublishedStore(published, tmp_path / "fetched")
    yield made
    made.close()


def texts(store: PublishedStore, deadline: Deadline | None = None) -> list[str]:
    query = StoreQuery("docs", 10, dense=DenseLeg(CONFIG, (1.0, 0.0)))
    return [point.payload["text"] for point in store.search([query], deadline or Deadline(10_000))[0]]


def wait_for(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


@pytest.mark.parametrize("is_pinned", [False, True], ids=["in force", "pinned"])
def test_a_published_collection_is_read_like_any_other(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, is_pinned: bool
) -> None:
    publish(published, tmp_path / "data", "one", "two")
    if is_pinned:
        store = store.at({"docs": store.version("docs", Deadline(5000))})
    assert texts(store) == ["one", "two"]
    assert [point.id for point in store.scroll("docs", Deadline(5000), limit=1, start=1).points] == [1]
    assert store.facet("docs", "chunk_id", (), Deadline(5000), limit=5) == {"0": 1, "1": 1}
    query = StoreQuery("docs", 2, dense=DenseLeg(CONFIG, (1.0, 0.0)))
    assert store.sample_scores(query, Deadline(5000)) == pytest.approx([1.0, 0.995037], abs=1e-6)
    assert store.features(Deadline(5000)).text_index
    assert store.collections(Deadline(5000)) == ["docs"]
    assert store.count("docs", (), Deadline(5000)) == 2
    assert store.describe("docs", Deadline(5000)).vectors == (CONFIG,)
    assert [point.id for point in store.fetch("docs", [1], Deadline(5000))] == [1]
    assert store.host == "s3://published"


def test_two_stores_can_fetch_a_collection_into_the_same_folder_at_the_same_time(
    published: PublishedCollections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(published, tmp_path / "data", "one", "two")
    both, make_folder = Barrier(2, timeout=10), module_published.make_private_folder
    waited = set[int]()

    def make_together(folder: Path) -> None:
        if get_ident() not in waited:
            waited.add(get_ident())
            both.wait()
        make_folder(folder)

    monkeypatch.setattr(module_published, "make_private_folder", make_together)
    stores = [PublishedStore(published, tmp_path / "fetched") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(texts, stores)) == [["one", "two"]] * 2
    assert len(waited) == 2
    assert not list((tmp_path / "fetched").rglob("*.part"))
    for one in stores:
        one.close()


def test_functions_of_the_api_fetch_their_collection_when_they_start(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path
) -> None:
    publish(published, tmp_path / "data", "one")
    with container.override(make_services(store, "docs")):
        container.prepare()
    assert list(store._opened) == ["docs"]


def test_a_new_version_replaces_the_old_one_between_two_requests(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_store, "CHECK_EVERY_S", 0.0)
    publish(published, tmp_path / "data", "old")
    assert texts(store) == ["old"]
    publish(published, tmp_path / "data", "new", "newer")
    request = Deadline(60_000)  # begins before the new version is ready
    assert texts(store, request) == ["old"]
    wait_for(lambda: store._next)
    assert texts(store, request) == ["old"]
    assert texts(store) == ["new", "newer"]
    wait_for(lambda: len(list((tmp_path / "fetched").iterdir())) == 1)  # the old one is removed


def test_a_damaged_version_leaves_the_one_in_use(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_store, "CHECK_EVERY_S", 0.0)
    publish(published, tmp_path / "data", "old")
    assert texts(store) == ["old"]
    publish(published, tmp_path / "data", "new")
    version = published.version(published.pointer("docs").version)
    changed = [part for file in version.files for part in file.parts]
    for part in changed:
        published.bucket.write(f"parts/{part.sha256}", b"damaged")
    assert texts(store) == ["old"]
    wait_for(store._fetching["docs"].done)
    assert store._fetching["docs"].exception() is not None
    assert texts(store) == ["old"]


def test_an_unknown_collection_and_a_full_disk_are_reported(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CollectionNotFoundError):
        texts(store)
    publish(published, tmp_path / "data", "one")
    monkeypatch.setattr(published_store, "SPARE_BYTES", 1 << 60)
    with pytest.raises(VectorStoreUnavailableError, match="for two versions"):
        texts(store)


def test_a_request_does_not_wait_longer_than_its_deadline(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(published, tmp_path / "data", "one")
    original = PublishedCollections.fetch

    def fetch_slowly(*arguments: Any) -> None:
        time.sleep(0.5)
        original(*arguments)

    monkeypatch.setattr(PublishedCollections, "fetch", fetch_slowly)
    with pytest.raises(VectorStoreTimeoutError, match="still being fetched"):
        texts(store, Deadline(50))
    wait_for(lambda: store._opened)
    assert texts(store) == ["one"]


def test_every_event_is_answered_without_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # What is set within the block is undone within it: the host restores the variables that it found.
    with published_host() as host, monkeypatch.context() as meanwhile:
        for name, value in host.variables().items():
            meanwhile.setenv(name, value)
        with new_process():
            for path in sorted(EVENTS.glob("*.json")):
                assert (path.name, invoke(committed_event(path.name)).status) == (
                    path.name,
                    promised_status(path.name),
                )
