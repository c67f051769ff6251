"""Qdrant's own client, for what only tests do with a collection."""

from functools import cache
from typing import Any, cast

import qdrant_edge as edge
from qdrant_client import QdrantClient, models

from chunkproof.clients.ports import VectorStore
from chunkproof.clients.qdrant.edge import EdgeStore
from chunkproof.clients.qdrant.local import LocalStore
from chunkproof.clients.qdrant.server import ServerStore
from chunkproof.deadline import Deadline


def sdk(store: VectorStore) -> QdrantClient:
    """Return a client of the same server, the client of a local store, or one that writes to an Edge store."""
    if isinstance(store, LocalStore):
        return store.client
    if isinstance(store, EdgeStore):
        return cast(QdrantClient, EdgeClient(store))
    assert isinstance(store, ServerStore)
    return _client(store.url)


@cache
def _client(url: str) -> QdrantClient:
    return QdrantClient(url=url, check_compatibility=False)


class EdgeClient:
    """The calls of Qdrant's client that tests make, on an Edge store."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store

    def create_collection(
        self, name: str, vectors_config: Any = None, sparse_vectors_config: Any = None, **_ignored: Any
    ) -> None:
        named = {"": vectors_config} if isinstance(vectors_config, models.VectorParams) else vectors_config or {}
        config = edge.EdgeConfig(
            vectors={key: _vector_params(params) for key, params in named.items()},
            sparse_vectors={
                key: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf if params.modifier else None)
                for key, params in (sparse_vectors_config or {}).items()
            },
            wal_enabled=False,
        )
        self._store.create_shard(name, config, {})

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

    def delete(self, name: str, points: Any, **_ignored: Any) -> None:
        ids = points.points if isinstance(points, models.PointIdsList) else points
        with self._store._writing(name) as shard:
            shard.engine.update(edge.UpdateOperation.delete_points(list(ids)))
            shard.engine.flush()

    def delete_collection(self, name: str) -> None:
        self._store.drop(name)


def _vector_params(params: models.VectorParams) -> edge.EdgeVectorParams:
    multi = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim) if params.multivector_config else None
    distance = getattr(edge.Distance, params.distance.value)
    return edge.EdgeVectorParams(size=params.size, distance=distance, multivector_config=multi)
