"""`POST /search`: plan a search, and find the stored chunks that answer a query."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from math import hypot, isinf
from typing import TYPE_CHECKING

from chunkproof.base import errors
from chunkproof.base.request import LOW_SCORE, State, Stopwatch, start, tracing
from chunkproof.collection.embedding import EmbeddedQuery
from chunkproof.collection.payload_map import Chunk
from chunkproof.collection.services import Collection
from chunkproof.contract.conditions import Condition
from chunkproof.contract.model import display_name
from chunkproof.contract.query import SearchQuery
from chunkproof.contract.query_options import Mode, RerankOptions, ResultScores
from chunkproof.contract.response import ExecutionMetadata, Integrity, RetrievalResponse, SearchResult, SourceMetadata
from chunkproof.embedders.embedder_port import prepare_embedder
from chunkproof.stores.store_port import DenseLeg, Fusion, Grouping, Point, StoreQuery, TextLeg, Vector, VectorConfig

if TYPE_CHECKING:
    from chunkproof.collection.payload_map import Hashes
    from chunkproof.search.modes import Pages
    from chunkproof.search.steps import Completed

SHORT_QUERY = 5
# Candidates of a diverse selection, unless there are more results.
CANDIDATES = 100
# Each number takes about nine bytes of a compressed response.
MAX_VECTOR_VALUES = 800_000
# Payloads may name any number of models; a collection usually has one or two.
MAX_MODELS = 100
SHOWN_IDS = 5
CHANGED: Integrity = "changed"

ReadChunk = tuple[Chunk, Point, Integrity]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Plan:
    """Everything about a search but the query's vector.

    What only some requests ask for (words, groups, pages, reranking) is added by the module of that option.
    """

    query: SearchQuery
    collection: Collection
    mode: Mode
    vector: VectorConfig | None = None
    where: tuple[Condition, ...] = ()
    exact: bool = False
    # How many points to request.
    limit: int = 0
    # How many results of each leg are fused, or how many are selected from for diversity; 0 without either.
    candidates: int = 0
    with_vector: str | None = None
    text: TextLeg | None = None
    fusion: Fusion = field(default_factory=Fusion)
    grouping: Grouping | None = None
    pages: "Pages | None" = None
    rerank: RerankOptions | None = None
    notes: tuple[str, ...] = ()

    def store_query(self, embedding: EmbeddedQuery | None) -> StoreQuery:
        """Return the search of the store, by the query's embedding, or the caller's vector; by neither in mode text.

        The vector has length 1 where scores would not be cosines otherwise. Under Cosine its length does not matter,
        but a caller's values may be too small or too large for 32 bits.
        """
        query, dense = self.query, None
        vector: Vector | None = embedding.vector if embedding else query.query_vector
        if vector is not None and self.vector is not None:
            if embedding is None or self.vector.distance != "Cosine":
                vector = _normalize(vector)
            dense = DenseLeg(self.vector, vector, query.similarity_threshold, exact=self.exact)
            if query.params is not None:
                params = query.params.model_dump()
                dense = replace(dense, **{**params, "exact": self.exact or params["exact"]})
        return StoreQuery(
            collection=self.collection.name,
            limit=self.limit,
            dense=dense,
            text=self.text,
            where=self.where,
            with_vector=self.with_vector,
            fusion=self.fusion,
            candidates=self.candidates,
            grouping=self.grouping,
            diversity=query.diversity,
        )


def needs_embedding(query: SearchQuery) -> bool:
    """Whether the query's text has to be embedded."""
    return query.query_text is not None and query.mode is not Mode.TEXT


def plan_search(query: SearchQuery, collection: Collection, *, exact: bool = False) -> Plan:
    """Find out how to search the collection; `InvalidParameterError` says what it, or its store, lacks."""
    needs_vector = query.mode is not Mode.TEXT or query.with_vectors or query.diversity is not None
    plan = Plan(query, collection, query.mode or Mode.DENSE, exact=exact, limit=query.top_k)
    if query.cursor is not None:
        from chunkproof.search.modes import read_cursor

        plan.pages = read_cursor(query, collection)
    if query.rerank or (query.rerank is None and collection.settings.rerank == "always"):
        from chunkproof.search.steps import choose_rerank

        plan.rerank = choose_rerank(query, collection.services)
    if needs_vector:
        plan.vector = collection.vector
    if query.with_vectors and plan.vector:
        check_vector_values(query.top_k * plan.vector.size)
        plan.with_vector = plan.vector.name
    if query.filters:
        from chunkproof.search.filters import map_filters

        plan.where = map_filters(query.filters, collection)
    if query.group_by or query.diversity is not None or query.mode in (Mode.TEXT, Mode.HYBRID):
        from chunkproof.search.modes import add_modes

        add_modes(plan)
    if plan.rerank is not None and plan.rerank.candidates is not None:
        plan.limit = plan.rerank.candidates
    if plan.pages is not None:
        plan.pages.restrict(plan)
    return plan


def check_vector_values(count: int) -> None:
    """Refuse vectors that no response can carry, before they are read."""
    if count > MAX_VECTOR_VALUES:
        raise errors.InvalidParameterError(
            f"with_vectors asks for {count:,} numbers, and a response has room for {MAX_VECTOR_VALUES:,}: lower top_k"
        )


@dataclass(frozen=True, slots=True)
class Hits:
    """What the store found for a plan and the query's embedding, and how long the round trip took.

    `others_follow` when there are other queries in the request, which need time too.
    """

    plan: Plan
    embedding: EmbeddedQuery | None
    points: list[Point]
    time_ms: float
    others_follow: bool = False


def search(query: SearchQuery, collection: Collection, *, exact: bool = False) -> RetrievalResponse:
    """Return the stored chunks nearest to the query, best first; no match is a success with no results.

    With `exact`, the query is compared with every point instead of asking the index.
    """
    if tracing.tracer is not None and not tracing.tracer.is_inside:
        return tracing.tracer.retrieval(search, query, collection, exact=exact)
    if query.queries is not None:
        from chunkproof.search.batch import search_all

        return search_all(query, collection, exact=exact)
    begin(query, collection)
    was_remembered = collection.facts.vector is not None or collection.facts.sample is not None
    try:
        return _search(query, collection, exact=exact)
    except (errors.VectorStoreRefusedError, errors.CollectionNotFoundError):
        collection.forget()
        if not was_remembered:
            raise
    except (errors.DimensionMismatchError, errors.EmbeddingSizeError):
        if not collection.has_changed():
            raise
    # The collection was recreated since it was last searched: search again, with its new facts.
    return _search(query, collection, exact=exact)


def begin(query: SearchQuery, collection: Collection) -> None:
    """Record a query before any service is called."""
    trace = collection.trace
    if trace.query_id != query.query_id:  # the API records a query as soon as it was read
        trace.record_query(query, in_full=collection.settings.log_queries)
    if needs_embedding(query):
        with suppress(errors.NotConfiguredError):  # embedding it will say so
            trace.embedding_model = collection.queries.model
    if query.query_text is not None and len(query.query_text) < SHORT_QUERY:
        log.warning("Query is very short", extra={"query_id": query.query_id, "chars": len(query.query_text)})


def _search(query: SearchQuery, collection: Collection, *, exact: bool) -> RetrievalResponse:
    plan, embedding = _plan_and_embed(query, collection, exact=exact)
    with collection.trace.stage("search", State.SEARCHED) as watch:
        wanted = plan.store_query(embedding)
        if plan.rerank is None:
            points = collection.search([wanted])[0]
        else:
            from chunkproof.search.steps import find_candidates

            points = find_candidates(wanted, query.top_k, collection)
    collection.trace.round_trip_ms = watch.ms()
    return respond(Hits(plan, embedding, points, collection.trace.round_trip_ms))


def _plan_and_embed(query: SearchQuery, collection: Collection, *, exact: bool) -> tuple[Plan, EmbeddedQuery | None]:
    """Find out how to search and embed the query; at the same time, if the collection has to be looked at first."""
    trace, early = collection.trace, None
    trace.query_embedded_at = None
    text, embeds, facts = query.query_text or "", needs_embedding(query), collection.facts
    is_known = (
        facts.vector is not None
        and (facts.sample is not None or not (query.filters or query.group_by))
        and (facts.text_leg is not None or query.mode not in (Mode.TEXT, Mode.HYBRID))
    )
    if embeds and not is_known:
        queries = collection.queries
        prepare_embedder(queries.embedder)
        watch = Stopwatch()

        def embed() -> EmbeddedQuery:
            try:
                return queries.embed(text, collection.deadline)
            finally:  # of a failure too, which the stage below only reports
                trace.stages_ms["embed"] = watch.ms()

        early = start(embed)
    try:
        with trace.stage("search"):
            plan = plan_search(query, collection, exact=exact)
            if early and not early.done():
                collection.look_ahead()
    finally:
        if early:  # no call outlives its request
            wait([early])
    size = plan.vector.size if plan.vector else 0
    if query.query_vector is not None and len(query.query_vector) != size:
        raise errors.DimensionMismatchError(len(query.query_vector), collection.name, size)
    if not embeds:
        return plan, None
    with trace.stage("embed", State.EMBEDDED):
        embedding = collection.embed_query(text, early.result() if early else None)
        trace.query_embedded_at, trace.embedding_cached = embedding.embedded_at, embedding.cached
    if early:  # the stage was only what was left of it
        trace.stages_ms["embed"] = embedding.time_ms
    return plan, embedding


def respond(hits: Hits) -> RetrievalResponse:
    """Make the response from what the store found."""
    plan, embedding = hits.plan, hits.embedding
    query, collection = plan.query, plan.collection
    trace, points, notes = collection.trace, hits.points, list(plan.notes)
    if plan.pages is not None:
        points = plan.pages.select(points)
        notes += plan.pages.notes(hits.points)
    with trace.stage("search"):
        chunks, missing = read_chunks(points, collection, query)
        if len(points) > len(chunks) < query.top_k and plan.pages is None:
            from chunkproof.search.steps import find_readable

            points, found_notes = find_readable(hits)
            notes += found_notes
            chunks, missing = read_chunks(points, collection, query)
    if (hashes := collection.facts.hashes) is not None and (hashes.content_hash or hashes.chunk_id):
        trace.changed = len(missing.get(CHANGED, ()))
    if missing:
        notes += _report_missing(missing, query, len(points), is_any_read=bool(chunks))
    trace.state = State.FILTERED
    if plan.mode is not Mode.TEXT:
        notes += compare_models(chunks, collection, collection.queries.model if embedding else None)
    results = rank(chunks, query)
    completed: Completed | None = None
    if plan.rerank is not None or query.highlight or query.explain or query.neighbours:
        from chunkproof.search.steps import Completion

        completed = Completion(hits, points).complete(results)
        results = completed.results
        notes = [*plan.notes, *completed.notes, *notes[len(plan.notes) :]]
    trace.skipped, receipt = len(points) - len(chunks), None
    if query.receipt:
        from chunkproof.seals.receipts import add_receipt

        dense, understood = plan.store_query(embedding).dense, query.model_copy(update={"rerank": plan.rerank})
        results, receipt, added = add_receipt(understood, results, dense.vector if dense else None, collection)
        notes += added
    low = 0 if plan.mode is Mode.TEXT else sum(result.similarity_score < LOW_SCORE for result in results)
    if 0 < low < len(results):  # a first result like that has a warning of its own
        log.warning("Some results score under %s", LOW_SCORE, extra={"query_id": query.query_id, "results": low})
    trace.record_results(results, in_full=collection.settings.log_queries)
    if plan.text is not None:
        shown = {result.point_id for result in results}
        trace.record_legs([point.scores for point in points if point.scores and point.id in shown])
    if query.filters and not points:
        from chunkproof.search.filters import find_absent_fields

        with trace.stage("search"), suppress(errors.ChunkproofError):
            notes += find_absent_fields(query.filters, collection)
    text_search = fusion = None
    if plan.text is not None:
        from chunkproof.search.modes import describe_fusion, describe_text_search

        text_search, fusion = describe_text_search(plan), describe_fusion(plan)
    execution = ExecutionMetadata(
        latency_ms=round(collection.deadline.elapsed_ms()),
        result_count=len(results),
        threshold_applied=query.similarity_threshold,
        skipped=trace.skipped,
        query_embedded_at=embedding.embedded_at if embedding else None,
        embedding_time_ms=embedding.time_ms if embedding else 0.0,
        qdrant_query_time_ms=round(hits.time_ms),
        requested_top_k=query.top_k,
        collection=collection.name,
        embedding_model=collection.queries.model if embedding else None,
        embedding_cached=embedding.cached if embedding else False,
        timestamp=datetime.now(UTC),
        mode=query.mode,
        text_search=text_search,
        fusion=fusion,
        rerank=completed.rerank if completed else None,
    )
    # Both models are made without `__init__`, which looks for other shapes.
    return RetrievalResponse.__pydantic_validator__.validate_python(  # type: ignore[no-any-return]
        {
            "query": query.query_text,
            "query_id": query.query_id,
            "status": "success",
            "results": results,
            "execution": execution,
            "notes": tuple(notes),
            "explain": completed.explanation if completed else None,
            "receipt": receipt,
            "next_cursor": plan.pages.next_cursor(hits.points) if plan.pages else None,
        }
    )


def _normalize(vector: Vector) -> Vector:
    length = hypot(*vector)
    if isinf(length):
        largest = max(map(abs, vector))
        return _normalize([value / largest for value in vector])
    return [value / length for value in vector]


def read_chunks(
    points: Sequence[Point], collection: Collection, query: SearchQuery
) -> tuple[list[ReadChunk], dict[str, list[str]]]:
    """Return the points that have a text, and the ids of those that lack a field, by its name, or were `CHANGED`."""
    payloads = collection.facts.payloads or collection.services.payloads
    # The store is only asked about ids if payloads have any.
    if collection.facts.payloads is None and any(payloads.id_path(point.payload) for point in points):
        payloads = collection.payloads
    chunks: list[ReadChunk] = []
    missing: dict[str, list[str]] = {}
    for point in points:
        try:
            chunk = payloads.chunk_of(point)
        except errors.CorruptChunkError:
            chunk = None
        if chunk is None or not chunk.text:
            missing.setdefault("text", []).append(str(point.id))
            continue
        chunks.append((chunk, point, "unknown"))
        for name in ("url", "document_title"):
            if not getattr(chunk.metadata, name):
                missing.setdefault(name, []).append(str(point.id))
    hashes = collection.facts.hashes
    if hashes is None and any(any(chunk.hashes) for chunk, _, _ in chunks):
        hashes = _find_hashes(collection, query)
    if hashes is not None:
        verdicts = [hashes.integrity_of(chunk) for chunk, _, _ in chunks]
        if CHANGED in verdicts:
            hashes = collection.check_sources(chunk for chunk, _, _ in chunks)
            verdicts = [hashes.integrity_of(chunk) for chunk, _, _ in chunks]
        chunks = [(chunk, point, verdict) for (chunk, point, _), verdict in zip(chunks, verdicts, strict=True)]
        if changed := [str(point.id) for _, point, integrity in chunks if integrity == CHANGED]:
            missing[CHANGED] = changed
            if query.require_integrity:
                chunks = [chunk for chunk in chunks if chunk[2] != CHANGED]
    return chunks, missing


def _find_hashes(collection: Collection, query: SearchQuery) -> "Hashes | None":
    """Look at the collection's hashes; None if that fails, unless the request relies on them."""
    try:
        return collection.hashes
    except errors.ChunkproofError:
        if query.require_integrity:
            raise
        log.warning("The integrity of chunks is unknown: the first points could not be read", exc_info=True)
        return None


def _report_missing(
    missing: dict[str, list[str]], query: SearchQuery, points: int, *, is_any_read: bool
) -> Iterator[str]:
    """Log a warning for each field that some points lack; `CorruptChunkError` if none is left.

    Yield a note on chunks that were left out because they were changed.
    """
    changed = missing.pop(CHANGED, None)
    for name, ids in missing.items():
        log.warning("Required field '%s' missing from payload", name, extra={"point_ids": ids})
    if changed:
        log.warning("Stored text does not match its hash", extra={"point_ids": changed})
    if not is_any_read and changed:
        raise errors.CorruptChunkError(
            f"Of the {points} points found, {len(changed)} were changed since they were hashed, and the others have no "
            "readable text; leave out require_integrity to see them"
        )
    if not is_any_read:
        raise errors.CorruptChunkError(
            f"None of the {points} points found has readable text; "
            "set CHUNKPROOF_PAYLOAD_MAP if the payload keeps it under another name"
        )
    if changed and query.require_integrity:
        shown = ", ".join(changed[:SHOWN_IDS]) + (", …" if len(changed) > SHOWN_IDS else "")
        yield f"{len(changed)} chunks left out: their text does not match its hash (points {shown})"


def rank(chunks: list[ReadChunk], query: SearchQuery) -> tuple[SearchResult, ...]:
    """Order by the score that the search ranks by, then by chunk id, and number from 1.

    A selection for diversity stays in the order in which the store made it.
    """
    if not query.diversity:
        # A cosine can come back as 1.0000001.
        scores = [min(1.0, max(0.0, p.score)) if p.scores is None else p.score for _, p, _ in chunks]
        ids = [chunk.metadata.chunk_id for chunk, _, _ in chunks]
        chunks = [chunks[at] for at in sorted(range(len(chunks)), key=lambda at: (-scores[at], ids[at]))]
    results = []
    for number, (chunk, point, integrity) in enumerate(chunks, start=1):
        cosine, own_scores = point.score, None
        metadata: SourceMetadata = chunk.metadata
        if point.scores is not None:
            dense = None if (dense := point.scores.dense) is None else min(1.0, max(0.0, dense))
            own_scores = ResultScores(dense=dense, text=point.scores.text, fused=point.scores.fused)
            cosine = own_scores.dense or 0.0
        if not query.include_metadata:
            metadata = SourceMetadata(chunk_id=metadata.chunk_id, url=metadata.url)
        results.append(
            SearchResult.__pydantic_validator__.validate_python(
                {
                    "rank": number,
                    "text": chunk.text,
                    "similarity_score": min(1.0, max(0.0, cosine)),
                    "scores": own_scores,
                    "group": point.group,
                    "point_id": point.id,
                    "integrity": integrity,
                    "metadata": metadata,
                    "payload": dict(point.payload) if query.with_payload else None,
                    "vector": point.vector if query.with_vectors else None,
                }
            )
        )
    return tuple(results)


def compare_models(chunks: Sequence[ReadChunk], collection: Collection, query_model: str | None) -> list[str]:
    """Warn of chunks whose stored model shares no space with the query's; return a note if there are several models."""
    comparable = collection.facts.models
    stored = {str(chunk.metadata.embedding_model) for chunk, _, _ in chunks if chunk.metadata.embedding_model}
    if query_model and (new := stored - comparable.keys()):
        from chunkproof.embedders.known_models import can_compare

        for model in islice(new, max(0, MAX_MODELS - len(comparable))):
            comparable[model] = can_compare(collection.require_embedder(), model)
    for model in sorted(model for model in stored if query_model and not comparable.get(model, True)):
        log.warning("Chunks were embedded with another model", extra={"stored": model, "query": query_model})
    if len(stored) < 2:
        return []
    shown = ", ".join(display_name(model) for model in sorted(stored)[:SHOWN_IDS])
    more = ", …" if len(stored) > SHOWN_IDS else ""
    of_query = f", the query with {query_model}" if query_model else ""
    return [
        f"The results were embedded with {len(stored)} models ({shown}{more}){of_query}: scores of different models "
        "cannot be compared; embed the whole collection with one model"
    ]
