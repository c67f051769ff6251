"""Qdrant: a server, Qdrant Cloud, a local folder or memory."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkproof.clients.ports import Point, VectorConfig, WritableStore, is_invalid_collection_name
from chunkproof.errors import InvalidParameterError

if TYPE_CHECKING:
    import httpx

# Scores are 32-bit; this is more than their rounding and less than any difference that matters.
SCORE_STEP = 1e-6


class QdrantStore(WritableStore, ABC):
    """A `WritableStore` in Qdrant. Each kind imports what it needs, and only when it is made."""

    def __init__(self, host: str) -> None:
        self._host = host

    @property
    def host(self) -> str:
        """Where it is, as a message may say it."""
        return self._host

    @staticmethod
    def at(url: str, transport: "httpx.BaseTransport") -> "QdrantStore":
        """A server or a cloud cluster; the transport adds the key."""
        from chunkproof.clients.qdrant.server import ServedStore

        return ServedStore(url, transport)

    @staticmethod
    def embedded(path: Path | None) -> "QdrantStore":
        """A store in this folder, one process at a time; in memory when there is none."""
        from chunkproof.clients.qdrant.local import EmbeddedStore

        return EmbeddedStore(path)

    @abstractmethod
    def close(self) -> None:
        """Give the connections, or the folder, back."""


def creatable(collection: str) -> str:
    """The name, if a collection can have it."""
    if is_invalid_collection_name(collection):
        raise InvalidParameterError(f"No collection can be named {collection}")
    return collection


def dense_spaces(vectors: Mapping[str, Any] | None) -> Iterator[VectorConfig]:
    """The vectors of a collection, in JSON as its configuration has them, that are one dense vector each."""
    named = {} if not vectors else {"": vectors} if isinstance(vectors.get("size"), int) else vectors
    for name, params in named.items():
        if params.get("multivector_config") is None:  # else one vector per token: not a single one to compare
            yield VectorConfig(name, params["size"], params["distance"])


def vector_selector(name: str | None) -> bool | list[str]:
    """What asks for this vector: none, the unnamed one, or one by its name."""
    return False if name is None else [name] if name else True


def point_of(
    point_id: int | str, payload: Mapping[str, Any] | None, vectors: Any, vector_name: str, score: float = 0.0
) -> Point:
    """A point with the named vector of those that came along, and its score at the precision that it has."""
    vector = vectors.get(vector_name) if isinstance(vectors, dict) else vectors
    return Point(point_id, payload or {}, _cosine(float(score)), None if vector is None else tuple(vector))


def _cosine(score: float) -> float:
    """An identical vector scores 0.9999999 or 1.0000001 as well as 1."""
    if not math.isfinite(score):  # local mode's for a vector of zeros
        return 0.0
    return 1.0 if score > 1.0 - SCORE_STEP else score
