"""Read chunks from `chunks.jsonl`, a BEIR folder or a folder of documents, embed them, and write them to a collection.

Every line is checked before any is used, and nothing is written before everything is embedded.
"""

import json
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar

from pydantic import ConfigDict, Field, field_validator

from chunkproof.base import errors
from chunkproof.base.files import MAX_PROBLEMS, read_lines, replace_file
from chunkproof.base.request import Deadline
from chunkproof.base.words import split_sentences
from chunkproof.collection.embedding import check_embeddings
from chunkproof.collection.facts import choose_text_leg, choose_vector, explain_missing_bm25
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import in_batches
from chunkproof.contract import Request, read_json
from chunkproof.contract.model import BrokenRules, NotBlank, display_name, parse_time
from chunkproof.embedders.embedder_port import Embedder, InputType, call_in_batches
from chunkproof.proof.integrity import digest
from chunkproof.stores.qdrant import is_invalid_collection_name
from chunkproof.stores.store_port import Point, PointId, Vector, WritableStore

SHOWN_PROBLEMS = 20
SKIP_UNREADABLE = "Move these files elsewhere, or use --skip-unreadable to leave them out"
USE_FLAGS = "Shorten texts that are too long, or use --truncate to embed only their beginning, or --skip-too-long"
LINE = "The line"  # what messages call a line of the file
# A chunk of a document has at most this many units: four letters of a word, or one other character. For English that is
# some 150 words, which every embedding model reads whole.
MAX_UNITS = 220
_UNIT = re.compile(r"[A-Za-z]{1,4}|\S")
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
_SPACE = re.compile(r"\s+")
_FENCE_OR_HEADING = re.compile(r"^ {0,3}(?:(?P<fence>```+|~~~+)|#{1,6}[ \t]+(?P<title>.*)$)", re.M)
_WORD, _NOT_A_WORD = re.compile(r"\w"), re.compile(r"\W+")
BEIR = "corpus.jsonl"
MARKDOWN = (".md", ".markdown", ".mdx")
DOCUMENTS = (*MARKDOWN, ".html", ".htm", ".pdf")
AS_STORED = PayloadMap()


class ChunkRecord(Request):
    """A line of `chunks.jsonl`: the fields of docs/contract.md, and any others, which are stored too."""

    model_config = ConfigDict(extra="allow")
    aliases: ClassVar[Mapping[str, str]] = {
        **{"chunk_text": "text", "source_url": "url", "page_title": "document_title", "chunk_index": "position"}
    }

    chunk_id: NotBlank
    text: NotBlank
    url: str | None = None
    document_id: str | None = None
    document_title: str | None = Field(None, max_length=500)
    position: int | None = Field(None, ge=0)
    timestamp: str | None = None
    section_heading: str | None = None
    section_headers: tuple[str, ...] | None = Field(None, strict=False)
    breadcrumb: str | None = None
    total_chunks: int | None = None
    tokens: int | None = None
    content_type: str | None = None
    has_code: bool | None = None
    content_hash: str | None = None
    embedding_model: str | None = None

    @classmethod
    def broken_rules(cls, fields: Mapping[str, object]) -> list[str]:
        """Check that a given content_hash is the hash of the text."""
        text, given_hash = fields.get("text"), fields.get("content_hash")
        if isinstance(text, str) and isinstance(given_hash, str):
            try:
                if len(given_hash) < 16 or not digest(text).startswith(given_hash.lower()):
                    return ["content_hash is not the SHA-256 of text (16 hex digits or more)"]
            except UnicodeEncodeError:
                return []  # already reported as a lone surrogate
        return []

    @field_validator("timestamp")
    @classmethod
    def _check_time(cls, value: str | None) -> str | None:
        if value is not None and parse_time(value) is None:
            raise BrokenRules("timestamp must be an ISO 8601 date and time")
        return value

    @property
    def point_id(self) -> PointId:
        """The chunk's id if Qdrant accepts it as a point id, else a uuid5 of it."""
        return point_id_for(self.chunk_id)

    def to_payload(self, model: str) -> dict[str, Any]:
        """Build the payload that is stored with the vector."""
        fields = self.model_dump(exclude_none=True)
        return {**fields, "content_hash": digest(self.text), "embedding_model": model}


@dataclass(frozen=True)
class ChunkFile:
    """Chunks that passed every check. Iterating reads a file again; chunks of documents are in memory, by id."""

    path: Path
    count: int
    extra_fields: tuple[str, ...]
    documents: Mapping[str, bytes]
    unread: Sequence[str]

    def __iter__(self) -> Iterator[ChunkRecord]:
        for line in self.documents.values() or (line for _, line in _read_lines(self.path)):
            yield _parse_line(line, self.path.name == BEIR)


def check_chunks(path: Path, excess: Callable[[str], str | None], *, skip_unreadable: bool = False) -> ChunkFile:
    """Check every line of the file; `InvalidParameterError` lists the lines that are not valid chunks.

    Documents of a folder that cannot be read are refused as well, or skipped.
    """
    source = _find_file(path)
    documents, unread = cut_documents(source) if source.is_dir() else ({}, [])
    problems = [] if skip_unreadable or not unread else [*unread[:SHOWN_PROBLEMS], SKIP_UNREADABLE]
    placed = ((f"{source.name}:{number}", line) for number, line in _read_lines(source))
    lines = documents.items() if source.is_dir() else placed
    seen: dict[PointId, str] = {}
    extra: dict[str, None] = {}
    is_too_long = False
    for place, line in lines:
        try:
            record = _parse_line(line, source.name == BEIR)
            record_problems = [f"text is too long: {why}"] if (why := excess(record.text)) else []
            is_too_long |= bool(why)
            if (first := seen.setdefault(record.point_id, place)) != place:
                record_problems.append(f"chunk_id {record.chunk_id} is already on line {first.rpartition(':')[2]}")
            extra |= dict.fromkeys(record.model_extra or ())
        except errors.InvalidParameterError as error:
            record_problems = list(error.messages)
        problems += [f"{place}: {problem}" for problem in record_problems]
        if len(problems) > MAX_PROBLEMS:  # it has no chunks
            break
    if problems:
        shown = errors.InvalidParameterError.listing(problems, shown=SHOWN_PROBLEMS + len(unread)).messages
        raise errors.InvalidParameterError(*shown, *([USE_FLAGS] if is_too_long else []))
    if not seen:
        raise errors.InvalidParameterError(f"{source}: the file has no chunks")
    return ChunkFile(source, len(seen), tuple(extra), documents, unread)


def _find_file(path: Path) -> Path:
    if path.is_dir():
        return corpus if (corpus := path / BEIR).is_file() else path
    if not path.is_file():
        raise errors.InvalidParameterError(f"{path}: no such file")
    if path.suffix.lower() in DOCUMENTS:
        raise errors.InvalidParameterError(f"{path} is a document: name the folder that it is in")
    return path


def cut_documents(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """Cut the documents of a folder into lines of a `chunks.jsonl`, by id; also return what could not be read.

    An id is the document's path, the heading above the chunk and a number below that heading: it stays the same when
    the document is read again, or edited in another place.
    """
    from chunkproof_cli.manifest_sources import Folder  # which a file of chunks does not need

    source, chunks = Folder(folder, hint="; nor is it a BEIR folder, it has no corpus.jsonl"), dict[str, bytes]()
    for name, read in source.read():
        text = read.encode("utf-8", "replace").decode()
        pieces = list(cut_text(text, is_markdown=Path(name).suffix.lower() in MARKDOWN))
        title = next((heading for heading, _ in pieces if heading), "") or Path(name).stem
        numbers = Counter[str]()
        for position, (heading, piece) in enumerate(pieces):
            slug = _NOT_A_WORD.sub("-", heading.casefold()).strip("-")[:40]
            numbers[slug] += 1
            chunk_id = f"{name}#{slug}{slug and '-'}{numbers[slug]}"
            fields = {"chunk_id": chunk_id, "text": piece, "url": name, "document_id": name}
            fields |= {"document_title": title[:500]} | ({"section_heading": heading} if heading else {})
            chunks[chunk_id] = json.dumps({**fields, "position": position}, ensure_ascii=False).encode()
    return chunks, [f"{name} was not read: {reason}" for name, reason in source.unread]


def cut_text(text: str, *, is_markdown: bool) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each chunk; chunks cover the whole text, unchanged and without overlap.

    A heading of Markdown begins a chunk. A section that is too long is cut after a paragraph, else after a sentence,
    else between words.
    """
    sections, fence = [(0, "")], ""
    for found in _FENCE_OR_HEADING.finditer(text) if is_markdown else ():
        if (mark := found["fence"]) is None and not fence:
            sections.append((found.start(), found["title"].strip().rstrip("#").strip()))
        elif mark and (not fence or mark.startswith(fence)):
            fence = "" if fence else mark
    for (begin, heading), (end, _) in zip(sections, [*sections[1:], (len(text), "")], strict=True):
        for piece in _cut_section(text[begin:end]):
            yield heading, piece


def _cut_section(text: str) -> Iterator[str]:
    units = [found.end() for found in _UNIT.finditer(text)]
    breaks = (
        [found.end() for found in _PARAGRAPH.finditer(text)],
        [end for _, end in split_sentences(text)],
        [found.end() for found in _SPACE.finditer(text)],
    )
    begin = 0
    while begin < len(text):
        last = bisect_right(units, begin) + MAX_UNITS - 1
        end = limit = units[last] if last + 1 < len(units) else len(text)
        if limit < len(text):
            near = ((places, bisect_right(places, limit)) for places in breaks)
            ends = (places[at - 1] for places, at in near if at)
            end = next((place for place in ends if place > (begin + limit) // 2), limit)
        if _WORD.search(piece := text[begin:end].strip()):
            yield piece
        begin = end


def _read_lines(source: Path) -> Iterator[tuple[int, bytes]]:
    # As bytes, so that only \n ends a line and invalid UTF-8 is reported with its line.
    with source.open("rb") as file:
        for number, line in enumerate(read_lines(file, source.name), 1):
            if number == 1 and line.startswith(b"["):
                raise errors.InvalidParameterError(f"{source.name} is a JSON array: write each object on a line")
            if line.strip():
                yield number, line


def _parse_line(line: bytes, is_beir: bool) -> ChunkRecord:
    document = read_json(line, LINE)
    if not isinstance(document, dict):
        return ChunkRecord.parse(document, subject=LINE)
    try:
        return ChunkRecord.parse(_name_fields(document, is_beir), subject=LINE)
    except errors.InvalidParameterError as error:
        others = sorted(document.keys() - {*ChunkRecord.model_fields, *ChunkRecord.aliases})
        has = f", and the line has {', '.join(map(display_name, others))}" * bool(others)
        raise errors.InvalidParameterError(*(m + has * m.endswith(" is required") for m in error.messages)) from None


def _name_fields(document: dict[str, Any], is_beir: bool) -> dict[str, Any]:
    """Name the fields of BEIR, of profile `nested` and of other tools as `load` does; the text stays unchanged."""
    is_beir, metadata = is_beir and "_id" in document, document.get("metadata")
    if is_beir or ("chunk_text" in document and isinstance(metadata, dict)):
        left_out = ("metadata", *(("_id", "title") if is_beir else ("similarity_score", "rank")))
        named = {"chunk_id": document["_id"], "document_title": document.get("title") or None} if is_beir else {}
        rest = {name: value for name, value in document.items() if name not in left_out}
        return {**(metadata if isinstance(metadata, dict) else {}), **named, **rest}
    for name, exported in (("chunk_id", "id"), ("text", AS_STORED.path_in("text", document))):
        if exported in document and name not in {*document, *map(ChunkRecord.aliases.get, document)}:
            document[name] = document.pop(exported)
    return document


def write_chunks(path: Path, chunks: Iterator[dict[str, Any]]) -> None:
    """Write the chunks to a `chunks.jsonl`."""
    with replace_file(path) as file:
        file.writelines(json.dumps(chunk, ensure_ascii=False).encode() + b"\n" for chunk in chunks)


WRITE_BATCH = 256
CALL_MS = 60_000

Advance = Callable[[int], None]


class TooLong(StrEnum):
    """What to do with a text that is longer than the model reads."""

    REFUSE = "refuse"
    TRUNCATE = "truncate"
    SKIP = "skip"


@dataclass
class Loader:
    """Embeds chunks and writes them. Chunks with the same id are replaced: a second run changes nothing.

    `too_long` lists the chunks that were truncated or skipped. The text of a truncated chunk is stored whole; only
    its beginning is embedded. With `hybrid`, a new collection can be searched by words too. One that can already needs
    no `hybrid`.
    """

    store: WritableStore
    embedder: Embedder
    collection: str
    vector_name: str | None
    if_too_long: TooLong = TooLong.REFUSE
    setting: str = "CHUNKPROOF_MODEL"
    hybrid: bool = False
    too_long: dict[str, None] = field(init=False, default_factory=dict)

    def load(self, records: Iterable[ChunkRecord], advance: Advance = lambda _count: None) -> None:
        """Embed everything, then write everything; `advance` is called for each batch of both steps."""
        self._check_collection()
        with TemporaryFile() as spool:
            size = self._embed(records, spool, advance)
            self._write(records, spool, size, advance)

    def _embed(self, records: Iterable[ChunkRecord], spool: IO[bytes], advance: Advance) -> int:
        """Spool one 32-bit vector per chunk and return their size. A failure leaves the collection unchanged."""
        size = 0
        for batch in in_batches(records, self.embedder.max_batch):
            texts = [(record.chunk_id, fit) for record in batch if (fit := self._fit(record)) is not None]
            for vector in self._embed_texts(texts):
                size = len(vector)
                spool.write(array("f", vector).tobytes())
            advance(len(batch))
        if not size:
            raise errors.InvalidParameterError(f"Every text is longer than {self.embedder.model} reads: use --truncate")
        return size

    def _embed_texts(self, texts: Sequence[tuple[str, str]]) -> Iterator[Vector]:
        """Yield a vector for each id and text. A service counts tokens only when it is called, and may refuse some."""

        def embed(batch: Sequence[tuple[str, str]]) -> Sequence[Vector]:
            vectors = self.embedder.embed([text for _, text in batch], InputType.DOCUMENT, Deadline(CALL_MS))
            return check_embeddings(vectors, len(batch))

        return call_in_batches(embed, texts, self.embedder.max_batch, errors.QueryTooLongError, self._embed_refused)

    def _embed_refused(self, refused: tuple[str, str]) -> Iterator[Vector]:
        chunk_id, text = refused
        if self.if_too_long is TooLong.REFUSE:
            raise errors.InvalidParameterError(
                f"The text of chunk {chunk_id} is longer than {self.embedder.model} reads", USE_FLAGS
            )
        self.too_long[chunk_id] = None
        shorter = [(chunk_id, text[: len(text) * 3 // 4])] if self.if_too_long is TooLong.TRUNCATE else []
        return self._embed_texts(shorter)

    def _fit(self, record: ChunkRecord) -> str | None:
        """Return the text to embed, shortened if the embedder can count its tokens; None to skip it."""
        text = record.text
        if self.if_too_long is TooLong.REFUSE or not self.embedder.excess(text):
            return text
        self.too_long[record.chunk_id] = None
        if self.if_too_long is TooLong.SKIP:
            return None
        fits, excess = 0, len(text)
        while excess - fits > 1:
            middle = (fits + excess) // 2
            fits, excess = (fits, middle) if self.embedder.excess(text[:middle]) else (middle, excess)
        return text[:fits]

    def _write(self, records: Iterable[ChunkRecord], spool: IO[bytes], size: int, advance: Advance) -> None:
        """Write the chunks with their spooled vectors; create the collection if it does not exist."""
        vector_name = self._prepare_collection(size)
        text_vector = self._find_text_vector()
        spool.seek(0)
        skipped = self.too_long if self.if_too_long is TooLong.SKIP else {}
        for batch in in_batches((record for record in records if record.chunk_id not in skipped), WRITE_BATCH):
            points = [
                Point(
                    id=record.point_id,
                    payload=record.to_payload(self.embedder.model),
                    vector=tuple(array("f", spool.read(4 * size))),
                )
                for record in batch
            ]
            self.store.upsert(self.collection, points, vector_name, Deadline(CALL_MS), text_vector=text_vector)
            advance(len(batch))

    def _check_collection(self) -> None:
        """Refuse a collection that cannot store these vectors, before any work is done."""
        if is_invalid_collection_name(self.collection):
            raise errors.InvalidParameterError(f"--collection {self.collection}: not a valid collection name")
        if self.hybrid:
            features = self.store.features(Deadline(CALL_MS))
            if not (features.bm25 or features.text_index):
                raise errors.InvalidParameterError(f"--hybrid: {explain_missing_bm25(features)}")
        if self.embedder.dimension is not None and self._find_vector(self.embedder.dimension) is not None:
            self._find_text_vector()

    def _prepare_collection(self, size: int) -> str:
        name = self._find_vector(size)
        if name is None:
            try:
                self.store.create(self.collection, size, Deadline(CALL_MS), text_search=self.hybrid)
            except errors.VectorStoreUnavailableError:
                name = self._find_vector(size)
                if name is None:  # otherwise another load created it at the same moment
                    raise
        return name or ""

    def _find_text_vector(self) -> str | None:
        """Return the sparse vector to fill with the words of each text, if the collection has one."""
        description = self.store.describe(self.collection, Deadline(CALL_MS))
        if not self.hybrid and "idf" not in description.sparse_vectors.values():
            return None
        try:
            leg = choose_text_leg(description, self.store.features(Deadline(CALL_MS)), ["text"])
        except errors.TextIndexRequiredError:
            if self.hybrid:
                raise errors.InvalidParameterError(
                    f"--hybrid: collection {self.collection} exists and cannot be searched by words; "
                    "load into a new one with --collection"
                ) from None
            return None
        return leg.sparse_vector

    def _find_vector(self, size: int) -> str | None:
        """Return the name of the vector to write; None when the collection does not exist yet."""
        try:
            description = self.store.describe(self.collection, Deadline(CALL_MS))
        except errors.CollectionNotFoundError:
            return None
        config = choose_vector(description.vectors, self.vector_name, self.collection)
        if config.size != size:
            setting = f"--collection to another one, or {self.setting}"
            raise errors.EmbeddingSizeError(self.embedder.model, size, self.collection, config.size, setting)
        return config.name
