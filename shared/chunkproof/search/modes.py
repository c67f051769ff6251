"""What a plan needs for searches by words (text, hybrid), for groups and for diversity."""

from dataclasses import replace

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.services import Collection
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import DEFAULT_K, MAX_CANDIDATES, FusionInForce, Mode, TextSearch
from chunkproof.search.cursor import MAX_PAGED
from chunkproof.search.filters import map_field
from chunkproof.search.single import CANDIDATES, Plan
from chunkproof.stores.store_port import Features, Fusion, Grouping
from chunkproof.stores.tenants import check_own_words

# Of a search with groups, for each result that the groups can have in all.
CANDIDATES_PER_PLACE = 4
# Of both legs together, as many as pages can have in all.
PAGED_CANDIDATES = MAX_PAGED // 2


def add_modes(plan: Plan) -> None:
    """Add groups, the text leg and the fusion to a plan; `InvalidParameterError` says what the store lacks."""
    query, collection = plan.query, plan.collection
    if query.group_by:
        plan.grouping, plan.notes = _grouping(query, collection)
    if plan.mode is not Mode.DENSE or query.diversity is not None:
        features = collection.ask(collection.store.features)
        if plan.mode is Mode.DENSE and not features.mmr:
            raise InvalidParameterError(f"diversity needs Qdrant 1.15 or later, not {features.store}")
        if plan.mode is not Mode.DENSE:
            _add_text(plan, features)
        plan.candidates = _candidates(plan)
    if plan.text and query.diversity and plan.vector:  # results are compared by their vectors
        plan.with_vector = plan.vector.name


def _add_text(plan: Plan, features: Features) -> None:
    query, collection = plan.query, plan.collection
    if plan.mode is Mode.TEXT and query.diversity is not None and collection.tenant:
        raise InvalidParameterError(
            "diversity cannot be used in mode text with tenants: it weighs scores in which all tenants' words count"
        )
    leg = collection.text_leg
    if collection.tenant:
        check_own_words(leg, features)
    if plan.mode is Mode.HYBRID:
        plan.fusion = _fusion(query, features)
    if plan.fusion.method == "dbsf" and collection.tenant:
        raise InvalidParameterError(
            "fusion.method dbsf cannot be used with tenants: it adds scores in which the words of all tenants count"
        )
    plan.text = replace(leg, text=query.query_text or "")


def _candidates(plan: Plan) -> int:
    query = plan.query
    wanted = query.fusion.candidates if query.fusion else None
    if query.cursor is not None:  # the same on every page, or their rankings would differ
        return wanted or PAGED_CANDIDATES
    usual = CANDIDATES
    if plan.grouping is not None:  # the groups are formed of the candidates
        usual = max(usual, min(MAX_CANDIDATES, CANDIDATES_PER_PLACE * query.top_k * plan.grouping.size))
    return max(wanted or usual, query.top_k)


def describe_text_search(plan: Plan) -> TextSearch | None:
    """Return what the search by words is made with."""
    if plan.text is None:
        return None
    if plan.text.sparse_vector is not None:
        return TextSearch(by="sparse_vector", name=plan.text.sparse_vector)
    return TextSearch(by="text_index", name=plan.text.field or "")


def describe_fusion(plan: Plan) -> FusionInForce | None:
    """Return how the legs are fused."""
    if plan.mode is not Mode.HYBRID:
        return None
    names = ("dense", "text")
    return FusionInForce(
        method=plan.fusion.method,
        k=plan.fusion.k,
        weights=dict(zip(names, plan.fusion.weights, strict=True)) if plan.fusion.weights else None,
        candidates=plan.candidates,
    )


def _grouping(query: SearchQuery, collection: Collection) -> tuple[Grouping, tuple[str, ...]]:
    """Return the field to group by as the payloads have it, and a note if some of them lack it."""
    name = query.group_by or ""
    field = map_field(name, "group_by", collection)
    notes: list[str] = []
    if "[" not in field:  # only the store reads paths into lists
        values = [collection.services.payloads.stated(field, payload) for payload in collection.sample.payloads]
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
