"""An embedded store for a test, with nothing to set up and nothing left behind."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.store_port import Point, PointId, StoreQuery, WritableStore

# A file system in memory: there, a new collection takes a tenth of the time. A full one ends the process.
MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 << 30


class MemoryStore(EdgeStore):
    """A store in a folder of its own, in memory where there is room; the folder goes with the store.

    Its collections have the index of words only on demand: opening one takes five times as long with it.
    """

    def __init__(self, *, words: bool = False) -> None:
        if not words:
            self.new_indexes = WritableStore.new_indexes
        has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES
        folder = tempfile.mkdtemp(prefix="chunkproof-", dir=MEMORY if has_room else None)
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(Path(folder))
        # Texts to return instead of those that are stored, by the id of the point: what the engine does not take.
        self.changed_texts: dict[PointId, str] = {}

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        return [[self._change(point) for point in points] for points in super().search(queries, deadline)]

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        return [self._change(point) for point in super().fetch(collection, ids, deadline, with_vector=with_vector)]

    def _change(self, point: Point) -> Point:
        if point.id not in self.changed_texts:
            return point
        return replace(point, payload={**point.payload, "text": self.changed_texts[point.id]})

    def close(self) -> None:
        super().close()
        self._remove()
