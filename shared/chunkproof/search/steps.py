"""The steps that follow a search if the request asks for them: reranking, neighbours, highlights, an explanation.

A reranker is a model that reads the query and each text together.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chunkproof.base import errors
from chunkproof.base.request import Stopwatch
from chunkproof.base.words import Match, find_terms, read_terms, split_sentences
from chunkproof.collection.embedding import check_embeddings
from chunkproof.collection.services import FOUND_BYTES, Collection, Services
from chunkproof.contract import SearchQuery, SearchResult
from chunkproof.contract.query_options import (
    Highlight,
    QueryExplanation,
    RerankExecution,
    RerankOptions,
    ResultScores,
    Sentence,
    TermMatch,
)
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.vector_judge import cosine
from chunkproof.stores.store_port import Point, PointId, StoreQuery, Vector

if TYPE_CHECKING:
    from chunkproof.search.explanation import Ranked
    from chunkproof.search.single import Hits

# Kept back for reading, ordering and writing the response, and for each further request to the store.
RESERVE_MS = 100.0
# Candidates that are larger cannot be read and sent on within a request.
MAX_CANDIDATE_BYTES = 16 * 1024 * 1024
# No reranker responds in less time than this.
MIN_CALL_MS = 50.0
# Sentences that are embedded for one request, whatever the embedder takes.
MAX_SENTENCES = 96
# Points that are looked at for one query, however many of them have no text.
MAX_SEARCHED = 1_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completed:
    """The results as they are returned, notes on what is missing, and how they came about."""

    results: tuple[SearchResult, ...]
    notes: tuple[str, ...] = ()
    explanation: QueryExplanation | None = None
    rerank: RerankExecution | None = None


class Completion:
    """Completes the results of one search. If other queries follow, no call takes more than half of the time left."""

    def __init__(self, hits: "Hits", points: Sequence[Point]) -> None:
        plan, embedding = hits.plan, hits.embedding
        self.query, self.collection = plan.query, plan.collection
        self.deadline, self.trace = self.collection.deadline, self.collection.trace
        self.rerank, self.others_follow = plan.rerank, hits.others_follow
        self.searched = plan.store_query(embedding)
        self.points = {point.id: point for point in points}
        self.times_ms = {"embed": embedding.time_ms if embedding else 0.0, "search": hits.time_ms}

    def complete(self, results: Sequence[SearchResult]) -> Completed:
        """Return the results in their final order, at most `top_k` of them, with all that the request asks for."""
        rerank, taken = self.rerank, dict(self.times_ms)
        execution = None
        before = {result.point_id: result.rank for result in results}
        if rerank is not None:
            with self.trace.stage("rerank"):
                results, execution = self._rerank(results, rerank)
            taken["rerank"] = execution.time_ms
            self.trace.rerank, self.trace.rerank_reason = execution.status, execution.reason
            results = results[: self.query.top_k]
        has_additions = self.query.neighbours > 0 or self.query.explain
        ranked = [self._to_ranked(result, before) for result in results] if has_additions else []
        added = [dict[str, object]() for _ in results]
        notes: tuple[str, ...] = ()
        explanation = None
        if self.query.neighbours:
            with self.trace.stage("search") as watch:
                notes = self._add_neighbours(ranked, added)
            taken["neighbours"] = watch.ms()
        if self.query.highlight:
            with self.trace.stage("highlight") as watch:
                self._add_highlights(results, added)
            taken["highlight"] = watch.ms()
        if self.query.explain:
            explanation = self._add_explanations(ranked, added, taken)
        completed = (
            result.model_copy(update=fields) if fields else result
            for result, fields in zip(results, added, strict=True)
        )
        return Completed(tuple(completed), notes, explanation, execution)

    def _rerank(
        self, results: Sequence[SearchResult], rerank: RerankOptions
    ) -> tuple[Sequence[SearchResult], RerankExecution]:
        """Order the results by the reranker's scores, and where these are equal as before."""
        following = (self.query.highlight, self.query.neighbours > 0, self.query.explain)
        reranked = rerank_texts(
            [result.text for result in results],
            self.query.query_text or "",
            rerank,
            self.collection,
            reserve_ms=self._reserve_ms(1 + sum(following)),
        )
        if reranked.scores is None:
            return results, reranked.execution
        scored = sorted(zip(reranked.scores, results, strict=True), key=lambda pair: -pair[0])
        ordered = [
            result.model_copy(update={"rank": rank, "scores": _with_score(result, score)})
            for rank, (score, result) in enumerate(scored, start=1)
        ]
        return ordered, reranked.execution

    def _reserve_ms(self, steps: int) -> float:
        """Return the milliseconds to keep for the steps that follow, and for other queries."""
        least = RESERVE_MS * steps
        return max(least, self.deadline.remaining_ms() / 2) if self.others_follow else least

    def _to_ranked(self, result: SearchResult, before: Mapping[PointId | None, int]) -> "Ranked":
        from chunkproof.search.explanation import Ranked

        point = self.points[result.point_id if result.point_id is not None else ""]
        return Ranked(point, before[result.point_id], result.scores.rerank if result.scores else None)

    def _add_neighbours(self, ranked: Sequence["Ranked"], added: Sequence[dict[str, object]]) -> tuple[str, ...]:
        from chunkproof.search.neighbours import find_neighbours

        points = [result.point for result in ranked]
        found = find_neighbours(points, self.query.neighbours, self.collection)
        around = [each for both in found.by_point.values() for each in (*both.before, *both.after)]
        if (chars := sum(len(neighbour.text) for neighbour in around)) > FOUND_BYTES:
            raise errors.ResponseTooLargeError(f"The neighbours have {chars:,} characters: lower neighbours, or top_k")
        for point, fields in zip(points, added, strict=True):
            fields["neighbours"] = found.by_point.get(point.id)
        return found.notes

    def _add_highlights(self, results: Sequence[SearchResult], added: Sequence[dict[str, object]]) -> None:
        # No deadline ends a computation, so that it is not begun too late, and short if other queries follow.
        max_chars = MAX_CHARS // 4 if self.others_follow else MAX_CHARS
        if self.deadline.remaining_ms() < RESERVE_MS:
            max_chars = 0
        texts, question = [result.text for result in results], self.query.query_text or ""
        highlights = highlight_texts(texts, question, self._sentence_embedder(), max_chars=max_chars)
        for highlight, fields in zip(highlights, added, strict=True):
            fields["highlight"] = highlight

    def _add_explanations(
        self, ranked: Sequence["Ranked"], added: Sequence[dict[str, object]], times_ms: Mapping[str, float]
    ) -> QueryExplanation:
        from chunkproof.search.explanation import explain

        hurried = self.collection.within(self.deadline.less(max(RESERVE_MS / 2, self._reserve_ms(0))))
        explained = explain(self.searched, ranked, hurried, times_ms)
        for explanation, fields in zip(explained.results, added, strict=True):
            fields["explain"] = explanation
        return explained.query

    def _sentence_embedder(self) -> "SentenceEmbedder | None":
        """Return what embeds sentences as the collection's texts are; None without a vector of the query, or time."""
        embedder = self.collection.embedder
        limited = self.deadline.less(self._reserve_ms(1))
        if embedder is None or self.searched.dense is None or limited.remaining_ms() < MIN_CALL_MS:
            return None

        def embed(sentences: Sequence[str]) -> Sequence[Vector]:
            return check_embeddings(embedder.embed(sentences, InputType.DOCUMENT, limited), len(sentences))

        return SentenceEmbedder(
            self.searched.dense.vector,
            embed,
            max_batch=min(embedder.max_batch, MAX_SENTENCES),
            fits=lambda sentence: embedder.excess(sentence) is None,
        )


def _with_score(result: SearchResult, score: float) -> ResultScores:
    scores = result.scores or ResultScores(dense=result.similarity_score, text=None)
    return scores.model_copy(update={"rerank": score})


def find_readable(hits: "Hits") -> tuple[list[Point], list[str]]:
    """Search further where points that are left out take the places of results; a note says if that was not enough.

    Points are returned in their order, up to as many that are not left out as were asked for.
    """
    from chunkproof.search.single import read_chunks

    def are_read(points: Sequence[Point]) -> list[bool]:
        read = {point.id for _, point, _ in read_chunks(points, collection, plan.query)[0]}
        return [point.id in read for point in points]

    plan, points, limit = hits.plan, hits.points, hits.plan.limit
    collection = plan.collection
    wanted = plan.store_query(hits.embedding)
    can_go_on = plan.grouping is None and plan.query.diversity is None
    read = are_read(points)
    while sum(read) < plan.query.top_k and len(points) >= limit:  # there may be more
        if not can_go_on or limit >= MAX_SEARCHED or collection.deadline.remaining_ms() < 2 * RESERVE_MS:
            why = "have no readable text" + (" or were changed" if plan.query.require_integrity else "")
            unread = f"{read.count(False)} of the {len(points)} points found {why}"
            return points, [f"{unread}: there may be more results"]
        limit = min(MAX_SEARCHED, 2 * limit + read.count(False))
        further = replace(wanted, limit=limit, candidates=max(wanted.candidates, limit) if wanted.candidates else 0)
        (points,) = collection.search([further])
        read = are_read(points)
    places = [at for at, is_read in enumerate(read) if is_read][: plan.limit]
    return (points[: places[-1] + 1] if len(places) == plan.limit else points), []


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
        raise errors.InvalidParameterError("rerank cannot be used: this deployment does not rerank (CHUNKPROOF_RERANK)")
    options = query.rerank if isinstance(query.rerank, RerankOptions) else RerankOptions()
    if query.rerank and services.reranker is None:
        raise errors.InvalidParameterError("rerank cannot be used: no reranker is configured; set COHERE_API_KEY")
    count = options.candidates or max(query.top_k, settings.rerank_candidates)
    return options.model_copy(update={"candidates": count, "model": options.model or settings.rerank_model})


def _can_rerank(query: SearchQuery) -> bool:
    """Whether the other fields of the query allow reranking."""
    excluding = (query.group_by, query.diversity, query.cursor)
    return query.query_text is not None and all(option is None for option in excluding)


def find_candidates(query: StoreQuery, top_k: int, collection: Collection) -> list[Point]:
    """Return the points found, fewer candidates where these are too large to be read in time."""
    if query.limit > top_k:
        limited = collection.within(collection.deadline.limit_responses(MAX_CANDIDATE_BYTES))
        with suppress(errors.ResponseTooLargeError):
            return limited.search([query])[0]
        query = replace(query, limit=top_k)
    return collection.search([query])[0]


def rerank_texts(
    texts: Sequence[str],
    question: str,
    options: RerankOptions,
    collection: Collection,
    *,
    reserve_ms: float = RESERVE_MS,
) -> Reranked:
    """Score the texts within what is left of the deadline, less a reserve.

    When there is no time or the service fails, the result says why and has no scores; with `required`, that error
    is raised instead.
    """
    reranker, deadline = collection.services.reranker, collection.deadline
    model = options.model or collection.settings.rerank_model
    watch = Stopwatch()
    if not texts:
        return Reranked((), RerankExecution(model=model, candidates=0, status="applied"))
    try:
        if reranker is None:
            raise errors.NotConfiguredError("No reranker is configured: set COHERE_API_KEY")
        left = deadline.less(reserve_ms)
        if left.remaining_ms() < MIN_CALL_MS:
            raise errors.RerankTimeoutError(f"{deadline.remaining_ms():.0f} ms are left, too few for the reranker")
        relevance = reranker.rerank(question, texts, model, left)
    except errors.ChunkproofError as error:
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
        model=model, candidates=len(texts), status="applied", time_ms=watch.ms(), maybe_cut=relevance.maybe_cut
    )
    return Reranked(relevance.scores, applied)


# Processor time is about 0.1 s for each of these at worst, and a tenth of that for usual texts.
MAX_CHARS_PER_TEXT = 100_000
MAX_CHARS = 500_000
# A highlight lists this many matches and counts the rest.
MAX_MATCHES = 100


@dataclass(frozen=True, slots=True)
class SentenceEmbedder:
    """Embeds sentences for comparison with the query's vector, at most `max_batch` in one call.

    `fits` says whether the model can read a sentence.
    """

    query_vector: Vector
    embed: Callable[[Sequence[str]], Sequence[Vector]]
    max_batch: int
    fits: Callable[[str], bool] = lambda _sentence: True


@dataclass(slots=True)
class _Candidate:
    """A sentence of a text, and which of the query's terms it has."""

    start: int
    end: int
    terms: int = 0
    matches: int = 0
    cosine: float | None = None


def highlight_texts(
    texts: Sequence[str], question: str, embedder: SentenceEmbedder | None = None, *, max_chars: int = MAX_CHARS
) -> tuple[Highlight, ...]:
    """Return a highlight for each text; at most `max_chars` characters are read in all.

    With an embedder, the sentence is the one with the highest cosine, found in one call: where the texts have more
    sentences than fit into it, those with the most terms of the question are compared. Without one, or if it fails,
    the sentence is the one with the most terms.
    """
    terms = read_terms(question)
    left = max_chars
    looked_at: list[str] = []
    for text in texts:
        looked_at.append(text[: min(left, MAX_CHARS_PER_TEXT)])
        left -= len(looked_at[-1])
    matches = [list(find_terms(text, terms)) for text in looked_at]
    candidates = [_list_sentences(text, found) for text, found in zip(looked_at, matches, strict=True)]
    if embedder is not None:
        _compare(looked_at, candidates, embedder)
    return tuple(
        Highlight(
            sentence=_choose(text, sentences),
            terms=tuple(TermMatch(term=m.term, start=m.start, end=m.end) for m in found[:MAX_MATCHES]),
            terms_found=len(found),
            partial=len(part) < len(text),
        )
        for text, part, found, sentences in zip(texts, looked_at, matches, candidates, strict=True)
    )


def _list_sentences(text: str, matches: Sequence[Match]) -> list[_Candidate]:
    """List the sentences with the number of different terms, and of matches, in each."""
    listed = []
    following = iter(matches)
    match = next(following, None)
    for start, end in split_sentences(text):
        candidate = _Candidate(start, end)
        found: set[str] = set()
        while match is not None and match.start < end:
            if match.start >= start:
                found.add(match.term)
                candidate.matches += 1
            match = next(following, None)
        candidate.terms = len(found)
        listed.append(candidate)
    return listed


def _compare(texts: Sequence[str], candidates: Sequence[list[_Candidate]], embedder: SentenceEmbedder) -> None:
    """Set the cosines of the sentences that fit into one call; none if the call fails."""
    having = sum(bool(sentences) for sentences in candidates)
    if not having:
        return
    each = max(1, embedder.max_batch // having)
    chosen: list[tuple[str, _Candidate]] = []
    for text, sentences in zip(texts, candidates, strict=True):
        best = sorted(sentences, key=lambda s: (-s.terms, -s.matches, s.start))[:each]
        written = [(text[sentence.start : sentence.end], sentence) for sentence in best]
        chosen += [(sentence, candidate) for sentence, candidate in written if embedder.fits(sentence)]
    del chosen[embedder.max_batch :]
    if not chosen:
        return
    try:
        vectors = embedder.embed([sentence for sentence, _ in chosen])
    except errors.ChunkproofError as error:
        log.warning("Sentences could not be embedded: highlights are chosen by terms", extra={"code": error.code})
        return
    for (_, candidate), vector in zip(chosen, vectors, strict=True):
        candidate.cosine = cosine(vector, embedder.query_vector)


def _choose(text: str, sentences: Sequence[_Candidate]) -> Sentence | None:
    """Return the best sentence: by cosine, else by terms; None if nothing distinguishes one."""
    compared = [sentence for sentence in sentences if sentence.cosine is not None]
    if compared:
        best = max(compared, key=lambda s: (s.cosine or 0.0, -s.start))
        return _write(text, best, "embedding", round(best.cosine or 0.0, 6))
    matching = [sentence for sentence in sentences if sentence.terms]
    if not matching:
        return None
    # Of two with the same terms, the shorter one is more about them.
    best = min(matching, key=lambda s: (-s.terms, s.end - s.start, s.start))
    return _write(text, best, "terms", float(best.terms))


def _write(text: str, best: _Candidate, by: str, score: float) -> Sentence:
    return Sentence.model_validate(
        {"text": text[best.start : best.end], "start": best.start, "end": best.end, "by": by, "score": score}
    )
