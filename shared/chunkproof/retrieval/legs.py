"""Plan a search: which legs it has, by what the collection and its store can do, and how they become one ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chunkproof.clients.ports import (
    DenseLeg,
    Description,
    Features,
    Fusion,
    Grouping,
    Point,
    PointId,
    StoreQuery,
    TextLeg,
    Vector,
    VectorConfig,
)
from chunkproof.deadline import Deadline
from chunkproof.errors import InvalidParameterError, TextIndexRequiredError
from chunkproof.models import SearchQuery
from chunkproof.models.extras import RerankOptions
from chunkproof.models.filters import Condition, HasId, Not
from chunkproof.models.ranking import DEFAULT_K, MAX_CANDIDATES, FusionInForce, IndexParams, Mode, TextSearch
from chunkproof.retrieval.cursor import MAX_PAGED, read_cursor, write_cursor
from chunkproof.retrieval.filters import map_field, map_filters
from chunkproof.retrieval.payload import PayloadMap, lies_in_json_string
from chunkproof.retrieval.reranking import choose_rerank
from chunkproof.retrieval.services import Services

# Candidates of each leg, and of a diverse selection, unless the request says how many.
CANDIDATES = 100
# Of a search with groups, for each result that the groups can have in all.
CANDIDATES_PER_PLACE = 4
# Of both legs together, as many as pages can have in all.
PAGED_CANDIDATES = MAX_PAGED // 2


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a search but the query's vector."""

    query: SearchQuery
    collection: str
    config: VectorConfig | None
    where: tuple[Condition, ...]
    text: TextLeg | None = None
    fusion: Fusion = field(default_factory=Fusion)
    grouping: Grouping | None = None
    exact: bool = False
    # With a cursor: the results of the pages before, and whose chunks are searched.
    seen: tuple[PointId, ...] = ()
    tenant: str = ""
    notes: tuple[str, ...] = ()
    rerank: RerankOptions | None = None

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self.query.mode or Mode.DENSE

    @property
    def candidates(self) -> int:
        """How many results of each leg are fused, or how many are selected from for diversity by the store."""
        given = self.query.fusion.candidates if self.query.fusion else None
        if self.query.cursor is not None:  # the same on every page, or their rankings would differ
            return given or PAGED_CANDIDATES
        usual = CANDIDATES
        if self.grouping is not None:  # the groups are formed of the candidates
            usual = max(usual, min(MAX_CANDIDATES, CANDIDATES_PER_PLACE * self.query.top_k * self.grouping.size))
        return max(given or usual, self.query.top_k)

    @property
    def limit(self) -> int:
        """How many points to request: with a cursor one more, to know whether another page follows."""
        if self.rerank is not None and self.rerank.candidates is not None:
            return self.rerank.candidates
        if self.query.cursor is None:
            return self.query.top_k
        again = len(self.seen) if self.mode is Mode.HYBRID else 0
        return again + min(self.query.top_k, MAX_PAGED - len(self.seen)) + 1

    @property
    def text_search(self) -> TextSearch | None:
        """What the search by words is made with."""
        if self.text is None:
            return None
        if self.text.sparse_vector is not None:
            return TextSearch(by="sparse_vector", name=self.text.sparse_vector)
        return TextSearch(by="text_index", name=self.text.field or "")

    @property
    def fusion_in_force(self) -> FusionInForce | None:
        """How the legs are fused."""
        if self.mode is not Mode.HYBRID:
            return None
        names = ("dense", "text")
        return FusionInForce(
            method=self.fusion.method,
            k=self.fusion.k,
            weights=dict(zip(names, self.fusion.weights, strict=True)) if self.fusion.weights else None,
            candidates=self.candidates,
        )

    def store_query(self, vector: Vector | None) -> StoreQuery:
        """Return the search of the store, by this vector of the query; None in mode text."""
        query, dense = self.query, None
        compares = bool(self.text and query.diversity)
        if vector is not None and self.config is not None:
            params = query.params or IndexParams()
            dense = DenseLeg(
                self.config,
                vector,
                query.similarity_threshold,
                exact=self.exact or params.exact,
                hnsw_ef=params.hnsw_ef,
                rescore=params.rescore,
                oversampling=params.oversampling,
            )
        return StoreQuery(
            collection=self.collection,
            limit=self.limit,
            dense=dense,
            text=self.text,
            where=self._unseen,
            with_vector=self.config.name if (query.with_vectors or compares) and self.config else None,
            fusion=self.fusion,
            candidates=self.candidates if self.text or query.diversity is not None else 0,
            grouping=self.grouping,
            diversity=query.diversity,
        )

    @property
    def _unseen(self) -> tuple[Condition, ...]:
        """The conditions, without the results of the pages before: two legs would be ranked anew without them."""
        if not self.seen or self.mode is Mode.HYBRID:
            return self.where
        return (*self.where, Not((HasId(self.seen),)))

    def page(self, found: Sequence[Point]) -> list[Point]:
        """Return the points of this page."""
        if self.query.cursor is None:
            return list(found)
        seen = set(self.seen)
        new = [point for point in found if point.id not in seen]
        return new[: min(self.query.top_k, MAX_PAGED - len(seen))]

    def next_cursor(self, found: Sequence[Point]) -> str | None:
        """Return the cursor of the page after this one, if there is one."""
        if self.query.cursor is None:
            return None
        ids = self._shown(found)
        is_last = not self._has_more(found) or len(ids) >= MAX_PAGED
        return None if is_last else write_cursor(ids, self.query, self.collection, self.tenant)

    def page_notes(self, found: Sequence[Point]) -> list[str]:
        """Say so if the pages end before the results do."""
        if self.query.cursor is None or not self._has_more(found) or len(self._shown(found)) < MAX_PAGED:
            return []
        return [f"Pages end after {MAX_PAGED:,} results: narrow the query, or filter"]

    def _shown(self, found: Sequence[Point]) -> tuple[PointId, ...]:
        return (*self.seen, *(point.id for point in self.page(found)))

    def _has_more(self, found: Sequence[Point]) -> bool:
        return not {*self._shown(found)} >= {point.id for point in found}


def plan_search(
    query: SearchQuery, collection: str, services: Services, deadline: Deadline, *, exact: bool = False
) -> Plan:
    """Find out how to search the collection; `InvalidParameterError` says what it, or its store, lacks."""
    mode = query.mode or Mode.DENSE
    tenant = getattr(services.store, "tenant", "")
    seen = read_cursor(query, collection, tenant)
    rerank = choose_rerank(query, services)
    needs_config = mode is not Mode.TEXT or query.with_vectors or query.diversity is not None
    config = services.vector_config(collection, deadline) if needs_config else None
    where = map_filters(query.filters, collection, services, deadline) if query.filters else ()
    grouping, notes = _grouping(query, collection, services, deadline) if query.group_by else (None, ())
    plan = Plan(
        query,
        collection,
        config,
        where,
        grouping=grouping,
        exact=exact,
        seen=seen,
        tenant=tenant,
        notes=notes,
        rerank=rerank,
    )
    if mode is Mode.DENSE and query.diversity is None:
        return plan
    features = services.store.features(deadline)
    if mode is Mode.DENSE:
        if not features.mmr:
            raise InvalidParameterError(f"diversity needs Qdrant 1.15 or later, not {features.store}")
        return plan
    if mode is Mode.TEXT and query.diversity is not None and tenant:
        raise InvalidParameterError(
            "diversity cannot be used in mode text with tenants: it weighs scores in which all tenants' words count"
        )
    leg = find_text_leg(collection, services, deadline)
    fusion = _fusion(query, features) if mode is Mode.HYBRID else Fusion()
    if fusion.method == "dbsf" and tenant:
        raise InvalidParameterError(
            "fusion.method dbsf cannot be used with tenants: it adds scores in which the words of all tenants count"
        )
    return replace(plan, text=replace(leg, text=query.query_text or ""), fusion=fusion)


def _grouping(
    query: SearchQuery, collection: str, services: Services, deadline: Deadline
) -> tuple[Grouping, tuple[str, ...]]:
    """Return the field to group by as the payloads have it, and a note if some of them lack it."""
    name = query.group_by or ""
    field = map_field(name, "group_by", collection, services, deadline)
    sample = services.sample(collection, deadline)
    notes: list[str] = []
    if "[" not in field:  # only the store reads paths into lists
        values = [services.payloads.stated(field, payload) for payload in sample.payloads]
        lacking = sum(value is None for value in values)
        ungrouped = sum(value is not None and not _is_groupable(value) for value in values)
        for count, which in ((lacking, "without the field"), (ungrouped, "without a text or an integer in the field")):
            if count:
                points = f"{count} of the {len(values)} points looked at"
                notes.append(f"A search grouped by {name} leaves out points {which} {field}: {points}")
    return Grouping(field, query.group_size or 1), tuple(notes)


def _is_groupable(value: object) -> bool:
    """Whether Qdrant forms groups by a value, or by one in a list."""
    if isinstance(value, list):
        return any(map(_is_groupable, value))
    return isinstance(value, str | int) and not isinstance(value, bool)


def find_text_leg(collection: str, services: Services, deadline: Deadline) -> TextLeg:
    """Return how the collection is searched by words: a leg without a text yet; the store is asked once.

    `TextIndexRequiredError` names the call that makes an index.
    """
    known = services.text_legs.get(collection)
    if known is None:
        description = services.store.describe(collection, deadline)
        features = services.store.features(deadline)
        payloads = services.sample(collection, deadline).payloads
        if not payloads:  # it may be filled any moment, in any way
            return choose_text_leg(description, features, [*map(_unquote, description.text_fields)] or ["text"])
        known = choose_text_leg(description, features, _text_paths(payloads, services.payloads))
        services.text_legs[collection] = known
    return known


def choose_text_leg(description: Description, features: Features, text_paths: list[str]) -> TextLeg:
    """Choose a sparse vector, else a text index, else any field where the store needs no index."""
    name = description.name
    bm25 = [vector for vector, modifier in description.sparse_vectors.items() if modifier == "idf"]
    named = [vector for vector in bm25 if "bm25" in vector.lower()]
    if features.bm25 and (len(bm25) == 1 or len(named) == 1):
        return TextLeg("", sparse_vector=(named or bm25)[0])
    if features.text_index:
        indexed = {*map(_unquote, description.text_fields)}
        for path in text_paths:
            if features.any_field or path in indexed:
                return TextLeg("", field=path)
    if features.bm25 and bm25:
        raise TextIndexRequiredError(
            f"Collection {name} has several sparse vectors with the IDF modifier ({', '.join(sorted(bm25))}): "
            "the one to search by words must have bm25 in its name"
        )
    raise TextIndexRequiredError(_advice(name, features, description, text_paths))


def _advice(name: str, features: Features, description: Description, text_paths: list[str]) -> str:
    """Return what is missing, and which call makes it."""
    lacks = f"Collection {name} cannot be searched by words"
    if not (features.bm25 or features.text_index):
        return f"{lacks}: {explain_missing_bm25(features)}"
    others = [vector for vector, modifier in description.sparse_vectors.items() if modifier != "idf"]
    has = (
        f"its sparse vector {others[0]} has no IDF modifier, so it is not BM25" if others else "it has no BM25 vectors"
    )
    lacks = f"{lacks}: {has}"
    if features.text_index and text_paths:
        return (
            f"{lacks} and its texts have no index that ranks. Make one: "
            f'create_payload_index("{name}", field_name="{text_paths[0]}", '
            'field_schema=TextIndexParams(type="text", scoring=True))'
        )
    return (
        f"{lacks}. Make a collection with create_collection(…, "
        'sparse_vectors_config={"bm25": SparseVectorParams(modifier="idf")}) and write each point with '
        '"bm25": Document(text=…, model="qdrant/bm25"), or run chunkproof load --hybrid'
    )


def explain_missing_bm25(features: Features) -> str:
    """Say that neither the store nor this process makes BM25 vectors, and what does."""
    return (
        f"{features.store} makes no BM25 vectors. Update it to 1.15.3 or later, or run Chunkproof where "
        "qdrant-edge-py is installed, which makes them"
    )


def _text_paths(payloads: Sequence[Mapping[str, Any]], known: PayloadMap) -> list[str]:
    """Return where the payloads keep their text, as far as the store can read it: no index reaches into a string."""
    paths = known.paths_in("text", payloads)
    return [p for p in paths if not any(lies_in_json_string(p, one) for one in payloads)]


def _unquote(key: str) -> str:
    return key.replace('"', "")


def _fusion(query: SearchQuery, features: Features) -> Fusion:
    """Return the fusion to request; a store that takes no k has its own, which is not stated."""
    wanted = query.fusion
    if wanted and wanted.method == "dbsf":
        return Fusion("dbsf")
    if wanted and wanted.k is not None and not features.rrf_k:
        raise InvalidParameterError(f"fusion.k needs Qdrant 1.16 or later, not {features.store}")
    if wanted and wanted.weights and not features.rrf_weights:
        raise InvalidParameterError(
            f"fusion.weights needs Qdrant 1.17 or later: {features.store} ignores them. Leave them out, or use dbsf"
        )
    k = (wanted.k if wanted else None) or DEFAULT_K
    weights = (wanted.weights.dense, wanted.weights.text) if wanted and wanted.weights else None
    return Fusion("rrf", k if features.rrf_k else None, weights)
