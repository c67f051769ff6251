"""Chunks → vectors → collection. Nothing is written before everything is embedded."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, TypeVar

from chunkproof.clients.ports import Embedder, InputType, Point, WritableStore, is_invalid_collection_name
from chunkproof.deadline import Deadline
from chunkproof.errors import CollectionNotFoundError, InvalidParameterError
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.services import choose_vector
from chunkproof_cli.files.chunks import ChunkRecord

WRITE_BATCH = 256
CALL_MS = 60_000

Item = TypeVar("Item")
Done = Callable[[int], None]


def _unseen(_count: int) -> None:
    """Nobody watches the progress."""


class Loader:
    """Embeds chunks and writes them, replacing those with the same id: a second run changes nothing."""

    def __init__(
        self, store: WritableStore, embedder: Embedder, collection: str, vector_name: str | None
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._collection = collection
        self._wanted_vector = vector_name

    def load(
        self, records: Iterable[ChunkRecord], *, embedded: Done = _unseen, written: Done = _unseen
    ) -> None:
        """Embed everything, then write everything."""
        self.check_collection()
        with TemporaryFile() as spool:
            size = self.embed(records, spool, embedded)
            self.write(records, spool, size, written)

    def embed(self, records: Iterable[ChunkRecord], into: IO[bytes], done: Done) -> int:
        """Spool one 32-bit vector per chunk; returns their size. A failure leaves the collection as it was."""
        size = 0
        for batch in in_batches(records, self._embedder.max_batch):
            texts = [record.text for record in batch]
            vectors = check_embeddings(
                self._embedder.embed(texts, InputType.DOCUMENT, Deadline(CALL_MS)), len(texts)
            )
            size = len(vectors[0])
            for vector in vectors:
                into.write(array("f", vector).tobytes())
            done(len(batch))
        return size

    def write(self, records: Iterable[ChunkRecord], vectors: IO[bytes], size: int, done: Done) -> None:
        """Write the chunks with their spooled vectors, making the collection if there is none."""
        vector_name = self._prepare(size)
        vectors.seek(0)
        for batch in in_batches(records, WRITE_BATCH):
            points = [
                Point(
                    id=record.point_id,
                    payload=record.payload(self._embedder.model),
                    vector=tuple(array("f", vectors.read(4 * size))),
                )
                for record in batch
            ]
            self._store.upsert(self._collection, points, vector_name, Deadline(CALL_MS))
            done(len(batch))

    def check_collection(self) -> None:
        """Refuse a collection that cannot take these vectors, before any work is done."""
        if is_invalid_collection_name(self._collection):
            raise InvalidParameterError(f"No collection can be named {self._collection}")
        if self._embedder.dimension is not None:
            self._vector_name(self._embedder.dimension)

    def _prepare(self, size: int) -> str:
        name = self._vector_name(size)
        if name is None:
            self._store.create(self._collection, size, Deadline(CALL_MS))
        return name or ""

    def _vector_name(self, size: int) -> str | None:
        """The vector to write; None when the collection does not exist yet."""
        try:
            description = self._store.describe(self._collection, Deadline(CALL_MS))
        except CollectionNotFoundError:
            return None
        space = choose_vector(description.vectors, self._wanted_vector, self._collection)
        if space.size != size:
            raise InvalidParameterError(
                f"{self._embedder.model} makes vectors of {size} values, collection {self._collection} "
                f"stores {space.size}: choose another --collection, or the model it was made with"
            )
        return space.name


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items, `size` at a time."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
