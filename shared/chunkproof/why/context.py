"""What every step of `why` works with: one collection, its store and embedder, and embeddings made only once."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from chunkproof.clients.ports import (
    DenseLeg,
    Embedder,
    InputType,
    Page,
    Point,
    PointId,
    StoreQuery,
    Vector,
    VectorConfig,
    embedder_identity,
)
from chunkproof.deadline import Deadline
from chunkproof.errors import CorruptChunkError, InvalidParameterError, QueryTooLongError
from chunkproof.models.filters import Condition
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.pages import read_page
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.services import Services

Made = TypeVar("Made")


class Context:
    """A collection as `why` reads it. Nothing is ever written to it."""

    def __init__(self, services: Services, collection: str, new_deadline: Callable[[], Deadline]) -> None:
        self.services = services
        self.collection = collection
        self.new_deadline = new_deadline
        self.store = services.store
        self._embedded: dict[tuple[Hashable, InputType, str], Vector | None] = {}
        self._remembered: dict[str, Any] = {}

    def remember(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what was made under this name before, else make it."""
        if name not in self._remembered:
            self._remembered[name] = make()
        made: Made = self._remembered[name]
        return made

    @cached_property
    def config(self) -> VectorConfig:
        """The vector that searches use."""
        return self.services.vector_config(self.collection, self.new_deadline())

    @cached_property
    def payloads(self) -> PayloadMap:
        """How the payloads are read."""
        return self.services.payloads_of(self.collection, self.new_deadline())

    @cached_property
    def is_indexed(self) -> bool:
        """Whether searches use an index, which may miss points."""
        return self.store.describe(self.collection, self.new_deadline()).indexed_vectors_count > 0

    @cached_property
    def points_count(self) -> int:
        """How many points the collection has."""
        return self.store.count(self.collection, (), self.new_deadline())

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of this collection's queries."""
        return self.services.embedder_of(self.collection)

    def nearest(
        self,
        vector: Vector,
        limit: int,
        where: tuple[Condition, ...] = (),
        *,
        exact: bool = True,
        with_vectors: bool = False,
    ) -> list[Point]:
        """Return the points nearest to a vector, best first: exactly, or as the index finds them."""
        query = StoreQuery(
            self.collection,
            limit,
            DenseLeg(self.config, vector, exact=exact),
            where=where,
            with_vector=self.config.name if with_vectors else None,
        )
        return self.store.search([query], self.new_deadline())[0]

    def fetch(self, ids: Sequence[PointId]) -> list[Point]:
        """Return the points with these ids that exist, with their vectors, in the order of the ids."""
        if not ids:
            return []
        found = self.store.fetch(self.collection, ids, self.new_deadline(), with_vector=self.config.name)
        by_id = {point.id: point for point in found}
        return [by_id[point_id] for point_id in dict.fromkeys(ids) if point_id in by_id]

    def scroll(self, limit: int, where: tuple[Condition, ...] = (), start: PointId | None = None) -> Page:
        """Return a page of points with their vectors."""
        return read_page(
            self.store,
            self.collection,
            self.new_deadline(),
            limit=limit,
            where=where,
            start=start,
            with_vector=self.config.name,
        )

    def text_of(self, point: Point) -> str:
        """Return the stored text; empty when there is none that can be read."""
        try:
            return self.payloads.text_of(point)
        except CorruptChunkError:
            return ""

    def embedded_text_of(self, point: Point) -> str:
        """Return the text that the pipeline embedded; empty when there is none that can be read."""
        try:
            return self.payloads.embedded_text(point)
        except CorruptChunkError:
            return ""

    def embed(
        self, text: str, embedder: Embedder | None = None, input_type: InputType = InputType.DOCUMENT
    ) -> Vector | None:
        """Embed a text; None when there is no embedder, or the text is blank or too long for it."""
        embedder = embedder or self.embedder
        if embedder is None or not text.strip():
            return None
        self.embed_all([text], embedder, input_type)
        return self._embedded[embedder_identity(embedder), input_type, text]

    def embed_all(
        self, texts: Sequence[str], embedder: Embedder | None = None, input_type: InputType = InputType.DOCUMENT
    ) -> None:
        """Embed texts in as few calls as possible; `embed` returns their vectors then."""
        embedder = embedder or self.embedder
        if embedder is None:
            return
        identity = embedder_identity(embedder)
        new = [
            text for text in dict.fromkeys(texts) if text.strip() and (identity, input_type, text) not in self._embedded
        ]
        for first in range(0, len(new), embedder.max_batch):
            some = new[first : first + embedder.max_batch]
            vectors = self._embed_batch(some, embedder, input_type)
            self._embedded |= {(identity, input_type, text): one for text, one in zip(some, vectors, strict=True)}

    def _embed_batch(self, texts: Sequence[str], embedder: Embedder, input_type: InputType) -> list[Vector | None]:
        """Embed one batch; where a text is too long for the model, the others are embedded without it."""
        try:
            return list(check_embeddings(embedder.embed(texts, input_type, self.new_deadline()), len(texts)))
        except (QueryTooLongError, InvalidParameterError):
            if len(texts) == 1:
                return [None]
        half = len(texts) // 2
        parts = (texts[:half], texts[half:])
        return [vector for part in parts for vector in self._embed_batch(part, embedder, input_type)]
