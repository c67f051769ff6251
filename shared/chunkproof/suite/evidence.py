"""Evidence for a diagnosis: facts about expected chunks, as far as search and validation show them."""

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
from chunkproof.why.ids import ID_FIELDS, ids_of
from chunkproof.why.report import WhyReport

# Of a document with more chunks, only the first ones are examined.
MAX_CHUNKS = 20
# How deep a search may go depends on the stack's limits, which no route returns.
DEPTHS = (200, 100, 20)
# With a usual cosine below this, the vectors are not embeddings by the model in use.
ANOTHER_MODEL = 0.5


@dataclass(frozen=True, slots=True)
class VectorFit:
    """Cosine of a chunk's vector with its text's embedding, and the usual one in its collection."""

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
        """Whether the cosine is far below the usual one, or the usual one too low for the model.

        A pipeline that embeds more than the stored text (a title, say) has lower cosines throughout;
        that alone does not make a chunk stale.
        """
        least = min(SIMILAR, self.usual - (1 - SIMILAR))
        return self.is_of_another_model or self.cosine < least


@dataclass(frozen=True, slots=True)
class Ranking:
    """The results of a case's search at the greatest depth allowed."""

    results: Sequence[SearchResult]
    depth: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all results that exist."""
        return len(self.results) < self.depth

    def of(self, key: str) -> SearchResult | None:
        """Return the first result with this id."""
        return next((result for result in self.results if key in ids_of(result.metadata)), None)


class Evidence(Protocol):
    """Facts about an expected id (of a chunk or a document, or a URL) in a case's collection."""

    @property
    def sees_store(self) -> bool:
        """Whether it can search exactly and compare vectors with texts."""
        ...

    def chunks(self, key: str, case: TestCase) -> Sequence[str]:
        """Return the ids of its chunks, `MAX_CHUNKS` at most; none when it is not stored."""
        ...

    def is_unreadable(self, key: str, case: TestCase) -> bool:
        """Return whether searches leave out all of its chunks because they have no text."""
        ...

    def find_changed(self, key: str, case: TestCase) -> tuple[str, str] | None:
        """Return a chunk whose text does not match its hash, with the details; None when there is none."""
        ...

    def excluding_filters(self, key: str, case: TestCase) -> Sequence[str]:
        """Return the case's filters that exclude all of its chunks."""
        ...

    def measure_fit(self, key: str, case: TestCase) -> VectorFit | None:
        """Return the worst fit among its chunks' vectors; None when it cannot be measured."""
        ...

    def ranking(self, case: TestCase, *, exact: bool) -> Ranking:
        """Repeat the case's search, deeper; `exact` bypasses the index where that is possible."""
        ...

    def explain(self, key: str, case: TestCase, where: str) -> WhyReport | None:
        """Return what would bring a missing chunk back; None where only the store itself could show it."""
        ...


class ApiEvidence:
    """Evidence from the routes that every caller has."""

    sees_store = False

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[tuple[str | None, str], Sequence[str]] = {}

    def chunks(self, key: str, case: TestCase) -> Sequence[str]:
        """Validate the id, else search with a filter on the document or URL; the answer is remembered."""
        at = (case.collection_name, key)
        if at not in self._known:
            self._known[at] = self._look_up(key, case)
        return self._known[at]

    def _look_up(self, key: str, case: TestCase) -> Sequence[str]:
        try:
            return [self._validate(key, case).chunk_id]
        except ChunkNotFoundError:
            pass
        except (InvalidParameterError, CorruptChunkError):
            return [key]  # it is stored, but without a hash or a text
        for field in ID_FIELDS[1:]:
            request = {**case.request(), "filters": {field: key}, "top_k": MAX_CHUNKS}
            if found := self._backend.search(request).results:
                return [result.metadata.chunk_id for result in found]
        return []

    def is_unreadable(self, key: str, case: TestCase) -> bool:
        """Validate its chunks, which reads the payload as a search does."""
        return all(self._has_no_text(chunk, case) for chunk in self.chunks(key, case))

    def find_changed(self, key: str, case: TestCase) -> tuple[str, str] | None:
        """Validate its chunks, which compares their hashes."""
        for chunk in self.chunks(key, case):
            try:
                found = self._validate(chunk, case)
            except (InvalidParameterError, CorruptChunkError, ChunkNotFoundError):
                continue
            if not found.matches:
                return chunk, found.mismatch_details or "the text differs"
        return None

    def excluding_filters(self, key: str, case: TestCase) -> Sequence[str]:
        """Return all filters if their search returns every chunk that they allow and none with this id."""
        if not case.filters:
            return []
        found = self.ranking(case, exact=False)
        return sorted(case.filters) if found.is_whole and found.of(key) is None else []

    def measure_fit(self, _key: str, _case: TestCase) -> VectorFit | None:
        """Return None: no route embeds a text as a document."""
        return None

    def ranking(self, case: TestCase, *, exact: bool) -> Ranking:
        """Search by the index: no route searches exactly."""
        del exact
        for depth in DEPTHS[:-1]:
            try:
                return Ranking(self._backend.search({**case.request(), "top_k": depth}).results, depth)
            except (InvalidParameterError, ResponseTooLargeError):
                continue
        return Ranking(self._backend.search({**case.request(), "top_k": DEPTHS[-1]}).results, DEPTHS[-1])

    def explain(self, _key: str, _case: TestCase, _where: str) -> WhyReport | None:
        """Return None: a stack does not return vectors."""
        return None

    def _validate(self, chunk: str, case: TestCase) -> ValidationResult:
        return self._backend.validate({"chunk_id": chunk, **_where(case)})

    def _has_no_text(self, chunk: str, case: TestCase) -> bool:
        try:
            return not self._validate(chunk, case).stored_text
        except CorruptChunkError:
            return True
        except (InvalidParameterError, ChunkNotFoundError):
            return False


def _where(case: TestCase) -> dict[str, Any]:
    return {"collection": case.collection_name} if case.collection_name else {}
