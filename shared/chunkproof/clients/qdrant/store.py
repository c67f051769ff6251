"""What the kinds of Qdrant store have in common."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkproof.clients.ports import Point, StoreQuery, VectorConfig, WritableStore
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.models.base import MAX_NAME

if TYPE_CHECKING:
    import httpx

    from chunkproof.clients.qdrant.migration import FindTextFields, Progress

# More than the rounding of a 32-bit score, and less than any difference that matters.
SCORE_STEP = 1e-6
# Qdrant refuses such names, and in a URL these characters would mean something else.
_FORBIDDEN = re.compile(r'[/\\<>:"|?*\x00-\x1f\x7f]')


class QdrantStore(WritableStore, ABC):
    """A `WritableStore` in Qdrant. The SDK is imported when a store is opened: each kind needs another part of it."""

    def __init__(self, host: str) -> None:
        self._host = host

    @property
    def host(self) -> str:
        """The host or folder, as messages show it."""
        return self._host

    @staticmethod
    def open_server(url: str, transport: "httpx.BaseTransport") -> "QdrantStore":
        """Open a store on a server or in Qdrant Cloud; the transport adds the key."""
        from chunkproof.clients.qdrant.server import ServerStore

        return ServerStore(url, transport)

    @staticmethod
    def open_local(path: Path | None) -> "QdrantStore":
        """Open a store in this folder, for one process at a time, or in memory."""
        from chunkproof.clients.qdrant.local import LocalStore

        return LocalStore(path)

    @staticmethod
    def open_embedded(
        path: Path, progress: "Progress | None" = None, find_text_fields: "FindTextFields | None" = None
    ) -> "QdrantStore":
        """Open the store in this folder: Qdrant Edge where it is installed, else local mode.

        Collections that local mode wrote are moved to Qdrant Edge once; `progress` shows how far that is, and
        `find_text_fields` names the fields whose words are then indexed (`text` by default).
        """
        if not has_edge():
            if (path / "shards").is_dir():
                raise VectorStoreUnavailableError(
                    str(path), "Qdrant Edge wrote this folder, and is not installed: pip install qdrant-edge-py"
                )
            return QdrantStore.open_local(path)
        from chunkproof.clients.qdrant import migration

        if migration.needs_migration(path):
            fields = find_text_fields or (lambda _payloads: ["text"])
            migration.migrate_folder(path, progress or migration.show_nothing, fields)
        return QdrantStore.open_edge(path)

    @staticmethod
    def open_edge(path: Path) -> "QdrantStore":
        """Open a store of Qdrant's engine in this folder, which several processes can read."""
        from chunkproof.clients.qdrant.edge import EdgeStore

        return EdgeStore(path)

    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each; this kind of store has none."""
        return {}

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return no scores: this kind of store draws no points."""
        return []

    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written; a server does so by itself, and local mode has none."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections or the folder."""


def has_edge() -> bool:
    """Whether Qdrant Edge can be imported on this machine."""
    try:
        import_module("qdrant_edge")
    except ImportError:
        return False
    return True


def is_invalid_collection_name(collection: str) -> bool:
    """Whether no collection can have this name."""
    return bool(_FORBIDDEN.search(collection)) or collection in ("", ".", "..") or len(collection) > MAX_NAME


def check_collection_name(collection: str) -> None:
    """Raise `InvalidParameterError` if no collection can have this name."""
    if is_invalid_collection_name(collection):
        raise InvalidParameterError(f"No collection can be named {collection}")


def dense_vector_configs(vectors: Mapping[str, Any] | None) -> Iterator[VectorConfig]:
    """Yield the single dense vectors in the `vectors` of a collection's configuration."""
    named = {} if not vectors else {"": vectors} if isinstance(vectors.get("size"), int) else vectors
    for name, params in named.items():
        if params.get("multivector_config") is None:  # a multivector has one vector per token
            yield VectorConfig(name, params["size"], params["distance"], params.get("datatype"))


def count_indexed_dense(indexed: int, points: int, sparse_vectors: int) -> int:
    """Return how many dense vectors have an index: Qdrant's count includes sparse vectors, which always have one."""
    return max(0, indexed - points * sparse_vectors)


def vector_selector(name: str | None) -> bool | list[str]:
    """Return Qdrant's `with_vector` value: False for no vector, True for the unnamed one, or a list with a name."""
    return False if name is None else [name] if name else True


def build_point(
    point_id: int | str, payload: Mapping[str, Any] | None, vectors: Any, vector_name: str, score: float = 0.0
) -> Point:
    """Build a `Point` with the named one of the returned vectors."""
    vector = vectors.get(vector_name) if isinstance(vectors, dict) else vectors
    return Point(point_id, payload or {}, float(score), None if vector is None else tuple(vector))


def round_cosine(score: float) -> float:
    """Return 1.0 for scores such as 0.9999999 and 1.0000001, which identical vectors get."""
    if not math.isfinite(score):  # local mode's score for a vector of zeros
        return 0.0
    return 1.0 if score > 1.0 - SCORE_STEP else score
