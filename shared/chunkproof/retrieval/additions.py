"""Complete the results of a search: rerank them, and add neighbours, highlights and an explanation.

What makes the additions is imported when a request asks for them: most do not, and every cold start would wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkproof.clients.ports import InputType, Point, PointId, StoreQuery, Vector
from chunkproof.deadline import Deadline
from chunkproof.models import SearchQuery, SearchResult
from chunkproof.models.extras import QueryExplanation, RerankExecution, RerankOptions
from chunkproof.models.ranking import ResultScores
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.reranking import MIN_CALL_MS, RESERVE_MS, rerank_texts
from chunkproof.retrieval.services import Services
from chunkproof.trace import RequestTrace

if TYPE_CHECKING:
    from chunkproof.retrieval.explain import Ranked
    from chunkproof.retrieval.highlights import SentenceEmbedder

# Sentences that are embedded for one request, whatever the embedder takes.
MAX_SENTENCES = 96


@dataclass(frozen=True, slots=True)
class Completed:
    """The results as they are returned, notes on what is missing, and how they came about."""

    results: tuple[SearchResult, ...]
    notes: tuple[str, ...] = ()
    explanation: QueryExplanation | None = None
    rerank: RerankExecution | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Completes the results of one search, which sent `searched` to the store and got these points.

    `times_ms` are those of the steps so far. If other queries of the request follow, no call takes more than half of
    the time left.
    """

    query: SearchQuery
    searched: StoreQuery
    points: Mapping[PointId, Point]
    times_ms: Mapping[str, float]
    services: Services
    deadline: Deadline
    trace: RequestTrace
    others_follow: bool = False

    def complete(self, results: Sequence[SearchResult], rerank: RerankOptions | None) -> Completed:
        """Return the results in their final order, at most `top_k` of them, with all that the request asks for."""
        taken = dict(self.times_ms)
        execution = None
        before = {result.point_id: result.rank for result in results}
        if rerank is not None:
            with self.trace.stage("rerank"):
                results, execution = self._rerank(results, rerank)
            taken["rerank"] = execution.time_ms
            self.trace.rerank, self.trace.rerank_reason = execution.status, execution.reason
            results = results[: self.query.top_k]
        ranked = [self._ranked(result, before) for result in results] if self._has_additions else []
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

    @property
    def _has_additions(self) -> bool:
        return self.query.neighbours > 0 or self.query.explain

    def _rerank(
        self, results: Sequence[SearchResult], rerank: RerankOptions
    ) -> tuple[Sequence[SearchResult], RerankExecution]:
        """Order the results by the reranker's scores, and where these are equal as before."""
        following = (self.query.highlight, self.query.neighbours > 0, self.query.explain)
        reranked = rerank_texts(
            [result.text for result in results],
            self.query.query_text or "",
            rerank,
            services=self.services,
            deadline=self.deadline,
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
        """Return the milliseconds to keep back for so many steps that follow, and for other queries."""
        least = RESERVE_MS * steps
        return max(least, self.deadline.remaining_ms() / 2) if self.others_follow else least

    def _ranked(self, result: SearchResult, before: Mapping[PointId | None, int]) -> "Ranked":
        from chunkproof.retrieval.explain import Ranked

        point = self.points[result.point_id if result.point_id is not None else ""]
        return Ranked(point, before[result.point_id], result.scores.rerank if result.scores else None)

    def _add_neighbours(self, ranked: Sequence["Ranked"], added: Sequence[dict[str, object]]) -> tuple[str, ...]:
        from chunkproof.retrieval.neighbours import DocumentReader, find_neighbours

        collection = self.searched.collection
        payloads = self.services.payloads_of(collection, self.deadline)
        points = [one.point for one in ranked]
        documents = DocumentReader(collection, payloads, self.services.store, self.deadline)
        found = find_neighbours(points, self.query.neighbours, documents)
        for point, fields in zip(points, added, strict=True):
            fields["neighbours"] = found.by_point.get(point.id)
        return found.notes

    def _add_highlights(self, results: Sequence[SearchResult], added: Sequence[dict[str, object]]) -> None:
        from chunkproof.retrieval.highlights import MAX_CHARS, highlight_texts

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
        from chunkproof.retrieval.explain import explain

        explained = explain(
            self.searched,
            ranked,
            services=self.services,
            deadline=self.deadline.less(max(RESERVE_MS / 2, self._reserve_ms(0))),
            times_ms=times_ms,
            trace=self.trace,
        )
        for explanation, fields in zip(explained.results, added, strict=True):
            fields["explain"] = explanation
        return explained.query

    def _sentence_embedder(self) -> "SentenceEmbedder | None":
        """Return what embeds sentences as the collection's texts are; None without a vector of the query, or time."""
        from chunkproof.retrieval.highlights import SentenceEmbedder

        embedder = self.services.embedder_of(self.searched.collection)
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
    known = result.scores or ResultScores(dense=result.similarity_score, text=None)
    return known.model_copy(update={"rerank": score})
