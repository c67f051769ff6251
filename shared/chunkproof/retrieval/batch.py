"""Several queries in one request: one embedding call, one search of the store, and a response for each."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from chunkproof.deadline import Deadline, Stopwatch, start
from chunkproof.errors import (
    ChunkproofError,
    CollectionNotFoundError,
    DimensionMismatchError,
    InternalError,
    InvalidParameterError,
    RateLimitedError,
    UnavailableError,
    VectorStoreRefusedError,
)
from chunkproof.models import ExecutionMetadata, RetrievalResponse, SearchQuery
from chunkproof.models.base import MAX_NAME, BrokenRules
from chunkproof.models.batch import query_documents
from chunkproof.models.json import has_lone_surrogate
from chunkproof.retrieval.embedding import QueryEmbedding
from chunkproof.retrieval.legs import Plan, plan_search
from chunkproof.retrieval.search import Hits, begin, needs_embedding, query_vector, respond, search
from chunkproof.retrieval.services import Services
from chunkproof.trace import RequestTrace, State


@dataclass(slots=True)
class _One:
    """One of the queries on its way from a document to a response; what fails keeps its error."""

    document: Any
    trace: RequestTrace = field(default_factory=RequestTrace)
    query: SearchQuery | None = None
    collection: str = ""
    plan: Plan | None = None
    embedding: QueryEmbedding | None = None
    response: RetrievalResponse | None = None
    error: ChunkproofError | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keep the error of a step."""
        try:
            yield
        except ChunkproofError as error:
            self.error = error


def search_all(
    request: SearchQuery, *, services: Services, deadline: Deadline, trace: RequestTrace, exact: bool = False
) -> RetrievalResponse:
    """Answer each query of the request, in their order; what fails one of them does not fail the others.

    When a service failed all of them, the request fails with its error.
    """
    queries = _read(request, services)
    trace.query_id, trace.created_at = request.query_id, request.created_at
    trace.queries, trace.top_k = len(queries), sum(one.query.top_k for one in queries if one.query)
    embedding = start(lambda: _embed(queries, services, deadline))
    try:
        with trace.stage("search"):
            _plan(queries, services, deadline, exact=exact)
    finally:  # no call outlives its request
        wait([embedding])
    with trace.stage("embed", State.EMBEDDED):
        _take_embeddings(embedding.result(), services)
    trace.stages_ms["embed"] = max((one.embedding.time_ms for one in queries if one.embedding), default=0.0)
    with trace.stage("search", State.SEARCHED):
        _search(queries, services, deadline, exact=exact)
    _raise_outage(queries)
    responses = tuple(one.response or _failure(one, deadline) for one in queries)
    _record(trace, queries, responses)
    return RetrievalResponse(
        query=None,
        query_id=request.query_id,
        status="success",
        results=(),
        execution=ExecutionMetadata(
            latency_ms=round(deadline.elapsed_ms()),
            result_count=0,
            threshold_applied=request.similarity_threshold,
            skipped=trace.skipped or 0,
            embedding_time_ms=trace.stages_ms.get("embed", 0.0) if trace.embedding_cached is not None else 0.0,
            qdrant_query_time_ms=round(trace.stages_ms["search"]),
            requested_top_k=trace.top_k,
            collection=trace.collection,
            embedding_model=trace.embedding_model,
            embedding_cached=bool(trace.embedding_cached),
            timestamp=datetime.now(UTC),
            mode=request.mode,
        ),
        responses=responses,
    )


def _read(request: SearchQuery, services: Services) -> list[_One]:
    limits = services.settings.limits
    try:
        queries = [_One(document) for document in query_documents(request, limits)]
    except BrokenRules as error:
        raise InvalidParameterError(*error.messages) from None
    for number, one in enumerate(queries):
        with one.step():
            query = SearchQuery.parse(one.document, limits, f"queries[{number}]")
            if query.queries is not None:
                raise InvalidParameterError(f"queries[{number}] cannot have queries of its own")
            one.query = query
            one.collection = begin(query, services, one.trace)
    return queries


def _plan(queries: Sequence[_One], services: Services, deadline: Deadline, *, exact: bool) -> None:
    unusable: dict[str, ChunkproofError] = {}
    for one in queries:
        if one.query is None or one.error:
            continue
        with one.step():
            if known := unusable.get(one.collection):
                raise known
            one.plan = plan_search(one.query, one.collection, services, deadline, exact=exact)
            vector, size = one.query.query_vector, one.plan.config.size if one.plan.config else 0
            if vector is not None and len(vector) != size:
                raise DimensionMismatchError(len(vector), one.collection, size)
        if one.error and not isinstance(one.error, InvalidParameterError):  # asking again would not help
            unusable[one.collection] = one.error


def _embed(
    queries: Sequence[_One], services: Services, deadline: Deadline
) -> list[tuple[_One, QueryEmbedding | ChunkproofError]]:
    """Embed all texts of an embedder with one call; collections may have embedders of their own."""
    found: list[tuple[_One, QueryEmbedding | ChunkproofError]] = []
    together: dict[int, list[tuple[_One, str]]] = {}
    for one in queries:
        if one.query is None or not one.collection or not needs_embedding(one.query):
            continue
        try:
            embedder = services.require_embedder(one.collection)
        except ChunkproofError as error:
            found.append((one, error))
        else:
            together.setdefault(id(embedder), []).append((one, one.query.query_text or ""))
    for group in together.values():
        embeddings = services.query_embedder(group[0][0].collection).embed_all([text for _, text in group], deadline)
        found += zip((one for one, _ in group), embeddings, strict=True)
    return found


def _take_embeddings(found: Sequence[tuple[_One, QueryEmbedding | ChunkproofError]], services: Services) -> None:
    for one, embedding in found:
        if one.error or one.plan is None or one.plan.config is None or one.query is None:
            continue
        with one.step():
            if isinstance(embedding, ChunkproofError):
                raise embedding
            embedder = services.query_embedder(one.collection)
            embedder.check_size(one.query.query_text or "", embedding, one.plan.config.size, one.collection)
            one.embedding, one.trace.embedding_cached = embedding, embedding.cached


def _search(queries: Sequence[_One], services: Services, deadline: Deadline, *, exact: bool) -> None:
    """Search for all queries at once; if the store refuses that, for each by itself, so that the others succeed."""
    ready = [(one, one.plan) for one in queries if one.plan and not one.error]
    watch = Stopwatch()
    try:
        searches = [plan.store_query(query_vector(plan, one.embedding)) for one, plan in ready]
        found = services.store.search(searches, deadline) if searches else []
    except (InvalidParameterError, CollectionNotFoundError, VectorStoreRefusedError):
        for one, plan in ready:
            with one.step():
                one.response = search(plan.query, services=services, deadline=deadline, trace=one.trace, exact=exact)
    except ChunkproofError as error:
        for one, _ in ready:
            one.error = error
    else:
        time_ms = watch.ms()
        for number, ((one, plan), points) in enumerate(zip(ready, found, strict=True), start=1):
            with one.step():
                hits = Hits(plan, one.embedding, points, time_ms, others_follow=number < len(ready))
                one.response = respond(hits, services, deadline, one.trace)


def _raise_outage(queries: Sequence[_One]) -> None:
    """Raise the error of a service that failed every query."""
    errors = [one.error for one in queries]
    first = errors[0]
    if isinstance(first, UnavailableError | RateLimitedError) and all(type(error) is type(first) for error in errors):
        raise first


def _failure(one: _One, deadline: Deadline) -> RetrievalResponse:
    query, sent = one.query, one.document if isinstance(one.document, dict) else {}
    execution = ExecutionMetadata(
        latency_ms=round(deadline.elapsed_ms()),
        result_count=0,
        threshold_applied=query.similarity_threshold if query else 0.0,
        requested_top_k=query.top_k if query else None,
        collection=one.collection or None,
        embedding_model=one.trace.embedding_model,
        timestamp=datetime.now(UTC),
        mode=query.mode if query else None,
    )
    return RetrievalResponse.from_error(
        one.error or InternalError("Internal server error"),
        execution,
        query=query.query_text if query else None,
        query_id=query.query_id if query else _name(sent.get("query_id")) or str(uuid4()),
    )


def _name(value: Any) -> str | None:
    is_name = isinstance(value, str) and 0 < len(value) <= MAX_NAME and not has_lone_surrogate(value)
    return value if is_name else None


def _record(trace: RequestTrace, queries: Sequence[_One], responses: Sequence[RetrievalResponse]) -> None:
    """Record the sums, and what all queries have in common."""
    trace.result_count = sum(response.execution.result_count for response in responses)
    trace.skipped = sum(response.execution.skipped for response in responses)
    trace.failed_queries = sum(response.status == "error" for response in responses)
    trace.collection = _common(one.collection for one in queries)
    trace.embedding_model = _common(one.trace.embedding_model for one in queries)
    trace.mode = _common(one.trace.mode for one in queries if one.query)
    for stage in ("rerank", "highlight", "dense", "text"):  # within the search of all
        if taken := [one.trace.stages_ms[stage] for one in queries if stage in one.trace.stages_ms]:
            trace.stages_ms[stage] = round(sum(taken), 3)
            trace.stages_ms["search"] = round(max(0.0, trace.stages_ms["search"] - sum(taken)), 3)
    trace.dense_results = _total(one.trace.dense_results for one in queries)
    trace.text_results = _total(one.trace.text_results for one in queries)
    states = [(one.trace.rerank, one.trace.rerank_reason) for one in queries if one.trace.rerank]
    trace.rerank, trace.rerank_reason = max(states, default=(None, None), key=lambda state: state[0] == "skipped")
    cached = [one.embedding.cached for one in queries if one.embedding]
    trace.embedding_cached = all(cached) if cached else None


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _common(values: Iterable[str | None]) -> str | None:
    """Return the value that all have, if there is one."""
    found = set(values)
    return (found.pop() or None) if len(found) == 1 else None
