"""`POST /search`: the stored chunks nearest to a query."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import hypot, isinf

from chunkproof.clients.ports import DenseLeg, Embedder, Point, StoreQuery, Vector, VectorConfig, query_model
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    CorruptChunkError,
    DimensionMismatchError,
    EmbeddingSizeError,
    VectorStoreRefusedError,
)
from chunkproof.models import ExecutionMetadata, RetrievalResponse, SearchQuery, SearchResult, SourceMetadata
from chunkproof.retrieval.embedding import QueryEmbedding
from chunkproof.retrieval.filters import find_absent_fields, map_filters
from chunkproof.retrieval.payload import Chunk, PayloadMap
from chunkproof.retrieval.services import Services
from chunkproof.trace import LOW_SCORE, RequestTrace, State

SHORT_QUERY = 5

log = logging.getLogger(__name__)


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
    trace.query_id, trace.created_at = query.query_id, query.created_at
    trace.collection, trace.top_k = query.collection, query.top_k
    trace.record_query(query.query_text, in_full=services.settings.log_queries)
    trace.collection = collection = services.resolve_collection(query.collection)
    if query.query_text is not None and services.embedder_of(collection) is not None:
        trace.embedding_model = services.query_embedder(collection).model
    if query.query_text is not None and len(query.query_text) < SHORT_QUERY:
        log.warning("Query is very short", extra={"query_id": query.query_id, "chars": len(query.query_text)})
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


def _search(
    query: SearchQuery,
    collection: str,
    services: Services,
    deadline: Deadline,
    trace: RequestTrace,
    *,
    exact: bool,
) -> RetrievalResponse:
    with trace.stage("search"):
        config = services.vector_config(collection, deadline)
        where = map_filters(query.filters, collection, services, deadline) if query.filters else ()
    if query.query_vector is not None and len(query.query_vector) != config.size:
        raise DimensionMismatchError(len(query.query_vector), collection, config.size)
    embedding, trace.query_embedded_at = None, None
    if query.query_vector is None:
        with trace.stage("embed", State.EMBEDDED):
            embedder = services.query_embedder(collection)
            embedding = embedder.embed(query.query_text or "", config.size, collection, deadline)
            trace.query_embedded_at, trace.embedding_cached = embedding.embedded_at, embedding.cached
    nearest = StoreQuery(
        collection=collection,
        limit=query.top_k,
        dense=DenseLeg(config, _query_vector(embedding, query, config), query.similarity_threshold, exact=exact),
        where=where,
        with_vector=config.name if query.with_vectors else None,
    )
    with trace.stage("search", State.SEARCHED) as watch:
        points = services.store.search([nearest], deadline)[0]
    search_ms = watch.ms()
    with trace.stage("search"):
        payloads = _payload_map(points, collection, services, deadline)
    chunks = _read_chunks(points, payloads)
    trace.state = State.FILTERED
    model = services.query_embedder(collection).model if embedding else None
    _warn_of_other_models([chunk for chunk, _ in chunks], services.embedder_of(collection) if embedding else None)
    results = _rank(chunks, query)
    _warn_of_low_scores(results, query.query_id)
    trace.skipped = len(points) - len(results)
    trace.record_results(
        [(result.metadata.chunk_id, result.similarity_score) for result in results],
        in_full=services.settings.log_queries,
    )
    notes: tuple[str, ...] = ()
    if query.filters and not points:
        with trace.stage("search"), suppress(ChunkproofError):
            notes = tuple(find_absent_fields(query.filters, collection, services, deadline))
    return RetrievalResponse(
        query=query.query_text,
        query_id=query.query_id,
        status="success",
        results=results,
        execution=ExecutionMetadata(
            latency_ms=round(deadline.elapsed_ms()),
            result_count=len(results),
            threshold_applied=query.similarity_threshold,
            skipped=len(points) - len(results),
            query_embedded_at=embedding.embedded_at if embedding else None,
            embedding_time_ms=embedding.time_ms if embedding else 0.0,
            qdrant_query_time_ms=round(search_ms),
            requested_top_k=query.top_k,
            collection=collection,
            embedding_model=model,
            embedding_cached=embedding.cached if embedding else False,
            timestamp=datetime.now(UTC),
        ),
        notes=notes,
    )


def _query_vector(embedding: QueryEmbedding | None, query: SearchQuery, config: VectorConfig) -> Vector:
    """Return the vector to search with, at length 1 where scores would not be cosines otherwise.

    Under Cosine the length does not matter, but a caller's values may be too small or too large for 32 bits.
    """
    if embedding and config.distance == "Cosine":
        return embedding.vector
    return _normalize(embedding.vector if embedding else query.query_vector or ())


def _normalize(vector: Vector) -> Vector:
    length = hypot(*vector)
    if isinf(length):
        largest = max(map(abs, vector))
        return _normalize([value / largest for value in vector])
    return [value / length for value in vector]


def _payload_map(points: Sequence[Point], collection: str, services: Services, deadline: Deadline) -> PayloadMap:
    """Return how to read these points; the store is only asked about ids if their payloads have any."""
    if any(services.payloads.id_path(point.payload) for point in points):
        return services.payloads_of(collection, deadline)
    return services.payloads


def _read_chunks(points: Sequence[Point], payloads: PayloadMap) -> list[tuple[Chunk, Point]]:
    """Return the points that have a text, and log a warning for each field that some of them lack."""
    chunks: list[tuple[Chunk, Point]] = []
    missing: dict[str, list[str]] = {}
    for point in points:
        try:
            chunk = payloads.chunk_of(point)
        except CorruptChunkError:
            chunk = None
        if chunk is None or not chunk.text:
            missing.setdefault("text", []).append(str(point.id))
            continue
        chunks.append((chunk, point))
        for name in ("url", "document_title"):
            if not getattr(chunk.metadata, name):
                missing.setdefault(name, []).append(str(point.id))
    for name, ids in missing.items():
        log.warning("Required field '%s' missing from payload", name, extra={"point_ids": ids})
    if points and not chunks:
        raise CorruptChunkError(
            f"None of the {len(points)} points found has readable text; "
            "set CHUNKPROOF_PAYLOAD_MAP if the payload keeps it under another name"
        )
    return chunks


def _rank(chunks: list[tuple[Chunk, Point]], query: SearchQuery) -> tuple[SearchResult, ...]:
    """Order by score, then by chunk id, and number from 1."""
    chunks.sort(key=lambda pair: (-_score(pair[1]), pair[0].metadata.chunk_id))
    return tuple(
        SearchResult(
            rank=rank,
            text=chunk.text,
            similarity_score=_score(point),
            point_id=point.id,
            metadata=chunk.metadata
            if query.include_metadata
            else SourceMetadata(chunk_id=chunk.metadata.chunk_id, url=chunk.metadata.url),
            payload=dict(point.payload) if query.with_payload else None,
            vector=point.vector if query.with_vectors else None,
        )
        for rank, (chunk, point) in enumerate(chunks, start=1)
    )


def _score(point: Point) -> float:
    return min(1.0, max(0.0, point.score))  # a cosine can come back as 1.0000001


def _warn_of_low_scores(results: Sequence[SearchResult], query_id: str) -> None:
    """Warn of results that are probably not relevant; a first result like that has a warning of its own."""
    low = sum(result.similarity_score < LOW_SCORE for result in results)
    if 0 < low < len(results):
        log.warning("Some results score under %s", LOW_SCORE, extra={"query_id": query_id, "results": low})


def _warn_of_other_models(chunks: Sequence[Chunk], embedder: Embedder | None) -> None:
    if embedder is None:
        return
    stored = {str(chunk.metadata.embedding_model) for chunk in chunks if chunk.metadata.embedding_model}
    for other in sorted(stored - {embedder.model, query_model(embedder)}):
        log.warning("Chunks were embedded with another model", extra={"stored": other, "query": query_model(embedder)})
