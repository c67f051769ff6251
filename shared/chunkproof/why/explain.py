"""Explain why an expected chunk is not among the results: try changes until the smallest that suffices is found."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from chunkproof.audit.snapshot import Snapshot
from chunkproof.clients.ports import Embedder, PointId
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkNotFoundError, CorruptChunkError, InvalidParameterError
from chunkproof.models import ChunkValidation, RetrievalResponse, SearchQuery, SearchResult
from chunkproof.models.filters import format_filters
from chunkproof.models.json import display_name
from chunkproof.models.ranking import Mode
from chunkproof.retrieval.search import search
from chunkproof.retrieval.services import Services
from chunkproof.retrieval.validate import validate_chunk
from chunkproof.retrieval.vectors import SIMILAR
from chunkproof.why.changes import Change, change_mode, change_selection, list_changes, raise_top_k
from chunkproof.why.context import Context
from chunkproof.why.costs import Costs
from chunkproof.why.fit import Fit, FitCheck
from chunkproof.why.fix import FixWriter
from chunkproof.why.ids import ids_of
from chunkproof.why.replay import Replay, Space, embed_query
from chunkproof.why.report import Cause, Explanation, Row, WhyReport, WhyVerdict
from chunkproof.why.scenario import NEGATIVE, Evaluator, Outcome, Scenario, name_condition
from chunkproof.why.target import Target, find_target
from chunkproof.why.texts import contains_passage
from chunkproof.why.wording import Commands, describe_cause

AS_IT_IS = "as it is"
LARGEST_SET = 3


@dataclass(frozen=True)
class Question:
    """A search as `POST /search` takes it, and what it should find."""

    request: dict[str, Any]
    expected: str
    snapshot: Snapshot | None = None
    where: str = ""
    other_models: Sequence[Embedder] = ()
    on_step: Callable[[str], None] = field(default=lambda _step: None)


class Explainer:
    """Explains questions of one store; what it learns about a collection serves the next question too."""

    def __init__(self, services: Services, new_deadline: Callable[[], Deadline]) -> None:
        self._services = services
        self._new_deadline = new_deadline
        self._contexts: dict[str, Context] = {}

    def explain(self, question: Question) -> Explanation:
        """Search, and if the expected chunk is not found, find the smallest change that brings it into top_k.

        Nothing is written. Each change is tried on the store's own rankings, with the chunk put in where its score
        would place it.
        """
        if not question.expected.strip():
            raise InvalidParameterError("expected cannot be empty: name a chunk, a document, a URL or a text")
        query = SearchQuery.parse(question.request, self._services.settings.limits)
        if query.query_text is None:
            raise InvalidParameterError("query_text is required: a vector cannot be embedded anew")
        collection = self._services.resolve_collection(query.collection)
        if collection not in self._contexts:
            self._contexts[collection] = Context(self._services, collection, self._new_deadline)
        return _Run(question, query, self._contexts[collection]).explain()


def explain(question: Question, *, services: Services, new_deadline: Callable[[], Deadline]) -> Explanation:
    """Explain one question; an `Explainer` serves several."""
    return Explainer(services, new_deadline).explain(question)


class _Run:
    def __init__(self, question: Question, query: SearchQuery, context: Context) -> None:
        self._question = question
        self._query = query
        self._context = context
        self._services, self._new_deadline = context.services, context.new_deadline
        self._notes: list[str] = []
        self._last_score: float | None = None

    def explain(self) -> Explanation:
        self._step("searching")
        response = search(self._query, services=self._services, deadline=self._new_deadline())
        self._step("looking the expected chunk up")
        target = self._target
        self._notes += target.notes
        found = self._find_result(response, target)
        if found is not None:
            return Explanation(self._report_found(found))
        if not target.chunks:
            return Explanation(self._report_unknown())
        return self._explain_lost(response)

    @cached_property
    def _target(self) -> Target:
        return find_target(self._question.expected, self._context, self._question.snapshot)

    def _find_result(self, response: RetrievalResponse, target: Target) -> SearchResult | None:
        for result in response.results:
            if result.point_id in target.point_ids or self._question.expected in ids_of(result.metadata):
                return result
            if target.by_text and contains_passage(result.text, self._question.expected):
                return result
        return None

    def _report_found(self, found: SearchResult) -> WhyReport:
        name = found.metadata.chunk_id
        line = f"Found: {name} is at rank {found.rank} ({found.similarity_score:.3f}), within top_k {self._query.top_k}"
        row = Row(change=AS_IT_IS, rank=found.rank, score=found.similarity_score, found=True)
        verdict = WhyVerdict(found=True, rank=found.rank, score=found.similarity_score, line=line)
        return self._build((row,), verdict, tried=1)

    def _report_unknown(self) -> WhyReport:
        expected, collection = self._question.expected, self._context.collection
        why = f"{expected} is not in {collection}: no chunk, document or URL has this id"
        if self._question.snapshot is not None:
            why += ", nor does the snapshot"
        row = Row(change=AS_IT_IS, found=False, detail="it is not stored")
        verdict = WhyVerdict(
            found=False,
            causes=(Cause.NOT_IN_COLLECTION,),
            line=f"Lost: {why}",
            command=self._commands.command("validate", "", expected),
        )
        if self._question.snapshot is None:
            self._notes.append("A snapshot from before would show whether it was deleted, or split differently")
        return self._build((row,), verdict, tried=1)

    def _explain_lost(self, response: RetrievalResponse) -> Explanation:
        present, evaluator = self._present, self._evaluator
        now = evaluator.evaluate(present)
        self._last_score = response.results[-1].similarity_score if response.results else None
        rows = [Row(change=AS_IT_IS, rank=now.rank, score=now.score, found=False, detail=now.reason)]
        for change in (*self._changes, *self._modes, raise_top_k()):
            self._step(change.label)
            outcome = evaluator.evaluate(change.apply(present))
            rows.append(_make_row(change, outcome))
        self._step("combining changes")
        chosen = self._find_smallest()
        if len(chosen) > 1:
            together = " and ".join(change.label for change in chosen)
            rows.append(_make_row(replace(chosen[0], label=together, undoes=None, evidence=None), self._try(chosen)))
        verdict = self._decide(chosen, now)
        self._add_hints()
        report = self._build(tuple(rows), verdict, tried=evaluator.tried)
        fix = FixWriter(self._replay, self._target, evaluator).write(chosen, self._combine(chosen)) if chosen else None
        return Explanation(report, fix)

    @cached_property
    def _present(self) -> Scenario:
        return Scenario(tuple(self._query.filters), self._query.similarity_threshold, self._query.top_k)

    @cached_property
    def _fit_check(self) -> FitCheck:
        return self._context.remember("fit", lambda: FitCheck(self._context, self._context.embedder))

    @cached_property
    def _is_foreign(self) -> bool:
        """Whether the whole collection is embedded with another model."""
        return self._context.embedder is not None and self._fit_check.is_foreign

    @cached_property
    def _own_check(self) -> FitCheck:
        """The check with the model that the collection is embedded with, where it is one of the other models."""
        if self._is_foreign:
            for other in (*self._question.other_models, *self._services.embedders.values()):
                check = self._context.remember(f"fit {other.model}", lambda: FitCheck(self._context, other))  # noqa: B023
                if check.usual >= SIMILAR:
                    return check
        return self._fit_check

    @cached_property
    def _fits(self) -> dict[PointId, Fit]:
        """How well the vectors of the expected chunks fit their texts."""
        if self._is_foreign and self._own_check is self._fit_check:
            return {}
        chunks = [chunk for chunk in self._target.chunks if chunk.point is not None]
        return {c.point.id: self._own_check.judge(c.point, c.former_text) for c in chunks if c.point is not None}

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self._context, list(self._list_spaces()), self._query.top_k)

    def _list_spaces(self) -> Iterator[Space]:
        text, context = self._query.query_text or "", self._context
        asked = self._services.query_embedder(context.collection).embed(
            text, context.config.size, context.collection, self._new_deadline()
        )
        yield Space("the model in use", context.embedder, asked.vector)
        if not self._is_foreign or context.embedder is None:
            return
        own = self._own_check.embedder
        if own is not None and own is not context.embedder:
            vector = embed_query(context, text, own)
            if vector is not None and len(vector) == context.config.size:
                yield Space(own.model, own, vector)
                return
        yield Space(context.embedder.model, context.embedder, asked.vector, is_anew=True)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(
            self._replay,
            self._target,
            self._fits,
            self._ask,
            is_foreign=self._is_foreign,
            is_plain=self._is_plain,
        )

    @property
    def _is_plain(self) -> bool:
        """Whether the search compares vectors and nothing else."""
        query = self._query
        return (query.mode or Mode.DENSE) is Mode.DENSE and not (query.rerank or query.group_by or query.diversity)

    def _ask(self, scenario: Scenario) -> SearchResult | None:
        """Repeat the search with the changes of a scenario, and return the expected result."""
        most = self._services.settings.limits.max_top_k
        changes = {
            "filters": scenario.conditions,
            "similarity_threshold": scenario.threshold,
            "top_k": min(scenario.top_k, most),
            **dict(scenario.overrides),
        }
        query = self._query.model_copy(update=changes)
        found = search(query, services=self._services, deadline=self._new_deadline(), exact=scenario.exact)
        return self._find_result(found, self._target)

    @cached_property
    def _changes(self) -> list[Change]:
        changes = list_changes(self._present, self._target, self._replay, self._fits, is_foreign=self._is_foreign)
        return [*changes, *change_selection(self._query)]

    @cached_property
    def _modes(self) -> list[Change]:
        """The search by other legs, as far as the collection has them; tried when no pair of other changes helps."""
        if not any(chunk.point is not None for chunk in self._target.chunks):
            return []
        return list(change_mode(self._query, self._context.remember("modes", self._find_modes)))

    def _find_modes(self) -> list[Mode]:
        """Return the modes that the collection can be searched in."""
        modes = [Mode.DENSE]
        for mode in (Mode.TEXT, Mode.HYBRID):
            query = self._query.model_copy(
                update={"mode": mode, "top_k": 1, "rerank": None, "diversity": None, "fusion": None, "params": None}
            )
            with suppress(InvalidParameterError):
                search(query, services=self._services, deadline=self._new_deadline())
                modes.append(mode)
        return modes

    def _find_smallest(self) -> tuple[Change, ...]:
        """Return the smallest set of changes that brings the chunk back; a larger top_k is tried after pairs."""
        proving = [change for change in self._changes if change.undoes is not None]
        larger = raise_top_k()
        sets: Iterator[tuple[Change, ...]] = (
            *combinations(proving, 1),
            *combinations(proving, 2),
            *combinations(self._modes, 1),
            (larger,),
            *((change, larger) for change in proving),
            *combinations(proving, LARGEST_SET),
        ).__iter__()
        return next((chosen for chosen in sets if self._try(chosen).found), ())

    def _try(self, changes: Sequence[Change]) -> Outcome:
        return self._evaluator.evaluate(self._combine(changes))

    def _combine(self, changes: Sequence[Change]) -> Scenario:
        scenario = self._present
        for change in changes:
            scenario = change.apply(scenario)
        return scenario

    def _decide(self, chosen: tuple[Change, ...], now: Outcome) -> WhyVerdict:
        if not chosen:
            return self._decide_unexplained(now)
        outcome = self._try(chosen)
        name = outcome.chunk.name if outcome.chunk else self._question.expected
        causes = tuple(dict.fromkeys(change.undoes for change in chosen if change.undoes is not None))
        said = [
            describe_cause(change.undoes, name, self._context.collection, change.evidence or self._describe(change))
            for change in chosen
            if change.undoes is not None
        ]
        if causes == (Cause.BEYOND_TOP_K,) and (damage := self._find_changed()):
            causes, said = (Cause.TEXT_CHANGED,), [damage]
        costs = Costs(self._replay, self._query, self._commands)
        then = " and ".join(change.label for change in chosen)
        line = f"Lost: {'; '.join(said)}; {then}, it is at rank {outcome.rank} ({outcome.score or 0:.3f})"
        return WhyVerdict(
            found=False,
            causes=causes,
            changes=tuple(change.label for change in chosen),
            rank=outcome.rank,
            score=outcome.score,
            line=line,
            cost="; ".join(costs.estimate(change, outcome) for change in chosen),
            command=costs.command(chosen, outcome, self._question),
            then=costs.then(chosen),
        )

    def _find_changed(self) -> str | None:
        """Say that a text no longer matches the hash in its payload: what it was is not known, so nothing undoes it."""
        for chunk in self._target.chunks:
            if chunk.point is None or chunk.former is not None:
                continue
            try:
                request = ChunkValidation.parse({"chunk_id": chunk.name, "collection": self._context.collection})
                found = validate_chunk(request, services=self._services, deadline=self._new_deadline())
            except (InvalidParameterError, CorruptChunkError, ChunkNotFoundError):
                continue
            if not found.matches:
                return f"the text of {chunk.name} no longer matches its hash: {found.mismatch_details}"
        return None

    def _describe(self, change: Change) -> str | None:
        """Say what a change of the search rests on."""
        if change.undoes is Cause.BEYOND_TOP_K:
            last = f"; the last result scores {self._last_score:.3f}" if self._last_score is not None else ""
            return f"it is beyond top_k {self._query.top_k}{last}"
        if change.undoes is not Cause.FILTERED_OUT or change.field is None:
            return None
        name = name_condition(self._query.filters[change.field])
        stored = next((chunk.point for chunk in self._target.chunks if chunk.point is not None), None)
        if stored is None:
            return name
        value = self._context.payloads.stated(name, stored.payload)
        return f"{name} (stored: {'nothing' if value is None else display_name(str(value))})"

    def _decide_unexplained(self, now: Outcome) -> WhyVerdict:
        chunk = next(iter(self._target.chunks), None)
        if chunk is not None and chunk.point is None and not any(c.point for c in self._target.chunks):
            cause = Cause.DELETED if chunk.former is not None else Cause.NOT_IN_COLLECTION
            if chunk.former is not None and chunk.former_text is None and chunk.former_vector is None:
                said = describe_cause(cause, chunk.name, self._context.collection, None)
                line = (
                    f"Lost: {said}; the snapshot keeps neither its text nor its vector, so that it cannot be put back"
                )
                return WhyVerdict(found=False, causes=(cause,), line=line)
        if now.reason == NEGATIVE and now.chunk is not None:
            said = describe_cause(Cause.BEYOND_TOP_K, now.chunk.name, self._context.collection, NEGATIVE)
            return WhyVerdict(found=False, causes=(Cause.BEYOND_TOP_K,), line=f"Lost: {said}")
        tried = f"{len(self._changes) + 1} changes and their combinations were tried"
        reason = f": {now.reason}" if now.reason else ""
        line = f"Lost: unexplained{reason}; {tried}, and none brings it into top_k {self._query.top_k}"
        return WhyVerdict(found=False, causes=(Cause.UNEXPLAINED,), line=line)

    def _add_hints(self) -> None:
        """Say what could not be tried."""
        changed = [c for c in self._target.chunks if c.has_changed_text and c.former_text is None]
        if changed:
            self._notes.append(
                f"The text of {changed[0].name} differs from the snapshot, which keeps only its hash: "
                "chunkproof snapshot --texts would let the former text be tried"
            )
        if not self._replay.is_exact:
            self._notes.append("The store forbids exact searches: ranks are what the index finds")
        if not self._is_plain:
            self._notes.append("Changes of stored chunks were tried with a search by meaning alone")
        if self._context.embedder is None:
            self._notes.append("No text could be embedded anew: no embedder is configured")
        if any(space.is_anew for space in self._replay.spaces) and not self._replay.ranking((), 1).is_whole:
            self._notes.append("The collection is too large to embed it anew: only its first chunks were")

    @property
    def _commands(self) -> Commands:
        query = self._query
        return Commands(
            query_text=query.query_text or "",
            collection=self._context.collection,
            top_k=query.top_k,
            threshold=query.similarity_threshold,
            filters=format_filters(query.filters),
            where=self._question.where,
            mode=query.mode.value if query.mode else None,
        )

    def _build(self, rows: tuple[Row, ...], verdict: WhyVerdict, *, tried: int) -> WhyReport:
        snapshot = self._question.snapshot
        return WhyReport(
            query_text=self._query.query_text or "",
            expected=self._question.expected,
            collection=self._context.collection,
            top_k=self._query.top_k,
            similarity_threshold=self._query.similarity_threshold,
            filters=self._query.model_dump(mode="json")["filters"],
            chunks=tuple(chunk.name for chunk in self._target.chunks),
            snapshot=f"{snapshot.path.name} of {snapshot.header.created_at}" if snapshot else None,
            rows=rows,
            verdict=verdict,
            notes=tuple(self._notes),
            tried=tried,
        )

    def _step(self, step: str) -> None:
        self._question.on_step(step)


def _make_row(change: Change, outcome: Outcome) -> Row:
    detail = "; ".join(part for part in (change.evidence, outcome.reason) if part)
    return Row(
        change=change.label,
        cause=change.undoes,
        rank=outcome.rank,
        score=outcome.score,
        found=outcome.found and change.undoes is not Cause.BEYOND_TOP_K,
        detail=detail or None,
    )
