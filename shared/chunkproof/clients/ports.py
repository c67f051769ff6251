"""The protocols of the clients: `Embedder`, `Reranker`, `VectorStore` and `WritableStore`, and what they exchange.

Only the client that implements a protocol imports the SDK behind it, and it translates the SDK's exceptions into
`chunkproof.errors`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from chunkproof.deadline import Deadline
from chunkproof.models.filters import Condition

PointId = int | str
Vector = Sequence[float]


class InputType(StrEnum):
    """What a text is embedded as: Cohere's models embed queries and documents differently."""

    QUERY = "search_query"
    DOCUMENT = "search_document"


class Embedder(Protocol):
    """Turns texts into vectors, one each, in order; raises `QueryTooLongError` instead of truncating a text."""

    @property
    def model(self) -> str:
        """Name of the model of documents, as recorded in payloads; queries may have a `query_model` of their own."""
        ...

    @property
    def dimension(self) -> int | None:
        """Size of its vectors; None until the first response."""
        ...

    @property
    def max_batch(self) -> int:
        """The most texts that one call may have."""
        ...

    def excess(self, text: str) -> str | None:
        """Explain by how much the text is too long for the model; None when it fits or only a call can decide."""
        ...

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """Return one vector per text."""
        ...


def query_model(embedder: Embedder) -> str:
    """Return the model that queries are embedded with: an embedder may have a `query_model` beside its `model`."""
    return getattr(embedder, "query_model", None) or embedder.model


def embedder_identity(embedder: Embedder) -> Hashable:
    """Return what tells its vectors from those of another: its `identity` (service, models, size, prefixes), if any."""
    named = (type(embedder).__qualname__, embedder.model, query_model(embedder), embedder.dimension)
    return getattr(embedder, "identity", None) or named


@dataclass(frozen=True, slots=True)
class Relevance:
    """A reranker's score for each document, in their order.

    `maybe_cut` counts the documents that may be longer than the model reads, so that their end did not count.
    """

    scores: tuple[float, ...]
    maybe_cut: int = 0


class Reranker(Protocol):
    """Scores how relevant documents are to a query, by reading each together with the query."""

    def rerank(self, query: str, documents: Sequence[str], model: str, deadline: Deadline) -> Relevance:
        """Return one finite score per document, higher for more relevant; otherwise raise a `RerankError`."""
        ...


@dataclass(frozen=True, slots=True)
class Point:
    """A stored point. `score` is set by a search, `vector` when it was requested."""

    id: PointId
    payload: Mapping[str, Any]
    score: float = 0.0
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class VectorConfig:
    """A dense vector of a collection; the unnamed one has an empty name."""

    name: str
    size: int
    distance: str


@dataclass(frozen=True, slots=True)
class Description:
    """A collection's vectors, indexes and counts, as the store reports them.

    `indexed_fields` maps a payload field to the type of its index. With `needs_indexes`, filters may use only those.
    `sparse_vectors` maps the name of a sparse vector to its modifier. `quantization` is how vectors are compressed.
    """

    name: str
    vectors: tuple[VectorConfig, ...]
    points_count: int
    indexed_vectors_count: int
    status: str
    indexed_fields: Mapping[str, str]
    needs_indexes: bool = False
    sparse_vectors: Mapping[str, str | None] = field(default_factory=dict)
    quantization: str | None = None


@dataclass(frozen=True, slots=True)
class NearestQuery:
    """A search for the points nearest to a vector, with scores of at least `score_threshold`.

    `exact` compares the vector with every point instead of using the index.
    """

    collection: str
    vector_config: VectorConfig
    vector: Vector
    limit: int
    score_threshold: float = 0.0
    where: tuple[Condition, ...] = ()
    with_vectors: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Points in id order, and the id that the next page starts with; None on the last page."""

    points: tuple[Point, ...]
    next_id: PointId | None


class VectorStore(Protocol):
    """Reads collections. Every method raises `CollectionNotFoundError` for an unknown collection."""

    @property
    def host(self) -> str:
        """The host or folder, as messages show it."""
        ...

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""
        ...

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""
        ...

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """Return the nearest points, best first. A score equal to the threshold is included."""
        ...

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist, in no particular order."""
        ...

    def scroll(
        self,
        collection: str,
        deadline: Deadline,
        *,
        limit: int,
        where: tuple[Condition, ...] = (),
        start: PointId | None = None,
        with_vector: str | None = None,
    ) -> Page:
        """Return a page of points in id order."""
        ...

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""
        ...

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of a payload field, with the number of points that have each.

        None where the store cannot count them: a server needs an index on the field.
        """
        ...


class WritableStore(VectorStore, Protocol):
    """A store that `load` can fill."""

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """Create a collection with one unnamed cosine vector and an index on `chunk_id`."""
        ...

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points and replace those with the same id; they are searchable when it returns."""
        ...
