"""The seams: what the use cases ask of an embedder and of a vector store.

An implementation is the only place that imports its SDK, and translates that SDK's exceptions into
`chunkproof.errors`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from chunkproof.deadline import Deadline
from chunkproof.models.base import MAX_NAME
from chunkproof.models.filters import Condition

PointId = int | str
Vector = Sequence[float]


# Qdrant takes no collection with such a name, and in an address it would mean something else.
_IMPOSSIBLE = re.compile(r'[/\\<>:"|?*\x00-\x1f\x7f]')


def is_invalid_collection_name(collection: str) -> bool:
    """Whether no collection can have this name."""
    return bool(_IMPOSSIBLE.search(collection)) or collection in ("", ".", "..") or len(collection) > MAX_NAME


class InputType(StrEnum):
    """What a text is embedded as: Cohere's models tell a question from a passage."""

    QUERY = "search_query"
    DOCUMENT = "search_document"


class Embedder(Protocol):
    """Turns texts into vectors, one each, in order; a text it cannot read whole raises `QueryTooLongError`."""

    @property
    def model(self) -> str:
        """The model's name, as payloads record it."""
        ...

    @property
    def dimension(self) -> int | None:
        """Size of its vectors, or None when only an answer tells."""
        ...

    @property
    def max_batch(self) -> int:
        """Most texts of one call."""
        ...

    def excess(self, text: str) -> str | None:
        """Why the text is longer than the model reads; None when it fits or only a call can tell."""
        ...

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        """One vector per text."""
        ...


@dataclass(frozen=True, slots=True)
class Point:
    """A stored point. `score` is set by a search, `vector` when it was asked for."""

    id: PointId
    payload: Mapping[str, Any]
    score: float = 0.0
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class VectorConfig:
    """One dense vector of a collection; the unnamed one has an empty name."""

    name: str
    size: int
    distance: str


@dataclass(frozen=True, slots=True)
class Description:
    """A collection's shape and counts, as the store states them.

    `indexed_fields` has the type of each payload index; with `needs_indexes` only those can be filtered by.
    """

    name: str
    vectors: tuple[VectorConfig, ...]
    points_count: int
    indexed_vectors_count: int
    status: str
    indexed_fields: Mapping[str, str]
    needs_indexes: bool = False


@dataclass(frozen=True, slots=True)
class NearestQuery:
    """A search for the points nearest to a vector, with scores of at least `at_least`.

    `exact` compares with every point instead of asking the index.
    """

    collection: str
    space: VectorConfig
    vector: Vector
    limit: int
    score_threshold: float = 0.0
    where: tuple[Condition, ...] = ()
    with_vectors: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Points in id order, and the id to go on from; None at the end."""

    points: tuple[Point, ...]
    next_id: PointId | None


class VectorStore(Protocol):
    """Reads collections. Every method raises `CollectionNotFoundError` for an unknown one."""

    @property
    def host(self) -> str:
        """Where it is, as a message may say it."""
        ...

    def collections(self, deadline: Deadline) -> list[str]:
        """All names, sorted."""
        ...

    def describe(self, collection: str, deadline: Deadline) -> Description:
        """Shape and counts now."""
        ...

    def nearest(self, query: NearestQuery, deadline: Deadline) -> list[Point]:
        """Best first. A score equal to the threshold is in, whatever the engine's own rule."""
        ...

    def fetch(
        self, collection: str, ids: Sequence[PointId], deadline: Deadline, *, with_vector: str | None = None
    ) -> list[Point]:
        """The points that exist among these ids, in no particular order."""
        ...

    def scroll(
        self,
        collection: str,
        deadline: Deadline,
        *,
        limit: int,
        where: tuple[Condition, ...] = (),
        start: PointId | None = None,
        with_vector: str | None = None,
    ) -> Page:
        """A page of points in id order."""
        ...

    def count(self, collection: str, where: tuple[Condition, ...], deadline: Deadline) -> int:
        """How many points meet the conditions, exactly."""
        ...


class WritableStore(VectorStore, Protocol):
    """A store that `load` may fill."""

    def create(self, collection: str, size: int, deadline: Deadline) -> None:
        """A new collection with one unnamed cosine vector and an index on `chunk_id`."""
        ...

    def upsert(self, collection: str, points: Sequence[Point], vector_name: str, deadline: Deadline) -> None:
        """Write points, replacing those with the same id; done when it returns."""
        ...
