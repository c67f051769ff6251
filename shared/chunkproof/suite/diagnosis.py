"""Find out why cases failed, and what brings the questions back that a run newly lost."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.contract import Model
from chunkproof.proof.backend import call_backend
from chunkproof.suite.judge import SHOWN_IDS, find_low_scores
from chunkproof.suite.outcome import CaseTiming, Diagnosis, RetrievedChunk, TestCaseResult, TestStatus, find_returned
from chunkproof.why.causes import Cause, Row, WhyVerdict, describe_unknown
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question, StackProbe, find_changed
from chunkproof.why.remedy import OF_A_CHUNK, Commands

# Each costs a few searches; with more failures than this, all of them probably have the same cause.
MAX_CASES = 100


@dataclass(frozen=True)
class Diagnoser:
    """Finds the causes of failed cases; where it cannot, the diagnosis says why.

    `where` has the options with which a command reaches the same backend, such as `--api URL`. With a `retriever`, the
    explainer is about the collection beside it; without such a collection there is none.
    """

    explainer: Explainer | StackProbe | None
    where: str = ""
    retriever: str | None = None

    def diagnose(self, results: Sequence[TestCaseResult]) -> list[TestCaseResult]:
        """Return the results, the failed ones with their causes; a case that has some already keeps them."""
        waiting = [n for n, r in enumerate(results) if r.status is TestStatus.FAILED and not r.diagnosis]
        too_many = _not_diagnosed(f"{len(waiting)} cases failed, and the first {MAX_CASES} were looked into")
        diagnosed = list(results)
        for number, index in enumerate(waiting):
            causes = self.find_causes(results[index]) if number < MAX_CASES else [too_many]
            diagnosed[index] = results[index].model_copy(update={"diagnosis": tuple(causes)})
        return diagnosed

    def find_causes(self, case: TestCaseResult) -> list[Diagnosis]:
        """Return every cause that was found, at least one entry."""
        if self.explainer is None:
            return [_not_diagnosed("no collection was given beside the retriever; --collection NAME names it")]
        diagnosis = _CaseDiagnosis(case, self.explainer, self.where, self.retriever)
        try:
            causes = call_backend(lambda: list(diagnosis.find_causes()))
        except ChunkproofError as error:
            return [_not_diagnosed(str(error), error.code)]
        return causes or [_not_diagnosed("no cause was found")]


@dataclass(frozen=True)
class _CaseDiagnosis:
    """The diagnosis of one failed case."""

    case: TestCaseResult
    explainer: Explainer | StackProbe
    where: str
    retriever: str | None

    def find_causes(self) -> Iterator[Diagnosis]:
        case, results = self.case, self.case.actual_results or ()
        if case.expect_no_results and results:
            yield self._diagnose_unwanted(results[0])
            return
        missing, low = list_lost(case)
        yield from map(self._diagnose_missing, missing[:SHOWN_IDS])
        if (more := len(missing) - SHOWN_IDS) > 0:
            yield _not_diagnosed(f"{more} more expected ids are missing, and only {SHOWN_IDS} were looked into")
        yield from map(self._diagnose_low_score, low)
        if all(find_returned(case, key) for key in case.expected_doc_ids):
            yield from self._diagnose_keywords()
        if case.timing and case.max_latency_ms and case.timing.latency_ms > case.max_latency_ms:
            yield self._diagnose_slow(case.timing)

    def _explain(self, key: str, **request: Any) -> WhyVerdict:
        question = Question({**self.case.request(), **request}, key, where=self.where)
        verdict = self.explainer.explain(question).report.verdict
        return verdict.model_copy(update={"command": verdict.command or self._commands.command("validate", "", key)})

    def _diagnose_missing(self, key: str) -> Diagnosis:
        if self.retriever:
            return self._diagnose_missed_by_retriever(key)
        verdict = self._explain(key)
        cause = verdict.causes[0] if verdict.causes else Cause.UNEXPLAINED
        return _diagnosis(cause, key, verdict.line.removeprefix("Lost: "), verdict.command)

    def _diagnose_missed_by_retriever(self, key: str) -> Diagnosis:
        """Compare with a search of the collection: what that finds, the retriever itself misses."""
        collection = self.case.collection_name or "the collection"
        missed = f"{key} is in {collection}, but the retriever does not return it"
        try:
            verdict = self._explain(key)
        except ChunkproofError as error:
            cause, message = Cause.MISSED_BY_RETRIEVER, f"{missed}; {collection} could not be searched: {error}"
            if not self.explainer.chunks_of(key, self.case.request()):
                cause, message = Cause.NOT_IN_COLLECTION, describe_unknown(key, collection)
            return _diagnosis(cause, key, message, self._commands.command("validate", "", key))
        if verdict.found:
            place = f"it is at rank {verdict.rank} with {verdict.score:.3f}"
            message = f"{missed}; in a search of {collection} {place}"
            return _diagnosis(Cause.MISSED_BY_RETRIEVER, key, message, self._commands.search())
        message, cause = verdict.line.removeprefix("Lost: "), verdict.causes[0]
        if cause is not Cause.NOT_IN_COLLECTION:
            message = f"{missed}; nor does a search of {collection}: {message}"
        return _diagnosis(cause, key, message, verdict.command)

    def _diagnose_low_score(self, result: RetrievedChunk) -> Diagnosis:
        """Blame a damaged text or vector if undoing the damage raises the score enough."""
        threshold, key = self.case.relevance_threshold, result.chunk_id
        place = f"is at rank {result.rank} with {result.similarity_score:.3f}, below relevance_threshold {threshold:g}"
        if changed := self._find_changed(key, place):
            return changed
        try:
            # The scores of a retriever are on a scale of their own.
            verdict = self._explain(key, **({} if self.retriever else {"similarity_threshold": threshold}))
        except InvalidParameterError:
            verdict = None
        if verdict is not None and OF_A_CHUNK.intersection(verdict.causes):
            message = f"{key} {place}; {verdict.line.removeprefix('Lost: ')}"
            return _diagnosis(verdict.causes[0], key, message, verdict.command)
        message = f"{key} {place}{self.explainer.unchecked}"
        return _diagnosis(Cause.BELOW_THRESHOLD, key, message, self._commands.search())

    def _find_changed(self, key: str, place: str) -> Diagnosis | None:
        """Return a text that no longer matches its hash as the cause, if the chunk or document has one."""
        chunks = self.explainer.chunks_of(key, self.case.request())
        changed = find_changed(self.explainer.backend, chunks, self.case.collection_name)
        if changed is None:
            return None
        chunk, details = changed
        message = f"{chunk} {place}; its text no longer matches its hash: {details}"
        return _diagnosis(Cause.TEXT_CHANGED, key, message, self._commands.command("validate", "", chunk))

    def _diagnose_keywords(self) -> Iterator[Diagnosis]:
        """Blame a changed text for the missing keyword, if an expected chunk has one."""
        lacking = [unmet for unmet in self.case.unmet if unmet.keyword is not None]
        if not lacking:
            return
        keys = self.case.expected_doc_ids or tuple(r.chunk_id for r in (self.case.actual_results or ())[:1])
        damaged = [cause for key in keys if (cause := self._find_changed(key, "is among the results"))]
        yield from damaged
        for unmet in () if damaged else lacking:
            command = self._commands.command("search", f"-k {self.case.top_k}", unmet.keyword)
            message = f"{unmet.message}; the expected texts are as they were stored"
            yield _diagnosis(Cause.KEYWORD_MISSING, None, message if keys else unmet.message, command)

    def _diagnose_unwanted(self, best: RetrievedChunk) -> Diagnosis:
        message = (
            f"{best.chunk_id} scores {best.similarity_score:.3f}, but no result was to score "
            f"{self.case.relevance_threshold:g} or more"
        )
        return _diagnosis(Cause.UNWANTED_RESULT, best.chunk_id, message, self._commands.search())

    def _diagnose_slow(self, timing: CaseTiming) -> Diagnosis:
        rest = timing.latency_ms - timing.embedding_ms - timing.search_ms
        message = f"{timing.latency_ms:.0f} ms in the retriever"
        if not self.retriever:
            message = (
                f"{timing.latency_ms:.0f} ms: embedding {timing.embedding_ms:.0f}, search {timing.search_ms:.0f}, "
                f"the rest {rest:.0f}{', the first search of its collection' if timing.cold else ''}"
            )
        return _diagnosis(Cause.TOO_SLOW, None, message, self._commands.search())

    @property
    def _commands(self) -> Commands:
        case = self.case
        return Commands(case.query_text, case.collection_name, case.top_k, filters=case.filters, where=self.where)


def list_lost(case: TestCaseResult) -> tuple[list[str], list[RetrievedChunk]]:
    """Return the expected ids that are missing and should not be, and the results that score too low."""
    returned = {key: find_returned(case, key) for key in case.expected_doc_ids}
    missing = [key for key, result in returned.items() if result is None]
    low = find_low_scores(case, [result for result in returned.values() if result], case.actual_results or ())
    return missing if case.expect == "all" or len(missing) == len(returned) else [], low


def _diagnosis(cause: Cause, subject: str | None, message: str, command: str | None) -> Diagnosis:
    return Diagnosis(cause=cause, subject=subject, message=message, command=command)


def _not_diagnosed(reason: str, error_code: str | None = None) -> Diagnosis:
    return Diagnosis(cause=Cause.NOT_LOOKED_INTO, message=f"Not looked into: {reason}", error_code=error_code)


class BlamedCase(Model):
    """A newly failing case, an expected id that it lost, and what brings it back."""

    name: str
    expected: str
    causes: tuple[Cause, ...]
    changes: tuple[str, ...] = ()
    line: str
    cost: str | None = None
    command: str | None = None
    then: str | None = None
    rows: tuple[Row, ...] = Field((), description="Every change that was tried, with rank and score")


class Blame(Model):
    """What the newly failing cases have lost, and why."""

    summary: str
    snapshot: str | None = Field(None, description="The snapshot compared with, and its date")
    cases: tuple[BlamedCase, ...] = ()
    not_blamed: dict[str, str] = Field(default_factory=dict, description="Newly failing cases without a cause, and why")


@dataclass(frozen=True)
class Blamer:
    """Explains the failures of cases; `where` has the options with which a command reaches the same store."""

    explainer: Explainer
    snapshot: Snapshot | None = None
    where: str = ""
    on_case: Callable[[int], None] = lambda _count: None

    def blame(self, results: Sequence[TestCaseResult], newly_failing: Sequence[str]) -> Blame:
        """Explain every newly failing case."""
        failing = [result for result in results if result.name in set(newly_failing)]
        lost: dict[str, dict[str, float]] = {}
        for case in failing[:MAX_CASES]:  # a missing id needs no score
            missing, low = list_lost(case)
            low_ids = {result.chunk_id: case.relevance_threshold for result in low}
            lost[case.name] = dict.fromkeys(missing, 0.0) | low_ids
        if self.snapshot is not None:
            self.snapshot.prefetch(key for keys in lost.values() for key in keys)
        blamed: list[BlamedCase] = []
        left_out: dict[str, str] = {}
        for case in failing[:MAX_CASES]:
            try:
                keys = list(lost[case.name].items())[:SHOWN_IDS]
                blamed += [self._explain(case, key, threshold) for key, threshold in keys]
                if not keys:
                    left_out[case.name] = "no expected chunk is missing: see its diagnosis"
            except ChunkproofError as error:
                left_out[case.name] = str(error)
            self.on_case(1)
        left_out |= {case.name: f"only the first {MAX_CASES} were looked into" for case in failing[MAX_CASES:]}
        snapshot = self.snapshot
        return Blame(
            summary=_summarize(blamed, left_out),
            snapshot=f"{snapshot.path.name} of {snapshot.header.created_at}" if snapshot else None,
            cases=tuple(blamed),
            not_blamed=left_out,
        )

    def _explain(self, case: TestCaseResult, key: str, threshold: float) -> BlamedCase:
        request = {**case.request(), **({"similarity_threshold": threshold} if threshold else {})}
        question = Question(request, key, self.snapshot, self.where)
        report = call_backend(lambda: self.explainer.explain(question).report)
        fields = report.verdict.model_dump(exclude={"found", "rank", "score"})
        return BlamedCase(name=case.name, expected=key, rows=report.rows, **fields)


def _summarize(blamed: Sequence[BlamedCase], left_out: dict[str, str]) -> str:
    """Say in one sentence how many questions are lost, and what brings them back."""
    first = {case.name: case for case in reversed(blamed)}
    lost = len(first) + len(left_out)
    if not lost:
        return "No question is lost"
    groups = Counter(_describe(case) for case in reversed(list(first.values())))
    parts = [f"{count} {text}" for text, count in groups.most_common()]
    # "2 come back with …, 1 with …": the verb is said once.
    said = next((n for n, part in enumerate(parts) if " come back " in part), None)
    parts = [part if n == said else part.replace(" come back ", " ", 1) for n, part in enumerate(parts)]
    if said is not None and parts[said].startswith("1 "):
        parts[said] = parts[said].replace(" come back ", " comes back ", 1)
    if left_out:
        parts.append(f"{len(left_out)} not blamed")
    return f"{lost} question{'' if lost == 1 else 's'} lost: {', '.join(parts)}"


def _describe(case: BlamedCase) -> str:
    if not case.changes:
        return case.causes[0].value if case.causes else "found when asked again"
    # Changes of the search do not name the chunk; the others do.
    text = re.sub(r"\bits\b", lambda _: f"{case.expected}'s", " and ".join(case.changes))
    return "come back " + re.sub(r"\bit\b", lambda _: case.expected, text)
