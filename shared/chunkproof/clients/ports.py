"""The protocols of the clients: `Embedder`, `Reranker`, `VectorStore` and its kinds, and what they exchange.

Only the client that implements a protocol imports the SDK behind it, and it translates the SDK's exceptions into
`chunkproof.errors`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

from chunkproof.deadline import Deadline
from chunkproof.models.filters import Condition

PointId = int | str
Vector = Sequence[float]
# The sparse vector that `create` makes for text search.
TEXT_VECTOR = "bm25"


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


def prepare_embedder(embedder: Embedder) -> None:
    """Let a model in this process start to load, while its caller goes on: an embedder may have a `prepare`."""
    if prepare := getattr(embedder, "prepare", None):
        prepare()


def embedder_identity(embedder: Embedder) -> Hashable:
    """Return what makes its vectors its own: its `identity` (service, models, size, prefixes), if it has one."""
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
class Scores:
    """The scores of one search result by kind, and its rank (from 1) among the candidates of each leg.

    `dense` is the cosine, also of a result that only the text leg found. A rank is None where that leg did not
    find the point, and so is `text`. `fused` is None unless both legs were searched.
    """

    dense: float | None = None
    text: float | None = None
    fused: float | None = None
    dense_rank: int | None = None
    text_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A stored point.

    A search sets `score`, by which it ranks; with a text leg also `scores`, and with grouping `group`, the value
    that the results of a group have in common. `vector` is set when it was requested.
    """

    id: PointId
    payload: Mapping[str, Any]
    score: float = 0.0
    vector: tuple[float, ...] | None = None
    scores: Scores | None = None
    group: PointId | None = None


@dataclass(frozen=True, slots=True)
class VectorConfig:
    """A dense vector of a collection; the unnamed one has an empty name. `datatype` is how its values are stored."""

    name: str
    size: int
    distance: str
    datatype: str | None = None

    @property
    def is_lossy(self) -> bool:
        """Whether values are stored in so few bits that a vector read back is visibly another."""
        return self.datatype in ("uint8", "turbo4", "turbo8")


@dataclass(frozen=True, slots=True)
class Description:
    """A collection's vectors, indexes and counts, as the store reports them.

    `indexed_fields` maps a payload field to the type of its index. With `needs_indexes`, filters may use only those.
    `sparse_vectors` maps the name of a sparse vector to its modifier. `quantization` is how vectors are compressed.
    `text_fields` are the payload fields with a text index that ranks by BM25. `indexed_vectors_count` is that of dense
    vectors.
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
    text_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Features:
    """What a store can do beyond dense search; a server's version decides.

    `bm25`: it, or its client, makes the sparse vector of a text. `text_index`: it ranks by BM25 over an indexed
    payload field, and with `any_field` over one without an index. `rrf_k`, `rrf_weights`: the parameters that its
    RRF takes.
    """

    store: str
    bm25: bool = False
    text_index: bool = False
    any_field: bool = False
    rrf_k: bool = False
    rrf_weights: bool = False
    mmr: bool = False


@dataclass(frozen=True, slots=True)
class DenseLeg:
    """Search by a vector, for points with cosines of at least `score_threshold`.

    `exact` compares the vector with every point instead of using the index; `hnsw_ef` is how many candidates the
    index keeps while searching. `rescore` computes scores from the original vectors of a quantized collection,
    after selecting `oversampling` times as many candidates. None leaves the choice to the store.
    """

    config: VectorConfig
    vector: Vector
    score_threshold: float = 0.0
    exact: bool = False
    hnsw_ef: int | None = None
    rescore: bool | None = None
    oversampling: float | None = None


@dataclass(frozen=True, slots=True)
class TextLeg:
    """Search by BM25: over a sparse vector, or else over the text index of a payload field."""

    text: str
    sparse_vector: str | None = None
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two legs become one ranking.

    `rrf` adds `1 / (k + rank)` of each leg, where `rank` counts from 0 and `k` is the store's own (Qdrant: 2) if
    None. With weights, of the dense and the text leg, it is `1 / ((rank + 1) / weight + k - 1)`. `dbsf` adds the
    scores, each scaled to three standard deviations around the mean of its leg, and takes no parameters.
    """

    method: Literal["rrf", "dbsf"] = "rrf"
    k: int | None = None
    weights: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    """At most `size` results for each value of a payload field; points without the field are left out."""

    field: str
    size: int = 1


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A search with a dense leg, a text leg, or both, whose candidates (so many of each) are then fused.

    `where` applies to every leg. Without `candidates`, each leg has as many as the limit. With `diversity` (0 to 1),
    results are selected among the candidates by maximal marginal relevance. With a text leg they are compared by the
    vector that `with_vector` names.
    `with_vector` names the dense vector to return; without `with_payload`, points come with ids and scores alone.

    With both legs, a `score_threshold` above 0 applies to all results, also those that only the text leg found.
    """

    collection: str
    limit: int
    dense: DenseLeg | None = None
    text: TextLeg | None = None
    where: tuple[Condition, ...] = ()
    with_vector: str | None = None
    fusion: Fusion = Fusion()
    candidates: int = 0
    grouping: Grouping | None = None
    diversity: float | None = None
    with_payload: bool = True

    def single_legs(self) -> "dict[str, StoreQuery]":
        """Return each leg as a search of its own for all of its candidates, without payloads and vectors."""
        alone = replace(
            self,
            limit=self.candidates or self.limit,
            with_vector=None,
            with_payload=False,
            candidates=0,
            grouping=None,
            diversity=None,
        )
        legs = {"dense": replace(alone, text=None), "text": replace(alone, dense=None)}
        return {name: leg for name, leg in legs.items() if leg.dense or leg.text}


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

    def features(self, deadline: Deadline) -> Features:
        """Return what the store can do; a server is asked once."""
        ...

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first. A score equal to the threshold is included.

        Queries of one collection are one request, except those with grouping. If one fails, all do.
        """
        ...

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points for the query's dense leg, at most `limit`, in no particular order.

        A store in this process takes all points if it has few, so that the same query has the same scores. None
        where the store cannot draw points.
        """
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

        A server that reorganizes its points meanwhile may count some twice. None where the store cannot count them: a
        server needs an index on the field.
        """
        ...


@runtime_checkable
class VersionedStore(VectorStore, Protocol):
    """A store of published collections: each has versions, one of which is in force."""

    def prepare(self, collection: str, seconds: float) -> None:
        """Fetch a collection before the first request, as far as the time suffices."""
        ...

    def version(self, collection: str, deadline: Deadline) -> str:
        """Return the version in force."""
        ...

    def at(self, versions: Mapping[str, str]) -> VectorStore:
        """Return a store with exactly these versions, by collection; it returns when they can be read."""
        ...


class WritableStore(VectorStore, Protocol):
    """A store that `load` can fill."""

    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written, if the store does not do so by itself."""
        ...

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool = False) -> None:
        """Create a collection with one unnamed cosine vector and an index on `chunk_id`.

        With `text_search`, the payload field `text` can be searched by its words: a store that makes sparse vectors
        adds one named `TEXT_VECTOR`, others index the field where they need an index.
        """
        ...

    def upsert(
        self,
        collection: str,
        points: Sequence[Point],
        vector_name: str,
        deadline: Deadline,
        *,
        text_vector: str | None = None,
    ) -> None:
        """Write points and replace those with the same id; they are searchable when it returns.

        `text_vector` names a sparse vector to fill with the BM25 vector of the payload field `text`.
        """
        ...
