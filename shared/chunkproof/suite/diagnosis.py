"""Find out why a case failed: one line for the cause of each unmet expectation."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chunkproof.errors import ChunkproofError
from chunkproof.suite.case_runner import call_backend
from chunkproof.suite.evidence import Evidence, Ranking
from chunkproof.suite.judge import SHOWN_IDS, find_low_scores
from chunkproof.suite.outcome import CaseTiming, Diagnosis, RetrievedChunk, TestCaseResult, TestStatus, find_returned
from chunkproof.why.report import Cause

# Each costs a few searches; with more failures than this, all of them probably have the same cause.
MAX_CASES = 100


@dataclass(frozen=True)
class Diagnoser:
    """Finds the causes of failed cases; where it cannot, the diagnosis says why.

    `where` has the options with which a command reaches the same backend, such as `--api URL`; `source` is the suite.
    With a `retriever`, the evidence is about the collection beside it; without such a collection there is none.
    """

    evidence: Evidence | None
    source: str = "suite.yaml"
    where: str = ""
    retriever: str | None = None

    def diagnose(self, results: Sequence[TestCaseResult]) -> list[TestCaseResult]:
        """Return the results, the failed ones with their causes; a case that has some already keeps them."""
        waiting = [n for n, r in enumerate(results) if r.status is TestStatus.FAILED and not r.diagnosis]
        found = list(results)
        for index in waiting[:MAX_CASES]:
            found[index] = _with_causes(results[index], self.find_causes(results[index]))
        too_many = _not_diagnosed(f"{len(waiting)} cases failed, and the first {MAX_CASES} were looked into")
        for index in waiting[MAX_CASES:]:
            found[index] = _with_causes(results[index], [too_many])
        return found

    def find_causes(self, case: TestCaseResult) -> list[Diagnosis]:
        """Return every cause that was found, at least one entry."""
        if self.evidence is None:
            return [_not_diagnosed("no collection was given beside the retriever; --collection NAME names it")]
        try:
            diagnosis = _CaseDiagnosis(self, self.evidence, case)
            found = call_backend(lambda: list(diagnosis.find_causes()))
        except ChunkproofError as error:
            return [_not_diagnosed(str(error), error.code)]
        return found or [_not_diagnosed("no cause was found")]


class _CaseDiagnosis:
    """The diagnosis of one failed case."""

    def __init__(self, diagnoser: Diagnoser, evidence: Evidence, case: TestCaseResult) -> None:
        self._diagnoser = diagnoser
        self._evidence = evidence
        self._case = case
        self._results = case.actual_results or ()
        self._ranking: Ranking | None = None

    def find_causes(self) -> Iterator[Diagnosis]:
        case = self._case
        if case.expect_no_results and self._results:
            yield self._diagnose_unwanted(self._results[0])
            return
        missing = [key for key in case.expected_doc_ids if not find_returned(case, key)]
        if len(missing) == len(case.expected_doc_ids) or case.expect == "all":
            yield from map(self._diagnose_missing, missing[:SHOWN_IDS])
            if (more := len(missing) - SHOWN_IDS) > 0:
                yield _not_diagnosed(f"{more} more expected ids are missing, and only {SHOWN_IDS} were looked into")
        returned = [found for key in case.expected_doc_ids if (found := find_returned(case, key))]
        yield from map(self._diagnose_low_score, find_low_scores(case, returned, self._results))
        if not missing:
            yield from self._diagnose_keywords()
        if case.timing and case.max_latency_ms and case.timing.latency_ms > case.max_latency_ms:
            yield self._diagnose_slow(case.timing)

    def _diagnose_missing(self, key: str) -> Diagnosis:
        """Return the first cause that holds; the most fundamental ones are tried first."""
        case, evidence = self._case, self._evidence
        if not self._diagnoser.retriever and (explained := evidence.explain(key, case, self._diagnoser.where)):
            verdict = explained.verdict
            cause = verdict.causes[0] if verdict.causes else Cause.UNEXPLAINED
            return _diagnosis(cause, key, verdict.line.removeprefix("Lost: "), verdict.command)
        chunks = evidence.chunks(key, case)
        if not chunks:
            message = f"{key} is not in {self._collection}: no chunk, document or URL has this id"
            return _diagnosis(Cause.NOT_IN_COLLECTION, key, message, self._validate_command(key))
        if evidence.is_unreadable(key, case):
            message = f"{key} is stored without a readable text, so that searches leave it out"
            return _diagnosis(Cause.UNREADABLE, key, message, self._command("doctor"))
        if filters := evidence.excluding_filters(key, case):
            message = f"{key} is stored, but the filter on {', '.join(filters)} excludes it"
            return _diagnosis(Cause.FILTERED_OUT, key, message, self._search_command(case.top_k, filtered=False))
        if self._diagnoser.retriever:
            return self._diagnose_missed_by_retriever(key)
        found = self._exact_ranking().of(key)
        if found is not None and found.rank <= case.top_k:
            place = f"a deeper search finds it at rank {found.rank} ({found.similarity_score:.3f})"
            more = self._search_command(self._exact_ranking().depth)
            return _diagnosis(Cause.MISSED_BY_INDEX, key, f"{key} was missed by the index: {place}", more)
        place = self._describe_place(key)
        return self._diagnose_damage(key, place) or _diagnosis(
            Cause.BEYOND_TOP_K,
            key,
            f"{key} {place}, beyond top_k {case.top_k}{self._describe_last()}{self._describe_unchecked()}",
            self._search_command(found.rank if found else self._exact_ranking().depth),
        )

    def _diagnose_missed_by_retriever(self, key: str) -> Diagnosis:
        """Compare with a search of the collection: what that finds too, the retriever itself misses."""
        missed = f"{key} is in {self._collection}, but the retriever does not return it"
        try:
            found = self._exact_ranking().of(key)
        except ChunkproofError as error:
            message = f"{missed}; {self._collection} could not be searched: {error}"
            return _diagnosis(Cause.MISSED_BY_RETRIEVER, key, message, self._validate_command(key))
        place = self._describe_place(key)
        if found is not None and found.rank <= self._case.top_k:
            message = f"{missed}; in a search of {self._collection} it {place}"
            return _diagnosis(Cause.MISSED_BY_RETRIEVER, key, message, self._search_command(self._case.top_k))
        return self._diagnose_damage(key, f"in a search of {self._collection} {place}") or _diagnosis(
            Cause.BEYOND_TOP_K,
            key,
            f"{missed}; nor does a search of {self._collection}: it {place}, beyond top_k {self._case.top_k}",
            self._search_command(found.rank if found else self._exact_ranking().depth),
        )

    def _diagnose_damage(self, key: str, place: str) -> Diagnosis | None:
        """Return a changed text or a stale vector as the cause, if there is one: either explains a low score."""
        if changed := self._evidence.find_changed(key, self._case):
            chunk, details = changed
            message = f"{chunk} {place}; its text no longer matches its hash: {details}"
            return _diagnosis(Cause.TEXT_CHANGED, key, message, self._validate_command(chunk))
        fit = self._evidence.measure_fit(key, self._case)
        if fit is None or not fit.is_stale:
            return None
        problem = (
            f"the vectors of {self._collection} are not embeddings"
            if fit.is_of_another_model
            else "its vector is not the embedding of its text"
        )
        cosines = f"cosine {fit.cosine:.2f}, others {fit.usual:.2f}"
        message = f"{fit.chunk_id} {place}; {problem} by {fit.model} ({cosines})"
        return _diagnosis(Cause.STALE_VECTOR, key, message, self._command("doctor"))

    def _diagnose_low_score(self, result: RetrievedChunk) -> Diagnosis:
        place = f"is at rank {result.rank} with {result.similarity_score:.3f}"
        least = f"below relevance_threshold {self._case.relevance_threshold:g}"
        return self._diagnose_damage(result.chunk_id, f"{place}, {least}") or _diagnosis(
            Cause.BELOW_THRESHOLD,
            result.chunk_id,
            f"{result.chunk_id} {place}, {least}{self._describe_unchecked()}",
            self._search_command(self._case.top_k),
        )

    def _diagnose_keywords(self) -> Iterator[Diagnosis]:
        """Blame a changed text for the missing keyword, if an expected chunk has one."""
        lacking = [unmet for unmet in self._case.unmet if unmet.keyword is not None]
        if not lacking:
            return
        keys = self._case.expected_doc_ids or tuple(r.chunk_id for r in self._results[:1])
        damaged = [found for key in keys if (found := self._diagnose_damage(key, "is among the results"))]
        yield from damaged
        for unmet in () if damaged else lacking:
            command = self._command("search", f"-k {self._case.top_k}", unmet.keyword or "")
            message = f"{unmet.message}; the expected texts are as they were stored"
            yield _diagnosis(Cause.KEYWORD_MISSING, None, message if keys else unmet.message, command)

    def _diagnose_unwanted(self, best: RetrievedChunk) -> Diagnosis:
        message = (
            f"{best.chunk_id} scores {best.similarity_score:.3f}, but no result was to score "
            f"{self._case.relevance_threshold:g} or more"
        )
        return _diagnosis(Cause.UNWANTED_RESULT, best.chunk_id, message, self._search_command(self._case.top_k))

    def _diagnose_slow(self, timing: CaseTiming) -> Diagnosis:
        rest = timing.latency_ms - timing.embedding_ms - timing.search_ms
        message = (
            f"{timing.latency_ms:.0f} ms in the retriever"
            if self._diagnoser.retriever
            else (
                f"{timing.latency_ms:.0f} ms: embedding {timing.embedding_ms:.0f}, search {timing.search_ms:.0f}, "
                f"the rest {rest:.0f}{', the first search of its collection' if timing.cold else ''}"
            )
        )
        return _diagnosis(Cause.TOO_SLOW, None, message, self._search_command(self._case.top_k))

    def _exact_ranking(self) -> Ranking:
        if self._ranking is None:
            self._ranking = self._evidence.ranking(self._case, exact=True)
        return self._ranking

    def _describe_place(self, key: str) -> str:
        found = self._exact_ranking().of(key)
        if found is None:
            return f"is not among the first {self._exact_ranking().depth} results"
        return f"is at rank {found.rank} with {found.similarity_score:.3f}"

    def _describe_last(self) -> str:
        """Return the score that would have been enough."""
        return f" (the last result scores {self._results[-1].similarity_score:.3f})" if self._results else ""

    def _describe_unchecked(self) -> str:
        """Say that the vector was not checked, where only the store could show it."""
        if self._evidence.sees_store:
            return ""
        return "; whether its vector fits its text was not checked, as a stack does not return vectors"

    @property
    def _collection(self) -> str:
        return self._case.collection_name or "the collection"

    def _validate_command(self, chunk: str) -> str:
        return self._command("validate", "", chunk)

    def _search_command(self, depth: int, *, filtered: bool = True) -> str:
        filters = self._case.filters if filtered else {}
        given = [
            f"--filter {shlex.quote(f'{name}={json.dumps(v, ensure_ascii=False)}')}" for name, v in filters.items()
        ]
        return self._command("search", " ".join([f"-k {depth}", *given]), self._case.query_text)

    def _command(self, name: str, options: str = "", argument: str | None = None) -> str:
        """Return the command, quoted for a shell."""
        at = f"--collection {shlex.quote(self._case.collection_name)}" if self._case.collection_name else ""
        quoted = "" if argument is None else shlex.quote(argument)
        end = "--" if argument is not None and argument.startswith("-") else ""
        parts = ("chunkproof", name, options, at, self._diagnoser.where, end, quoted)
        return " ".join(part for part in parts if part)


def _diagnosis(cause: Cause, subject: str | None, message: str, command: str | None) -> Diagnosis:
    return Diagnosis(cause=cause, subject=subject, message=message, command=command)


def _with_causes(result: TestCaseResult, causes: Sequence[Diagnosis]) -> TestCaseResult:
    return result.model_copy(update={"diagnosis": tuple(causes)})


def _not_diagnosed(reason: str, error_code: str | None = None) -> Diagnosis:
    return Diagnosis(cause=Cause.NOT_LOOKED_INTO, message=f"Not looked into: {reason}", error_code=error_code)
