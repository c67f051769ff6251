"""Query embeddings: checked before use, and cached."""

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from chunkproof.clients.ports import Embedder, InputType, Vector, embedder_identity, query_model
from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import EmbeddingError, EmbeddingSizeError

# Embeddings are unit vectors, so no value is beyond 1 but for rounding.
LARGEST_VALUE = 1.0 + 1e-3

Key = tuple[str, Hashable, str, int | None, str]


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """A query as a vector, and how it came about."""

    vector: Vector
    cached: bool
    time_ms: float
    embedded_at: datetime


class QueryEmbedder:
    """Embeds queries and caches the latest ones by tenant, embedder, input type, dimension and exact text."""

    def __init__(self, embedder: Embedder, cache_entries: int) -> None:
        self.embedder = embedder
        self._capacity = cache_entries
        self._owner = ""
        self._setting = "CHUNKPROOF_MODEL"
        self._kept: OrderedDict[Key, tuple[Vector, datetime]] = OrderedDict()
        self._lock = Lock()

    def for_tenant(self, tenant: str) -> "QueryEmbedder":
        """Return an embedder with the same cache in which a tenant finds only its own entries.

        Otherwise `embedding_cached` would reveal what other tenants searched for.
        """
        own = copy(self)
        own._owner = tenant
        return own

    def for_embedder(self, embedder: Embedder, setting: str) -> "QueryEmbedder":
        """Return one with the same cache for another embedder, which this setting names."""
        other = copy(self)
        other.embedder, other._setting = embedder, setting
        return other

    @property
    def model(self) -> str:
        """The model that queries are embedded with."""
        return query_model(self.embedder)

    def embed(self, text: str, size: int, collection: str, deadline: Deadline) -> QueryEmbedding:
        """Return the query's vector; `EmbeddingSizeError` when it is not of the size that the collection stores."""
        watch = Stopwatch()
        identity = embedder_identity(self.embedder)
        key = (self._owner, identity, InputType.QUERY.value, self.embedder.dimension, text)
        kept = self._recall(key)
        if kept is None:
            vectors = self.embedder.embed([text], InputType.QUERY, deadline)
            kept = (check_embeddings(vectors, 1)[0], datetime.now(UTC))
            cached = False
        else:
            cached = True
        vector, embedded_at = kept
        if len(vector) != size:
            self._forget(key)  # do not cache a wrong size: the service may be right next time
            raise EmbeddingSizeError(self.model, len(vector), collection, size, self._setting)
        if not cached:
            self._remember(key, kept)
        return QueryEmbedding(vector, cached, watch.ms(), embedded_at)

    def _recall(self, key: Key) -> tuple[Vector, datetime] | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _forget(self, key: Key) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def _remember(self, key: Key, value: tuple[Vector, datetime]) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)


def check_embeddings(vectors: Sequence[Vector], count: int) -> Sequence[Vector]:
    """Return the vectors if they can be embeddings of `count` texts; else raise `EmbeddingError`."""
    if len(vectors) != count:
        raise EmbeddingError(f"{count} texts were sent and {len(vectors)} embeddings returned")
    if not all(isinstance(vector, list | tuple) for vector in vectors):
        raise EmbeddingError("the response is not a list of numbers")
    if len({len(vector) for vector in vectors}) > 1:
        raise EmbeddingError("the embeddings have different sizes")
    for vector in vectors:
        if not vector:
            raise EmbeddingError("an embedding is empty")
        if not _is_finite(vector):
            raise EmbeddingError("an embedding has a value that is not a finite number")
        if max(vector) > LARGEST_VALUE or min(vector) < -LARGEST_VALUE:
            raise EmbeddingError("an embedding has a value outside [-1, 1]")
        if not any(vector):
            raise EmbeddingError("an embedding is all zeros")
    return vectors


def _is_finite(vector: Vector) -> bool:
    """Whether all values are finite numbers; an embedding has a thousand, and `hypot` looks at them all in C."""
    try:
        return math.isfinite(math.hypot(*vector)) or all(map(math.isfinite, vector))
    except TypeError:
        return False
    except OverflowError:  # an integer that no float holds, but finite
        return True
