"""What a use case works with, and what is known about each collection."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import fsum
from threading import Lock
from typing import TYPE_CHECKING

from chunkproof.clients.ports import Embedder, PointId, Reranker, TextLeg, VectorConfig, VectorStore, VersionedStore
from chunkproof.deadline import Deadline
from chunkproof.embedder_config import place_of
from chunkproof.errors import (
    CollectionNotFoundError,
    InvalidParameterError,
    NotConfiguredError,
    UnsupportedDistanceError,
)
from chunkproof.retrieval.chunk_ids import count_ids, read_ids
from chunkproof.retrieval.embedding import QueryEmbedder
from chunkproof.retrieval.hashes import Hashes, recognise_hashes
from chunkproof.retrieval.pages import read_first
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.tenants import TenantStore
from chunkproof.settings import Settings

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker

SAMPLE_POINTS = 100
# To read which version is in force, at the start of a run.
PIN_MS = 10_000
# Services are kept for so many tenants, the latest ones.
MAX_TENANTS = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """The first payloads of a collection, which show the pipeline that wrote it."""

    payloads: tuple[dict[str, object], ...]
    is_complete: bool = False


@dataclass
class Services:
    """Settings, store and embedder of a process; remembers the vector config and a sample of each collection."""

    settings: Settings
    store: VectorStore
    embedder: Embedder | None
    circuits: Mapping[str, "CircuitBreaker"] = field(default_factory=dict)
    # Of collections whose embedder is another one.
    embedders: Mapping[str, Embedder] = field(default_factory=dict)
    reranker: Reranker | None = None
    # Of published collections, when these services read certain versions of them.
    versions: Mapping[str, str] = field(default_factory=dict)
    _queries: QueryEmbedder | None = field(init=False)
    payloads: PayloadMap = field(init=False)
    _vector_configs: dict[str, VectorConfig] = field(init=False, default_factory=dict)
    _samples: dict[str, Sample] = field(init=False, default_factory=dict)
    _payload_maps: dict[str, PayloadMap] = field(init=False, default_factory=dict)
    _hashes: dict[str, Hashes] = field(init=False, default_factory=dict)
    # How collections are searched by words (retrieval/legs.py).
    text_legs: dict[str, TextLeg] = field(init=False, default_factory=dict)
    _tenants: OrderedDict[str, "Services"] = field(init=False, default_factory=OrderedDict)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        self._queries = QueryEmbedder(self.embedder, self.settings.cache_entries) if self.embedder else None
        self.payloads = PayloadMap(self.settings.payload_map)

    def for_tenant(self, tenant: str) -> "Services":
        """Return the same services restricted to this tenant's points."""
        if self.settings.tenant_field is None:
            raise NotConfiguredError("CHUNKPROOF_TENANT_FIELD is not set")
        with self._lock:
            own = self._tenants.pop(tenant, None)
            if own is None:
                own = replace(self, store=TenantStore(self.store, self.settings.tenant_field, tenant))
                own._queries = self._queries.for_tenant(tenant) if self._queries else None
                own._vector_configs = self._vector_configs  # the vector config is shared across tenants
            self._tenants[tenant] = own
            while len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        return own

    def pin(self, collections: Iterable[str]) -> dict[str, str]:
        """Return the version in force of each collection; nothing where the store has no versions."""
        if not isinstance(self.store, VersionedStore):
            return {}
        return {name: self.store.version(name, Deadline(PIN_MS)) for name in collections}

    def at(self, versions: Mapping[str, str]) -> "Services":
        """Return the same services with exactly these versions, so that all steps of a run read the same chunks."""
        if isinstance(self.store, VersionedStore):
            return replace(self, store=self.store.at(versions), versions=versions)
        if versions:
            raise InvalidParameterError("The run began with Store=edge, and this function has a server: start it again")
        return self

    def resolve_collection(self, name: str | None) -> str:
        """Return the collection that a request means; `CollectionNotFoundError` when the deployment forbids it."""
        resolved = name or self.settings.collection
        allowed = self.settings.allowed_collections
        if allowed and resolved not in {*allowed, self.settings.collection}:
            raise CollectionNotFoundError(resolved)
        return resolved

    def embedder_of(self, collection: str) -> Embedder | None:
        """Return the embedder of a collection: its own, or that of all others."""
        return self.embedders.get(collection, self.embedder)

    def require_embedder(self, collection: str) -> Embedder:
        """Return the embedder of a collection; `NotConfiguredError` says how to get one."""
        embedder = self.embedder_of(collection)
        if embedder is None:
            raise NotConfiguredError("No embedder is configured: set COHERE_API_KEY")
        return embedder

    def query_embedder(self, collection: str) -> QueryEmbedder:
        """Return the embedder of a collection's queries; `NotConfiguredError` says how to get one."""
        embedder = self.require_embedder(collection)
        shared = self._queries or QueryEmbedder(embedder, self.settings.cache_entries)
        return shared.for_embedder(embedder, self.model_setting(collection))

    def model_setting(self, collection: str) -> str:
        """Return the setting that names the model of a collection."""
        if collection in self.embedders:
            return place_of(collection)
        # The local model has no other: its service is chosen first.
        return "CHUNKPROOF_MODEL" if hasattr(self.embedder, "service") else "CHUNKPROOF_EMBEDDER and CHUNKPROOF_MODEL"

    def vector_config(self, collection: str, deadline: Deadline) -> VectorConfig:
        """Return the dense vector to search by; the store is asked once, because it does not change."""
        known = self._vector_configs.get(collection)
        if known is not None:
            return known
        description = self.store.describe(collection, deadline)
        config = choose_vector(description.vectors, self.settings.vector_name, collection)
        if self._has_cosine_scores(collection, config, deadline):
            self._vector_configs[collection] = config
        return config

    def sample(self, collection: str, deadline: Deadline) -> Sample:
        """Return the first points' payloads, fewer where they are large; the store is asked once."""
        known = self._samples.get(collection)
        if known is not None:
            return known
        page = read_first(self.store, collection, deadline, limit=SAMPLE_POINTS)
        sample = Sample(tuple(dict(point.payload) for point in page.points), is_complete=page.next_id is None)
        if sample.payloads:  # an empty collection may be filled any moment
            self._samples[collection] = sample
        return sample

    def payloads_of(self, collection: str, deadline: Deadline) -> PayloadMap:
        """Return how to read this collection: an id in a payload is the chunk's only if no other point has it."""
        if self.payloads.are_ids_configured:
            return self.payloads
        known = self._payload_maps.get(collection)
        if known is not None:
            return known
        sample = self.sample(collection, deadline)
        count = None if sample.is_complete else partial(count_ids, self.store, collection, deadline=deadline)
        own = read_ids(self.payloads, sample.payloads, count)
        if sample.payloads:
            self._payload_maps[collection] = own
        return own

    def hashes(self, collection: str, deadline: Deadline) -> Hashes:
        """Return what the hashes in this collection's payloads are made from."""
        known = self._hashes.get(collection)
        if known is not None:
            return known
        sample = self.sample(collection, deadline)
        found = recognise_hashes(self.payloads_of(collection, deadline), sample.payloads)
        if sample.payloads:
            self._hashes[collection] = found
        return found

    def remembers(self, collection: str) -> bool:
        """Whether something is remembered of the collection, which could be out of date."""
        return collection in self._vector_configs or collection in self._samples

    def knows(self, collection: str, *, payloads: bool, text: bool) -> bool:
        """Whether a search need not ask about the collection first: its vectors, payloads, or text index."""
        return (
            collection in self._vector_configs
            and (not payloads or collection in self._samples)
            and (not text or collection in self.text_legs)
        )

    def forget(self, collection: str) -> None:
        """Drop what is remembered of a collection, which may have been deleted or recreated."""
        self._vector_configs.pop(collection, None)
        self._samples.pop(collection, None)
        self._payload_maps.pop(collection, None)
        self._hashes.pop(collection, None)
        self.text_legs.pop(collection, None)

    def has_changed(self, collection: str, deadline: Deadline) -> bool:
        """Ask the store again, and say whether the vector config differs from the one that was remembered."""
        known = self._vector_configs.get(collection)
        self.forget(collection)
        return known is not None and self.vector_config(collection, deadline) != known

    def _has_cosine_scores(self, collection: str, config: VectorConfig, deadline: Deadline) -> bool:
        """Whether scores are cosines; False while that cannot be known, `UnsupportedDistanceError` when not."""
        if config.distance == "Cosine":
            return True
        if config.distance != "Dot":
            raise UnsupportedDistanceError(
                f"Collection {collection} measures {config.distance}; "
                "scores from 0 to 1 need Cosine, or Dot with unit vectors"
            )
        page = read_first(self.store, collection, deadline, limit=SAMPLE_POINTS, with_vector=config.name)
        lengths = [(p.id, fsum(v * v for v in p.vector) ** 0.5) for p in page.points if p.vector]
        _check_unit_length(collection, lengths)
        return bool(lengths)


def _check_unit_length(collection: str, lengths: Sequence[tuple[PointId, float]]) -> None:
    odd = next(((point, length) for point, length in lengths if abs(length - 1.0) > 1e-2), None)
    if odd is not None:
        raise UnsupportedDistanceError(
            f"Collection {collection} measures Dot, and its vectors are not of length 1 "
            f"(point {odd[0]}: {odd[1]:.3f}); scores from 0 to 1 need unit vectors or Cosine"
        )


def choose_vector(vectors: Sequence[VectorConfig], wanted: str | None, collection: str) -> VectorConfig:
    """Choose the setting's vector, else the unnamed one, else the only one; otherwise an error lists the names."""
    by_name = {vector.name: vector for vector in vectors}
    if wanted in by_name:
        return by_name[wanted]
    if "" in by_name:
        return by_name[""]
    if len(vectors) == 1:
        return vectors[0]
    if not vectors:
        raise InvalidParameterError(
            f"Collection {collection} has no dense vector: only mode text, without diversity, can search it"
        )
    raise InvalidParameterError(
        f"Collection {collection} has several vectors: set CHUNKPROOF_VECTOR_NAME to one of {', '.join(by_name)}"
    )
