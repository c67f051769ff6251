"""Several queries in one request: one embedding call, one search of the store, and a response for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

from chunkproof.base import errors
from chunkproof.base.request import Deadline, RequestTrace, State, Stopwatch, start
from chunkproof.collection.embedding import EmbeddedQuery, QueryEmbedder
from chunkproof.collection.services import FOUND_BYTES, Collection
from chunkproof.contract import ExecutionMetadata, RetrievalResponse, SearchQuery
from chunkproof.contract.model import BrokenRules, read_name
from chunkproof.contract.query import query_documents
from chunkproof.search.single import (
    Hits,
    Plan,
    begin,
    check_vector_values,
    needs_embedding,
    plan_search,
    respond,
    search,
)


@dataclass(slots=True)
class _BatchItem:
    """State of one query in a batch, from its document to its response; a failed query keeps its error."""

    document: Any
    trace: RequestTrace = field(default_factory=RequestTrace)
    query: SearchQuery | None = None
    collection: Collection | None = None
    plan: Plan | None = None
    embedding: EmbeddedQuery | None = None
    response: RetrievalResponse | None = None
    error: errors.ChunkproofError | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keep the error of a step."""
        try:
            yield
        except errors.ChunkproofError as error:
            self.error = error


def search_all(request: SearchQuery, collection: Collection, *, exact: bool = False) -> RetrievalResponse:
    """Answer each query of the request, in order; a failed query does not fail the others.

    When a service failed all of them, the request fails with its error.
    """
    deadline, trace = collection.deadline, collection.trace
    items = _read(request, collection)
    trace.query_id, trace.created_at = request.query_id, request.created_at
    trace.queries, trace.top_k = len(items), sum(item.query.top_k for item in items if item.query)
    embedding = start(lambda: _embed(items, deadline))
    try:
        with trace.stage("search"):
            _plan(items, exact=exact)
    finally:  # no call outlives its request
        wait([embedding])
    with trace.stage("embed", State.EMBEDDED):
        _take_embeddings(embedding.result())
    trace.stages_ms["embed"] = max((item.embedding.time_ms for item in items if item.embedding), default=0.0)
    with trace.stage("search", State.SEARCHED):
        _search(items, collection, exact=exact)
    _raise_outage(items)
    responses = tuple(item.response or _failure(item, deadline) for item in items)
    _record(trace, items, responses)
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


def _read(request: SearchQuery, collection: Collection) -> list[_BatchItem]:
    limits = collection.settings.limits
    try:
        items = [_BatchItem(document) for document in query_documents(request, limits)]
    except BrokenRules as error:
        raise errors.InvalidParameterError(*error.messages) from None
    for number, item in enumerate(items):
        with item.step():
            query = SearchQuery.parse(item.document, limits, f"queries[{number}]")
            if query.queries is not None:
                raise errors.InvalidParameterError(f"queries[{number}] cannot have queries of its own")
            item.query = query
            item.collection = collection.services.collection(query.collection, collection.deadline, item.trace)
            begin(query, item.collection)
    return items


def _plan(items: Sequence[_BatchItem], *, exact: bool) -> None:
    unusable: dict[str, errors.ChunkproofError] = {}
    for item in items:
        if item.query is None or item.collection is None or item.error:
            continue
        name = item.collection.name
        with item.step():
            if error := unusable.get(name):
                raise error
            item.plan = plan_search(item.query, item.collection, exact=exact)
            vector, size = item.query.query_vector, item.plan.vector.size if item.plan.vector else 0
            if vector is not None and len(vector) != size:
                raise errors.DimensionMismatchError(len(vector), name, size)
        if item.error and not isinstance(item.error, errors.InvalidParameterError):  # asking again would not help
            unusable[name] = item.error
    plans = [item.plan for item in items if item.plan and item.plan.query.with_vectors]
    check_vector_values(sum(plan.limit * plan.vector.size for plan in plans if plan.vector))


def _embed(
    items: Sequence[_BatchItem], deadline: Deadline
) -> list[tuple[_BatchItem, EmbeddedQuery | errors.ChunkproofError]]:
    """Embed all texts of an embedder with one call; collections may have embedders of their own."""
    embeddings: list[tuple[_BatchItem, EmbeddedQuery | errors.ChunkproofError]] = []
    together: dict[int, list[tuple[_BatchItem, QueryEmbedder]]] = {}
    for item in items:
        if item.query is None or item.collection is None or not needs_embedding(item.query):
            continue
        try:
            queries = item.collection.queries
        except errors.ChunkproofError as error:
            embeddings.append((item, error))
        else:
            together.setdefault(id(queries.embedder), []).append((item, queries))
    for group in together.values():
        texts = [item.query.query_text or "" for item, _ in group if item.query]
        embeddings += zip((item for item, _ in group), group[0][1].embed_all(texts, deadline), strict=True)
    return embeddings


def _take_embeddings(embeddings: Sequence[tuple[_BatchItem, EmbeddedQuery | errors.ChunkproofError]]) -> None:
    for item, embedding in embeddings:
        if item.error or item.plan is None or item.plan.vector is None or item.query is None:
            continue
        with item.step():
            if isinstance(embedding, errors.ChunkproofError):
                raise embedding
            item.plan.collection.embed_query(item.query.query_text or "", embedding)
            item.embedding, item.trace.embedding_cached = embedding, embedding.cached


def _search(items: Sequence[_BatchItem], collection: Collection, *, exact: bool) -> None:
    """Search for all queries at once; if the store refuses, search one by one, so that a bad query fails alone."""
    ready = [(item, item.plan) for item in items if item.plan and not item.error]
    watch, room = Stopwatch(), FOUND_BYTES
    answers: list[Callable[[], RetrievalResponse]]
    try:
        searches = [plan.store_query(item.embedding) for item, plan in ready]
        results = collection.search(searches) if searches else []
    except (errors.InvalidParameterError, errors.CollectionNotFoundError, errors.VectorStoreRefusedError):
        answers = [partial(search, plan.query, plan.collection, exact=exact) for _, plan in ready]
    except errors.ChunkproofError as error:
        for item, _ in ready:
            item.error = error
        return
    else:
        time_ms, pairs = watch.ms(), zip(ready, results, strict=True)
        hits = [Hits(plan, item.embedding, points, time_ms, item is not ready[-1][0]) for (item, plan), points in pairs]
        answers = [partial(respond, each) for each in hits]
    for (item, _), answer in zip(ready, answers, strict=True):
        with item.step():
            if room < 0:
                raise errors.ResponseTooLargeError("The queries before it fill the response: send fewer at a time")
            item.response = answer()
            room -= _count_chars(item.response)


def _count_chars(response: RetrievalResponse) -> int:
    """Count the characters of all texts of a response."""
    beside = (each.neighbours for each in response.results if each.neighbours)
    return sum(len(result.text) for result in response.results) + sum(
        len(neighbour.text) for both in beside for neighbour in (*both.before, *both.after)
    )


def _raise_outage(items: Sequence[_BatchItem]) -> None:
    """Raise the error of a service that failed every query."""
    failures = [item.error for item in items]
    first = failures[0]
    if isinstance(first, errors.UnavailableError | errors.RateLimitedError) and all(
        type(failure) is type(first) for failure in failures
    ):
        raise first


def _failure(item: _BatchItem, deadline: Deadline) -> RetrievalResponse:
    query, sent = item.query, item.document if isinstance(item.document, dict) else {}
    execution = ExecutionMetadata(
        latency_ms=round(deadline.elapsed_ms()),
        result_count=0,
        threshold_applied=query.similarity_threshold if query else 0.0,
        requested_top_k=query.top_k if query else None,
        collection=item.trace.collection,
        embedding_model=item.trace.embedding_model,
        timestamp=datetime.now(UTC),
        mode=query.mode if query else None,
    )
    return RetrievalResponse.from_error(
        item.error or errors.InternalError("Internal server error"),
        execution,
        query=query.query_text if query else None,
        query_id=query.query_id if query else read_name(sent.get("query_id")) or str(uuid4()),
    )


def _record(trace: RequestTrace, items: Sequence[_BatchItem], responses: Sequence[RetrievalResponse]) -> None:
    """Record the sums, and what all queries have in common."""
    trace.result_count = sum(response.execution.result_count for response in responses)
    trace.skipped = sum(response.execution.skipped for response in responses)
    trace.changed = _total(item.trace.changed for item in items)
    trace.failed_queries = sum(response.status == "error" for response in responses)
    trace.timed_out_queries = sum(item.error is not None and item.error.code.endswith("_TIMEOUT") for item in items)
    trace.collection = _common(item.trace.collection for item in items)
    trace.embedding_model = _common(item.trace.embedding_model for item in items)
    trace.mode = _common(item.trace.mode for item in items if item.query)
    for stage in ("rerank", "highlight", "dense", "text"):  # within the search of all
        if taken := [item.trace.stages_ms[stage] for item in items if stage in item.trace.stages_ms]:
            trace.stages_ms[stage] = round(sum(taken), 3)
            trace.stages_ms["search"] = round(max(0.0, trace.stages_ms["search"] - sum(taken)), 3)
    trace.dense_results = _total(item.trace.dense_results for item in items)
    trace.text_results = _total(item.trace.text_results for item in items)
    states = [(item.trace.rerank, item.trace.rerank_reason) for item in items if item.trace.rerank]
    trace.rerank, trace.rerank_reason = max(states, default=(None, None), key=lambda state: state[0] == "skipped")
    cached = [item.embedding.cached for item in items if item.embedding]
    trace.embedding_cached = all(cached) if cached else None


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum of those that are known; None if none is."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _common(values: Iterable[str | None]) -> str | None:
    """Return the value that all have, if there is one."""
    distinct = set(values)
    return (distinct.pop() or None) if len(distinct) == 1 else None
