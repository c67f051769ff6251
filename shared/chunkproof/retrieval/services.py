"""What a use case works with, built once per process from the settings."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from threading import Lock
from typing import TYPE_CHECKING

from chunkproof.clients.ports import Embedder, PointId, VectorConfig, VectorStore
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    CollectionNotFoundError,
    InvalidParameterError,
    NotConfiguredError,
    UnsupportedDistanceError,
)
from chunkproof.retrieval.embedding import QueryEmbedder
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.tenants import TenantStore
from chunkproof.settings import Settings

if TYPE_CHECKING:
    from chunkproof.clients.resilience import CircuitBreaker

SAMPLE_POINTS = 100
# What was learned of that many tenants' points is remembered.
MAX_TENANTS = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """What the first points of a collection look like: enough to know which pipeline wrote it."""

    payloads: tuple[dict[str, object], ...]


@dataclass
class Services:
    """Store, embedder and the settings in force; remembers what it learned of each collection."""

    settings: Settings
    store: VectorStore
    embedder: Embedder | None
    circuits: Mapping[str, "CircuitBreaker"] = field(default_factory=dict)
    queries: QueryEmbedder | None = field(init=False)
    payloads: PayloadMap = field(init=False)
    _spaces: dict[str, VectorConfig] = field(init=False, default_factory=dict)
    _samples: dict[str, Sample] = field(init=False, default_factory=dict)
    _tenants: OrderedDict[str, "Services"] = field(init=False, default_factory=OrderedDict)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        self.queries = QueryEmbedder(self.embedder, self.settings.cache_entries) if self.embedder else None
        self.payloads = PayloadMap(self.settings.payload_map)

    def of_tenant(self, tenant: str) -> "Services":
        """The same services, which see and remember nothing but this tenant's points."""
        if self.settings.tenant_field is None:
            raise NotConfiguredError("CHUNKPROOF_TENANT_FIELD is not set")
        with self._lock:
            own = self._tenants.pop(tenant, None)
            if own is None:
                own = replace(self, store=TenantStore(self.store, self.settings.tenant_field, tenant))
                own.queries = self.queries.of_tenant(tenant) if self.queries else None
                own._spaces = self._spaces  # a collection's shape is everybody's
            self._tenants[tenant] = own
            while len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        return own

    def collection(self, named: str | None) -> str:
        """The collection a request means, if the deployment allows it."""
        name = named or self.settings.collection
        allowed = self.settings.allowed_collections
        if allowed and name not in {*allowed, self.settings.collection}:
            raise CollectionNotFoundError(name)
        return name

    def query_embedder(self) -> QueryEmbedder:
        """The embedder of queries, or how to get one."""
        if self.queries is None:
            raise NotConfiguredError("No embedder is configured: set COHERE_API_KEY")
        return self.queries

    def space(self, collection: str, deadline: Deadline) -> VectorConfig:
        """The dense vector to search by; asked of the store once, as it does not change."""
        known = self._spaces.get(collection)
        if known is not None:
            return known
        description = self.store.describe(collection, deadline)
        space = choose_vector(description.vectors, self.settings.vector_name, collection)
        if self._is_cosine(collection, space, deadline):
            self._spaces[collection] = space
        return space

    def knows(self, collection: str) -> bool:
        """Whether something remembered of the collection could be out of date."""
        return collection in self._spaces or collection in self._samples

    def has_changed(self, collection: str, deadline: Deadline) -> bool:
        """Whether a collection that was known has another vector now; it is learned anew."""
        known = self._spaces.get(collection)
        self.forget(collection)
        return known is not None and self.space(collection, deadline) != known

    def sample(self, collection: str, deadline: Deadline) -> Sample:
        """The first points' payloads; asked of the store once."""
        known = self._samples.get(collection)
        if known is not None:
            return known
        page = self.store.scroll(collection, deadline, limit=SAMPLE_POINTS)
        sample = Sample(tuple(dict(point.payload) for point in page.points))
        if sample.payloads:  # an empty collection may be filled any moment
            self._samples[collection] = sample
        return sample

    def forget(self, collection: str) -> None:
        """Learn the collection anew: it may have been dropped or made again."""
        self._spaces.pop(collection, None)
        self._samples.pop(collection, None)

    def _is_cosine(self, collection: str, space: VectorConfig, deadline: Deadline) -> bool:
        """That scores are cosines; False while that cannot be told, an error when they are not."""
        if space.distance == "Cosine":
            return True
        if space.distance != "Dot":
            raise UnsupportedDistanceError(
                f"Collection {collection} measures {space.distance}; "
                "scores from 0 to 1 need Cosine, or Dot with unit vectors"
            )
        page = self.store.scroll(collection, deadline, limit=SAMPLE_POINTS, with_vector=space.name)
        lengths = [(p.id, fsum(v * v for v in p.vector) ** 0.5) for p in page.points if p.vector]
        self._check_lengths(collection, lengths)
        return bool(lengths)

    @staticmethod
    def _check_lengths(collection: str, lengths: Sequence[tuple[PointId, float]]) -> None:
        odd = next(((point, length) for point, length in lengths if abs(length - 1.0) > 1e-2), None)
        if odd is not None:
            raise UnsupportedDistanceError(
                f"Collection {collection} measures Dot, and its vectors are not of length 1 "
                f"(point {odd[0]}: {odd[1]:.3f}); scores from 0 to 1 need unit vectors or Cosine"
            )


def choose_vector(spaces: Sequence[VectorConfig], wanted: str | None, collection: str) -> VectorConfig:
    """The setting's, else the unnamed one, else the only one; otherwise an error that lists the names."""
    by_name = {space.name: space for space in spaces}
    if wanted in by_name:
        return by_name[wanted]
    if "" in by_name:
        return by_name[""]
    if len(spaces) == 1:
        return spaces[0]
    if not spaces:
        raise InvalidParameterError(f"Collection {collection} has no dense vector")
    raise InvalidParameterError(
        f"Collection {collection} has several vectors: set CHUNKPROOF_VECTOR_NAME to one of {', '.join(by_name)}"
    )
