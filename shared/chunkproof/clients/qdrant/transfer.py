"""Copy a collection from one store to another, with all of its vectors, and compare the two point by point."""

import json
import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from chunkproof.clients.ports import PointId
from chunkproof.clients.qdrant.filters import Json
from chunkproof.deadline import Deadline
from chunkproof.errors import ResponseTooLargeError

BATCH = 256
CALL_MS = 60_000
MAX_LISTED = 20
# What decides how points are stored and found; the rest is about memory and speed, where each store has its own ways.
VECTOR_PARAMS = ("size", "distance", "multivector_config", "datatype")
SPARSE_PARAMS = ("modifier",)
INDEX_PARAMS = ("type", "tokenizer", "lowercase", "is_tenant")
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a collection is made, as in Qdrant's REST API: its vectors by name, and the indexes of payload fields.

    `indexes` maps a field to the parameters of its index, of which `type` is one.
    """

    vectors: Mapping[str, Json]
    sparse_vectors: Mapping[str, Json] = field(default_factory=dict)
    indexes: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def from_params(cls, params: Json, indexes: Mapping[str, Json] | None = None) -> "Layout":
        """Read the `params` of a collection's configuration, whose only vector may have no name."""
        vectors = params.get("vectors") or {}
        if isinstance(vectors.get("size"), int):
            vectors = {"": vectors}
        return cls(
            {name: _keep(VECTOR_PARAMS, given) for name, given in vectors.items()},
            {name: _keep(SPARSE_PARAMS, given) for name, given in (params.get("sparse_vectors") or {}).items()},
            {field: _keep(INDEX_PARAMS, given) for field, given in (indexes or {}).items()},
        )


class Source(Protocol):
    """A store whose collections can be copied."""

    def layout(self, collection: str, deadline: Deadline) -> Layout:
        """Return how a collection is made."""
        ...

    def read_points(
        self, collection: str, start: PointId | None, limit: int, deadline: Deadline
    ) -> tuple[list[Json], PointId | None]:
        """Return points in id order, with all vectors by name, and the id of the next."""
        ...


class Target(Source, Protocol):
    """A store that a collection can be copied to."""

    def create_like(self, collection: str, layout: Layout, deadline: Deadline) -> None:
        """Create a collection with this layout."""
        ...

    def write_points(self, collection: str, points: list[Json], deadline: Deadline) -> None:
        """Write points with all of their vectors."""
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many points of two collections were compared, and the ids (at most 20) of those that differ."""

    points: int
    differing: int
    listed: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether all points are the same."""
        return not self.differing


def _keep(names: tuple[str, ...], given: Json | None) -> Json:
    return {name: given[name] for name in names if given and given.get(name) is not None}


def copy_points(
    source: Source,
    target: Target,
    names: tuple[str, str],
    advance: Advance,
    start: PointId | None = None,
) -> int:
    """Write the points of a collection to another one that exists, in id order from `start`; return their number."""
    copied = 0
    for points in read_pages(source, names[0], start):
        target.write_points(names[1], points, Deadline(CALL_MS))
        copied += len(points)
        advance(len(points))
    return copied


def compare_collections(source: Source, target: Source, names: tuple[str, str], advance: Advance) -> Comparison:
    """Compare payloads and vectors of all points, exactly: texts by their characters, vectors bit by bit."""
    count, differing = 0, 0
    listed: list[str] = []
    for pair in _pair(read_all(source, names[0]), read_all(target, names[1])):
        count += 1
        advance(1)
        if pair[0] is None or pair[1] is None or normalize(pair[0]) != normalize(pair[1]):
            differing += 1
            if len(listed) < MAX_LISTED:
                listed.append(str((pair[0] or pair[1] or {}).get("id")))
    return Comparison(count, differing, tuple(listed))


def read_all(source: Source, collection: str) -> Iterator[Json]:
    """Yield all points in id order."""
    for points in read_pages(source, collection):
        yield from points


def read_pages(source: Source, collection: str, start: PointId | None = None) -> Iterator[list[Json]]:
    """Yield pages of points in id order, smaller ones where points are large."""
    limit = BATCH
    while True:
        try:
            points, following = source.read_points(collection, start, limit, Deadline(CALL_MS))
        except ResponseTooLargeError:
            if limit == 1:
                raise
            limit //= 2
            continue
        if points:
            yield points
        if following is None:
            return
        start = following


def last_id(target: Source, collection: str) -> PointId | None:
    """Return the largest id of a collection; None when it is empty."""
    last: PointId | None = None
    for point in read_all(target, collection):
        last = point["id"]
    return last


def normalize(point: Json) -> tuple[str, str, Json]:
    """Return what two equal points have in common: numbers as 32 bits, and objects whatever the order of their keys."""
    vectors = {name: _normalize_vector(vector) for name, vector in point["vector"].items()}
    return str(point["id"]), json.dumps(point["payload"], sort_keys=True), vectors


def name_vectors(vectors: Any) -> Json:
    """Return the vectors of a point by name; the unnamed one has an empty name."""
    if isinstance(vectors, Mapping):
        return dict(vectors)
    return {"": vectors} if vectors else {}


def to_unit_length(vector: Any) -> Any:
    """Return a vector, or each one of a multivector, with a length of one; a vector of zeros stays."""
    if vector and isinstance(vector[0], list | tuple):
        return [to_unit_length(row) for row in vector]
    length = math.sqrt(math.fsum(value * value for value in vector))
    return [value / length for value in vector] if length else vector


def _normalize_vector(vector: Any) -> Any:
    if isinstance(vector, Mapping):
        pairs = sorted(zip(vector["indices"], array("f", vector["values"]), strict=True))
        return tuple(pairs)
    if vector and isinstance(vector[0], list | tuple):
        return tuple(array("f", row).tobytes() for row in vector)
    return array("f", vector).tobytes()


def _pair(left: Iterator[Json], right: Iterator[Json]) -> Iterator[tuple[Json | None, Json | None]]:
    """Yield the points of two id orders side by side; None where one has no such point."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and _order(one["id"]) < _order(other["id"])):
            yield one, None
            one = next(left, None)
        elif one is None or _order(other["id"]) < _order(one["id"]):
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


def _order(point_id: PointId) -> tuple[int, int]:
    """Return a key for Qdrant's order of ids: integers first."""
    return (0, point_id) if isinstance(point_id, int) else (1, UUID(point_id).int)
