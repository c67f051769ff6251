"""Qdrant Edge: Qdrant's engine in this process, with one shard for each collection in a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import qdrant_edge as edge
from pydantic_core import to_json

from chunkproof.base.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    ResponseTooLargeError,
    VectorStoreRefusedError,
    VectorStoreTimeoutError,
    VectorStoreUnavailableError,
)
from chunkproof.base.files import LockedError, private_files
from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import Condition
from chunkproof.stores.edge_folder import ShardFolder
from chunkproof.stores.edge_shard import (
    Shard,
    build_filter,
    build_request,
    create_shard,
    payload_selector,
    plain_id,
    to_record,
    type_name,
    unpack_shard,
)
from chunkproof.stores.qdrant import QdrantStore, Result, check_collection_name, is_invalid_collection_name
from chunkproof.stores.store_port import Features, Json, Layout, WritableStore

# How the engine's messages begin when it refuses a request; any other failure is one of the folder.
REFUSALS = ("Vector dimension error", "Not existing vector name", "Wrong input", "Bad request", "Conversion")
# The module of the exception for a panic of the engine, which is not an `Exception`: damaged files cause some.
PANICS = "pyo3_runtime"
AT_ONCE = 20

FEATURES = Features("Qdrant Edge", bm25=True, text_index=True, rrf_k=True, rrf_weights=True, mmr=True, idf_corpus=True)


class EdgeStore(QdrantStore, WritableStore):
    """A store in a folder, with indexes. Several processes can read a collection, or one can write to it."""

    is_embedded = True
    # So texts can be searched by their words without the sparse vector that a server needs for it.
    new_indexes = MappingProxyType({**WritableStore.new_indexes, "text": {"type": "text"}})

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            self._folder = ShardFolder(path)
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        self._shards: dict[str, Shard] = {}

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return no other names: the engine has none."""
        return {}

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        return self._folder.names()

    def features(self, deadline: Deadline) -> Features:
        """Return what the engine can do."""
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
        """Return what `read` takes from the engine's answer to a request of Qdrant's REST API that reads."""
        with self._reading(collection) as shard:
            answering = _Answering(shard.engine, self.host, deadline)
            if body is None:
                answer: Any = _describe(shard)
            elif "searches" in body:
                answer = [answering.query(search) for search in body["searches"]]
            else:
                answer = _ANSWERS[operation](answering, body)
        return read(answer)

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return the layout of a collection; for a copy, the layout of the collection on the server."""
        with self._reading(collection) as shard:
            return shard.layout

    def create_like(
        self, collection: str, layout: Layout, deadline: Deadline, *, word_fields: Sequence[str] = ()
    ) -> None:
        """Create a collection with this layout, and with indexes of the words of these fields."""
        check_collection_name(collection)
        with self._translate_errors():
            try:
                with self._folder.making(collection) as folder:
                    create_shard(folder, layout, word_fields)
            except FileExistsError:
                raise VectorStoreRefusedError(self.host, f"Collection {collection} exists already") from None

    def write_points(self, collection: str, points: Sequence[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are on disk and searchable when it returns."""
        if not points:
            with self._reading(collection):
                return
        with self._writing(collection) as shard:
            shard.write(points)

    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written, so that searching and opening are fast; large ones take minutes.

        It works on a copy, which then replaces the shard: whatever interrupts it, the collection stays as it is.
        """
        with self._writing(collection) as shard:
            shard.optimize()

    def import_snapshot(self, collection: str, snapshot: Path, layout: Layout, word_fields: Sequence[str]) -> None:
        """Create a collection from the snapshot of a server's shard, with indexes of the words of these fields."""
        check_collection_name(collection)
        with self._translate_errors(), self._folder.making(collection) as folder:
            unpack_shard(snapshot, folder, layout, word_fields)

    def rename(self, collection: str, name: str) -> None:
        """Rename a collection, replacing any collection of that name."""
        check_collection_name(name)
        if name in self._folder.names():
            self.drop(name)
        with self._writing(collection) as shard:
            shard.finish_writing()
            shard.close_engine()
            self._folder.rename(collection, name)
        self._shards.pop(collection).close()

    def drop(self, collection: str) -> None:
        """Remove a collection."""
        with self._writing(collection) as shard:
            shard.close_engine()
            self._folder.remove(collection)
        self._shards.pop(collection).close()

    def close(self) -> None:
        """Close the collections, so that other processes can write to them."""
        with private_files():
            while self._shards:
                self._shards.popitem()[1].close()

    @contextmanager
    def _reading(self, collection: str) -> Iterator[Shard]:
        with self._translate_errors(), self._shard(collection).reading() as shard:
            yield shard

    @contextmanager
    def _writing(self, collection: str) -> Iterator[Shard]:
        with self._translate_errors(), private_files(), self._shard(collection).writing() as shard:
            yield shard

    def _shard(self, collection: str) -> Shard:
        if (shard := self._shards.get(collection)) is None:
            folder = None if is_invalid_collection_name(collection) else self._folder.find(collection)
            if folder is None:
                raise CollectionNotFoundError(collection)
            shard = self._shards.setdefault(collection, Shard(folder))
        return shard

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ChunkproofError:
            raise  # some are a ValueError
        except LockedError:
            reason = "another process writes to this collection, or reads it while this one would write; wait for it"
            raise VectorStoreUnavailableError(self.host, f"{reason} or choose another folder with --data") from None
        except OSError as error:
            raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {error.strerror}") from None
        except BaseException as error:
            reason = str(error).partition("\n")[0]
            # Of the bindings: a value that the engine cannot hold. The engine itself raises nothing but `Exception`.
            if isinstance(error, ValueError | TypeError | OverflowError) or (
                type(error) is Exception and reason.startswith(REFUSALS)
            ):
                raise VectorStoreRefusedError(self.host, f"The request does not fit: {reason}") from None
            if type(error) is Exception or type(error).__module__ == PANICS:
                raise VectorStoreUnavailableError(self.host, f"the folder cannot be used: {reason}") from None
            raise


def _describe(shard: Shard) -> Json:
    info, config = shard.engine.info(), shard.config
    schema = {
        field: {"data_type": type_name(index.data_type), "params": {"scoring": getattr(index.params, "scoring", None)}}
        for field, index in info.payload_schema.items()
    }
    counts = {"points_count": info.points_count, "indexed_vectors_count": info.indexed_vectors_count}
    return {"config": {"params": config, **config}, "payload_schema": schema, "status": "green", **counts}


class _Answering:
    """Answers the requests of one call, one after the other, within its time and its bytes: the engine knows neither.

    Points are read a few at a time: of many, the engine would have all payloads in memory before their size is known.
    """

    def __init__(self, engine: edge.EdgeShard, host: str, deadline: Deadline) -> None:
        self._engine, self._host, self._deadline = engine, host, deadline
        self._left = deadline.max_response_bytes

    def query(self, body: Json) -> Json:
        self._check_time()
        if body["limit"] <= AT_ONCE or not body["with_payload"]:
            found = self._engine.query(build_request(body))
            return {"points": [self._weigh(to_record(point)) for point in found]}
        found = self._engine.query(build_request({**body, "with_payload": False, "with_vector": False}))
        read = {record["id"]: record for record in self._read([point.id for point in found], body)}
        return {"points": [{**record, **read[record["id"]]} for record in map(to_record, found)]}

    def retrieve(self, body: Json) -> list[Json]:
        return list(self._read(body["ids"], body))

    def scroll(self, body: Json) -> Json:
        self._check_time()
        request = edge.ScrollRequest(
            offset=body.get("offset"),
            limit=body["limit"],
            filter=build_filter(body),
            with_payload=False,
            with_vector=False,
        )
        records, next_id = self._engine.scroll(request)
        if body["with_payload"] or body["with_vector"]:
            points = list(self._read([record.id for record in records], body))
        else:
            points = [to_record(record) for record in records]
        return {"points": points, "next_page_offset": None if next_id is None else plain_id(next_id)}

    def count(self, body: Json) -> Json:
        self._check_time()
        return {"count": self._engine.count(edge.CountRequest(exact=body["exact"], filter=build_filter(body)))}

    def facet(self, body: Json) -> Json:
        self._check_time()
        if body["key"] not in self._engine.info().payload_schema:
            raise ValueError(f"no index on {body['key']}")
        request = edge.FacetRequest(body["key"], limit=body["limit"], exact=body["exact"], filter=build_filter(body))
        return {"hits": [{"value": hit.value, "count": hit.count} for hit in self._engine.facet(request).hits]}

    def _read(self, ids: list[Any], body: Json) -> Iterator[Json]:
        """Yield the points with these ids, in their order."""
        payload, vector = payload_selector(body["with_payload"]), body["with_vector"]
        for at in range(0, len(ids), AT_ONCE):
            self._check_time()
            part = ids[at : at + AT_ONCE]
            read = {plain_id(record.id): record for record in self._engine.retrieve(part, payload, vector)}
            yield from (self._weigh(to_record(read[key])) for key in map(plain_id, part) if key in read)

    def _check_time(self) -> None:
        if self._deadline.remaining_ms() <= 0:
            raise VectorStoreTimeoutError(self._host, "out of time: ask for less, or raise CHUNKPROOF_DEADLINE_MS")

    def _weigh(self, record: Json) -> Json:
        self._left -= len(to_json(record["payload"]))
        if self._left < 0:
            most = self._deadline.max_response_bytes
            raise ResponseTooLargeError(f"The points found have more than {most} bytes; request fewer results")
        return record


_ANSWERS: Mapping[str, Callable[[_Answering, Json], Any]] = {
    "POST /points/query": _Answering.query,
    "POST /points": _Answering.retrieve,
    "POST /points/scroll": _Answering.scroll,
    "POST /points/count": _Answering.count,
    "POST /facet": _Answering.facet,
}
