"""Query embeddings: checked before use, and cached."""

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from chunkproof.base.errors import ChunkproofError, EmbeddingError, EmbeddingSizeError, QueryTooLongError
from chunkproof.base.request import Deadline, Stopwatch
from chunkproof.embedders.embedder_port import Embedder, InputType, call_in_batches, embedder_identity, query_model
from chunkproof.stores.store_port import Vector

# Embeddings are unit vectors, so no value is beyond 1 but for rounding.
LARGEST_VALUE = 1.0 + 1e-3
# So many queries of a suite are embedded with one call: as many as Cohere takes.
AHEAD = 96

Key = tuple[str, Hashable, int | None, str]


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query as a vector, and how it came about."""

    vector: Vector
    cached: bool
    time_ms: float
    embedded_at: datetime


class QueryEmbedder:
    """Embeds queries and caches the latest ones by tenant, embedder, dimension and exact text."""

    def __init__(self, embedder: Embedder, cache_entries: int) -> None:
        self.embedder = embedder
        self.model = query_model(embedder)
        self._identity = embedder_identity(embedder)
        self._capacity = cache_entries
        self._owner = ""
        self._setting = "CHUNKPROOF_MODEL"
        # In arrays: a query of 1,024 values takes 4 kB in 32 bits, 8 kB in 64, and as a list of Python numbers 32 kB.
        self._kept: OrderedDict[Key, tuple[array[float], datetime]] = OrderedDict()
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
        other.model, other._identity = query_model(embedder), embedder_identity(embedder)
        return other

    def embed(self, text: str, deadline: Deadline) -> EmbeddedQuery:
        """Return the query's vector; its size is not checked yet."""
        watch = Stopwatch()
        kept = self._recall(text)
        if kept is not None:
            return EmbeddedQuery(kept[0], True, watch.ms(), kept[1])
        vectors = self.embedder.embed([text], InputType.QUERY, deadline)
        return self._keep(text, check_embeddings(vectors, 1)[0], watch)

    def embed_all(self, texts: Sequence[str], deadline: Deadline) -> list["EmbeddedQuery | ChunkproofError"]:
        """Return the vector of each query, or its error, with one call for those that are not cached.

        A text that is too long fails alone; then the others take more calls.
        """
        watch = Stopwatch()
        found: dict[str, EmbeddedQuery | ChunkproofError] = {}
        for text in texts:
            if kept := self._recall(text):
                found[text] = EmbeddedQuery(kept[0], True, watch.ms(), kept[1])
        missing = list(dict.fromkeys(text for text in texts if text not in found))

        def embed(batch: Sequence[str]) -> Sequence[EmbeddedQuery | ChunkproofError]:
            watch = Stopwatch()
            try:
                vectors = check_embeddings(self.embedder.embed(batch, InputType.QUERY, deadline), len(batch))
            except ChunkproofError as error:
                if isinstance(error, QueryTooLongError) and len(batch) > 1:
                    raise
                return [error] * len(batch)
            return [self._keep(text, vector, watch) for text, vector in zip(batch, vectors, strict=True)]

        made = call_in_batches(embed, missing, self.embedder.max_batch, QueryTooLongError)
        found |= zip(missing, made, strict=True)
        return [found[text] for text in texts]

    def embed_ahead(self, texts: Sequence[str], embed: Callable[[Sequence[str]], Sequence[Vector | None]]) -> None:
        """Keep the vectors of these queries until they are searched; None is left to the search."""
        watch, missing = Stopwatch(), [text for text in dict.fromkeys(texts) if self._key(text) not in self._kept]
        for text, vector in zip(missing, embed(missing), strict=True):
            if vector is not None:  # this batch and the one that is being searched
                self._keep(text, vector, watch, least=2 * AHEAD)

    def wrong_size(self, text: str, embedding: EmbeddedQuery, collection: str, size: int) -> EmbeddingSizeError:
        """Return the error for a vector that is not of the size that the collection stores."""
        with self._lock:  # do not cache a wrong size: the service may be right next time
            self._kept.pop(self._key(text), None)
        return EmbeddingSizeError(self.model, len(embedding.vector), collection, size, self._setting)

    def _key(self, text: str) -> Key:
        return self._owner, self._identity, self.embedder.dimension, text

    def _recall(self, text: str) -> tuple[Vector, datetime] | None:
        key = self._key(text)
        with self._lock:
            if (kept := self._kept.pop(key, None)) is None:
                return None
            if self._capacity:  # without a cache, it was embedded ahead for this search alone
                self._kept[key] = kept
        return kept[0].tolist(), kept[1]

    def _keep(self, text: str, vector: Vector, watch: Stopwatch, least: int = 0) -> EmbeddedQuery:
        made, capacity = EmbeddedQuery(vector, False, watch.ms(), datetime.now(UTC)), max(self._capacity, least)
        if not capacity:
            return made
        short = array("f", vector)
        # Decimals seldom fit into 32 bits, and a cached query must be sent as a new one is.
        is_exact = short[0] == vector[0] and short.tolist() == list(vector)
        with self._lock:
            self._kept[self._key(text)] = short if is_exact else array("d", vector), made.embedded_at
            while len(self._kept) > capacity:
                self._kept.popitem(last=False)
        return made


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
        try:  # an embedding has a thousand values, and `hypot` looks at them all in C
            length = math.hypot(*vector)
            if 0 < length <= LARGEST_VALUE:  # no value is larger than that
                continue
            is_finite = math.isfinite(length) or all(map(math.isfinite, vector))
        except TypeError:
            is_finite = False
        except OverflowError:  # an integer that no float holds, but finite
            is_finite = True
        if not is_finite:
            raise EmbeddingError("an embedding has a value that is not a finite number")
        if max(vector) > LARGEST_VALUE or min(vector) < -LARGEST_VALUE:
            raise EmbeddingError("an embedding has a value outside [-1, 1]")
        if not any(vector):
            raise EmbeddingError("an embedding is all zeros")
    return vectors
