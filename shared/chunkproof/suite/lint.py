"""Check what a suite expects against what its collection can return."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from chunkproof.clients.ports import Point
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    CollectionNotFoundError,
    CorruptChunkError,
    IndexRequiredError,
    InvalidParameterError,
)
from chunkproof.models import RetrievalResponse
from chunkproof.models.filters import AnyOf, Scalar
from chunkproof.models.json import Path, display_name
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.lookup import parse_point_id
from chunkproof.retrieval.pages import read_page
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.services import Services
from chunkproof.suite.cases import TestCase
from chunkproof.suite.problems import Problem
from chunkproof.why.ids import ID_FIELDS, ids_of, stored_forms

PAGE = 200


class Linter:
    """Checks a suite's cases against their collections; the problems are warnings, the suite can still be run."""

    def __init__(
        self,
        services: Services,
        search: Callable[[dict[str, Any]], RetrievalResponse],
        deadline: Callable[[], Deadline],
    ) -> None:
        self._services = services
        self._search = search
        self._deadline = deadline

    def find_problems(self, cases: Sequence[TestCase]) -> Iterator[Problem]:
        """Yield every problem, by collection and case."""
        for index, case in enumerate(cases):
            yield from _check_top_k(index, case)
        for collection in dict.fromkeys(case.collection_name for case in cases):
            chosen = [(n, case) for n, case in enumerate(cases) if case.collection_name == collection]
            try:
                name = self._services.resolve_collection(collection)
                self._services.vector_config(name, self._deadline())
            except CollectionNotFoundError as error:
                yield _warning(("cases", chosen[0][0], "collection_name"), error.message)
                continue
            yield from self._find_unknown_ids(chosen, name)
            for index, case in chosen:
                yield from self._check_search(index, case)

    def _find_unknown_ids(self, cases: Sequence[tuple[int, TestCase]], collection: str) -> Iterator[Problem]:
        wanted = {key for _, case in cases for key in case.expected_doc_ids}
        missing = wanted - self._find_by_point_id(wanted, collection)
        for field in ID_FIELDS:
            try:
                missing -= self._find_by_field(field, missing, collection)
            except InvalidParameterError as error:
                if missing:
                    yield _warning(("cases", cases[0][0]), f"ids cannot be looked up by {field}: {error.message}")
        for index, case in cases:
            for key in case.expected_doc_ids:
                if key in missing:
                    message = f"{display_name(key)} is not a chunk id, document id or URL in {collection}"
                    yield _warning(_path_of(key, index, case), message)

    def _find_by_point_id(self, ids: set[str], collection: str) -> set[str]:
        """Return those that are the id of a point without a chunk id in its payload."""
        points = [point for key in ids if (point := parse_point_id(key)) is not None]
        found: set[str] = set()
        for start in range(0, len(points), PAGE):
            page = self._services.store.fetch(collection, points[start : start + PAGE], self._deadline())
            payloads = self._services.payloads_of(collection, self._deadline())
            found |= {payloads.id_of(point) for point in page}
        return found & ids

    def _find_by_field(self, field: str, ids: set[str], collection: str) -> set[str]:
        found: set[str] = set()
        ordered = sorted(ids)
        for start in range(0, len(ordered), PAGE):
            batch = ordered[start : start + PAGE]
            found |= self._find_values(field, tuple(batch), collection)
            numbers = [n for key in batch if key not in found for n in stored_forms(key) if n != key]
            with suppress(IndexRequiredError):  # the texts were looked up
                found |= self._find_values(field, tuple(numbers), collection)
        return found

    def _find_values(self, field: str, values: tuple[Scalar, ...], collection: str) -> set[str]:
        """Return those of the values that some point has.

        Each page removes the values that it shows, so that a document of many chunks fills one page at most.
        """
        left = list(values)
        found: set[str] = set()
        while left:
            where = map_filters((AnyOf(field, tuple(left)),), collection, self._services, self._deadline())
            page = read_page(self._services.store, collection, self._deadline(), limit=PAGE, where=where)
            payloads = self._services.payloads_of(collection, self._deadline())
            seen = {key for point in page.points for key in _read_ids(point, payloads)}
            shorter = [value for value in left if str(value) not in seen]
            found |= {str(value) for value in left} - {str(value) for value in shorter}
            if len(shorter) == len(left):
                break
            left = shorter
        return found

    def _check_search(self, index: int, case: TestCase) -> Iterator[Problem]:
        embedder = self._services.embedder_of(self._services.resolve_collection(case.collection_name))
        excess = embedder.excess(case.query_text) if embedder else None
        if excess:
            yield _warning(("cases", index, "query_text"), f"query_text is too long: {excess}")
            return
        if case.expect_no_results or not case.relevance_threshold:
            return
        try:
            results = self._search({**case.request(), "top_k": 1}).results
        except InvalidParameterError as error:
            yield _warning(("cases", index), f"the search is refused: {error}")
            return
        best = results[0].similarity_score if results else 0.0
        if best < case.relevance_threshold:
            yield _warning(
                ("cases", index, "relevance_threshold"),
                f"no result can reach relevance_threshold {case.relevance_threshold:g}: the best scores {best:.3f}",
            )


def _read_ids(point: Point, payloads: PayloadMap) -> tuple[str, ...]:
    with suppress(CorruptChunkError):
        return ids_of(payloads.chunk_of(point).metadata)
    return ()


def _check_top_k(index: int, case: TestCase) -> Iterator[Problem]:
    if case.expect == "all" and len(case.expected_doc_ids) > case.top_k:
        message = f"{len(case.expected_doc_ids)} ids cannot all be in the top {case.top_k}"
        yield _warning(("cases", index, "top_k"), message)


def _path_of(key: str, index: int, case: TestCase) -> Path:
    if key in case.judgments:
        return ("cases", index, "judgments", key)
    return ("cases", index, "expected_doc_ids", case.expected_doc_ids.index(key))


def _warning(path: Path, message: str) -> Problem:
    return Problem(path, message, fatal=False)
