"""Embed chunks and write them to a collection. Nothing is written before everything is embedded."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, TypeVar

from chunkproof.clients.ports import Embedder, InputType, Point, Vector, WritableStore
from chunkproof.clients.qdrant.store import is_invalid_collection_name
from chunkproof.deadline import Deadline
from chunkproof.errors import (
    CollectionNotFoundError,
    EmbeddingSizeError,
    InvalidParameterError,
    QueryTooLongError,
    TextIndexRequiredError,
    VectorStoreUnavailableError,
)
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.legs import choose_text_leg, explain_missing_bm25
from chunkproof.retrieval.services import choose_vector
from chunkproof_cli.files.chunks import USE_FLAGS, ChunkRecord

WRITE_BATCH = 256
CALL_MS = 60_000

Item = TypeVar("Item")
Advance = Callable[[int], None]


def _ignore(_count: int) -> None:
    """Report no progress."""


class TooLong(StrEnum):
    """What to do with a text that is longer than the model reads."""

    REFUSE = "refuse"
    TRUNCATE = "truncate"
    SKIP = "skip"


class Loader:
    """Embeds chunks and writes them. Chunks with the same id are replaced: a second run changes nothing.

    `too_long` lists the chunks that were truncated or skipped. The text of a truncated chunk is stored whole; only
    its beginning is embedded.
    """

    def __init__(
        self,
        store: WritableStore,
        embedder: Embedder,
        collection: str,
        vector_name: str | None,
        if_too_long: TooLong = TooLong.REFUSE,
        *,
        setting: str = "CHUNKPROOF_MODEL",
    ) -> None:
        self._setting = f"--collection to another one, or {setting}"
        self._store = store
        self._embedder = embedder
        self._collection = collection
        self._vector_name = vector_name
        self._if_too_long = if_too_long
        self._hybrid = False
        self.too_long: dict[str, None] = {}

    def load(self, records: Iterable[ChunkRecord], advance: Advance = _ignore, *, hybrid: bool = False) -> None:
        """Embed everything, then write everything; `advance` is called for each batch of both steps.

        With `hybrid`, a new collection can be searched by words too. One that can already needs no `hybrid`.
        """
        self._hybrid = hybrid
        self._check_collection()
        with TemporaryFile() as spool:
            size = self._embed(records, spool, advance)
            self._write(records, spool, size, advance)

    def _embed(self, records: Iterable[ChunkRecord], spool: IO[bytes], advance: Advance) -> int:
        """Spool one 32-bit vector per chunk and return their size. A failure leaves the collection unchanged."""
        size = 0
        for batch in split_batches(records, self._embedder.max_batch):
            for vector in self._embed_batch([(record.chunk_id, record.text) for record in batch]):
                size = len(vector)
                spool.write(array("f", vector).tobytes())
            advance(len(batch))
        if not size:
            raise InvalidParameterError(f"Every text is longer than {self._embedder.model} reads: use --truncate")
        return size

    def _embed_batch(self, chunks: Sequence[tuple[str, str]]) -> Iterator[Vector]:
        """Yield a vector for each id and text, but for skipped ones."""
        fitting = [(chunk_id, fit) for chunk_id, text in chunks if (fit := self._fit(chunk_id, text)) is not None]
        if not fitting:
            return
        texts = [text for _, text in fitting]
        try:
            vectors = self._embedder.embed(texts, InputType.DOCUMENT, Deadline(CALL_MS))
        except QueryTooLongError:
            # A service counts tokens only when it is called: find the texts that it refuses.
            if len(fitting) == 1:
                yield from self._embed_refused(*fitting[0])
                return
            half = len(fitting) // 2
            yield from self._embed_batch(fitting[:half])
            yield from self._embed_batch(fitting[half:])
        else:
            yield from check_embeddings(vectors, len(texts))

    def _embed_refused(self, chunk_id: str, text: str) -> Iterator[Vector]:
        if self._if_too_long is TooLong.REFUSE:
            raise InvalidParameterError(
                f"The text of chunk {chunk_id} is longer than {self._embedder.model} reads", USE_FLAGS
            )
        self.too_long[chunk_id] = None
        if self._if_too_long is TooLong.TRUNCATE:
            yield from self._embed_batch([(chunk_id, text[: len(text) * 3 // 4])])

    def _fit(self, chunk_id: str, text: str) -> str | None:
        """Return the text to embed, as far as the embedder can count its tokens by itself; None to skip it."""
        if self._if_too_long is TooLong.REFUSE or not self._embedder.excess(text):
            return text
        self.too_long[chunk_id] = None
        if self._if_too_long is TooLong.SKIP:
            return None
        fits, excess = 0, len(text)
        while excess - fits > 1:
            middle = (fits + excess) // 2
            fits, excess = (fits, middle) if self._embedder.excess(text[:middle]) else (middle, excess)
        return text[:fits]

    def _write(self, records: Iterable[ChunkRecord], spool: IO[bytes], size: int, advance: Advance) -> None:
        """Write the chunks with their spooled vectors; create the collection if it does not exist."""
        vector_name = self._prepare_collection(size)
        text_vector = self._find_text_vector()
        spool.seek(0)
        skipped = self.too_long if self._if_too_long is TooLong.SKIP else {}
        for batch in split_batches((record for record in records if record.chunk_id not in skipped), WRITE_BATCH):
            points = [
                Point(
                    id=record.point_id,
                    payload=record.to_payload(self._embedder.model),
                    vector=tuple(array("f", spool.read(4 * size))),
                )
                for record in batch
            ]
            self._store.upsert(self._collection, points, vector_name, Deadline(CALL_MS), text_vector=text_vector)
            advance(len(batch))

    def _check_collection(self) -> None:
        """Refuse a collection that cannot store these vectors, before any work is done."""
        if is_invalid_collection_name(self._collection):
            raise InvalidParameterError(f"--collection {self._collection}: not a valid collection name")
        if self._hybrid:
            features = self._store.features(Deadline(CALL_MS))
            if not (features.bm25 or features.text_index):
                raise InvalidParameterError(f"--hybrid: {explain_missing_bm25(features)}")
        if self._embedder.dimension is not None and self._find_vector(self._embedder.dimension) is not None:
            self._find_text_vector()

    def _prepare_collection(self, size: int) -> str:
        name = self._find_vector(size)
        if name is None:
            try:
                self._store.create(self._collection, size, Deadline(CALL_MS), text_search=self._hybrid)
            except VectorStoreUnavailableError:
                name = self._find_vector(size)
                if name is None:  # otherwise another load created it at the same moment
                    raise
        return name or ""

    def _find_text_vector(self) -> str | None:
        """Return the sparse vector to fill with the words of each text, if the collection has one."""
        description = self._store.describe(self._collection, Deadline(CALL_MS))
        if not self._hybrid and "idf" not in description.sparse_vectors.values():
            return None
        try:
            leg = choose_text_leg(description, self._store.features(Deadline(CALL_MS)), ["text"])
        except TextIndexRequiredError:
            if self._hybrid:
                raise InvalidParameterError(
                    f"--hybrid: collection {self._collection} exists and cannot be searched by words; "
                    "load into a new one with --collection"
                ) from None
            return None
        return leg.sparse_vector

    def _find_vector(self, size: int) -> str | None:
        """Return the name of the vector to write; None when the collection does not exist yet."""
        try:
            description = self._store.describe(self._collection, Deadline(CALL_MS))
        except CollectionNotFoundError:
            return None
        config = choose_vector(description.vectors, self._vector_name, self._collection)
        if config.size != size:
            raise EmbeddingSizeError(self._embedder.model, size, self._collection, config.size, self._setting)
        return config.name


def split_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most `size`."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
