"""Turn the points that a store found into ranked results."""

import logging
from collections.abc import Sequence

from chunkproof.clients.known_models import can_compare
from chunkproof.clients.ports import Embedder, Point, query_model
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError
from chunkproof.models import SearchQuery, SearchResult, SourceMetadata
from chunkproof.models.ranking import ResultScores
from chunkproof.retrieval.payload import Chunk, PayloadMap
from chunkproof.retrieval.services import Services
from chunkproof.trace import LOW_SCORE

log = logging.getLogger(__name__)

Found = tuple[Chunk, Point]


def read_chunks(points: Sequence[Point], collection: str, services: Services, deadline: Deadline) -> list[Found]:
    """Return the points that have a text, and log a warning for each field that some of them lack."""
    payloads = _payload_map(points, collection, services, deadline)
    chunks: list[Found] = []
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


def rank(chunks: list[Found], query: SearchQuery) -> tuple[SearchResult, ...]:
    """Order by the score that the search ranks by, then by chunk id, and number from 1.

    A selection for diversity stays in the order in which the store made it.
    """
    if not query.diversity:
        chunks = sorted(chunks, key=lambda pair: (-_order(pair[1]), pair[0].metadata.chunk_id))
    return tuple(
        SearchResult(
            rank=rank,
            text=chunk.text,
            similarity_score=_cosine(point) or 0.0,
            scores=_scores(point),
            group=point.group,
            point_id=point.id,
            metadata=chunk.metadata
            if query.include_metadata
            else SourceMetadata(chunk_id=chunk.metadata.chunk_id, url=chunk.metadata.url),
            payload=dict(point.payload) if query.with_payload else None,
            vector=point.vector if query.with_vectors else None,
        )
        for rank, (chunk, point) in enumerate(chunks, start=1)
    )


def _payload_map(points: Sequence[Point], collection: str, services: Services, deadline: Deadline) -> PayloadMap:
    """Return how to read these points; the store is only asked about ids if their payloads have any."""
    if any(services.payloads.id_path(point.payload) for point in points):
        return services.payloads_of(collection, deadline)
    return services.payloads


def _order(point: Point) -> float:
    return _clamp(point.score) if point.scores is None else point.score


def _cosine(point: Point) -> float | None:
    cosine = point.score if point.scores is None else point.scores.dense
    return None if cosine is None else _clamp(cosine)


def _scores(point: Point) -> ResultScores | None:
    if point.scores is None:
        return None
    return ResultScores(dense=_cosine(point), text=point.scores.text, fused=point.scores.fused)


def _clamp(cosine: float) -> float:
    return min(1.0, max(0.0, cosine))  # a cosine can come back as 1.0000001


def warn_of_low_scores(results: Sequence[SearchResult], query_id: str) -> None:
    """Warn of results that are probably not relevant; a first result like that has a warning of its own."""
    low = sum(result.similarity_score < LOW_SCORE for result in results)
    if 0 < low < len(results):
        log.warning("Some results score under %s", LOW_SCORE, extra={"query_id": query_id, "results": low})


def warn_of_other_models(chunks: Sequence[Found], embedder: Embedder) -> None:
    """Warn of chunks whose stored model shares no space with the query's."""
    stored = {str(chunk.metadata.embedding_model) for chunk, _ in chunks if chunk.metadata.embedding_model}
    for other in sorted(name for name in stored if not can_compare(embedder, name)):
        log.warning("Chunks were embedded with another model", extra={"stored": other, "query": query_model(embedder)})
