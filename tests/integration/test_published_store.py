"""Searching without a server: a published collection is fetched, searched, and replaced between two requests."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    NotConfiguredError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.base.request import Deadline
from chunkproof.net import s3
from chunkproof.net.resilience import CircuitBreaker, CircuitState
from chunkproof.net.s3 import Bucket, ObjectStoreError
from chunkproof.service import container
from chunkproof.stores import published as module_published
from chunkproof.stores import published_store
from chunkproof.stores.published import PublishedCollections, list_version
from chunkproof.stores.published_store import PublishedStore
from chunkproof.stores.store_port import DenseLeg, Point, StoreQuery, VectorConfig

from support.api import EVENTS, committed_event, invoke, new_process
from support.chunks import make_services
from support.cloud import CREDENTIALS, published_host
from support.recording_server import CannedResponse, recording_server
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
    wait(made._fetching.values(), timeout=10)  # else its thread makes the next test a client without keys
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
    assert store.host == "S3", "the bucket is no part of messages"


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


def test_a_folder_that_another_fetch_removes_before_it_is_locked_is_made_again(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(published, tmp_path / "data", "one")
    lost, make_folder = list[Path](), module_published.make_private_folder

    def make_and_lose(folder: Path) -> None:
        make_folder(folder)
        if folder.suffix == ".part" and not lost:
            lost.append(folder)
            module_published.remove_partial(folder.parent)

    monkeypatch.setattr(module_published, "make_private_folder", make_and_lose)
    assert texts(store) == ["one"]
    assert lost
    assert not lost[0].exists()


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


# S3 fails

DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
NO_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>published/collections/docs.json</Message></Error>"


@pytest.fixture
def failing_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CannedResponse]]:
    """An S3 that gives the same answer to every request."""
    answers = [CannedResponse(500)]
    with recording_server(lambda _: answers[0]) as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": server.url, "AWS_MAX_ATTEMPTS": "1"}.items():
            monkeypatch.setenv(name, value)
        s3.aws_client.cache_clear()
        answers.append(server)  # type: ignore[arg-type]
        yield answers
    s3.aws_client.cache_clear()


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (CannedResponse(403, DENIED), NotConfiguredError, "AccessDenied"),
        (CannedResponse(404, NO_BUCKET), NotConfiguredError, "NoSuchBucket"),
        (CannedResponse(503, SLOW_DOWN), VectorStoreUnavailableError, "SlowDown"),
        (CannedResponse(500, b""), VectorStoreUnavailableError, "500"),
    ],
    ids=["denied", "no bucket", "slow down", "failure"],
)
def test_failures_of_s3_are_errors_of_the_store_that_name_neither_bucket_nor_key(
    failing_s3: list[CannedResponse],
    tmp_path: Path,
    answer: CannedResponse,
    kind: type[ChunkproofError],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    failing_s3[0] = answer
    failed = PublishedStore(PublishedCollections(Bucket("my-bucket")), tmp_path)
    calls: list[Callable[[], object]] = [
        lambda: texts(failed),
        lambda: failed.collections(Deadline(5_000)),
        lambda: failed.version("docs", Deadline(5_000)),
    ]
    for call in calls:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.status == 503
        said = " ".join(caught.value.messages)
        assert reason in said
        assert "my-bucket" not in said
        assert "collections/" not in said


def test_an_s3_that_fails_repeatedly_is_left_alone_for_a_moment(
    failing_s3: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    breaker = CircuitBreaker("qdrant")
    failed = PublishedStore(PublishedCollections(Bucket("my-bucket")), tmp_path, breaker)
    for _ in range(5):
        with pytest.raises(VectorStoreUnavailableError, match="S3 failed"):
            texts(failed)
    asked = len(failing_s3[1].requests)
    with pytest.raises(VectorStoreUnavailableError, match="paused for a moment") as caught:
        texts(failed)
    assert (breaker.state, len(failing_s3[1].requests)) == (CircuitState.OPEN, asked)
    assert caught.value.retry_after


def test_a_failing_s3_leaves_the_version_in_use(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_store, "CHECK_EVERY_S", 0.0)
    publish(published, tmp_path / "data", "old")
    assert texts(store) == ["old"]

    def fail(*_of: object) -> bytes:
        raise ObjectStoreError("S3 could not be reached", "EndpointConnectionError")

    monkeypatch.setattr(Bucket, "read", fail)
    for _ in range(3):
        assert texts(store) == ["old"]
        wait_for(store._fetching["docs"].done)


# Lambda freezes a process between requests, and restores it from a snapshot


def test_after_a_restore_the_version_is_read_again(
    published: PublishedCollections, store: PublishedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(published, tmp_path / "data", "old")
    assert texts(store) == ["old"]
    publish(published, tmp_path / "data", "new")
    assert texts(store) == ["old"], "it has just looked"
    wait_for(store._fetching["docs"].done)
    later = time.time() + 86_400  # the clock on the wall goes on, that of the process may not
    monkeypatch.setattr(published_store, "time", lambda: later)
    texts(store)
    wait_for(lambda: store._next)
    assert texts(store) == ["new"]


CHILD = """
import sys
from pathlib import Path
from chunkproof.base.request import Deadline
from chunkproof.net.s3 import Bucket
from chunkproof.stores import published_store
from chunkproof.stores.published import PublishedCollections
published_store.CHECK_EVERY_S = 0.0
store = published_store.PublishedStore(PublishedCollections(Bucket("published")), Path(sys.argv[1]))
for _ in sys.stdin:
    points = store.scroll("docs", Deadline(20_000), limit=10).points
    print(*(point.payload["text"] for point in points), flush=True)
"""


def test_an_update_arrives_in_a_process_that_is_frozen_between_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    s3.aws_client.cache_clear()
    boto3.client("s3").create_bucket(Bucket="published")
    published = PublishedCollections(Bucket("published"))
    publish(published, tmp_path / "data", "old")
    command = [sys.executable, "-c", CHILD, str(tmp_path / "fetched")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None

    def request() -> str:
        child.send_signal(signal.SIGCONT)
        print(file=child.stdin, flush=True)
        answer = child.stdout.readline().strip()
        child.send_signal(signal.SIGSTOP)
        return answer

    try:
        assert request() == "old"
        publish(published, tmp_path / "data", "new")
        answers = []
        for _ in range(300):  # what is fetched goes on during each request
            answers.append(request())
            if answers[-1] == "new":
                break
            time.sleep(0.05)
        assert answers[0] == "old"
        assert answers[-1] == "new"
        assert set(answers) == {"old", "new"}, "never parts of two versions"
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        server.stop()
        s3.aws_client.cache_clear()


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
