"""A store without a server: published collections, fetched to this machine and opened by Qdrant's engine.

A new version is fetched in the background while requests use the one before; they change to it between two requests,
when all of it is on disk and checked.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from chunkproof.base import errors
from chunkproof.base.request import Deadline, run_with_timeout
from chunkproof.contract.conditions import Condition
from chunkproof.net.resilience import CircuitBreaker, CircuitOpenError
from chunkproof.net.s3 import NoBucketError, ObjectStoreError
from chunkproof.stores.edge_folder import allocated_bytes
from chunkproof.stores.published import PARTIAL, PinnedCollections, PublishedCollections, Version, remove_partial
from chunkproof.stores.qdrant import QdrantStore, Result
from chunkproof.stores.store_port import Features, Json, VersionedStore

if TYPE_CHECKING:
    from chunkproof.stores.edge import EdgeStore

# How often the pointer is looked at.
CHECK_EVERY_S = 30.0
# How long a run waits for its version: the 10 GB of a function's disk take two minutes.
PIN_WAIT_S = 300.0
# Kept free on the disk beside what is fetched.
SPARE_BYTES = 32 << 20

log = logging.getLogger(__name__)


@dataclass
class _Opened:
    """A version that requests use, or will use once it has replaced the one before."""

    version: str
    folder: Path
    store: "EdgeStore"
    ready_at: float
    # By the clock on the wall, which goes on while Lambda freezes the process, and is right after a SnapStart restore.
    checked_at: float
    users: int = 0
    is_retired: bool = False

    def remove_if_unused(self) -> None:
        """Close it and remove its files, once no request uses it any more."""
        if self.is_retired and self.users == 0:
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class PublishedStore(QdrantStore, VersionedStore):
    """A `VersionedStore` on the published collections of a bucket, with a folder for what is fetched."""

    is_embedded = True

    def __init__(self, published: PublishedCollections, folder: Path, breaker: CircuitBreaker | None = None) -> None:
        super().__init__("S3")  # callers get messages, which name no bucket
        self._published = published
        self._breaker = breaker or CircuitBreaker("s3", max_failures=inf)
        self._folder = folder
        self._opened: dict[str, _Opened] = {}
        self._next: dict[str, _Opened] = {}
        self._fetching: dict[str, Future[_Opened]] = {}
        self._pinned: tuple[Mapping[str, str], PublishedStore] | None = None
        self._lock = Lock()
        self._pin_lock = Lock()

    def prepare(self, collection: str, seconds: float) -> None:
        """Fetch a collection before the first request, as far as the time suffices; a failure is that request's."""
        try:
            self._start_fetching(collection).result(seconds)
        except (errors.ChunkproofError, FutureTimeoutError) as error:
            log.warning("Collection is not ready yet", extra={"collection": collection, "why": type(error).__name__})

    def version(self, collection: str, deadline: Deadline) -> str:
        """Return the version in force."""
        return self._ask(lambda: self._published.pointer(collection), deadline).version

    def at(self, versions: Mapping[str, str]) -> "PublishedStore":
        """Return a store with exactly these versions, fetched and open, wherever the pointers are by then.

        The disk holds the versions of one run: versions of the run before are removed.
        """
        with self._pin_lock:
            if self._pinned is None or self._pinned[0] != versions:
                if self._pinned is not None:
                    self._pinned[1].close()
                self._remove_except({*versions.values(), *(one.version for one in self._opened.values())})
                pinned = PinnedCollections(self._published.bucket, versions)
                self._pinned = dict(versions), PublishedStore(pinned, self._folder, self._breaker)
            store = self._pinned[1]
        deadline = Deadline(PIN_WAIT_S * 1000)
        for collection in versions:
            store._wait(store._start_fetching(collection), collection, deadline)
        return store

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        return self._ask(self._published.names, deadline)

    def features(self, deadline: Deadline) -> Features:
        """Return what the engine can do."""
        from chunkproof.stores.edge import FEATURES  # imported when the first collection is opened

        return FEATURES

    def call(
        self,
        operation: str,
        deadline: Deadline,
        collection: str = "",
        body: Json | None = None,
        where: tuple[Condition, ...] = (),
        *,
        read: Callable[[Any], Result],
    ) -> Result:
        """Let the version in use answer."""
        with self._using(collection, deadline) as store:
            return store.call(operation, deadline, collection, body, where, read=read)

    def close(self) -> None:
        """Close what is open; what was fetched stays on disk."""
        for opened in (*self._opened.values(), *self._next.values()):
            opened.store.close()
        self._opened.clear()
        self._next.clear()
        if self._pinned is not None:
            self._pinned[1].close()
            self._pinned = None

    @contextmanager
    def _using(self, collection: str, deadline: Deadline) -> "Iterator[EdgeStore]":
        """Use the version in force when the request began; the first request of a collection waits for it."""
        if collection not in self._opened:
            self._wait(self._start_fetching(collection), collection, deadline)
        with self._lock:
            opened = self._choose(collection, deadline)
            opened.users += 1
        try:
            if not 0 <= time() - opened.checked_at <= CHECK_EVERY_S:
                opened.checked_at = time()
                self._start_fetching(collection)  # whatever fails there leaves the version in use
            yield opened.store
        finally:
            with self._lock:
                opened.users -= 1
                opened.remove_if_unused()

    def _choose(self, collection: str, deadline: Deadline) -> _Opened:
        """Change to the next version if it was ready before the request began: no request sees two of them."""
        newer = self._next.get(collection)
        if newer is not None and newer.ready_at <= deadline.started_at:
            del self._next[collection]
            before, self._opened[collection] = self._opened[collection], newer
            before.is_retired = True
            before.remove_if_unused()
        return self._opened[collection]

    def _start_fetching(self, collection: str) -> "Future[_Opened]":
        with self._lock:
            running = self._fetching.get(collection)
            if running is not None and not running.done():
                return running
            outcome: Future[_Opened] = Future()
            self._fetching[collection] = outcome
        Thread(target=self._fetch_and_open, args=(collection, outcome), daemon=True).start()
        return outcome

    def _fetch_and_open(self, collection: str, outcome: "Future[_Opened]") -> None:
        try:
            outcome.set_result(self._fetch_newest(collection))
        except errors.ChunkproofError as error:
            log.exception("Collection could not be fetched", extra={"collection": collection, "code": error.code})
            outcome.set_exception(error)
        except Exception as error:
            log.exception("Collection could not be fetched", extra={"collection": collection})
            outcome.set_exception(errors.VectorStoreUnavailableError(self.host, type(error).__name__))

    def _fetch_newest(self, collection: str) -> _Opened:
        from chunkproof.stores.edge import EdgeStore
        from chunkproof.stores.edge_folder import shard_path

        before = self._opened.get(collection)
        with self._asking_s3():
            pointer = self._published.pointer(collection)
        newest = self._next.get(collection) or before
        if newest is not None and newest.version == pointer.version:
            return newest
        folder = self._folder / pointer.version
        target = shard_path(folder, collection)
        if not target.is_dir():  # a warm machine may have it from an earlier start
            for other in self._folder.glob("*"):
                if other != folder:
                    remove_partial(other)
            with self._asking_s3():
                version = self._published.version(pointer.version)
                self._check_space(version, target.parent)
                self._published.fetch(version, target, shard_path(before.folder, collection) if before else None)
        store = EdgeStore(folder)
        store.describe(collection, Deadline(60_000))  # opens it before a request has to wait for that
        opened = _Opened(pointer.version, folder, store, ready_at=monotonic(), checked_at=time())
        with self._lock:
            (self._opened if before is None else self._next)[collection] = opened
        log.info("Collection is ready", extra={"collection": collection, "version": pointer.version})
        return opened

    def _remove_except(self, versions: set[str]) -> None:
        """Remove what was fetched of other versions, by this process or by one before it on the same machine."""
        for folder in self._folder.glob("*"):
            if folder.name not in versions:
                shutil.rmtree(folder, ignore_errors=True)

    def _check_space(self, version: Version, folder: Path) -> None:
        """Refuse a version for which there is no room; what an interrupted fetch left in the folder counts as free."""
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free + sum(map(allocated_bytes, folder.glob(PARTIAL)))
        if version.stored_bytes + SPARE_BYTES > free:
            raise errors.VectorStoreUnavailableError(
                self.host,
                f"collection {version.collection} takes {version.stored_bytes >> 20} MB on disk, and "
                f"{free >> 20} MB are free; a function has 10,240 MB, for two versions",
            )

    def _wait(self, outcome: "Future[_Opened]", collection: str, deadline: Deadline) -> _Opened:
        try:
            return outcome.result(deadline.remaining_ms() / 1000)
        except FutureTimeoutError:
            raise errors.VectorStoreTimeoutError(
                self.host, f"collection {collection} is still being fetched; try again in some seconds"
            ) from None

    def _ask(self, call: Callable[[], Result], deadline: Deadline) -> Result:
        with self._asking_s3():
            return run_with_timeout(call, deadline.remaining_ms() / 1000)

    @contextmanager
    def _asking_s3(self) -> Iterator[None]:
        """Let the circuit breaker count failures of S3, and raise them as errors of a store; no message has a key."""
        try:
            is_probe = self._breaker.admit()
        except CircuitOpenError as opened:
            reason = "S3 failed repeatedly; calls to it are paused for a moment"
            raise errors.VectorStoreUnavailableError(self.host, reason, retry_after=opened.retry_after) from None
        failed: bool | None = False
        try:
            yield
        except TimeoutError:
            failed = True
            raise errors.VectorStoreTimeoutError(self.host, "S3 did not respond in time") from None
        except ObjectStoreError as error:
            failed = not error.is_misconfigured
            if error.is_misconfigured:
                raise _not_configured(error.reason) from error
            raise errors.VectorStoreUnavailableError(self.host, f"S3 failed ({error.reason})") from error
        except NoBucketError as error:
            raise _not_configured("NoSuchBucket") from error
        except OSError:  # such as a full disk
            failed = None
            raise
        finally:
            self._breaker.record(failed=failed, is_probe=is_probe)


def _not_configured(reason: str) -> errors.NotConfiguredError:
    return errors.NotConfiguredError(
        f"The published collections cannot be read from S3 ({reason}): check CHUNKPROOF_PUBLISHED_BUCKET, and that the "
        "function's role has s3:GetObject and s3:ListBucket"
    )
