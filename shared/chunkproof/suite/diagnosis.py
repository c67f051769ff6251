"""Why a case failed: each unmet expectation traced to its cause, in a line."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape

from chunkproof.errors import ChunkproofError
from chunkproof.suite.evidence import Evidence, Ranking
from chunkproof.suite.judge import SHOWN_IDS
from chunkproof.suite.outcome import Cause, Diagnosis, RetrievedChunk, TestCaseResult, TestStatus

# Each costs a few searches: with more failures than this, something is wrong with all of them alike.
MAX_CASES = 100


@dataclass(frozen=True)
class Diagnoser:
    """Looks into failed cases; what it cannot find out it says, with the reason.

    `where` is what a command needs to ask the same collection, such as `--api URL`; `source` is the suite.
    """

    evidence: Evidence
    source: str = "suite.yaml"
    where: str = ""

    def diagnose(self, results: Sequence[TestCaseResult]) -> list[TestCaseResult]:
        """The results, each failed one with its causes; one that has them already keeps them."""
        waiting = [n for n, r in enumerate(results) if r.status is TestStatus.FAILED and not r.diagnosis]
        found = list(results)
        for index in waiting[:MAX_CASES]:
            found[index] = _with(results[index], self.find_causes(results[index]))
        for index in waiting[MAX_CASES:]:
            found[index] = _with(results[index], [_too_many(len(waiting))])
        return found

    def find_causes(self, case: TestCaseResult) -> list[Diagnosis]:
        """Every cause that was found, at least one."""
        try:
            return list(_CaseDiagnosis(self, case).find_causes()) or [_unknown("no cause was found")]
        except ChunkproofError as error:
            return [_unknown(str(error))]


class _CaseDiagnosis:
    """One failed case, looked into."""

    def __init__(self, by: Diagnoser, case: TestCaseResult) -> None:
        self._by = by
        self._evidence = by.evidence
        self._case = case
        self._results = case.actual_results or ()
        self._exact: Ranking | None = None

    def find_causes(self) -> Iterator[Diagnosis]:
        case = self._case
        if case.expect_no_results and self._results:
            yield self._unwanted(self._results[0])
            return
        missing = [key for key in case.expected_doc_ids if not self._returned(key)]
        if len(missing) == len(case.expected_doc_ids) or case.expect == "all":
            yield from map(self._missing, missing[:SHOWN_IDS])
            if (more := len(missing) - SHOWN_IDS) > 0:
                yield _unknown(f"{more} more expected ids are missing, and only {SHOWN_IDS} were looked into")
        yield from map(self._low, self._below_threshold())
        if not missing:
            yield from self._without_keywords()
        if case.timing and case.max_latency_ms and case.timing.latency_ms > case.max_latency_ms:
            yield self._slow()

    def _returned(self, key: str) -> RetrievedChunk | None:
        found = (
            r for r in self._results if key in (r.chunk_id, _text(r.document_id), _text(r.url), r.stands_for)
        )
        return next(found, None)

    def _missing(self, key: str) -> Diagnosis:
        """The first of the causes that holds, what lies deepest first."""
        case, evidence = self._case, self._evidence
        chunks = evidence.chunks(key, case)
        if not chunks:
            told = f"{key} is not in {self._collection}: no chunk, document or URL has this id"
            return self._of(Cause.NOT_IN_COLLECTION, key, told, self._validate(key))
        if evidence.is_unreadable(key, case):
            told = f"{key} is stored without a readable text, so that searches leave it out"
            return self._of(Cause.UNREADABLE, key, told, self._command("doctor"))
        if excluding_filters := evidence.excluding_filters(key, case):
            told = f"{key} is stored, but the filter on {', '.join(excluding_filters)} excludes it"
            return self._of(Cause.FILTERED_OUT, key, told, self._search(case.top_k, filtered=False))
        found = self._ranking().of(key)
        if found is not None and found.rank <= case.top_k:
            how = "an exact search finds" if evidence.sees_store else "a deeper search finds"
            told = (
                f"{key} was missed by the index: {how} it at rank {found.rank} ({found.similarity_score:.3f})"
            )
            # Only the store itself can be searched exactly.
            more = self._rerun_exactly() if evidence.sees_store else self._search(self._ranking().depth)
            return self._of(Cause.MISSED_BY_INDEX, key, told, more)
        place = self._place(key)
        return self._damaged(key, place) or self._of(
            Cause.BEYOND_TOP_K,
            key,
            f"{key} {place}, beyond top_k {case.top_k}{self._last()}{self._unseen()}",
            self._search(found.rank if found else self._ranking().depth),
        )

    def _damaged(self, key: str, place: str) -> Diagnosis | None:
        """A text or vector that is not what was stored once; either explains a poor score."""
        if changed := self._evidence.find_changed(key, self._case):
            chunk, details = changed
            told = f"{chunk} {place}; its text no longer matches its hash: {details}"
            return self._of(Cause.TEXT_CHANGED, key, told, self._validate(chunk))
        fit = self._evidence.measure_fit(key, self._case)
        if fit is None or not fit.is_stale:
            return None
        told = (
            f"{fit.chunk_id} {place}; the vectors of {self._collection} are not embeddings by {fit.model} "
            f"(cosine {fit.cosine:.2f}, others {fit.usual:.2f})"
            if fit.is_of_another_model
            else f"{fit.chunk_id} {place}; its vector is not the embedding of its text by {fit.model} "
            f"(cosine {fit.cosine:.2f}, others {fit.usual:.2f})"
        )
        return self._of(Cause.STALE_VECTOR, key, told, self._command("doctor"))

    def _below_threshold(self) -> list[RetrievedChunk]:
        """As judging has it: each expected result; with `any` the best of them; without ids the first."""
        case = self._case
        found = [r for key in case.expected_doc_ids if (r := self._returned(key))]
        if not case.expected_doc_ids:
            found = list(self._results[:1])
        elif case.expect == "any":
            found = sorted(found, key=lambda r: -r.similarity_score)[:1]
        low = {r.rank: r for r in found if r.similarity_score < case.relevance_threshold}
        return list(low.values())

    def _low(self, result: RetrievedChunk) -> Diagnosis:
        place = f"is at rank {result.rank} with {result.similarity_score:.3f}"
        least = f"below relevance_threshold {self._case.relevance_threshold:g}"
        return self._damaged(result.chunk_id, f"{place}, {least}") or self._of(
            Cause.BELOW_THRESHOLD,
            result.chunk_id,
            f"{result.chunk_id} {place}, {least}{self._unseen()}",
            self._search(self._case.top_k),
        )

    def _without_keywords(self) -> Iterator[Diagnosis]:
        """A keyword that is gone from a chunk whose text was changed is that chunk's fault."""
        lacking = [unmet for unmet in self._case.unmet if unmet.keyword is not None]
        if not lacking:
            return
        keys = self._case.expected_doc_ids or tuple(r.chunk_id for r in self._results[:1])
        damaged = [found for key in keys if (found := self._damaged(key, "is among the results"))]
        yield from damaged
        for unmet in () if damaged else lacking:
            command = self._command("search", f"-k {self._case.top_k}", unmet.keyword or "")
            told = f"{unmet.message}; the expected texts are as they were stored"
            yield self._of(Cause.KEYWORD_MISSING, None, told if keys else unmet.message, command)

    def _unwanted(self, best: RetrievedChunk) -> Diagnosis:
        told = (
            f"{best.chunk_id} scores {best.similarity_score:.3f}, and nothing was to score "
            f"{self._case.relevance_threshold:g} or more"
        )
        return self._of(Cause.UNWANTED_RESULT, best.chunk_id, told, self._search(self._case.top_k))

    def _slow(self) -> Diagnosis:
        timing = self._case.timing
        if timing is None:
            return _unknown("the search was not timed")
        rest = timing.latency_ms - timing.embedding_ms - timing.search_ms
        told = (
            f"{timing.latency_ms:.0f} ms: embedding {timing.embedding_ms:.0f}, search {timing.search_ms:.0f}, "
            f"the rest {rest:.0f}{', the first search of its collection' if timing.cold else ''}"
        )
        return self._of(Cause.TOO_SLOW, None, told, self._search(self._case.top_k))

    def _ranking(self) -> Ranking:
        if self._exact is None:
            self._exact = self._evidence.ranking(self._case, exact=True)
        return self._exact

    def _place(self, key: str) -> str:
        found = self._ranking().of(key)
        if found is None:
            return f"is not among the first {self._ranking().depth} results"
        return f"is at rank {found.rank} with {found.similarity_score:.3f}"

    def _last(self) -> str:
        """What it would have taken to be returned."""
        return f" (the last result scores {self._results[-1].similarity_score:.3f})" if self._results else ""

    def _unseen(self) -> str:
        """What nobody looked at, said where it could matter."""
        if self._evidence.sees_store:
            return ""
        return "; whether its vector fits its text was not looked into, as a stack does not tell"

    @property
    def _collection(self) -> str:
        return self._case.collection_name or "the collection"

    def _of(self, cause: Cause, subject: str | None, message: str, command: str) -> Diagnosis:
        return Diagnosis(cause=cause, subject=subject, message=message, command=command)

    def _validate(self, chunk: str) -> str:
        return self._command("validate", "", chunk)

    def _search(self, depth: int, *, filtered: bool = True) -> str:
        filters = self._case.filters if filtered else {}
        given = [
            f"--filter {shlex.quote(f'{name}={json.dumps(v, ensure_ascii=False)}')}"
            for name, v in filters.items()
        ]
        return self._command("search", " ".join([f"-k {depth}", *given]), self._case.query_text)

    def _rerun_exactly(self) -> str:
        options = f"--exact --filter {shlex.quote(escape(self._case.name))}"
        return self._command("suite run", options, self._by.source)

    def _command(self, name: str, options: str = "", argument: str | None = None) -> str:
        """As it can be pasted into a shell."""
        at = f"--collection {shlex.quote(self._case.collection_name)}" if self._case.collection_name else ""
        quoted = "" if argument is None else shlex.quote(argument)
        end = "--" if argument is not None and argument.startswith("-") else ""
        parts = ("chunkproof", name, options, at, self._by.where, end, quoted)
        return " ".join(part for part in parts if part)


def _with(result: TestCaseResult, causes: Sequence[Diagnosis]) -> TestCaseResult:
    return result.model_copy(update={"diagnosis": tuple(causes)})


def _unknown(reason: str) -> Diagnosis:
    return Diagnosis(cause=Cause.NOT_LOOKED_INTO, message=f"Not looked into: {reason}")


def _too_many(failed: int) -> Diagnosis:
    return _unknown(f"{failed} cases failed, and the first {MAX_CASES} were looked into")


def _text(value: object) -> str | None:
    return None if value is None else str(value)
