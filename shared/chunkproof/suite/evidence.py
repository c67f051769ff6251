"""What a caller can find out about the chunks that a case expects, by search and validation alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from chunkproof.errors import (
    ChunkNotFoundError,
    CorruptChunkError,
    InvalidParameterError,
    ResponseTooLargeError,
)
from chunkproof.models import SearchResult, ValidationResult
from chunkproof.retrieval.backend import Backend
from chunkproof.retrieval.vectors import SIMILAR
from chunkproof.suite.cases import TestCase
from chunkproof.suite.judge import ids_of

# Of a document with more chunks, the first ones are looked at.
MAX_CHUNKS = 20
# How deep a search may go depends on the stack's limits, which it does not tell.
DEPTHS = (200, 100, 20)
# Below this, the usual vector is no embedding of its text by the model in use.
ANOTHER_MODEL = 0.5


@dataclass(frozen=True, slots=True)
class VectorFit:
    """How near a chunk's vector is to its text's embedding, and how near the collection's others are to theirs."""

    chunk_id: str
    cosine: float
    usual: float
    model: str

    @property
    def is_of_another_model(self) -> bool:
        """Whether the whole collection seems to be embedded with another model."""
        return max(self.usual, self.cosine) < ANOTHER_MODEL

    @property
    def is_stale(self) -> bool:
        """Whether it is far from what is usual, or the usual far from the model.

        A pipeline that embeds more than the stored text (a title, say) has lower cosines throughout: no
        chunk of it is called stale for that.
        """
        least = min(SIMILAR, self.usual - (1 - SIMILAR))
        return self.is_of_another_model or self.cosine < least


@dataclass(frozen=True, slots=True)
class Ranking:
    """The results of a case's search, made as deep as it may be."""

    results: Sequence[SearchResult]
    depth: int

    @property
    def is_whole(self) -> bool:
        """Whether no further result exists."""
        return len(self.results) < self.depth

    def of(self, key: str) -> SearchResult | None:
        """The first result that answers to this id."""
        return next((result for result in self.results if key in ids_of(result)), None)


class Evidence(Protocol):
    """Answers for an expected id (a chunk's, a document's, a URL) in a case's collection."""

    @property
    def sees_store(self) -> bool:
        """Whether it can search exactly, and compare vectors with texts."""
        ...

    def chunks(self, key: str, case: TestCase) -> Sequence[str]:
        """The ids of the chunks that it means, `MOST_CHUNKS` at most; none when it is not stored."""
        ...

    def is_unreadable(self, key: str, case: TestCase) -> bool:
        """Whether a search leaves out all of its chunks, as they have no text."""
        ...

    def find_changed(self, key: str, case: TestCase) -> tuple[str, str] | None:
        """A chunk whose text does not agree with its hash, and what is wrong; None when there is none."""
        ...

    def excluding_filters(self, key: str, case: TestCase) -> Sequence[str]:
        """The case's filters that exclude all of its chunks."""
        ...

    def measure_fit(self, key: str, case: TestCase) -> VectorFit | None:
        """The worst fit of its chunks' vectors; None when that cannot be told."""
        ...

    def ranking(self, case: TestCase, *, exact: bool) -> Ranking:
        """The case's search, deeper; `exact` without the index, where that is possible."""
        ...


class ApiEvidence:
    """Asks what every caller may ask."""

    sees_store = False

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[tuple[str | None, str], Sequence[str]] = {}

    def chunks(self, key: str, case: TestCase) -> Sequence[str]:
        """By validation, else by a search that is narrowed to the document or URL; asked once."""
        at = (case.collection_name, key)
        if at not in self._known:
            self._known[at] = self._looked_up(key, case)
        return self._known[at]

    def _looked_up(self, key: str, case: TestCase) -> Sequence[str]:
        try:
            return [self._validated(key, case).chunk_id]
        except ChunkNotFoundError:
            pass
        except (InvalidParameterError, CorruptChunkError):
            return [key]  # it is there: without a hash, or without a text
        for field in ("document_id", "url"):
            request = {**case.request(), "filters": {field: key}, "top_k": MAX_CHUNKS}
            if found := self._backend.search(request).results:
                return [result.metadata.chunk_id for result in found]
        return []

    def is_unreadable(self, key: str, case: TestCase) -> bool:
        """As validation tells: it reads what a search would."""
        return all(self._has_no_text(chunk, case) for chunk in self.chunks(key, case))

    def find_changed(self, key: str, case: TestCase) -> tuple[str, str] | None:
        """By the hashes that validation compares."""
        for chunk in self.chunks(key, case):
            try:
                found = self._validated(chunk, case)
            except (InvalidParameterError, CorruptChunkError, ChunkNotFoundError):
                continue
            if not found.matches:
                return chunk, found.mismatch_details or "the text is another"
        return None

    def excluding_filters(self, key: str, case: TestCase) -> Sequence[str]:
        """All filters, when their search returns every chunk that they let through and this one is not there."""
        if not case.filters:
            return []
        found = self.ranking(case, exact=False)
        return sorted(case.filters) if found.is_whole and found.of(key) is None else []

    def measure_fit(self, _key: str, _case: TestCase) -> VectorFit | None:
        """Never known: no route embeds a text as a document."""
        return None

    def ranking(self, case: TestCase, *, exact: bool) -> Ranking:
        """By the index, whatever is asked for."""
        del exact
        for depth in DEPTHS[:-1]:
            try:
                return Ranking(self._backend.search({**case.request(), "top_k": depth}).results, depth)
            except (InvalidParameterError, ResponseTooLargeError):
                continue
        return Ranking(self._backend.search({**case.request(), "top_k": DEPTHS[-1]}).results, DEPTHS[-1])

    def _validated(self, chunk: str, case: TestCase) -> ValidationResult:
        return self._backend.validate({"chunk_id": chunk, **_where(case)})

    def _has_no_text(self, chunk: str, case: TestCase) -> bool:
        try:
            return not self._validated(chunk, case).stored_text
        except CorruptChunkError:
            return True
        except (InvalidParameterError, ChunkNotFoundError):
            return False


def _where(case: TestCase) -> dict[str, Any]:
    return {"collection": case.collection_name} if case.collection_name else {}
