"""Qdrant's own client, for what only tests do with a collection."""

from functools import cache
from typing import Any, cast

import qdrant_edge as edge
from qdrant_client import QdrantClient, models

from chunkproof.base.request import Deadline
from chunkproof.stores.edge import EdgeStore
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Layout, VectorStore


def sdk(store: VectorStore) -> QdrantClient:
    """Return a client of the same server, or one that writes to an Edge store."""
    if isinstance(store, EdgeStore):
        return cast(QdrantClient, EdgeClient(store))
    assert isinstance(store, ServerStore)
    return _client(store.url)


@cache
def _client(url: str) -> QdrantClient:
    return QdrantClient(url=url, check_compatibility=False, timeout=60)


class EdgeClient:
    """The calls of Qdrant's client that tests make, on an Edge store."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store

    def collection_exists(self, name: str) -> bool:
        return name in self._store.collections(Deadline(60_000))

    def create_collection(
        self, name: str, vectors_config: Any = None, sparse_vectors_config: Any = None, **_ignored: Any
    ) -> None:
        named = {"": vectors_config} if isinstance(vectors_config, models.VectorParams) else vectors_config or {}
        layout = Layout(
            {key: params.model_dump(mode="json", exclude_none=True) for key, params in named.items()},
            {key: {"modifier": params.modifier} for key, params in (sparse_vectors_config or {}).items()},
        )
        self._store.create_like(name, layout, Deadline(60_000))

    def create_payload_index(self, name: str, field_name: str, field_schema: str, **_ignored: Any) -> None:
        schema = getattr(edge.PayloadSchemaType, field_schema.capitalize())
        with self._store._writing(name) as shard:
            shard.engine.update(edge.UpdateOperation.create_field_index(field_name, schema))
            shard.engine.flush()

    def upsert(self, name: str, points: list[models.PointStruct], **_ignored: Any) -> None:
        structs = [point.model_dump() for point in points]
        for struct in structs:
            if not isinstance(struct["vector"], dict):
                struct["vector"] = {"": struct["vector"]}
        self._store.write_points(
            name, [{**struct, "payload": struct["payload"] or {}} for struct in structs], Deadline(60_000)
        )

    def delete(self, name: str, points_selector: Any, **_ignored: Any) -> None:
        if isinstance(points_selector, models.FilterSelector):
            assert points_selector.filter == models.Filter(), "only the filter for all points"
            ids = [point.id for point in self._store.scroll(name, Deadline(60_000), limit=10_000).points]
        else:
            ids = list(getattr(points_selector, "points", points_selector))
        with self._store._writing(name) as shard:
            shard.engine.update(edge.UpdateOperation.delete_points(ids))
            shard.engine.flush()

    def delete_collection(self, name: str) -> None:
        self._store.drop(name)
