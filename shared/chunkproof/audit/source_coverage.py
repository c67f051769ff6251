"""Coverage of source documents: which passages are in no chunk, and which chunks are in no document any more."""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from pydantic import Field

from chunkproof.audit.locate import Located, PassageIndex, SourceDocument, cover, find_gaps
from chunkproof.collection.reader import Reader
from chunkproof.contract import Model
from chunkproof.stores.store_port import PointId

# Documents are indexed together up to this many characters, which takes some 150 MB; more are a further round.
ROUND_CHARS = 16_000_000
# Gaps with fewer letters are counted, but not listed.
LISTED_LETTERS = 10
MAX_DOCUMENTS = 200
MAX_SHOWN_DOCUMENTS = 20
MAX_PASSAGES = 20
MAX_CHUNKS = 200
MAX_SEGMENTS = 200
EXCERPT = 200
# In the view of a document, this much of each end of a covered passage is shown, and of an uncovered one in all.
SHOWN_COVERED, SHOWN_UNCOVERED = 120, 2_000
STALE, PART, WHOLE = 0, 1, 2


class Passage(Model):
    """A passage that is in no chunk."""

    offset: int = Field(description="Character of the document where it starts")
    length: int = Field(description="Characters")
    line: int
    excerpt: str = Field(description=f"Its first {EXCERPT} characters")


class Segment(Model):
    """A piece of a document for its view; covered text is shortened in the middle."""

    covered: bool
    text: str


class DocumentCoverage(Model):
    """How much of one document is in chunks, in letters and digits: markup and whitespace do not count."""

    name: str
    characters: int
    covered: int
    share: float
    chunks: int = Field(description="Chunks that were located in it")
    passages_total: int = Field(description=f"Passages of {LISTED_LETTERS} letters and more that are in no chunk")
    passages: tuple[Passage, ...] = Field(description=f"The first {MAX_PASSAGES} of them")
    segments: tuple[Segment, ...] = Field((), description="The text, for the documents with the least coverage")


class LocatedChunk(Model):
    """A chunk that is in no source, or not verbatim."""

    chunk_id: str
    source: str | None
    kind: str = Field(description="`stale`, or what differs")
    details: str
    excerpt: str


class UnreadFile(Model):
    """A file that could not be read."""

    name: str
    reason: str


class SourceCoverage(Model):
    """What the chunks of a collection cover of the documents that they were made from."""

    folder: str
    documents_total: int
    characters: int = Field(description="Letters and digits of all documents")
    covered: int
    share: float
    without_chunks: int = Field(description="Documents with letters and without a chunk")
    documents: tuple[DocumentCoverage, ...] = Field(description="Those with the least coverage first")
    chunks: int
    verbatim: int
    not_verbatim: dict[str, int] = Field(description="Chunks that differ from their source, by kind")
    stale: int = Field(description="Chunks whose text is in no document any more")
    listed: tuple[LocatedChunk, ...] = Field(description="Stale chunks, then those that are not verbatim")
    unread: tuple[UnreadFile, ...] = ()
    least: float = Field(0.0, description="The share that was required")

    @property
    def is_enough(self) -> bool:
        """Whether no chunk is stale, no document is lost, and the share is as large as required."""
        return not self.stale and not self.without_chunks and self.share >= self.least


class StoredText(NamedTuple):
    """A stored chunk."""

    point_id: PointId
    chunk_id: str
    source: str | None
    text: str


class StoredTexts:
    """The texts of a collection, kept in an unnamed file to be read several times."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        self.count = 0
        self.close = self._file.close

    def read_collection(self, reader: Reader, done: Callable[[int], None]) -> None:
        """Read all points that have a readable text."""
        for page in reader.pages():
            for point in page.points:
                text, source = reader.payloads.find_text(point), reader.payloads.source_of(point.payload)
                if text is not None:
                    self.add(StoredText(point.id, reader.payloads.id_of(point), source, text))
            done(len(page.points))

    def add(self, stored: StoredText) -> None:
        """Add one chunk."""
        self._file.write(json.dumps(stored).encode() + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[StoredText]:
        self._file.seek(0)
        for line in self._file:
            yield StoredText(*json.loads(line))


class CoverageRun:
    """Locates all chunks in all documents, in rounds of documents that fit into memory."""

    def __init__(self, chunks: StoredTexts, done: Callable[[int], None] = lambda _chunks: None) -> None:
        self._chunks, self._done = chunks, done
        self._states = bytearray(chunks.count)
        self._differing: dict[int, tuple[str, str]] = {}
        self._documents: list[DocumentCoverage] = []

    def add_documents(self, documents: Iterable[tuple[str, str]]) -> None:
        """Locate the chunks in these documents: names and texts."""
        rest = iter(documents)
        while (first := next(rest, None)) is not None:
            some, size = [], 0
            for name, text in chain((first,), rest):
                some.append(SourceDocument(name, text))
                size += len(text)
                if size >= ROUND_CHARS:
                    break
            self._locate_in(some)

    def _locate_in(self, documents: list[SourceDocument]) -> None:
        index = PassageIndex(documents)
        for number, stored in enumerate(self._chunks):
            located = index.locate(stored.text, stored.source)
            self._done(1)
            if located is None:
                continue
            cover(located)
            self._keep_best(number, located)
        self._documents += [_summarize(document) for document in documents]

    def _keep_best(self, number: int, located: Located) -> None:
        state = PART if located.share < 1 else WHOLE
        before = self._states[number]
        if state > before or (state == before and located.kind is None):
            self._states[number] = state
            if located.kind is None:
                self._differing.pop(number, None)
            elif number in self._differing or before == STALE or state > before:
                self._differing[number] = (located.kind, located.details)

    def is_located(self, number: int) -> bool:
        """Whether the chunk with this number is in a document."""
        return self._states[number] != STALE

    def report(self, folder: str, unread: Iterable[tuple[str, str]], least: float) -> SourceCoverage:
        """Sum up what was located."""
        documents = sorted(self._documents, key=lambda each: (each.share, each.name))
        characters, covered = (sum(getattr(each, name) for each in documents) for name in ("characters", "covered"))
        stale = self._states.count(STALE)
        kinds = Counter(kind for kind, _ in self._differing.values())
        shown = [
            each if number < MAX_SHOWN_DOCUMENTS and each.share < 1 else each.model_copy(update={"segments": ()})
            for number, each in enumerate(documents[:MAX_DOCUMENTS])
        ]
        return SourceCoverage(
            folder=folder,
            documents_total=len(documents),
            characters=characters,
            covered=covered,
            share=covered / characters if characters else 1.0,
            without_chunks=sum(each.characters > 0 and not each.chunks for each in documents),
            documents=tuple(shown),
            chunks=self._chunks.count,
            verbatim=self._chunks.count - stale - kinds.total(),
            not_verbatim=dict(kinds.most_common()),
            stale=stale,
            listed=tuple(self._list_chunks()),
            unread=tuple(UnreadFile(name=name, reason=reason) for name, reason in unread),
            least=least,
        )

    def _list_chunks(self) -> Iterator[LocatedChunk]:
        """List stale chunks first; read the texts once for each list."""
        left = MAX_CHUNKS
        for wants_stale in (True, False):
            for number, stored in enumerate(self._chunks):
                is_stale = self._states[number] == STALE
                if left == 0 or is_stale != wants_stale or not (is_stale or number in self._differing):
                    continue
                kind, details = ("stale", "In no source") if is_stale else self._differing[number]
                left -= 1
                yield LocatedChunk(
                    chunk_id=stored.chunk_id,
                    source=stored.source,
                    kind=kind,
                    details=details,
                    excerpt=stored.text[:EXCERPT],
                )


def _summarize(document: SourceDocument) -> DocumentCoverage:
    gaps, offsets = find_gaps(document), document.letters.offsets
    characters, uncovered = len(offsets), sum(end - start for start, end in gaps)
    listed = [gap for gap in gaps if gap[1] - gap[0] >= LISTED_LETTERS]
    line_ends = [at for at, char in enumerate(document.text) if char == "\n"] if listed else []
    passages = []
    for start, end in listed[:MAX_PASSAGES]:
        first, last = offsets[start], offsets[end - 1] + 1
        excerpt = document.text[first : min(last, first + EXCERPT)]
        line = bisect_left(line_ends, first) + 1
        passages.append(Passage(offset=first, length=last - first, line=line, excerpt=excerpt))
    return DocumentCoverage(
        name=document.name,
        characters=characters,
        covered=characters - uncovered,
        share=1 - uncovered / characters if characters else 1.0,
        chunks=document.chunks,
        passages_total=len(listed),
        passages=tuple(passages),
        segments=tuple(_make_segments(document, listed)) if listed else (),
    )


def _make_segments(document: SourceDocument, gaps: list[tuple[int, int]]) -> Iterator[Segment]:
    """Cut the text at its gaps; long pieces are shortened."""
    text, offsets, at = document.text, document.letters.offsets, 0
    for start, end in gaps[: MAX_SEGMENTS // 2]:
        first, last = offsets[start], offsets[end - 1] + 1
        if first > at:
            yield Segment(covered=True, text=_shorten(text[at:first], SHOWN_COVERED))
        yield Segment(covered=False, text=_shorten(text[first:last], SHOWN_UNCOVERED // 2))
        at = last
    if at < len(text):
        yield Segment(covered=True, text=_shorten(text[at:], SHOWN_COVERED))


def _shorten(text: str, shown: int) -> str:
    return text if len(text) <= 2 * shown + 3 else f"{text[:shown]} … {text[-shown:]}"
