"""`POST /search`: the stored chunks that answer a query."""

import logging
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import hypot, isinf

from chunkproof.clients.ports import Point, Vector, prepare_embedder, query_model
from chunkproof.deadline import Deadline, start
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    DimensionMismatchError,
    EmbeddingSizeError,
    ResponseTooLargeError,
    VectorStoreRefusedError,
)
from chunkproof.models import ExecutionMetadata, RetrievalResponse, SearchQuery, SearchResult
from chunkproof.models.ranking import Mode
from chunkproof.retrieval.additions import Completed, Completion
from chunkproof.retrieval.embedding import QueryEmbedding
from chunkproof.retrieval.filters import find_absent_fields
from chunkproof.retrieval.legs import Plan, plan_search
from chunkproof.retrieval.ranking import rank, read_chunks, warn_of_low_scores, warn_of_other_models
from chunkproof.retrieval.services import Services
from chunkproof.trace import RequestTrace, State

SHORT_QUERY = 5
# Candidates for reranking that are larger cannot be read and sent on within a request.
MAX_CANDIDATE_BYTES = 16 * 1024 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hits:
    """What the store found for a plan and the query's embedding, and how long the round trip took.

    `others_follow` when there are other queries in the request, which need time too.
    """

    plan: Plan
    embedding: QueryEmbedding | None
    points: list[Point]
    time_ms: float
    others_follow: bool = False


def search(
    query: SearchQuery,
    *,
    services: Services,
    deadline: Deadline,
    trace: RequestTrace | None = None,
    exact: bool = False,
) -> RetrievalResponse:
    """Return the stored chunks nearest to the query, best first; no match is a success with no results.

    With `exact`, the query is compared with every point instead of asking the index.
    """
    trace = trace or RequestTrace()
    if query.queries is not None:
        from chunkproof.retrieval.batch import search_all

        return search_all(query, services=services, deadline=deadline, trace=trace, exact=exact)
    collection = begin(query, services, trace)
    remembered = services.remembers(collection)
    try:
        return _search(query, collection, services, deadline, trace, exact=exact)
    except (VectorStoreRefusedError, CollectionNotFoundError):
        services.forget(collection)
        if not remembered:
            raise
    except (DimensionMismatchError, EmbeddingSizeError):
        if not services.has_changed(collection, deadline):
            raise
    # The collection was recreated since it was last searched: once more, with what it is now.
    return _search(query, collection, services, deadline, trace, exact=exact)


def begin(query: SearchQuery, services: Services, trace: RequestTrace) -> str:
    """Record what is known of a query before anything is asked of a service, and return its collection."""
    trace.query_id, trace.created_at = query.query_id, query.created_at
    trace.collection, trace.top_k, trace.mode = query.collection, query.top_k, query.mode or Mode.DENSE
    trace.record_query(query.query_text, in_full=services.settings.log_queries)
    trace.collection = collection = services.resolve_collection(query.collection)
    if needs_embedding(query) and services.embedder_of(collection) is not None:
        trace.embedding_model = services.query_embedder(collection).model
    if query.query_text is not None and len(query.query_text) < SHORT_QUERY:
        log.warning("Query is very short", extra={"query_id": query.query_id, "chars": len(query.query_text)})
    return collection


def _search(
    query: SearchQuery,
    collection: str,
    services: Services,
    deadline: Deadline,
    trace: RequestTrace,
    *,
    exact: bool,
) -> RetrievalResponse:
    plan, embedding = _plan_and_embed(query, collection, services, deadline, trace, exact=exact)
    with trace.stage("search", State.SEARCHED) as watch:
        points = _find_points(plan, query_vector(plan, embedding), services, deadline)
    return respond(Hits(plan, embedding, points, watch.ms()), services, deadline, trace)


def _plan_and_embed(
    query: SearchQuery, collection: str, services: Services, deadline: Deadline, trace: RequestTrace, *, exact: bool
) -> tuple[Plan, QueryEmbedding | None]:
    """Find out how to search and embed the query; at the same time, if the collection has to be looked at first."""
    trace.query_embedded_at = None
    text, early = query.query_text or "", None
    if needs_embedding(query) and not _is_known(query, collection, services):
        embedder = services.query_embedder(collection)
        prepare_embedder(embedder.embedder)
        early = start(lambda: embedder.embed_any_size(text, deadline))
    try:
        with trace.stage("search"):
            plan = plan_search(query, collection, services, deadline, exact=exact)
    finally:
        if early:  # no call outlives its request
            wait([early])
    size = plan.config.size if plan.config else 0
    if query.query_vector is not None and len(query.query_vector) != size:
        raise DimensionMismatchError(len(query.query_vector), collection, size)
    if not needs_embedding(query):
        return plan, None
    with trace.stage("embed", State.EMBEDDED):
        embedder = services.query_embedder(collection)
        embedding = early.result() if early else embedder.embed_any_size(text, deadline)
        embedder.check_size(text, embedding, size, collection)
        trace.query_embedded_at, trace.embedding_cached = embedding.embedded_at, embedding.cached
    if early:  # the stage was only what was left of it
        trace.stages_ms["embed"] = embedding.time_ms
    return plan, embedding


def _find_points(plan: Plan, vector: Vector | None, services: Services, deadline: Deadline) -> list[Point]:
    """Return the points found, fewer candidates for reranking where these are too large to be read in time."""
    wanted, top_k = plan.store_query(vector), plan.query.top_k
    if plan.rerank is not None and wanted.limit > top_k:
        with suppress(ResponseTooLargeError):
            return services.store.search([wanted], deadline.limit_responses(MAX_CANDIDATE_BYTES))[0]
        wanted = replace(wanted, limit=top_k)
    return services.store.search([wanted], deadline)[0]


def needs_embedding(query: SearchQuery) -> bool:
    """Whether the query's text has to be embedded."""
    return query.query_text is not None and query.mode is not Mode.TEXT


def _is_known(query: SearchQuery, collection: str, services: Services) -> bool:
    payloads = bool(query.filters or query.group_by)
    return services.knows(collection, payloads=payloads, text=query.mode in (Mode.TEXT, Mode.HYBRID))


def respond(hits: Hits, services: Services, deadline: Deadline, trace: RequestTrace) -> RetrievalResponse:
    """Make the response from what the store found."""
    plan, embedding = hits.plan, hits.embedding
    query, collection = plan.query, plan.collection
    points = plan.page(hits.points)
    with trace.stage("search"):
        chunks = read_chunks(points, collection, services, deadline)
    trace.state = State.FILTERED
    embedder = services.embedder_of(collection) if embedding else None
    if embedder is not None:
        warn_of_other_models(chunks, embedder)
    completed = _complete(rank(chunks, query), hits, services, deadline, trace)
    results = completed.results
    if plan.mode is not Mode.TEXT:
        warn_of_low_scores(results, query.query_id)
    trace.skipped = len(points) - len(chunks)
    cosines = [(one.metadata.chunk_id, one.scores.dense if one.scores else one.similarity_score) for one in results]
    trace.record_results(cosines, in_full=services.settings.log_queries)
    shown = {one.point_id for one in results}
    trace.record_legs([point.scores for point in points if point.scores and point.id in shown])
    notes = [*plan.notes, *completed.notes, *plan.page_notes(hits.points)]
    if query.filters and not points:
        with trace.stage("search"), suppress(ChunkproofError):
            notes += find_absent_fields(query.filters, collection, services, deadline)
    return RetrievalResponse(
        query=query.query_text,
        query_id=query.query_id,
        status="success",
        results=results,
        execution=ExecutionMetadata(
            latency_ms=round(deadline.elapsed_ms()),
            result_count=len(results),
            threshold_applied=query.similarity_threshold,
            skipped=trace.skipped,
            query_embedded_at=embedding.embedded_at if embedding else None,
            embedding_time_ms=embedding.time_ms if embedding else 0.0,
            qdrant_query_time_ms=round(hits.time_ms),
            requested_top_k=query.top_k,
            collection=collection,
            embedding_model=query_model(embedder) if embedder else None,
            embedding_cached=embedding.cached if embedding else False,
            timestamp=datetime.now(UTC),
            mode=query.mode,
            text_search=plan.text_search,
            fusion=plan.fusion_in_force,
            rerank=completed.rerank,
        ),
        notes=tuple(notes),
        explain=completed.explanation,
        next_cursor=plan.next_cursor(hits.points),
    )


def _complete(
    results: tuple[SearchResult, ...], hits: Hits, services: Services, deadline: Deadline, trace: RequestTrace
) -> Completed:
    plan, embedding = hits.plan, hits.embedding
    completion = Completion(
        plan.query,
        plan.store_query(query_vector(plan, embedding)),
        {point.id: point for point in hits.points},
        {"embed": embedding.time_ms if embedding else 0.0, "search": hits.time_ms},
        services,
        deadline,
        trace,
        hits.others_follow,
    )
    return completion.complete(results, plan.rerank)


def query_vector(plan: Plan, embedding: QueryEmbedding | None) -> Vector | None:
    """Return the vector to search with, at length 1 where scores would not be cosines otherwise; None in mode text.

    Under Cosine the length does not matter, but a caller's values may be too small or too large for 32 bits.
    """
    if embedding is not None:
        is_cosine = plan.config is not None and plan.config.distance == "Cosine"
        return embedding.vector if is_cosine else _normalize(embedding.vector)
    return _normalize(plan.query.query_vector) if plan.query.query_vector is not None else None


def _normalize(vector: Vector) -> Vector:
    length = hypot(*vector)
    if isinf(length):
        largest = max(map(abs, vector))
        return _normalize([value / largest for value in vector])
    return [value / length for value in vector]
