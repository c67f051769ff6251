"""The protocol of vector stores, `VectorStore` and its kinds, and what they exchange.

Only the client that implements a protocol imports the SDK behind it, and it translates the SDK's exceptions into
`chunkproof.base.errors`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from chunkproof.base.request import Deadline
from chunkproof.contract.conditions import Condition

PointId = int | str
Vector = Sequence[float]
Json = dict[str, Any]
# The sparse vector that `create` makes for text search.
TEXT_VECTOR = "bm25"


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


@dataclass(slots=True)
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
    `text_fields` are the payload fields with a text index that ranks by BM25. `indexed_vectors_count` counts dense
    vectors. `max_limit` is the highest limit of a request that a server's strict mode allows.
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
    max_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """What a store can do beyond dense search; a server's version decides.

    `bm25`: it, or its client, makes the sparse vector of a text. `text_index`: it ranks by BM25 over an indexed
    payload field. `rrf_k`, `rrf_weights`: the parameters that its RRF takes. `idf_corpus`: it can weigh the words of a
    sparse vector by how many of certain points have them, instead of all.
    """

    store: str
    bm25: bool = False
    text_index: bool = False
    rrf_k: bool = False
    rrf_weights: bool = False
    mmr: bool = False
    idf_corpus: bool = False


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
    """Search by BM25: over a sparse vector, or else over the text index of a payload field.

    A word weighs more the fewer points have it: of those that meet the conditions of `corpus`, or else of all.
    """

    text: str
    sparse_vector: str | None = None
    field: str | None = None
    corpus: tuple[Condition, ...] = ()


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
    """A search with a dense leg, a text leg, or both; then `candidates` of each leg are fused.

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

    @property
    def depth(self) -> int:
        """How many candidates each leg has."""
        return self.candidates or self.limit

    def single_legs(self) -> "dict[str, StoreQuery]":
        """Return each leg as a search of its own for all of its candidates, without payloads and vectors."""
        alone = replace(
            self, limit=self.depth, with_vector=None, with_payload=False, candidates=0, grouping=None, diversity=None
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

    def for_tenant(self, field: str, tenant: str) -> "VectorStore":
        """Return a store of the points whose payload field has this tenant: no request to it reaches others."""

    def collections(self, deadline: Deadline) -> list[str]:
        """Return all names, sorted."""

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Return the current vectors, indexes and counts of a collection."""

    def features(self, deadline: Deadline) -> Features:
        """Return what the store can do; a server is asked once."""

    def search(self, queries: Sequence[StoreQuery], deadline: Deadline) -> list[list[Point]]:
        """Return the results of each query, best first. A score equal to the threshold is included.

        Queries of one collection are one request, except those with grouping. If one fails, all do.
        """

    def sample_scores(self, query: StoreQuery, deadline: Deadline) -> list[float]:
        """Return the scores of random points for the query's dense leg, at most `limit`, in no particular order.

        A store in this process takes all points if it has few, so that the same query has the same scores.
        """

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points with these ids that exist, in no particular order."""

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

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """Return exactly how many points meet the conditions."""

    def facet(
        self, collection: str, field: str, where: tuple[Condition, ...], deadline: Deadline, *, limit: int
    ) -> Mapping[str, int] | None:
        """Return the most frequent texts of a payload field, with the number of points that have each.

        A server that reorganizes its points meanwhile may count some twice. None where the store cannot count them: a
        server needs an index on the field.
        """


@runtime_checkable
class VersionedStore(VectorStore, Protocol):
    """A store of published collections: each has versions, and one version is in force."""

    def prepare(self, collection: str, seconds: float) -> None:
        """Fetch a collection before the first request, as far as the time suffices."""

    def version(self, collection: str, deadline: Deadline) -> str:
        """Return the version in force."""

    def at(self, versions: Mapping[str, str]) -> VectorStore:
        """Return a store with exactly these versions, by collection; it returns when they can be read."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a collection is made, as in Qdrant's REST API: its vectors by name, and the indexes of payload fields.

    `indexes` maps a field to the parameters of its index, of which `type` is one. `settings` are the other fields with
    which a server makes the collection, such as its quantization. `not_copied` names what a copy does not have.
    """

    vectors: Mapping[str, Json]
    sparse_vectors: Mapping[str, Json] = field(default_factory=dict)
    indexes: Mapping[str, Json] = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    not_copied: Sequence[str] = ()

    @classmethod
    def from_config(cls, config: Json, indexes: Mapping[str, Json]) -> "Layout":
        """Read the configuration of a collection, whose only vector may have no name."""
        params = config["params"]
        vectors = params.get("vectors") or {}
        settings = {
            "hnsw_config": config.get("hnsw_config"),
            "optimizers_config": config.get("optimizer_config"),
            "quantization_config": config.get("quantization_config"),
            "on_disk_payload": params.get("on_disk_payload"),
            "wal_config": config.get("wal_config"),
            "metadata": config.get("metadata"),
        }
        topology = ("shard_number", "replication_factor", "write_consistency_factor", "sharding_method")
        is_strict = (config.get("strict_mode_config") or {}).get("enabled")
        return cls(
            _without_nulls({"": vectors} if isinstance(vectors.get("size"), int) else vectors),
            _without_nulls({name: given or {} for name, given in (params.get("sparse_vectors") or {}).items()}),
            _without_nulls(indexes),
            _without_nulls(settings),
            [f"{name} {params[name]}" for name in topology if params.get(name, 1) not in (1, None)]
            + (["strict_mode_config"] if is_strict else []),
        )

    @property
    def quantization(self) -> str | None:
        """The kind of quantization, of the collection or of one of its vectors."""
        configs = [given.get("quantization_config") for given in (self.settings, *self.vectors.values())]
        return next((kind for config in configs for kind in config or ()), None)


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}


class WritableStore(VectorStore):
    """What a server and the engine do in the same way: they create collections by a layout, and fill them."""

    # The indexes of a new collection.
    new_indexes: Mapping[str, Json] = {"chunk_id": {"type": "keyword"}}

    @abstractmethod
    def aliases(self, deadline: Deadline) -> dict[str, str]:
        """Return the other names of collections, with the collection of each."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections or the folder."""

    @abstractmethod
    def optimize(self, collection: str) -> None:
        """Build the indexes of what was written, if the store does not do so by itself."""

    @abstractmethod
    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""

    @abstractmethod
    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""

    @abstractmethod
    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""

    @abstractmethod
    def read_vectors(self, collection: str, ids: Sequence[PointId], deadline: Deadline) -> dict[PointId, Json]:
        """Return all vectors of the points that exist among these, by name."""

    @abstractmethod
    def write_points(self, collection: str, points: Sequence[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors; they are searchable when it returns."""

    @abstractmethod
    def bm25_maker(self, deadline: Deadline) -> Callable[[str], Json]:
        """Return what makes the BM25 vector of a text to store."""

    def create(self, collection: str, size: int, deadline: Deadline, *, text_search: bool = False) -> None:
        """Create a collection with one unnamed cosine vector and an index on `chunk_id`.

        With `text_search`, the payload field `text` can be searched by its words: a store that makes sparse vectors
        adds one named `TEXT_VECTOR`, others index the field.
        """
        sparse = {TEXT_VECTOR: {"modifier": "idf"}} if text_search else {}
        layout = Layout({"": {"size": size, "distance": "Cosine"}}, sparse, dict(self.new_indexes))
        self.create_like(collection, layout, deadline)

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
        structs: list[Json] = [
            {"id": point.id, "vector": {vector_name: list(point.vector or ())}, "payload": dict(point.payload)}
            for point in points
        ]
        if text_vector is not None:
            make_vector = self.bm25_maker(deadline)
            for struct in structs:
                struct["vector"][text_vector] = make_vector(str(struct["payload"]["text"]))
        self.write_points(collection, structs, deadline)
