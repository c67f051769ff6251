"""Find what an expectation means: chunks that are stored, that a snapshot shows were stored, or a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from chunkproof.audit.snapshot import Snapshot, SnapshotEntry
from chunkproof.clients.ports import Point, PointId, Vector
from chunkproof.errors import AmbiguousIdError, ChunkNotFoundError, IndexRequiredError, InvalidParameterError
from chunkproof.models.filters import AnyOf
from chunkproof.models.json import cut_middle
from chunkproof.retrieval.filters import map_filters
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import Finder, find_point, point_id_for
from chunkproof.retrieval.near_text import shingles
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.why.context import Context
from chunkproof.why.ids import DOCUMENT_FIELDS, stored_forms
from chunkproof.why.texts import FEWEST_SHINGLES, contains_passage, find_cover

# Of a document with more chunks, only the first ones are examined.
MAX_CHUNKS = 20
NEIGHBOURS = 60
PAGE = 500
# A text is looked for in so many points at most, where searching for it does not find it.
MAX_SCANNED = 100_000
# Of a larger collection, only chunks near to a text are compared with it.
MAX_COMPARED = 20_000


@dataclass(frozen=True, slots=True)
class TargetChunk:
    """An expected chunk: how it is stored now, and what it was, as far as that is known.

    `former_text` is the text of the snapshot, or the expected text, where the stored one is another. `parts` are
    stored chunks that were made from its text, and `twin` is one that has its text under another id.
    """

    name: str
    point: Point | None
    text: str = ""
    former: SnapshotEntry | None = None
    former_text: str | None = None
    former_vector: Vector | None = None
    parts: tuple[Point, ...] = ()
    twin: Point | None = None

    @property
    def is_split(self) -> bool:
        """Whether its text is stored in other pieces now."""
        return bool(self.parts)

    @property
    def has_changed_text(self) -> bool:
        """Whether the snapshot, or the expectation, has another text."""
        if self.point is None:
            return False
        known = self.former.text_sha256 if self.former else digest(self.former_text) if self.former_text else None
        return known is not None and known != digest(self.text)


@dataclass(frozen=True)
class Target:
    """What is expected: any one of these chunks."""

    key: str
    chunks: tuple[TargetChunk, ...]
    by_text: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def point_ids(self) -> frozenset[PointId]:
        """The points of the chunks that are stored."""
        return frozenset(chunk.point.id for chunk in self.chunks if chunk.point is not None)


def find_target(key: str, context: Context, snapshot: Snapshot | None) -> Target:
    """Find the chunks that a chunk id, point id, document id, URL or text means."""
    former = snapshot.find(key) if snapshot else ()
    points = _find_by_id(key, context) or _find_by_field(key, context)
    points += [point for point in _fetch_former(former, context) if point.id not in {p.id for p in points}]
    if points or former:
        return _match(key, points, former, context, snapshot)
    if not _is_text(key):
        return Target(key, ())
    return _find_by_text(key, context, snapshot)


def _is_text(key: str) -> bool:
    """Whether the expectation can be a passage: ids and URLs have no spaces."""
    return len(key.split()) > 1 or len(key) > 200


def _find_by_id(key: str, context: Context) -> list[Point]:
    services, deadline = context.services, context.new_deadline()
    try:
        ids = [find_point(key, context.collection, services=services, deadline=deadline).id]
    except AmbiguousIdError:
        found = Finder(services, context.collection, deadline).find({key: None})
        ids = [point.id for point in found.points.get(key, [])]
    except (ChunkNotFoundError, IndexRequiredError):
        # A point that `load` wrote, whose id in the payload has gone since.
        ids = [point_id_for(key)]
    return context.fetch(ids)


def _find_by_field(key: str, context: Context) -> list[Point]:
    """Raise `IndexRequiredError` only if nothing was found and some field could not be filtered on."""
    refused: IndexRequiredError | None = None
    for name in DOCUMENT_FIELDS:
        for value in stored_forms(key):
            try:
                mapped = map_filters(
                    (AnyOf(name, (value,)),), context.collection, context.services, context.new_deadline()
                )
                if found := context.scroll(MAX_CHUNKS, mapped).points:
                    return list(found)
            except IndexRequiredError as error:
                refused = refused or error
            except InvalidParameterError:  # this collection keeps the field inside a JSON string
                continue
    if refused and not _is_text(key):
        raise refused
    return []


def _fetch_former(former: Sequence[SnapshotEntry], context: Context) -> list[Point]:
    return context.fetch([entry.point_id for entry in former[:MAX_CHUNKS]])


def _match(
    key: str, points: list[Point], former: Sequence[SnapshotEntry], context: Context, snapshot: Snapshot | None
) -> Target:
    """Pair what is stored with what the snapshot has."""
    by_point = {entry.point_id: entry for entry in former}
    by_chunk = {entry.chunk_id: entry for entry in former}
    payloads: PayloadMap = context.payloads
    chunks: list[TargetChunk] = []
    for point in points[:MAX_CHUNKS]:
        name = payloads.id_of(point)
        entry = by_point.get(point.id) or by_chunk.get(name)
        if entry is None and snapshot is not None:
            entry = next((e for e in snapshot.find(name) if name in (e.chunk_id, str(e.point_id))), None)
        # The id that was asked for, where the payload has lost it.
        shown = entry.chunk_id if entry is not None and entry.chunk_id == key else name
        text = context.text_of(point)
        chunk = TargetChunk(shown, point, text, entry)
        chunks.append(_add_former(chunk, context, snapshot))
    known = {chunk.former.point_id for chunk in chunks if chunk.former}
    for entry in former[:MAX_CHUNKS]:
        if entry.point_id not in known:
            gone = TargetChunk(entry.chunk_id, None, former=entry)
            chunks.append(_add_former(gone, context, snapshot))
    return Target(key, tuple(chunks))


def _add_former(chunk: TargetChunk, context: Context, snapshot: Snapshot | None) -> TargetChunk:
    """Add the former text and vector, and where the former text is now."""
    entry = chunk.former
    if entry is None or snapshot is None:
        return chunk
    # A vector of another model says nothing in a search with this one.
    embedder, same_size = context.embedder, entry.vector is not None and len(entry.vector) == context.config.size
    usable = same_size and (embedder is None or snapshot.header.model in (None, embedder.model))
    chunk = replace(chunk, former_text=entry.text, former_vector=entry.vector if usable else None)
    if chunk.point is not None and not chunk.has_changed_text:
        return chunk
    return find_pieces(chunk, context, snapshot)


def find_pieces(chunk: TargetChunk, context: Context, snapshot: Snapshot | None) -> TargetChunk:
    """Find stored chunks that hold the former text of a chunk that is gone or has another text."""
    text = chunk.former_text
    hashed = chunk.former.text_sha256 if chunk.former else digest(text or "")
    for candidates in _list_candidates(chunk, context):
        others = [point for point in candidates if chunk.point is None or point.id != chunk.point.id]
        if snapshot is not None:
            snapshot.prefetch(str(point.id) for point in others)
        new = [point for point in others if not _was_there(point, context, snapshot)]
        twin = next((point for point in new if digest(context.text_of(point)) == hashed), None)
        if chunk.point is None and twin is not None:
            return replace(chunk, twin=twin)
        pieces = [*new, *([chunk.point] if chunk.point is not None else [])]
        cover = find_cover(text or "", [context.text_of(point) for point in pieces])
        parts = tuple(pieces[index] for index in cover.parts)
        # A text that was only shortened or extended has no part in another chunk.
        if cover.is_whole and (chunk.point is None or any(part.id != chunk.point.id for part in parts)):
            return replace(chunk, parts=parts)
    return chunk


def _list_candidates(chunk: TargetChunk, context: Context) -> Iterator[list[Point]]:
    """Yield chunks that may hold a former text: the nearest ones; else those that share words with it, anywhere."""
    text = chunk.former_text
    vector = chunk.former_vector or (context.embed(text) if text else None)
    if vector is not None:
        yield context.nearest(vector, NEIGHBOURS, with_vectors=True)
    if text is None or context.points_count > MAX_COMPARED:
        return
    # The nearest ones are of no use in a collection of another model.
    wanted, start, sharing = shingles(text), None, []
    while True:
        page = context.scroll(PAGE, start=start)
        sharing += [point for point in page.points if len(wanted & shingles(context.text_of(point))) >= FEWEST_SHINGLES]
        start = page.next_id
        if start is None:
            break
    yield sharing


def _was_there(point: Point, context: Context, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot has this point with the same text: then it was not made from another one since."""
    if snapshot is None:
        return False
    text = digest(context.text_of(point))
    return any(entry.point_id == point.id and entry.text_sha256 == text for entry in snapshot.find(str(point.id)))


def _find_by_text(text: str, context: Context, snapshot: Snapshot | None) -> Target:
    """Find the chunk with this text or passage; else, what the text would be if it were stored."""
    entries = snapshot.find_text(text) if snapshot else ()
    if entries:
        return replace(_match(text, _fetch_former(entries, context), entries, context, snapshot), by_text=True)
    vector = context.embed(text)
    near = context.nearest(vector, NEIGHBOURS, with_vectors=True) if vector is not None else []
    holding = [point for point in near if contains_passage(context.text_of(point), text)]
    notes: tuple[str, ...] = ()
    if not holding:
        holding, notes = _scan_for(text, context)
    if holding:
        chunks = [TargetChunk(context.payloads.id_of(p), p, context.text_of(p)) for p in holding[:MAX_CHUNKS]]
        chunks = [_add_former(_with_entry(chunk, snapshot), context, snapshot) for chunk in chunks]
        return Target(text, tuple(chunks), by_text=True, notes=notes)
    absent = TargetChunk(f"“{cut_middle(' '.join(text.split()))}”", None, former_text=text)
    return Target(text, (find_pieces(absent, context, snapshot),), by_text=True, notes=notes)


def _with_entry(chunk: TargetChunk, snapshot: Snapshot | None) -> TargetChunk:
    if snapshot is None or chunk.point is None:
        return chunk
    return replace(chunk, former=next(iter(snapshot.find(str(chunk.point.id))), None))


def _scan_for(text: str, context: Context) -> tuple[list[Point], tuple[str, ...]]:
    """Read the collection for a passage that a search for it does not find: its vector may be wrong."""
    start: PointId | None = None
    scanned = 0
    while True:
        page = context.scroll(PAGE, start=start)
        scanned += len(page.points)
        if holding := [point for point in page.points if contains_passage(context.text_of(point), text)]:
            return holding, ()
        if page.next_id is None:
            return [], ()
        if scanned >= MAX_SCANNED:
            return [], (f"The text was looked for in the first {scanned:,} points only",)
        start = page.next_id
