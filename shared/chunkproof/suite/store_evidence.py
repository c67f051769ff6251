"""Evidence from the store and the embedder, beyond the API: points, filters one by one, and vectors."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from chunkproof.clients.ports import Point
from chunkproof.errors import AmbiguousIdError, ChunkNotFoundError, CorruptChunkError, IndexRequiredError
from chunkproof.models import SearchQuery
from chunkproof.models.filters import AnyOf, HasId, Scalar, parse_filters
from chunkproof.models.json import display_name
from chunkproof.retrieval.backend import Backend, LocalBackend
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.lookup import find_point
from chunkproof.retrieval.pages import read_page
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.search import search
from chunkproof.retrieval.vectors import cosine_with_text
from chunkproof.suite.cases import TestCase
from chunkproof.suite.evidence import MAX_CHUNKS, ApiEvidence, Evidence, Ranking, VectorFit
from chunkproof.why.ids import ID_FIELDS, stored_forms
from chunkproof.why.report import WhyReport

if TYPE_CHECKING:
    from chunkproof.why.explain import Explainer

# How many chunks the usual cosine of a collection is the median of.
COMPARED_CHUNKS = 8


class StoreEvidence(ApiEvidence):
    """Evidence from the store itself; lookups are remembered, as cases often expect the same document."""

    sees_store = True

    def __init__(self, backend: LocalBackend) -> None:
        super().__init__(backend)
        self._services = backend.services
        self._deadline = backend.new_deadline
        self._found: dict[tuple[str, str], tuple[Point, ...]] = {}
        self._usual: dict[str, dict[str, float]] = {}
        self._explainer: Explainer | None = None

    def chunks(self, key: str, case: TestCase) -> Sequence[str]:
        """Look up the point id or payload id, else the document or URL."""
        points = self._points(key, case)
        return [self._payloads(case).id_of(point) for point in points]

    def is_unreadable(self, key: str, case: TestCase) -> bool:
        """Read the payloads as a search does."""
        return not any(self._text(point) for point in self._points(key, case))

    def excluding_filters(self, key: str, case: TestCase) -> Sequence[str]:
        """Return the filters that alone exclude all of its chunks, each with a stored value; else all filters."""
        if not case.filters or self._count_allowed(case.filters, key, case):
            return []
        alone = [
            f"{name} ({self._describe_stored(name, key, case)})"
            for name, value in case.filters.items()
            if not self._count_allowed({name: value}, key, case)
        ]
        return alone or sorted(case.filters)

    def measure_fit(self, key: str, case: TestCase) -> VectorFit | None:
        """Embed the texts of its chunks, and of some others, and compare them with the stored vectors."""
        cosines = dict(self._cosines(self._points(key, case), case))
        embedder = self._services.embedder_of(self._services.resolve_collection(case.collection_name))
        if not cosines or embedder is None:
            return None
        worst = min(cosines, key=lambda chunk: cosines[chunk])
        others = [cosine for chunk, cosine in self._usual_cosines(case).items() if chunk != worst]
        return VectorFit(worst, cosines[worst], median(others) if others else 1.0, embedder.model)

    def ranking(self, case: TestCase, *, exact: bool) -> Ranking:
        """Search as deep as the settings allow."""
        limits = self._services.settings.limits
        query = SearchQuery.parse({**case.request(), "top_k": limits.max_top_k}, limits)
        found = search(query, services=self._services, deadline=self._deadline(), exact=exact)
        return Ranking(found.results, limits.max_top_k)

    def explain(self, key: str, case: TestCase, where: str) -> WhyReport | None:
        """Try changes until one brings the chunk back."""
        from chunkproof.why.explain import Explainer, Question  # only a failed case needs it

        if self._explainer is None:
            self._explainer = Explainer(self._services, self._deadline)
        return self._explainer.explain(Question(case.request(), key, where=where)).report

    def _points(self, key: str, case: TestCase) -> tuple[Point, ...]:
        collection = self._services.resolve_collection(case.collection_name)
        if (collection, key) not in self._found:
            self._found[collection, key] = self._find_by_id(key, collection) or self._find_by_field(key, collection)
        return self._found[collection, key]

    def _find_by_id(self, key: str, collection: str) -> tuple[Point, ...]:
        try:
            point = find_point(key, collection, services=self._services, deadline=self._deadline())
        except (ChunkNotFoundError, AmbiguousIdError, IndexRequiredError):
            return ()
        name = self._services.vector_config(collection, self._deadline()).name
        return tuple(self._services.store.fetch(collection, [point.id], self._deadline(), with_vector=name))

    def _find_by_field(self, key: str, collection: str) -> tuple[Point, ...]:
        """Raise `IndexRequiredError` only if nothing was found and some field could not be filtered on."""
        refused: IndexRequiredError | None = None
        for field in ID_FIELDS:
            for value in stored_forms(key):
                try:
                    if found := self._scroll(field, value, collection):
                        return found
                except IndexRequiredError as error:
                    refused = refused or error
        if refused:
            raise refused
        return ()

    def _scroll(self, field: str, value: Scalar, collection: str) -> tuple[Point, ...]:
        services, deadline = self._services, self._deadline()
        where = map_filters((AnyOf(field, (value,)),), collection, services, deadline)
        name = services.vector_config(collection, deadline).name
        page = read_page(services.store, collection, deadline, limit=MAX_CHUNKS, where=where, with_vector=name)
        return page.points

    def _count_allowed(self, filters: dict[str, Any], key: str, case: TestCase) -> int:
        services, deadline = self._services, self._deadline()
        collection = services.resolve_collection(case.collection_name)
        where = map_filters(parse_filters(filters), collection, services, deadline)
        among = HasId(tuple(point.id for point in self._points(key, case)))
        return services.store.count(collection, (*where, among), deadline)

    def _describe_stored(self, name: str, key: str, case: TestCase) -> str:
        """Describe what the first of its chunks has in this field."""
        payload = self._points(key, case)[0].payload
        payloads = self._services.payloads
        value = payloads.value(name, payload) if payloads.is_canonical(name) else payload.get(name)
        return "stored: nothing" if value is None else f"stored: {display_name(str(value))}"

    def _usual_cosines(self, case: TestCase) -> dict[str, float]:
        collection = self._services.resolve_collection(case.collection_name)
        if collection not in self._usual:
            name = self._services.vector_config(collection, self._deadline()).name
            page = read_page(
                self._services.store, collection, self._deadline(), limit=COMPARED_CHUNKS, with_vector=name
            )
            self._usual[collection] = dict(self._cosines(page.points, case))
        return self._usual[collection]

    def _payloads(self, case: TestCase) -> PayloadMap:
        return self._services.payloads_of(self._services.resolve_collection(case.collection_name), self._deadline())

    def _cosines(self, points: Sequence[Point], case: TestCase) -> Iterator[tuple[str, float]]:
        payloads, collection = self._payloads(case), self._services.resolve_collection(case.collection_name)
        for point in points:
            if (found := cosine_with_text(point, collection, self._services, self._deadline)) is not None:
                yield payloads.id_of(point), found

    def _text(self, point: Point) -> str:
        with suppress(CorruptChunkError):
            return self._services.payloads.chunk_of(point).text
        return ""


def collect_evidence(backend: Backend) -> Evidence:
    """Return the best evidence that a backend offers: a local one gives access to its store."""
    return StoreEvidence(backend) if isinstance(backend, LocalBackend) else ApiEvidence(backend)
