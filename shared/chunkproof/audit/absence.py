"""Check that texts, chunks and documents are stored nowhere any more: in no collection, under no id, in no form.

Each collection is read whole: every string of every payload is compared, not only the text of the chunk. Then the
sentences of what was deleted are searched for, as a user would find them. A report names what was deleted by id,
URL, hash and length: it never repeats the text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from chunkproof.audit.absence_report import SAME_TEXT, CollectionCheck, Hit, How, SubjectResult
from chunkproof.audit.locate import Document, Index, Letters
from chunkproof.audit.reader import CALL_MS, Reader, in_batches
from chunkproof.clients.ports import DenseLeg, InputType, Point, PointId, StoreQuery
from chunkproof.deadline import Deadline
from chunkproof.errors import ChunkproofError, CorruptChunkError, InvalidParameterError, QueryTooLongError
from chunkproof.retrieval.embedding import check_embeddings
from chunkproof.retrieval.integrity import digest
from chunkproof.retrieval.lookup import parse_point_id, point_id_for
from chunkproof.retrieval.near_text import shingles, similarity
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.retrieval.services import choose_vector
from chunkproof.retrieval.vectors import SAME

# Two texts are near duplicates from this share of word sequences in common on.
NEAR = 0.8
# A passage in common is a part of the text, and no idiom, from so many letters on, or if it is most of either text.
PASSAGE_LETTERS, LEAST_LETTERS, PASSAGE_SHARE = 100, 40, 0.5
# Shorter texts, such as a name, are looked for as they are.
SHORT_LETTERS = 24
LEAST_SUBJECT_LETTERS = 3
MAX_SHORT_TEXTS = 1_000
MAX_CHARS = 50_000_000
# Sentences of one text that are searched for, besides the whole of it, and results that are read.
SENTENCES, SENTENCE_CHARS, TOP_K = 4, 30, 10
MAX_HITS = 1_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n{2,}")


@dataclass(frozen=True)
class Subject:
    """What must be gone: a chunk of a manifest, a text, or a document's URL."""

    name: str
    kind: Literal["chunk", "text", "url"]
    text: str | None = None
    sha256: str | None = None
    point_id: PointId | None = None


@dataclass
class Search:
    """Looks for all subjects in one collection after the other."""

    subjects: Sequence[Subject]
    max_searches: int = 500
    hits: dict[int, list[Hit]] = field(default_factory=dict)
    hits_total: int = 0

    def __post_init__(self) -> None:
        self._by_id = _group((s.name, n) for n, s in enumerate(self.subjects) if s.kind == "chunk")
        self._by_url = _group((_plain_url(s.name), n) for n, s in enumerate(self.subjects) if s.kind == "url")
        self._by_hash = _group((s.sha256, n) for n, s in enumerate(self.subjects) if s.sha256)
        self._documents = [Document(str(n), s.text) for n, s in enumerate(self.subjects) if s.text]
        if sum(len(document.text) for document in self._documents) > MAX_CHARS:
            raise InvalidParameterError(f"More than {MAX_CHARS:,} characters to look for: check them in parts")
        short = [document for document in self._documents if len(document.letters.text) < SHORT_LETTERS]
        for document in short:
            if len(document.letters.text) < LEAST_SUBJECT_LETTERS:
                raise InvalidParameterError("A text to look for must have at least three letters or digits")
        if len(short) > MAX_SHORT_TEXTS:
            raise InvalidParameterError(f"More than {MAX_SHORT_TEXTS:,} texts have few letters: check them in parts")
        self._short = [(document.letters.text, int(document.name)) for document in short]
        self._index = Index(self._documents)
        self._shingles: dict[int, set[int]] = {}

    @property
    def without_text(self) -> int:
        """Subjects of which only a hash or an id is known: only equal texts can be found."""
        return sum(subject.kind == "chunk" and not subject.text for subject in self.subjects)

    def check(
        self, reader: Reader, aliases: Iterable[str], done: Callable[[int], None] = lambda _points: None
    ) -> CollectionCheck:
        """Read a collection whole, fetch its points by id, and search it."""
        collection, problems = reader.collection, list[str]()
        read = searches = points = 0
        try:
            points = reader.services.store.describe(collection, Deadline(CALL_MS)).points_count
            for page in reader.pages(None):
                for point in page.points:
                    self._compare(point, reader)
                read += len(page.points)
                done(len(page.points))
            self._fetch(reader)
        except ChunkproofError as error:
            problems.append(f"{collection} could not be read: {error}")
        else:
            try:
                searches = self._search(reader)
            except ChunkproofError as error:
                problems.append(f"{collection} could not be searched: {error}")
        return CollectionCheck(
            name=collection,
            aliases=tuple(sorted(aliases)),
            points=points,
            read=read,
            searches=searches,
            not_checked=tuple(problems),
        )

    def results(self) -> tuple[SubjectResult, ...]:
        """Return what was found for each subject, those that were found first."""
        found = [
            SubjectResult(
                name=subject.name,
                kind=subject.kind,
                sha256=subject.sha256,
                characters=None if subject.text is None else len(subject.text),
                hits=tuple(self.hits.get(number, ())),
            )
            for number, subject in enumerate(self.subjects)
        ]
        return tuple(sorted(found, key=lambda one: not one.hits))

    def _compare(self, point: Point, reader: Reader) -> None:
        payloads, here = reader.services.payloads, _Where(reader.collection, point.id)
        for number in {*self._by_id.get(payloads.id_of(point), ()), *self._by_id.get(str(point.id), ())}:
            self._add_id(number, point, reader)
        for path, value in _source_values(point.payload, payloads) if self._by_url else ():
            for number in self._by_url.get(_plain_url(value), ()):
                self._add(number, How.URL, here._replace(field=path), "A point is of this document")
        for path, text in _read_strings(point, payloads):
            self._compare_text(text, here._replace(field=path))

    def _compare_text(self, text: str, where: "_Where") -> None:
        for number in self._by_hash.get(digest(text), ()):
            self._add(number, How.EXACT_TEXT, where, "The same text, byte for byte")
        if not self._documents:
            return
        letters = Letters.of(text).text
        for short, number in self._short:
            if short in letters:
                self._add(number, How.PASSAGE, where, "The text is in it")
        common: dict[int, int] = {}
        for place in self._index.find_passages(text):
            number = int(place.document.name)
            common[number] = common.get(number, 0) + place.end - place.start
        for number, letters_in_common in common.items():
            self._judge_passage(number, letters_in_common, text, len(letters), where)

    def _judge_passage(self, number: int, common: int, text: str, length: int, where: "_Where") -> None:
        subject = self.subjects[number].text or ""
        whole = sum(char.isalnum() for char in subject)
        is_part = common >= min(PASSAGE_LETTERS, whole)
        is_most = common >= LEAST_LETTERS and common >= PASSAGE_SHARE * min(whole, length)
        if not (is_part or is_most):
            return
        nearness = similarity(self._shingles.setdefault(number, shingles(subject)), shingles(text))
        if nearness >= NEAR:
            self._add(number, How.NEAR_TEXT, where, f"{nearness:.0%} in common")
        else:
            self._add(number, How.PASSAGE, where, f"{min(1.0, common / max(whole, 1)):.0%} of its letters")

    def _fetch(self, reader: Reader) -> None:
        """Ask for the points of deleted chunks by id, which is another way than reading all."""
        wanted: dict[PointId, int] = {}
        for number, subject in enumerate(self.subjects):
            if subject.kind == "chunk":
                own = subject.point_id if subject.point_id is not None else point_id_for(subject.name)
                for point_id in (own, parse_point_id(subject.name)):
                    if point_id is not None:
                        wanted[point_id] = number
        for batch in in_batches(wanted):
            for point_id, point in reader.fetch(batch).items():
                subject = self.subjects[wanted[point_id]]
                if str(point_id) == subject.name or subject.point_id == point_id:
                    self._add_id(wanted[point_id], point, reader)

    def _add_id(self, number: int, point: Point, reader: Reader) -> None:
        """Count a point with a deleted id; a number is used again in every collection, so its text must fit as well."""
        subject, text = self.subjects[number], None
        with suppress(CorruptChunkError):
            text = reader.services.payloads.text_of(point)
        is_same = not subject.sha256 or text is None or digest(text) == subject.sha256
        if subject.name.isdecimal() and not is_same:
            return
        details = "A point has this id" + ("" if is_same else ", with another text")
        self._add(number, How.ID, _Where(reader.collection, point.id), details)

    def _search(self, reader: Reader) -> int:
        """Search for each text and its sentences; a result that is the text, or has its vector, is a hit."""
        queries = [
            (number, part)
            for number, subject in enumerate(self.subjects)
            if subject.text
            for part in choose_sentences(subject.text)
        ][: self.max_searches]
        if not queries:
            return 0
        services, collection = reader.services, reader.collection
        description = services.store.describe(collection, Deadline(CALL_MS))
        config = choose_vector(description.vectors, services.settings.vector_name, collection)
        embedder = services.require_embedder(collection)
        searched = 0
        for number, part in queries:
            try:
                # A stored vector is that of a document; a user searches with a question.
                kind = InputType.DOCUMENT if part == self.subjects[number].text else InputType.QUERY
                embedded = embedder.embed([part], kind, Deadline(CALL_MS))
            except (QueryTooLongError, InvalidParameterError):
                continue  # its sentences are searched for
            vector = check_embeddings(embedded, 1)[0]
            if len(vector) != config.size:
                raise InvalidParameterError(
                    f"{embedder.model} makes {len(vector)} values, the collection has {config.size}; name its model "
                    "with CHUNKPROOF_MODELS"
                )
            query = StoreQuery(collection, TOP_K, dense=DenseLeg(config, vector))
            for point in reader.retry(lambda each: services.store.search([each], Deadline(CALL_MS))[0], query):
                self._compare(point, reader)
                if point.score >= SAME and part == self.subjects[number].text:
                    details = f"A point has its vector (cosine {point.score:.4f})"
                    self._add(number, How.VECTOR, _Where(collection, point.id), details)
            searched += 1
        return searched

    def _add(self, number: int, how: How, where: "_Where", details: str) -> None:
        found = self.hits.setdefault(number, [])
        known = [hit for hit in found if (hit.collection, hit.point_id) == where[:2]]
        if any(hit.how is how for hit in known):
            return
        if how in (How.VECTOR, How.PASSAGE, How.NEAR_TEXT) and any(hit.how in SAME_TEXT for hit in known):
            return  # it is the vector, or a part, of a text that was found already
        self.hits_total += 1
        if len(found) < MAX_HITS:
            at = where._asdict()
            found.append(Hit(how=how, details=details, **at))


class _Where(NamedTuple):
    """Where a hit is."""

    collection: str
    point_id: PointId
    field: str | None = None


def choose_sentences(text: str) -> list[str]:
    """Return the text and its longest sentences, in order, to search for."""
    parts = [part.strip() for part in _SENTENCE.split(text)]
    long = sorted({part for part in parts if len(part) >= SENTENCE_CHARS}, key=len, reverse=True)[:SENTENCES]
    return list(dict.fromkeys([text, *(part for part in parts if part in long)]))


def _group(pairs: Iterable[tuple[Any, int]]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for key, number in pairs:
        grouped.setdefault(key, []).append(number)
    return grouped


def _plain_url(url: str) -> str:
    """Return a URL without what names a part of the same document."""
    return url.strip().partition("#")[0].rstrip("/")


def _source_values(payload: Mapping[str, Any], payloads: PayloadMap) -> Iterator[tuple[str, str]]:
    for name in ("url", "document_id"):
        value = payloads.value(name, payload)
        if isinstance(value, str):
            yield name, value


def _read_strings(point: Point, payloads: PayloadMap) -> Iterator[tuple[str, str]]:
    """Yield the text of a chunk, which may be inside a JSON string, and every string of its payload with its path."""
    text = None
    with suppress(CorruptChunkError):
        text = payloads.text_of(point)
        yield "text", text
    stack: list[tuple[str, Any]] = [("", point.payload)]
    while stack:
        path, each = stack.pop()
        if isinstance(each, str):
            if each and each != text:
                yield path, each
        elif isinstance(each, Mapping):
            stack += [(f"{path}.{key}" if path else str(key), inner) for key, inner in each.items()]
        elif isinstance(each, list | tuple):
            stack += [(f"{path}[]", inner) for inner in each]
