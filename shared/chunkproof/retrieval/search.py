"""SearchQuery → RetrievalResponse."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from math import hypot, isinf

from chunkproof.clients.ports import NearestQuery, Point, Vector, VectorConfig
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    CollectionNotFoundError,
    CorruptChunkError,
    DimensionMismatchError,
    EmbeddingSizeError,
    VectorStoreRefusedError,
)
from chunkproof.models import ExecutionMetadata, RetrievalResponse, SearchQuery, SearchResult, SourceMetadata
from chunkproof.retrieval.embedding import QueryEmbedding
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.payload import Chunk
from chunkproof.retrieval.services import Services
from chunkproof.trace import State, note, note_query, reach, stage

SHORT_QUERY = 5

log = logging.getLogger(__name__)


def search(
    query: SearchQuery, *, services: Services, deadline: Deadline, exact: bool = False
) -> RetrievalResponse:
    """The stored chunks nearest to the query, best first; no match is a success with no results.

    `exact` compares with every point, to tell what the index misses.
    """
    collection = services.collection(query.collection)
    if query.query_text is not None and len(query.query_text) < SHORT_QUERY:
        log.warning("Query is very short", extra={"query_id": query.query_id, "chars": len(query.query_text)})
    note(query_id=query.query_id, collection=collection, top_k=query.top_k, created_at=query.created_at)
    note_query(query.query_text, in_full=services.settings.log_queries)
    knew = services.knows(collection)
    try:
        return _search(query, collection, services, deadline, exact)
    except (VectorStoreRefusedError, CollectionNotFoundError):
        services.forget(collection)
        if not knew:
            raise
        return _search(query, collection, services, deadline, exact)  # it was made anew since it was learned
    except (DimensionMismatchError, EmbeddingSizeError):
        if not services.has_changed(collection, deadline):
            raise
        return _search(query, collection, services, deadline, exact)  # it was made anew since it was learned


def _search(
    query: SearchQuery, collection: str, services: Services, deadline: Deadline, exact: bool
) -> RetrievalResponse:
    with stage("search"):
        space = services.space(collection, deadline)
        where = map_filters(query.filters, collection, services=services, deadline=deadline)
    embedding = _embedded(query, space, collection, services, deadline)
    nearest = NearestQuery(
        collection=collection,
        vector_config=space,
        vector=_comparable(embedding, query, space),
        limit=query.top_k,
        score_threshold=query.similarity_threshold,
        where=where,
        with_vectors=query.with_vectors,
        exact=exact,
    )
    with stage("search", State.SEARCHED) as watch:
        points = services.store.nearest(nearest, deadline)
    search_ms = watch.ms()
    readable = _readable(points, services)
    reach(State.FILTERED)
    model = services.embedder.model if services.embedder and embedding else None
    _warn_of_other_models([chunk for chunk, _ in readable], model)
    results = _ranked(readable, query)
    note(
        result_count=len(results),
        skipped=len(points) - len(results),
        top_score=results[0].similarity_score if results else None,
        embedding_cached=embedding.cached if embedding else None,
    )
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
    )


def _embedded(
    query: SearchQuery, space: VectorConfig, collection: str, services: Services, deadline: Deadline
) -> QueryEmbedding | None:
    """The query's embedding; None when it came with a vector, whose size is then checked."""
    if query.query_vector is None:
        with stage("embed", State.EMBEDDED):
            return services.query_embedder().embed(query.query_text or "", space.size, collection, deadline)
    if len(query.query_vector) != space.size:
        raise DimensionMismatchError(len(query.query_vector), collection, space.size)
    return None


def _comparable(embedding: QueryEmbedding | None, query: SearchQuery, space: VectorConfig) -> Vector:
    """The vector, so that scores are cosines; Cosine looks at directions alone, as far as 32 bits hold the values."""
    if embedding and space.distance == "Cosine":
        return embedding.vector
    return _unit(embedding.vector if embedding else query.query_vector or ())


def _unit(vector: Vector) -> Vector:
    """The same direction at length 1: under Dot, a score is a cosine only then."""
    length = hypot(*vector)
    if isinf(length):
        largest = max(map(abs, vector))
        return _unit([value / largest for value in vector])
    return [value / length for value in vector]


def _ranked(readable: list[tuple[Chunk, Point]], query: SearchQuery) -> tuple[SearchResult, ...]:
    readable.sort(key=lambda pair: (-_score(pair[1]), pair[0].metadata.chunk_id))
    return tuple(
        SearchResult(
            rank=rank,
            text=chunk.text,
            similarity_score=_score(point),
            metadata=chunk.metadata
            if query.include_metadata
            else SourceMetadata(chunk_id=chunk.metadata.chunk_id, url=chunk.metadata.url),
            payload=dict(point.payload) if query.with_payload else None,
            vector=point.vector if query.with_vectors else None,
        )
        for rank, (chunk, point) in enumerate(readable, start=1)
    )


def _score(point: Point) -> float:
    return min(1.0, max(0.0, point.score))  # a cosine can come back as 1.0000001


def _readable(points: Sequence[Point], services: Services) -> list[tuple[Chunk, Point]]:
    """The points that have a text to return, and a warning for each field that some of them lack."""
    readable: list[tuple[Chunk, Point]] = []
    lacking: dict[str, list[str]] = {}
    for point in points:
        try:
            chunk = services.payloads.chunk_of(point)
        except CorruptChunkError:
            chunk = None
        if chunk is None or not chunk.text:
            lacking.setdefault("text", []).append(str(point.id))
            continue
        readable.append((chunk, point))
        for name in ("url", "document_title"):
            if not getattr(chunk.metadata, name):
                lacking.setdefault(name, []).append(str(point.id))
    for name, ids in lacking.items():
        log.warning("Required field '%s' missing from payload", name, extra={"point_ids": ids})
    if points and not readable:
        raise CorruptChunkError(
            f"None of the {len(points)} points found has readable text; "
            "set CHUNKPROOF_PAYLOAD_MAP if the payload keeps it under another name"
        )
    return readable


def _warn_of_other_models(chunks: Sequence[Chunk], model: str | None) -> None:
    stored = {str(chunk.metadata.embedding_model) for chunk in chunks if chunk.metadata.embedding_model}
    for other in sorted(stored - {model}) if model else ():
        log.warning("Chunks were embedded with another model", extra={"stored": other, "query": model})
