"""Explain why an expected chunk is not among the results: try changes until the smallest that suffices is found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain, combinations
from typing import Any

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.contract.model import display_name
from chunkproof.proof.backend import Backend, LocalBackend
from chunkproof.search.steps import choose_rerank
from chunkproof.why.causes import Cause, Row, WhyAnswer, WhyReport, WhyVerdict, describe_cause, describe_unknown
from chunkproof.why.changes import ANY_DEPTH, MORE_RESULTS, Change, change_mode, list_changes
from chunkproof.why.examined import ExaminedCollection
from chunkproof.why.probe import AS_IT_IS, PLAIN, Question, StackProbe, describe_found, find_changed, lose
from chunkproof.why.remedy import OF_THE_VECTOR, Commands, Remedy
from chunkproof.why.replay import NEGATIVE, NO_WORDS, REFUSED, Placement, Replay, name_condition
from chunkproof.why.target import Expectation, find_target

LARGEST_SET = 3
# A chunk within so many times as many results as were asked for is outranked, rather than not found by the search.
NEAR = 10


class Explainer:
    """Explains questions of one store; what it learns about a collection serves the next question too."""

    unchecked = ""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self._collections: dict[str, ExaminedCollection] = {}

    def explain(self, question: Question) -> WhyAnswer:
        """Search, and if the expected chunk is not found, find the smallest change that brings it into top_k."""
        if not question.expected.strip():
            raise InvalidParameterError("expected cannot be empty: name a chunk, a document, a URL or a text")
        query = SearchQuery.parse(question.request, self.backend.services.settings.limits)
        if query.query_text is None:
            raise InvalidParameterError("query_text is required: a vector cannot be embedded anew")
        if query.cursor not in (None, "start"):
            raise InvalidParameterError("cursor names a later page: leave it out, and raise top_k to look further")
        is_open = query.rerank is None and self.backend.services.reranker is not None
        rerank = choose_rerank(query, self.backend.services) if is_open else query.rerank
        query = query.model_copy(update={"cursor": None, **PLAIN, "rerank": rerank})
        return _Run(question, query, self._collection_of(query.collection), self.backend).explain()

    def chunks_of(self, key: str, request: Mapping[str, Any]) -> Sequence[str]:
        """Return the ids of the stored chunks that a chunk, document or URL means."""
        target = find_target(key, self._collection_of(request.get("collection")), None)
        return [chunk.name for _, chunk in target.stored]

    def _collection_of(self, name: str | None) -> ExaminedCollection:
        services, new_deadline = self.backend.services, self.backend.new_deadline
        resolved = services.collection(name).name
        if resolved not in self._collections:
            self._collections[resolved] = ExaminedCollection(services, resolved, new_deadline)
        return self._collections[resolved]


def make_explainer(backend: Backend) -> Explainer | StackProbe:
    """Return what explains questions of a backend: a local one gives access to its store."""
    return Explainer(backend) if isinstance(backend, LocalBackend) else StackProbe(backend)


@dataclass
class _Run:
    """The explanation of one question."""

    _question: Question
    _query: SearchQuery
    _collection: ExaminedCollection
    _backend: LocalBackend
    _notes: list[str] = field(default_factory=list)

    def explain(self) -> WhyAnswer:
        self._question.on_step("searching")
        response = self._collection.answer(self._query)
        self._question.on_step("looking the expected chunk up")
        self._notes += self._target.notes
        if (result := self._target.find(response.results)) is not None:
            row, verdict = describe_found(result, self._query.top_k)
            return WhyAnswer(self._build([row], verdict))
        if not self._target.chunks:
            return WhyAnswer(self._report_unknown())
        return self._explain_lost(response)

    @cached_property
    def _target(self) -> Expectation:
        return find_target(self._question.expected, self._collection, self._question.snapshot)

    def _report_unknown(self) -> WhyReport:
        expected = self._question.expected
        why = describe_unknown(expected, self._collection.name)
        if self._question.snapshot is not None:
            why += ", nor does the snapshot"
        else:
            self._notes.append("A snapshot from before would show whether it was deleted, or split differently")
        row = Row(change=AS_IT_IS, found=False, detail="it is not stored")
        return self._build([row], lose(Cause.NOT_IN_COLLECTION, why))

    def _explain_lost(self, response: RetrievalResponse) -> WhyAnswer:
        now = self._replay.evaluate(self._replay.present)
        rows = [Row(change=AS_IT_IS, rank=now.rank, score=now.score, found=False, detail=now.reason)]
        for change in (*self._changes, *self._modes, MORE_RESULTS):
            self._question.on_step(change.label)
            rows.append(_make_row(change, self._replay.evaluate(change.apply(self._replay.present))))
        self._question.on_step("combining changes")
        remedy = self._find_smallest()
        if remedy is None:
            verdict = self._decide_unexplained(now)
        else:
            scores = [] if self._replay.is_by_words else [result.similarity_score for result in response.results]
            last = f"; the last result scores {scores[-1]:.3f}" if scores else ""
            verdict = self._decide(remedy, last)
            if remedy.changes == (MORE_RESULTS,):
                rows[-1] = rows[-1].model_copy(update={"found": True})
            if len(remedy.changes) > 1:
                together = " and ".join(verdict.changes)
                rows.append(_make_row(Change(together, None, {}), remedy.placement))
        self._add_hints()
        report = self._build(rows, verdict, tried=self._replay.evaluate.cache_info().currsize)
        return WhyAnswer(report, remedy.fix if remedy else None)

    @property
    def _is_late(self) -> bool:
        deadline = self._question.deadline
        return deadline is not None and deadline.remaining_ms() <= 0

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self._collection, self._query, self._target, self._question.other_models)

    @cached_property
    def _changes(self) -> list[Change]:
        return list(list_changes(self._replay))

    @cached_property
    def _modes(self) -> list[Change]:
        """The search by other legs, as far as the collection has them; tried when no pair of other changes helps."""
        modes = change_mode(self._query) if self._target.stored else ()
        tried = [(mode, self._replay.evaluate(mode.apply(self._replay.present))) for mode in modes]
        return [mode for mode, placement in tried if placement.reason != REFUSED]

    def _find_smallest(self) -> Remedy | None:
        """Return the smallest set of changes that brings the chunk back; a larger top_k is tried after pairs."""
        proving = [change for change in self._changes if change.undoes is not None]
        # A few more results are a smaller change than another search.
        near = self._replay.evaluate(MORE_RESULTS.apply(self._replay.present)).rank
        is_near = near is not None and near <= min(NEAR * self._query.top_k, self._collection.count() // 2)
        last = (MORE_RESULTS, *self._modes) if is_near else (*self._modes, MORE_RESULTS)
        sets: Iterator[tuple[Change, ...]] = chain(
            combinations(proving, 1),
            combinations(proving, 2),
            combinations(last, 1),
            ((change, MORE_RESULTS) for change in proving),
            combinations(proving, LARGEST_SET),
        )
        for changes in sets:
            if self._is_late and len(changes) > 1:
                continue
            scenario = reduce(lambda scenario, change: change.apply(scenario), changes, self._replay.present)
            placement = self._replay.evaluate(scenario)
            if placement.found:
                return Remedy(changes, scenario, placement, self._replay, self._commands)
        return None

    def _decide(self, remedy: Remedy, last: str) -> WhyVerdict:
        rank, score = remedy.placement.rank, remedy.placement.score
        name = remedy.placement.chunk.name if remedy.placement.chunk else self._question.expected
        changes = tuple(change.label for change in remedy.changes)
        # What is outranked without reranking or groups too was not lost by these.
        unproven = (Cause.RERANKED, Cause.LEFT_OUT) if MORE_RESULTS in remedy.changes else ()
        proven = [(each.undoes, each) for each in remedy.changes if each.undoes and each.undoes not in unproven]
        causes = tuple(dict.fromkeys(cause for cause, _ in proven))
        collection = self._collection.name
        said = [describe_cause(cause, name, collection, self._find_evidence(each, last)) for cause, each in proven]
        if damage := self._find_damage(causes) or self._find_doubt(remedy):
            causes, said = (damage[0],), [damage[1]]
        snapshot = self._question.snapshot
        command = remedy.command(self._question.expected, snapshot.path if snapshot else None)
        if remedy.refused:
            self._notes.append(f"No fix can be written: {remedy.refused}")
        elif command is None:
            self._notes.append(f"No command does this: {remedy.cost}")
        then = "it is found" if rank is None else f"it is at rank {rank}{f' ({score:.3f})' if score else ''}"
        return WhyVerdict(
            found=False,
            causes=causes,
            changes=changes,
            rank=rank,
            score=score,
            line=f"Lost: {'; '.join(said)}; {' and '.join(changes)}, {then}",
            cost=remedy.cost,
            command=command,
            then=remedy.then,
        )

    def _find_damage(self, causes: Sequence[Cause]) -> tuple[Cause, str] | None:
        """Return what no change undoes: another text than the hashed one, a vector of a part, words of other texts."""
        if not set(causes) <= {Cause.BEYOND_TOP_K, Cause.STALE_VECTOR, Cause.OTHER_LEG}:
            return None
        name, judge = self._collection.name, self._collection.judge(self._collection.embedder)
        chunks = (chunk.name for _, chunk in self._target.stored if chunk.former is None)
        if Cause.STALE_VECTOR not in causes and (changed := find_changed(self._backend, chunks, name)):
            return Cause.TEXT_CHANGED, f"the text of {changed[0]} no longer matches its hash: {changed[1]}"
        for point, chunk in () if self._replay.is_by_words else self._target.stored:
            if (length := judge.measure_part(point)) is not None:
                evidence = f"its first {length:,} of {len(chunk.text):,} characters"
                return Cause.EMBEDDED_IN_PART, describe_cause(Cause.EMBEDDED_IN_PART, chunk.name, name, evidence)
        if Cause.STALE_VECTOR not in causes and self._replay.has_other_words:
            return Cause.STALE_VECTOR, f"BM25 vectors of {name} are of other words than its texts"
        return None

    def _find_doubt(self, remedy: Remedy) -> tuple[Cause, str] | None:
        """Return that a vector is not its text's, where one made anew has a better rank that is not enough either."""
        deep = replace(remedy.scenario, overrides=(), top_k=ANY_DEPTH, threshold=0.0)
        for change in self._changes if {Cause.BEYOND_TOP_K, Cause.OTHER_LEG} & remedy.causes else ():
            if change.undoes in OF_THE_VECTOR:
                now, then = (self._replay.evaluate(each).rank or ANY_DEPTH for each in (deep, change.apply(deep)))
                if self._query.top_k < then < now:
                    said = describe_cause(change.undoes, self._target.chunks[0].name, "", change.evidence)
                    return Cause.UNEXPLAINED, f"unexplained: {said}; {change.label} it is at rank {then}, beyond top_k"
        return None

    def _find_evidence(self, change: Change, last: str) -> str | None:
        """Say what a change rests on."""
        if change.evidence is not None:
            return change.evidence
        if change.undoes is Cause.BEYOND_TOP_K:
            return f"it is beyond top_k {self._query.top_k}{last}"
        if change.undoes is not Cause.FILTERED_OUT or change.filter is None:
            return None
        name = name_condition(self._query.filters[change.filter])
        for point, _ in self._target.stored:
            value = self._collection.payloads.stated(name, point.payload)
            return f"{name} (stored: {'nothing' if value is None else display_name(str(value))})"
        return name

    def _decide_unexplained(self, now: Placement) -> WhyVerdict:
        chunk, collection = self._target.chunks[0], self._collection.name
        is_bare = chunk.former is not None and chunk.former_text is None and chunk.former_vector is None
        if is_bare and not self._target.stored:
            said = describe_cause(Cause.DELETED, chunk.name, collection, None)
            why = f"{said}; the snapshot keeps neither its text nor its vector, so that it cannot be put back"
            return lose(Cause.DELETED, why)
        if self._target.stored and not any(each.text for _, each in self._target.stored):
            why = describe_cause(Cause.UNREADABLE, chunk.name, collection, None)
            return lose(Cause.UNREADABLE, why)
        if damage := self._find_damage(()):
            return lose(*damage)
        if now.reason == NEGATIVE and now.chunk is not None:
            return lose(Cause.BEYOND_TOP_K, describe_cause(Cause.BEYOND_TOP_K, now.chunk.name, collection, NEGATIVE))
        tried = f"{len(self._changes) + 1} changes and their combinations were tried"
        if self._is_late:
            tried = f"{self._replay.evaluate.cache_info().currsize} changes and combinations were tried in time"
        reason = f": {now.reason}" if now.reason else ""
        if self._replay.is_by_words and not any(self._replay.shared_words(each.text) for each in self._target.chunks):
            reason = f": {NO_WORDS}"
        why = f"unexplained{reason}; {tried}, and none brings it into top_k {self._query.top_k}"
        return lose(Cause.UNEXPLAINED, why)

    def _add_hints(self) -> None:
        """Say what could not be tried."""
        changed = [chunk for chunk in self._target.chunks if chunk.has_changed_text and chunk.former_text is None]
        if changed:
            difference = f"The text of {changed[0].name} differs from the snapshot, which keeps only its hash"
            self._notes.append(f"{difference}: chunkproof snapshot --texts would let the former text be tried")
        is_by_words, rankings = self._replay.is_by_words, self._replay.rankings
        is_by_meaning = not (is_by_words or self._replay.is_plain)
        is_cut = any(space.is_anew for space in rankings.spaces) and not rankings.ranking((), 1).is_whole
        hints = {
            "The time was over before every combination of changes was tried": self._is_late,
            "The store forbids exact searches: ranks are what the index finds": not rankings.is_exact,
            "Changes of stored chunks were judged by the words that they share with the question": is_by_words,
            "Changes of stored chunks were tried with a search by meaning alone": is_by_meaning,
            "No text could be embedded anew: no embedder is configured": self._collection.embedder is None,
            "The collection is too large to embed it anew: only its first chunks were": is_cut,
        }
        self._notes += [hint for hint, holds in hints.items() if holds]

    @property
    def _commands(self) -> Commands:
        return self._question.commands(self._query, self._collection.name)

    def _build(self, rows: Sequence[Row], verdict: WhyVerdict, *, tried: int = 1) -> WhyReport:
        build, ids, notes = self._question.report, [each.name for each in self._target.chunks], tuple(self._notes)
        return build(self._query, self._collection.name, ids, rows, verdict=verdict, notes=notes, tried=tried)


def _make_row(change: Change, placement: Placement) -> Row:
    detail = "; ".join(part for part in (change.evidence, placement.reason) if part)
    return Row(
        change=change.label,
        cause=change.undoes,
        rank=placement.rank,
        score=placement.score,
        found=placement.found and change.undoes is not Cause.BEYOND_TOP_K,
        detail=detail or None,
    )
