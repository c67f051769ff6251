"""Rerank the results of a search: a model reads the query and each text together."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from chunkproof.deadline import Deadline, Stopwatch
from chunkproof.errors import ChunkproofError, InvalidParameterError, NotConfiguredError, RerankTimeoutError
from chunkproof.models import SearchQuery
from chunkproof.models.extras import RerankExecution, RerankOptions
from chunkproof.retrieval.services import Services

# Kept back for reading, ordering and writing the response, and for each further request to the store.
RESERVE_MS = 100.0
# No reranker responds in less time than this.
MIN_CALL_MS = 50.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reranked:
    """The scores of the texts, in their order; None when the results stay as they are."""

    scores: tuple[float, ...] | None
    execution: RerankExecution


def choose_rerank(query: SearchQuery, services: Services) -> RerankOptions | None:
    """Return how to rerank the results of a query; None where they stay as they are."""
    settings = services.settings
    if not query.rerank and (query.rerank is False or settings.rerank != "always" or not _can_rerank(query)):
        return None
    if settings.rerank == "never":
        raise InvalidParameterError("rerank cannot be used: this deployment does not rerank (CHUNKPROOF_RERANK)")
    options = query.rerank if isinstance(query.rerank, RerankOptions) else RerankOptions()
    if query.rerank and services.reranker is None:
        raise InvalidParameterError("rerank cannot be used: no reranker is configured; set COHERE_API_KEY")
    count = options.candidates or max(query.top_k, settings.rerank_candidates)
    return options.model_copy(update={"candidates": count, "model": options.model or settings.rerank_model})


def _can_rerank(query: SearchQuery) -> bool:
    """Whether nothing in the query excludes it."""
    excluding = (query.group_by, query.diversity, query.cursor)
    return query.query_text is not None and all(one is None for one in excluding)


def rerank_texts(
    texts: Sequence[str],
    question: str,
    options: RerankOptions,
    *,
    services: Services,
    deadline: Deadline,
    reserve_ms: float = RESERVE_MS,
) -> Reranked:
    """Score the texts within what is left of the deadline, less a reserve.

    When there is no time or the service fails, the result says why and has no scores; with `required`, that error
    is raised instead.
    """
    model = options.model or services.settings.rerank_model
    watch = Stopwatch()
    if not texts:
        return Reranked((), RerankExecution(model=model, candidates=0, status="applied"))
    try:
        if services.reranker is None:
            raise NotConfiguredError("No reranker is configured: set COHERE_API_KEY")
        left = deadline.less(reserve_ms)
        if left.remaining_ms() < MIN_CALL_MS:
            raise RerankTimeoutError(f"{deadline.remaining_ms():.0f} ms are left, too few for the reranker")
        relevance = services.reranker.rerank(question, texts, model, left)
    except ChunkproofError as error:
        if options.required:
            raise
        log.warning("Results were not reranked", extra={"code": error.code, "model": model, "candidates": len(texts)})
        skipped = RerankExecution(
            model=model,
            candidates=len(texts),
            status="skipped",
            reason=error.code,
            message=error.message,
            time_ms=watch.ms(),
        )
        return Reranked(None, skipped)
    if relevance.maybe_cut:
        log.warning("Texts may be longer than the reranker reads", extra={"texts": relevance.maybe_cut, "model": model})
    applied = RerankExecution(
        model=model,
        candidates=len(texts),
        status="applied",
        time_ms=watch.ms(),
        maybe_cut=relevance.maybe_cut,
    )
    return Reranked(relevance.scores, applied)
