"""Explain a missing chunk with nothing but searches and validations: what a deployed stack offers."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.errors import ChunkNotFoundError, CorruptChunkError, InvalidParameterError, ResponseTooLargeError
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import DOCUMENT_FIELDS, ids_of
from chunkproof.contract import SearchQuery, SearchResult, ValidationResult
from chunkproof.contract.conditions import format_filters
from chunkproof.embedders.embedder_port import Embedder
from chunkproof.proof.backend import Backend
from chunkproof.search.modes import RETURNED
from chunkproof.why.causes import Cause, Row, WhyAnswer, WhyReport, WhyVerdict, describe_cause, describe_unknown
from chunkproof.why.remedy import Commands
from chunkproof.why.replay import compares_vectors_alone
from chunkproof.why.target import MAX_CHUNKS

AS_IT_IS = "as it is"
OTHER_OPTIONS = ("fusion", "params", "group_by", "group_size", "diversity")
# How deep a search may go depends on the stack's limits, which no route returns.
DEPTHS = (200, 100, 20)
# What a search returns beside its ranking is not looked at.
PLAIN = {name: SearchQuery.model_fields[name].default for name in RETURNED}


@dataclass(frozen=True)
class Question:
    """A search as `POST /search` takes it, and what it should find.

    `where` has the options with which a command reaches the same store or stack, such as `--data DIR`. After the
    `deadline`, changes are no longer combined.
    """

    request: Mapping[str, Any]
    expected: str
    snapshot: Snapshot | None = None
    where: str = ""
    other_models: Sequence[Embedder] = ()
    on_step: Callable[[str], None] = field(default=lambda _step: None)
    deadline: Deadline | None = None

    def commands(self, query: SearchQuery, collection: str | None) -> Commands:
        """Return what writes commands about this search."""
        filters, mode = format_filters(query.filters), query.mode.value if query.mode else None
        numbers, others = (query.top_k, query.similarity_threshold), dict[str, str]()
        for name in OTHER_OPTIONS:
            if (value := self.request.get(name)) is not None:
                shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
                others[name] = f"--{name.replace('_', '-')} {shlex.quote(shown)}"
        if rerank := self.request.get("rerank"):
            given = rerank if isinstance(rerank, Mapping) else {}
            candidates = f" --candidates {given['candidates']}" if given.get("candidates") else ""
            others["rerank"] = f"--rerank={shlex.quote(str(given.get('model') or ''))}{candidates}"
        if self.request.get("require_integrity"):
            others["require_integrity"] = "--require-integrity"
        return Commands(query.query_text or "", collection, *numbers, filters, self.where, mode, others)

    def report(
        self, query: SearchQuery, collection: str | None, chunks: Sequence[str], rows: Sequence[Row], **fields: Any
    ) -> WhyReport:
        """Build the report; `fields` are its verdict and notes."""
        snapshot = self.snapshot
        return WhyReport(
            query_text=query.query_text or "",
            expected=self.expected,
            collection=collection or "",
            top_k=query.top_k,
            similarity_threshold=query.similarity_threshold,
            filters=query.model_dump(mode="json")["filters"],
            chunks=tuple(chunks),
            snapshot=f"{snapshot.path.name} of {snapshot.header.created_at}" if snapshot else None,
            rows=tuple(rows),
            **{"tried": len(rows), **fields},
        )


def describe_found(result: SearchResult, top_k: int) -> tuple[Row, WhyVerdict]:
    """Return the row and the verdict of a search that finds the chunk."""
    rank, score = result.rank, result.similarity_score
    line = f"Found: {result.metadata.chunk_id} is at rank {rank} ({score:.3f}), within top_k {top_k}"
    row = Row(change=AS_IT_IS, rank=rank, score=score, found=True)
    return row, WhyVerdict(found=True, rank=rank, score=score, line=line)


def lose(cause: Cause, why: str, command: str | None = None) -> WhyVerdict:
    """Return the verdict of a search that no set of changes is known to mend."""
    return WhyVerdict(found=False, causes=(cause,), line=f"Lost: {why}", command=command)


def find_changed(backend: Backend, chunks: Iterable[str], collection: str | None) -> tuple[str, str] | None:
    """Return the first chunk whose text does not match the hash in its payload, with the details."""
    for chunk in chunks:
        try:
            validation = _validate(backend, chunk, collection)
        except (InvalidParameterError, CorruptChunkError, ChunkNotFoundError):
            continue
        if not validation.matches:
            return chunk, validation.mismatch_details or "the text differs"
    return None


def _validate(backend: Backend, chunk: str, collection: str | None) -> ValidationResult:
    return backend.validate({"chunk_id": chunk, **({"collection": collection} if collection else {})})


class StackProbe:
    """Explains questions about a stack; which chunks an id means is looked up once."""

    unchecked = "; whether its vector fits its text was not checked, as a stack does not return vectors"

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._chunks: dict[tuple[str | None, str], tuple[str, ...]] = {}

    def explain(self, question: Question) -> WhyAnswer:
        """Search, and if the expected chunk is not found, return the first cause that searches can show."""
        query = SearchQuery.parse(question.request)
        question = replace(question, request={**question.request, **PLAIN})
        results = self.backend.search(dict(question.request)).results
        if (present := _find(question.expected, results)) is not None:
            chunks, (row, verdict) = (present.metadata.chunk_id,), describe_found(present, query.top_k)
            return WhyAnswer(question.report(query, query.collection, chunks, [row], verdict=verdict))
        rows = [Row(change=AS_IT_IS, found=False)]
        verdict = self._explain_lost(question, query, results, rows)
        own = self.chunks_of(question.expected, question.request)
        return WhyAnswer(question.report(query, query.collection, own, rows, verdict=verdict))

    def _explain_lost(
        self, question: Question, query: SearchQuery, results: Sequence[SearchResult], rows: list[Row]
    ) -> WhyVerdict:
        """Return the first cause that holds; the most fundamental ones are tried first."""
        key, commands = question.expected, question.commands(query, query.collection)
        chunks = self.chunks_of(key, question.request)

        def say(cause: Cause, evidence: str | None = None) -> str:
            return describe_cause(cause, key, query.collection or "the collection", evidence)

        if not chunks:
            why = describe_unknown(key, query.collection or "the collection")
            return lose(Cause.NOT_IN_COLLECTION, why, commands.command("validate", "", key))
        if all(self._has_no_text(chunk, query.collection) for chunk in chunks):
            return lose(Cause.UNREADABLE, say(Cause.UNREADABLE), commands.command("doctor"))
        deep = {**question.request, "similarity_threshold": 0.0}
        ranking, depth = self._search_deeper(deep)
        deeper, is_whole = _find(key, ranking), compares_vectors_alone(query) and len(ranking) < depth
        names = ", ".join(sorted(commands.filters or ()))  # words and groups leave chunks out too
        if names and deeper is None and (is_whole or _find(key, self._search_deeper({**deep, "filters": {}})[0])):
            why = say(Cause.FILTERED_OUT, names)
            return lose(Cause.FILTERED_OUT, why, commands.search(filters={}))
        place = f"it is not among the first {depth} results{self.unchecked}"
        if deeper is not None:
            rank, score = deeper.rank, deeper.similarity_score
            rows.append(Row(change="with a deeper search", rank=rank, score=score, found=False))
            if compares_vectors_alone(query) and rank <= query.top_k and score >= query.similarity_threshold:
                why = say(Cause.MISSED_BY_INDEX, f"a deeper search finds it at rank {rank}, {score:.3f}")
                return lose(Cause.MISSED_BY_INDEX, why, commands.search(top_k=depth))
            place = f"it is at rank {rank} ({score:.3f}){self.unchecked}"
        if changed := find_changed(self.backend, chunks, query.collection):
            why = f"the text of {changed[0]} no longer matches its hash: {changed[1]}"
            return lose(Cause.TEXT_CHANGED, why, commands.command("validate", "", changed[0]))
        if deeper is not None and deeper.rank <= query.top_k:
            why = f"{say(Cause.BELOW_THRESHOLD)}; {place}"
            return lose(Cause.BELOW_THRESHOLD, why, commands.search(threshold=0.0))
        last = f"; the last result scores {results[-1].similarity_score:.3f}" if results else ""
        why = f"{say(Cause.BEYOND_TOP_K, f'it is beyond top_k {query.top_k}{last}')}; {place}"
        return lose(Cause.BEYOND_TOP_K, why, commands.search(top_k=deeper.rank) if deeper else None)

    def chunks_of(self, key: str, request: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of the chunks that an id means: by validation, else by a filter on the document or URL."""
        at = (request.get("collection"), key)
        if at not in self._chunks:
            self._chunks[at] = self._look_up(key, request)
        return self._chunks[at]

    def _look_up(self, key: str, request: Mapping[str, Any]) -> tuple[str, ...]:
        try:
            return (_validate(self.backend, key, request.get("collection")).chunk_id,)
        except ChunkNotFoundError:
            pass
        except (InvalidParameterError, CorruptChunkError):
            return (key,)  # it is stored, but without a hash or a text
        for name in DOCUMENT_FIELDS:
            changes = {"filters": {name: key}, "top_k": MAX_CHUNKS, "similarity_threshold": 0.0}
            if results := self.backend.search({**request, **changes}).results:
                return tuple(result.metadata.chunk_id for result in results)
        return ()

    def _has_no_text(self, chunk: str, collection: str | None) -> bool:
        try:
            return not _validate(self.backend, chunk, collection).stored_text
        except CorruptChunkError:
            return True
        except (InvalidParameterError, ChunkNotFoundError):
            return False

    def _search_deeper(self, request: Mapping[str, Any]) -> tuple[Sequence[SearchResult], int]:
        """Repeat the search as deep as the stack allows; no route searches without the index."""
        for depth in DEPTHS[:-1]:
            try:
                return self.backend.search({**request, "top_k": depth}).results, depth
            except (InvalidParameterError, ResponseTooLargeError):
                continue
        return self.backend.search({**request, "top_k": DEPTHS[-1]}).results, DEPTHS[-1]


def _find(key: str, results: Sequence[SearchResult]) -> SearchResult | None:
    return next((result for result in results if key in ids_of(result.metadata)), None)
