"""One fault of each kind in a collection of the sample handbook, text and vectors."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chunkproof.audit.findings import Kind
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.stores.store_port import Point, Vector, WritableStore
from chunkproof_cli.loading import ChunkRecord

from support.sdk import sdk

OLDER = "Tune the gains of the controller by hand: raise the proportional gain until the arm oscillates, then halve it."


@dataclass(frozen=True)
class Asymmetric:
    """A model that embeds queries and documents differently, as Cohere's models do and the local one does not."""

    inner: Embedder

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def dimension(self) -> int | None:
        return self.inner.dimension

    @property
    def max_batch(self) -> int:
        return self.inner.max_batch

    def excess(self, text: str) -> str | None:
        return self.inner.excess(text)

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        prefix = "question to answer: " if input_type is InputType.QUERY else ""
        return self.inner.embed([prefix + text for text in texts], InputType.DOCUMENT, deadline)


def unrelated(size: int, seed: int = 1) -> Vector:
    """Return a random direction, which no text has."""
    rng = random.Random(seed)
    raw = [rng.gauss(0, 1) for _ in range(size)]
    length = sum(value * value for value in raw) ** 0.5
    return tuple(value / length for value in raw)


class Planter:
    """Puts faults into a collection, each on another chunk; `planted` maps the fault to its chunk."""

    def __init__(
        self, store: WritableStore, collection: str, embedder: Embedder, records: Sequence[ChunkRecord]
    ) -> None:
        self._store, self._collection, self._embedder = store, collection, embedder
        # Long enough to be cut for the vector, and far from each other.
        self._left = [record for record in records if len(record.text) > 300][::3]
        self.planted: dict[Kind, str] = {}

    def plant(self) -> None:
        """Plant one fault of every kind."""
        self._plant_text_faults()
        self._plant_vector_faults()

    def _plant_text_faults(self) -> None:
        changed = self._take(Kind.MISMATCH)
        self._write(changed, text=lambda record: record.text.replace(" ", ""))
        self._write_vector(changed, self._embed(changed.text.replace(" ", "")))
        self._write(self._take(Kind.METADATA_MISMATCH), url=lambda _record: "https://elsewhere.example.com")
        self._write(self._take(Kind.UNVERIFIABLE), text=lambda _record: ["a", "list"])
        gone = self._take(Kind.MISSING)
        sdk(self._store).delete(self._collection, [gone.point_id])
        twice = self._read(self._take(Kind.DUPLICATE))
        self._put(Point(1, twice.payload, vector=twice.vector))
        orphan = {
            **twice.payload,
            "chunk_id": "left-over-00",
            "text": "Left over from an older version.",
        }
        self.planted[Kind.ORPHAN] = "left-over-00"
        self._put(Point(2, orphan, vector=twice.vector))

    def _plant_vector_faults(self) -> None:
        self._write_vector(self._take(Kind.STALE_VECTOR), self._embed(OLDER))
        other = self._take(Kind.WRONG_MODEL)
        self._write(other, embedding_model=lambda _record: "some-other-model")
        self._write_vector(other, unrelated(self._embedder.dimension or 384))
        query = self._take(Kind.WRONG_INPUT_TYPE)
        self._write_vector(query, self._embed(query.text, InputType.QUERY))
        cut = self._take(Kind.TRUNCATED_INPUT)
        self._write_vector(cut, self._embed(cut.text[:256]))

    def _embed(self, text: str, input_type: InputType = InputType.DOCUMENT) -> Vector:
        return self._embedder.embed([text], input_type, Deadline(60_000))[0]

    def _take(self, kind: Kind) -> ChunkRecord:
        record = self._left.pop(0)
        self.planted[kind] = record.chunk_id
        return record

    def _read(self, record: ChunkRecord) -> Point:
        return self._store.fetch(self._collection, [record.point_id], Deadline(60_000), with_vector="")[0]

    def _write(self, record: ChunkRecord, **changes: object) -> None:
        point = self._read(record)
        changed = {name: change(record) for name, change in changes.items()}  # type: ignore[operator]
        self._put(Point(point.id, {**point.payload, **changed}, vector=point.vector))

    def _write_vector(self, record: ChunkRecord, vector: Vector) -> None:
        self._put(Point(record.point_id, self._read(record).payload, vector=tuple(vector)))

    def _put(self, point: Point) -> None:
        self._store.upsert(self._collection, [point], "", Deadline(60_000))
