"""Find what an expectation means: chunks that are stored, that a snapshot shows were stored, or a text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from chunkproof.audit.manifest_file import Entry
from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError, InvalidParameterError
from chunkproof.collection.lookup import DOCUMENT_FIELDS, ids_of, point_id_for, stored_forms
from chunkproof.collection.payload_map import flatten
from chunkproof.contract import SearchResult
from chunkproof.contract.conditions import AnyOf
from chunkproof.contract.model import cut_middle
from chunkproof.proof.integrity import digest
from chunkproof.proof.near_text import containment, shingles
from chunkproof.stores.store_port import Point, PointId, Vector
from chunkproof.why.examined import ExaminedCollection

# Of a document with more chunks, only the first ones are examined.
MAX_CHUNKS = 20
NEIGHBOURS = 60
# A text is looked for in so many points at most, where searching for it does not find it.
MAX_SCANNED = 100_000
# Of a larger collection, only chunks near to a text are compared with it.
MAX_COMPARED = 20_000
# A chunk was cut from a text if so much of it is in the text. Overlapping chunkers share less with their neighbours.
CUT_FROM = 0.35
FEWEST_SHINGLES = 3
# A text is split if its parts together have so much of it.
COVERED = 0.7


@dataclass(frozen=True, slots=True)
class TargetChunk:
    """An expected chunk: how it is stored now, and what it was, as far as that is known.

    `former_text` is the text of the snapshot, or the expected text, where the stored one is another. `parts` are
    stored chunks that were made from its text, and `twin` is one that has its text under another id.
    """

    name: str
    point: Point | None
    text: str = ""
    former: Entry | None = None
    former_text: str | None = None
    former_vector: Vector | None = None
    parts: tuple[Point, ...] = ()
    twin: Point | None = None

    @property
    def has_changed_text(self) -> bool:
        """Whether the snapshot, or the expectation, has another text."""
        if self.point is None:
            return False
        expected = self.former.sha256 if self.former else digest(self.former_text) if self.former_text else ""
        return bool(expected) and expected != digest(self.text)


@dataclass(frozen=True)
class Expectation:
    """What is expected: any one of these chunks."""

    key: str
    chunks: tuple[TargetChunk, ...] = ()
    by_text: bool = False
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> list[tuple[Point, TargetChunk]]:
        """The chunks that are stored, with their points."""
        return [(chunk.point, chunk) for chunk in self.chunks if chunk.point is not None]

    @property
    def point_ids(self) -> frozenset[PointId]:
        """The points of the chunks that are stored."""
        return frozenset(point.id for point, _ in self.stored)

    def find(self, results: Iterable[SearchResult]) -> SearchResult | None:
        """Return the first result that meets the expectation."""
        for result in results:
            if result.point_id in self.point_ids or self.key in ids_of(result.metadata):
                return result
            if self.by_text and contains_passage(result.text, self.key):
                return result
        return None


def find_target(key: str, collection: ExaminedCollection, snapshot: Snapshot | None) -> Expectation:
    """Find the chunks that a chunk id, point id, document id, URL or text means."""
    former = snapshot.find(key) if snapshot else ()
    points = _find_by_id(key, collection) or _find_by_field(key, collection, DOCUMENT_FIELDS)
    was_there = collection.fetch_all([entry.expected_point_id for entry in former[:MAX_CHUNKS]])
    points += [point for point in was_there if point.id not in {p.id for p in points}]
    if points or former:
        return _match(key, points, former, collection, snapshot)
    found = _find_by_text(key, collection, snapshot) if _is_text(key) else Expectation(key)
    titled = [] if found.stored else _find_by_field(key, collection, ("document_title",))
    return _match(key, titled, (), collection, snapshot) if titled else found


def _is_text(key: str) -> bool:
    """Whether the expectation can be a passage: ids and URLs have no spaces."""
    return len(key.split()) > 1 or len(key) > 200


def _find_by_id(key: str, collection: ExaminedCollection) -> list[Point]:
    try:
        ids = [collection.find_one(key).id]
    except AmbiguousIdError:
        ids = [point.id for point in collection.find([key]).points.get(key, [])]
    except (ChunkNotFoundError, IndexRequiredError):
        # A point that `load` wrote, whose id in the payload has gone since.
        ids = [point_id_for(key)]
    return collection.fetch_all(ids)


def _find_by_field(key: str, collection: ExaminedCollection, fields: Sequence[str]) -> list[Point]:
    """Raise `IndexRequiredError` only if nothing was found and some field could not be filtered on."""
    refused: IndexRequiredError | None = None
    for name in fields:
        for value in stored_forms(key):
            try:
                where = collection.map((AnyOf(name, (value,)),))
                if points := collection.page(MAX_CHUNKS, where=where, with_vector=collection.vector_name).points:
                    return list(points)
            except IndexRequiredError as error:
                refused = refused or error
            except InvalidParameterError:  # this collection keeps the field inside a JSON string
                continue
    if refused and not _is_text(key):
        raise refused
    return []


def _match(
    key: str, points: list[Point], former: Sequence[Entry], collection: ExaminedCollection, snapshot: Snapshot | None
) -> Expectation:
    """Pair what is stored with what the snapshot has."""
    by_point = {entry.expected_point_id: entry for entry in former}
    by_chunk = {entry.chunk_id: entry for entry in former}
    chunks: list[TargetChunk] = []
    for point in points[:MAX_CHUNKS]:
        name = collection.payloads.id_of(point)
        entry = by_point.get(point.id) or by_chunk.get(name)
        if entry is None and snapshot is not None:
            entry = next((e for e in snapshot.find(name) if name in (e.chunk_id, str(e.point_id))), None)
        # The id that was asked for, where the payload has lost it.
        shown = entry.chunk_id if entry is not None and entry.chunk_id == key else name
        chunks.append(TargetChunk(shown, point, collection.text_of(point), entry))
    matched = {chunk.former.expected_point_id for chunk in chunks if chunk.former}
    gone = [entry for entry in former[:MAX_CHUNKS] if entry.expected_point_id not in matched]
    chunks += [TargetChunk(entry.chunk_id, None, former=entry) for entry in gone]
    return Expectation(key, tuple(_add_former(chunk, collection, snapshot) for chunk in chunks))


def _add_former(chunk: TargetChunk, collection: ExaminedCollection, snapshot: Snapshot | None) -> TargetChunk:
    """Add the former text and vector, and where the former text is now."""
    entry = chunk.former
    if entry is None or snapshot is None:
        return chunk
    # A vector of another model says nothing in a search with this one.
    embedder, same_size = collection.embedder, entry.vector is not None and len(entry.vector) == collection.vector.size
    usable = same_size and (embedder is None or snapshot.header.model in (None, embedder.model))
    chunk = replace(chunk, former_text=entry.original_text, former_vector=entry.vector if usable else None)
    if chunk.point is not None and not chunk.has_changed_text:
        return chunk
    return _find_pieces(chunk, collection, snapshot)


def _find_pieces(chunk: TargetChunk, collection: ExaminedCollection, snapshot: Snapshot | None) -> TargetChunk:
    """Find stored chunks that hold the former text of a chunk that is gone or has another text."""
    hashed = chunk.former.sha256 if chunk.former else digest(chunk.former_text or "")
    own = [chunk.point] if chunk.point is not None else []
    for candidates in _list_candidates(chunk, collection):
        others = [point for point in candidates if chunk.point is None or point.id != chunk.point.id]
        if snapshot is not None:
            snapshot.prefetch(str(point.id) for point in others)
        new = [point for point in others if not _was_there(point, collection, snapshot)]
        twin = next((point for point in new if digest(collection.text_of(point)) == hashed), None)
        if chunk.point is None and twin is not None:
            return replace(chunk, twin=twin)
        pieces = [*new, *own]
        cover = find_cover(chunk.former_text or "", map(collection.text_of, pieces))
        parts = tuple(pieces[index] for index in cover)
        # A text that was only shortened or extended has no part in another chunk.
        if parts and list(parts) != own:
            return replace(chunk, parts=parts)
    return chunk


def find_cover(text: str, others: Iterable[str]) -> list[int]:
    """Return which other texts were cut from this one, or contain it; none unless they have most of it together."""
    wanted = shingles(text)
    covered: set[int] = set()
    parts: list[int] = []
    for index, other in enumerate(others):
        words = shingles(other)
        common = words & wanted
        is_cut = len(common) >= FEWEST_SHINGLES and containment(words, wanted) >= CUT_FROM
        if is_cut or (common and containment(wanted, words) >= COVERED):
            parts.append(index)
            covered |= common
    return parts if containment(wanted, covered) >= COVERED else []


def _list_candidates(chunk: TargetChunk, collection: ExaminedCollection) -> Iterator[list[Point]]:
    """Yield chunks that may hold a former text: the nearest ones; else those that share words with it, anywhere."""
    text = chunk.former_text
    vector = chunk.former_vector or collection.embed_text(text or "")
    if vector is not None:
        yield collection.nearest(vector, NEIGHBOURS, with_vector=collection.vector_name)
    if text is None or collection.count() > MAX_COMPARED:
        return
    # The nearest ones are of no use in a collection of another model.
    wanted, points = shingles(text), (point for page in collection.pages() for point in page)
    yield [point for point in points if len(wanted & shingles(collection.text_of(point))) >= FEWEST_SHINGLES]


def _was_there(point: Point, collection: ExaminedCollection, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot has this point with the same text: then it was not made from another one since."""
    entries = snapshot.find(str(point.id)) if snapshot is not None else ()
    text = digest(collection.text_of(point))
    return any(entry.point_id == point.id and entry.sha256 == text for entry in entries)


def _find_by_text(text: str, collection: ExaminedCollection, snapshot: Snapshot | None) -> Expectation:
    """Find the chunk with this text or passage; else, what the text would be if it were stored."""
    entries = snapshot.find_text(text) if snapshot else ()
    if entries:
        points = collection.fetch_all([entry.expected_point_id for entry in entries[:MAX_CHUNKS]])
        return replace(_match(text, points, entries, collection, snapshot), by_text=True)
    vector = collection.embed_text(text)
    near = collection.nearest(vector, NEIGHBOURS, with_vector=collection.vector_name) if vector is not None else []
    holding = [point for point in near if _holds(point, text, collection)]
    notes: tuple[str, ...] = ()
    if not holding:
        holding, notes = _scan_for(text, collection)
    if not holding:
        absent = TargetChunk(f"“{cut_middle(' '.join(text.split()))}”", None, former_text=text)
        return Expectation(text, (_find_pieces(absent, collection, snapshot),), by_text=True, notes=notes)
    chunks = []
    for point in holding[:MAX_CHUNKS]:
        entry = next(iter(snapshot.find(str(point.id))), None) if snapshot is not None else None
        chunk = TargetChunk(collection.payloads.id_of(point), point, collection.text_of(point), entry)
        chunks.append(_add_former(chunk, collection, snapshot))
    return Expectation(text, tuple(chunks), by_text=True, notes=notes)


def _scan_for(text: str, collection: ExaminedCollection) -> tuple[list[Point], tuple[str, ...]]:
    """Read the collection for a passage that a search for it does not find: its vector may be wrong."""
    scanned = 0
    for page in collection.pages():
        if scanned >= MAX_SCANNED:
            return [], (f"The text was looked for in the first {scanned:,} points only",)
        scanned += len(page)
        if holding := [point for point in page if _holds(point, text, collection)]:
            return holding, ()
    return [], ()


def _holds(point: Point, passage: str, collection: ExaminedCollection) -> bool:
    """Whether the text of a point has the passage; where no text can be read, whether any field has it."""
    text = collection.text_of(point)
    texts = [text] if text else [value for _, value in flatten(point.payload) if isinstance(value, str)]
    return any(contains_passage(text, passage) for text in texts)


def contains_passage(text: str, passage: str) -> bool:
    """Whether the text has the passage, whatever the spaces between words."""
    return _join_words(passage) in " ".join(text.split())


@lru_cache(maxsize=1)
def _join_words(passage: str) -> str:
    """Return the passage with single spaces: many texts are compared with a long one."""
    return " ".join(passage.split())
