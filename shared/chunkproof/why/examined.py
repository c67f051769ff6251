"""The collection that questions are about: what is learned and embedded for a question serves the next one too."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from uuid import UUID

from chunkproof.base.errors import CorruptChunkError, InvalidParameterError, VectorStoreTimeoutError
from chunkproof.base.request import Deadline
from chunkproof.collection.services import LongRun, Services
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.contract.conditions import Condition
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.proof.vector_judge import SAMPLE, EmbeddedTexts, VectorJudge
from chunkproof.search.filters import map_filters
from chunkproof.search.single import search
from chunkproof.stores.store_port import DenseLeg, Point, PointId, StoreQuery, Vector

Where = tuple[Condition, ...]
PAGE = 500
# A sample is read from so many places of a collection.
SAMPLED_PARTS = 8


class ExaminedCollection(LongRun):
    """A collection as `why` reads it. Nothing is ever written to it."""

    def __init__(self, services: Services, name: str, new_deadline: Callable[[], Deadline]) -> None:
        super().__init__(services, name, new_deadline)
        self._texts = EmbeddedTexts(self)
        self._judges: dict[str, VectorJudge] = {}

    @cached_property
    def vector_name(self) -> str | None:
        """The name of the dense vector; None where there is none to compare, so that only words can be searched."""
        with suppress(InvalidParameterError):
            return self.vector.name
        return None

    @cached_property
    def is_indexed(self) -> bool:
        """Whether searches use an index or compressed vectors, which may miss points."""
        description = self.describe()
        return description.indexed_vectors_count > 0 or description.quantization is not None

    def map(self, conditions: Where) -> Where:
        """Return a caller's conditions as the store takes them."""
        return map_filters(conditions, self) if conditions else ()

    def answer(self, query: SearchQuery, *, exact: bool = False) -> RetrievalResponse:
        """Search as a caller does."""
        return search(query, self.services.collection(self.name, self.deadline), exact=exact)

    def nearest(
        self, vector: Vector, limit: int, where: Where = (), *, exact: bool = True, with_vector: str | None = None
    ) -> list[Point]:
        """Return the points nearest to a vector, best first: exactly, or as the index finds them."""
        if self.vector_name is None:
            return []
        leg = DenseLeg(self.vector, vector, exact=exact)
        return self.search([StoreQuery(self.name, limit, leg, where=where, with_vector=with_vector)])[0]

    def fetch_all(self, ids: Sequence[PointId]) -> list[Point]:
        """Return the points with these ids that exist, with their vectors, in the order of the ids."""
        by_id = {point.id: point for point in self.fetch(ids, with_vector=self.vector_name)} if ids else {}
        return [by_id[point_id] for point_id in dict.fromkeys(ids) if point_id in by_id]

    def pages(self, where: Where = ()) -> Iterator[tuple[Point, ...]]:
        """Yield the points that meet conditions, with their vectors."""
        for page in self.scan(page_points=PAGE, where=where, with_vector=self.vector_name):
            yield page.points

    def text_of(self, point: Point) -> str:
        """Return the stored text, to be looked at; empty when there is none that can be read."""
        self.check_time()
        try:
            return self.payloads.text_of(point)
        except CorruptChunkError:
            return ""

    def check_time(self) -> None:
        """Raise `VectorStoreTimeoutError` if a request's time is over: no deadline ends a computation."""
        if self.deadline.remaining_ms() <= 0:
            raise VectorStoreTimeoutError(self.store.host, "comparing the texts took longer than the request's time")

    def embed_text(
        self, text: str, embedder: Embedder | None = None, input_type: InputType = InputType.DOCUMENT
    ) -> Vector | None:
        """Embed a text; None when there is no embedder, or the text is blank or too long for it."""
        return self._texts.embed([text], embedder or self.embedder, input_type)[0]

    def judge(self, embedder: Embedder | None) -> VectorJudge:
        """Return the judge of whether this embedder made the vectors."""
        model = embedder.model if embedder else ""
        if model not in self._judges:
            self._judges[model] = VectorJudge(embedder, self.payloads, self._texts, self._read_sample)
        return self._judges[model]

    def _read_sample(self) -> tuple[Point, ...]:
        """Read points from all over the collection: its first ones may have been written by another pipeline."""
        first, share = self.page(SAMPLE, with_vector=self.vector_name).points, SAMPLE // SAMPLED_PARTS
        if len(first) < SAMPLE:
            return first
        begin, parts = first[0].id, range(1, SAMPLED_PARTS)
        starts: Sequence[PointId] = [str(UUID(int=(n << 128) // SAMPLED_PARTS)) for n in parts]
        if isinstance(begin, int):
            starts = [begin + n * self.describe().points_count // SAMPLED_PARTS for n in parts]
        pages = (self.page(share, start=start, with_vector=self.vector_name).points for start in starts)
        spread = [*first[:share], *chain.from_iterable(pages), *first[share:]]
        return tuple({point.id: point for point in spread}.values())[:SAMPLE]
