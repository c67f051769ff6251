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
from chunkproof.errors import ChunkproofError, EmbeddingError, EmbeddingSizeError, QueryTooLongError

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
        embedding = self.embed_any_size(text, deadline)
        self.check_size(text, embedding, size, collection)
        return embedding

    def embed_any_size(self, text: str, deadline: Deadline) -> QueryEmbedding:
        """Return the query's vector, of which `check_size` has yet to find that it fits the collection."""
        watch = Stopwatch()
        kept = self._recall(self._key(text))
        if kept is not None:
            return QueryEmbedding(kept[0], True, watch.ms(), kept[1])
        vectors = self.embedder.embed([text], InputType.QUERY, deadline)
        return self._keep(text, check_embeddings(vectors, 1)[0], watch)

    def embed_all(self, texts: Sequence[str], deadline: Deadline) -> list["QueryEmbedding | ChunkproofError"]:
        """Return the vector of each query, or its error, with one call for those that are not cached.

        A text that is too long fails alone; then the others take more calls.
        """
        watch = Stopwatch()
        found: dict[str, QueryEmbedding | ChunkproofError] = {}
        for text in texts:
            if kept := self._recall(self._key(text)):
                found[text] = QueryEmbedding(kept[0], True, watch.ms(), kept[1])
        missing = list(dict.fromkeys(text for text in texts if text not in found))
        for start in range(0, len(missing), self.embedder.max_batch):
            self._embed_missing(missing[start : start + self.embedder.max_batch], found, deadline)
        return [found[text] for text in texts]

    def _embed_missing(
        self, texts: Sequence[str], found: dict[str, "QueryEmbedding | ChunkproofError"], deadline: Deadline
    ) -> None:
        watch = Stopwatch()
        try:
            vectors = check_embeddings(self.embedder.embed(texts, InputType.QUERY, deadline), len(texts))
        except QueryTooLongError as error:
            if len(texts) == 1:
                found[texts[0]] = error
                return
            half = len(texts) // 2
            self._embed_missing(texts[:half], found, deadline)
            self._embed_missing(texts[half:], found, deadline)
        except ChunkproofError as error:
            found |= dict.fromkeys(texts, error)
        else:
            found |= {text: self._keep(text, vector, watch) for text, vector in zip(texts, vectors, strict=True)}

    def check_size(self, text: str, embedding: QueryEmbedding, size: int, collection: str) -> None:
        """Raise `EmbeddingSizeError` for a vector that is not of the size that the collection stores."""
        if len(embedding.vector) != size:
            self._forget(self._key(text))  # do not cache a wrong size: the service may be right next time
            raise EmbeddingSizeError(self.model, len(embedding.vector), collection, size, self._setting)

    def _key(self, text: str) -> Key:
        identity = embedder_identity(self.embedder)
        return (self._owner, identity, InputType.QUERY.value, self.embedder.dimension, text)

    def _keep(self, text: str, vector: Vector, watch: Stopwatch) -> QueryEmbedding:
        kept = (vector, datetime.now(UTC))
        self._remember(self._key(text), kept)
        return QueryEmbedding(vector, False, watch.ms(), kept[1])

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
