"""The collections in tests/data/pipelines: read from disk, written into a store as their pipeline left them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from qdrant_client import models

from chunkproof.stores.store_port import WritableStore

from support.sdk import sdk

FOLDER = Path(__file__).resolve().parents[1] / "data" / "pipelines"


@cache
def pipeline(name: str) -> dict[str, Any]:
    """One fixture: `collection_config` and `points`."""
    fixture: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return fixture


def write(store: WritableStore, collection: str, name: str, *, with_indexes: bool) -> None:
    """The fixture as a collection; indexes only where the engine knows them."""
    config = pipeline(name)["collection_config"]
    sdk(store).create_collection(
        collection,
        vectors_config=_vectors(config["vectors"]),
        sparse_vectors_config={key: models.SparseVectorParams() for key in config["sparse_vectors"]} or None,
    )
    for field, index in config["payload_schema"].items() if with_indexes else ():
        sdk(store).create_payload_index(collection, field, field_schema=index["data_type"])
    points = [
        models.PointStruct(id=point["id"], vector=_vector(point["vector"]), payload=point["payload"])
        for point in pipeline(name)["points"]
    ]
    sdk(store).upsert(collection, points, wait=True)


def dense_vector(point: dict[str, Any]) -> list[float]:
    """The point's only dense vector, whatever its name."""
    vector = point["vector"]
    if isinstance(vector, list):
        return vector
    return next(values for values in vector.values() if isinstance(values, list))


def _vectors(config: dict[str, Any]) -> Any:
    if "size" in config:
        return models.VectorParams(**config)
    return {name: models.VectorParams(**params) for name, params in config.items()}


def _vector(vector: Any) -> Any:
    if isinstance(vector, list):
        return vector
    return {
        name: values if isinstance(values, list) else models.SparseVector(**values) for name, values in vector.items()
    }
