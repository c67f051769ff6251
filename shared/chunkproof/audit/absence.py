"""Check that texts, chunks and documents are stored nowhere any more: in no collection, under no id, in no form.

Each collection is read whole: every value and every name in every payload is compared as it is stored, then decoded
(`DECODERS`), then as a reader sees it, without comments, link targets and markup. Then the sentences of what was
deleted are searched for, as a user would find them. A report names what was deleted by id, URL, hash and length: it
never repeats the text.
"""

import html
import quopri
import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, unquote_plus

from pydantic import Field

from chunkproof.audit.locate import Letters, PassageIndex, SourceDocument, find_hidden
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.words import split_sentences
from chunkproof.collection.lookup import parse_point_id, point_id_for
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import Reader, in_batches
from chunkproof.contract import Model
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.integrity import digest
from chunkproof.proof.near_text import shingles, similarity
from chunkproof.proof.vector_judge import SAME
from chunkproof.stores.store_port import DenseLeg, Point, PointId, StoreQuery

OUT_OF_REACH = (
    "snapshots and backups of the server",
    "replicas that did not answer: each read is answered by one",
    "deleted points that the server has not yet removed from its disk",
    "collections and servers that this key cannot see",
    "copies outside of the vector store: sources, caches, logs, manifests and reports",
)
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
# A value may be encoded several times over.
MAX_DECODED = 3
# Longer names of fields are not repeated in a report: they may be texts.
LONGEST_FIELD = 80
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(["\\/bfnrt]))')
_TAG = re.compile(r"<[^<>]*>")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")


def _unescape(text: str) -> str:
    """Decode the escapes of JSON strings, wherever they are."""

    def decode(escape: re.Match[str]) -> str:
        code = escape[1] or escape[2]
        return chr(int(code, 16)) if code else {"n": "\n", "r": "\n", "t": "\t"}.get(escape[3], escape[3].strip("bf"))

    return _ESCAPE.sub(decode, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decode_base64(text: str) -> str:
    if not _BASE64.fullmatch(packed := "".join(text.split())):
        return text
    packed = packed.translate({45: 43, 95: 47}).rstrip("=")
    try:
        return b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except ValueError:
        return text


# Name, a character without which nothing is encoded, and what decodes it.
DECODERS: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("JSON escapes", "\\", _unescape),
    ("entities", "&", html.unescape),
    ("URL encoding", "%", unquote_plus),
    ("quoted-printable", "=", lambda text: quopri.decodestring(text.encode()).decode("utf-8", "replace")),
    ("Base64", "", _decode_base64),
    ("markup", "<", lambda text: _TAG.sub("", text)),
)
FORMS = (
    "as stored: texts, names of fields, numbers, items of lists, comments and link targets",
    f"decoded: {', '.join(name for name, _, _ in DECODERS[:-1])}",
    "as a reader sees it: without markup, comments and link targets, case, accents, spaces and punctuation",
)


class How(StrEnum):
    """How something deleted was found."""

    ID = "id"
    URL = "url"
    EXACT_TEXT = "exact text"
    NEAR_TEXT = "near-duplicate text"
    PASSAGE = "passage"
    VECTOR = "vector"


# Hits of these kinds include the vector and the parts of the text.
SAME_TEXT = (How.EXACT_TEXT, How.NEAR_TEXT)


class Hit(Model):
    """Something deleted that is still stored."""

    how: How
    collection: str
    point_id: int | str
    field: str | None = Field(None, description="The payload field, where it was found in one")
    details: str


class SubjectResult(Model):
    """One chunk, text or URL that must be gone."""

    name: str = Field(description="Its id, URL, or the hash of the text")
    kind: Literal["chunk", "text", "url"]
    sha256: str | None
    characters: int | None
    hits: tuple[Hit, ...]


class CollectionCheck(Model):
    """One collection that was read."""

    name: str
    aliases: tuple[str, ...]
    points: int
    read: int = Field(description="Points that were read and compared")
    searches: int = Field(description="Sentences that were searched for")
    not_checked: tuple[str, ...] = Field(description="What could not be checked, and why")


class AbsenceReport(Model):
    """Whether everything that was deleted is gone."""

    report: Literal["absence"] = "absence"
    checked_at: datetime
    host: str
    subjects_total: int
    found: int = Field(description="Subjects that are still stored")
    hits_total: int
    subjects: tuple[SubjectResult, ...] = Field(description="Those that are still stored first")
    collections: tuple[CollectionCheck, ...]
    checks: tuple[str, ...] = Field(description="What was compared")
    not_checked: tuple[str, ...] = Field(description="What could not be checked, though it should have been")
    out_of_reach: tuple[str, ...] = Field(description="What no check of this kind can see")
    seconds: float

    @property
    def verdict(self) -> str:
        """The line that explains the exit code."""
        where = f"{len(self.collections):,} collections ({sum(one.read for one in self.collections):,} points)"
        if self.found:
            return f"FOUND: {self.found:,} of {self.subjects_total:,} are still stored, {self.hits_total:,} times."
        if self.not_checked:
            return f"NOT PROVED: nothing was found in {where}, but {len(self.not_checked):,} checks could not be made."
        return f"ABSENT: none of {self.subjects_total:,} is stored in {where}."


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
        self._by_id: dict[str, list[int]] = defaultdict(list)
        self._urls: list[tuple[str, re.Pattern[str], int]] = []
        self._by_hash: dict[str, list[int]] = defaultdict(list)
        for number, subject in enumerate(self.subjects):
            if subject.kind == "chunk":
                self._by_id[subject.name].append(number)
            elif subject.kind == "url":
                self._urls.append((*_url_pattern(subject.name), number))
            if subject.sha256:
                self._by_hash[subject.sha256].append(number)
        self._documents = [
            SourceDocument(str(number), subject.text, whole=whole)
            for number, subject in enumerate(self.subjects)
            if subject.text
            for whole in ((False, True) if find_hidden(subject.text) else (True,))
        ]
        if sum(len(document.text) for document in self._documents) > MAX_CHARS:
            raise InvalidParameterError(f"More than {MAX_CHARS:,} characters to look for: check them in parts")
        short = [document for document in self._documents if len(document.letters.text) < SHORT_LETTERS]
        for document in short:
            if len(document.letters.text) < LEAST_SUBJECT_LETTERS:
                raise InvalidParameterError("A text to look for must have at least three letters or digits")
        if len(short) > MAX_SHORT_TEXTS:
            raise InvalidParameterError(f"More than {MAX_SHORT_TEXTS:,} texts have few letters: check them in parts")
        self._short = [(document.letters.text, int(document.name)) for document in short]
        self._index = PassageIndex(self._documents)
        self._shingles: dict[int, set[int]] = {}

    @property
    def without_text(self) -> int:
        """Subjects of which only a hash or an id is known: only equal texts can be found."""
        return sum(subject.kind == "chunk" and not subject.text for subject in self.subjects)

    def check(
        self, reader: Reader, aliases: Iterable[str], done: Callable[[int], None] = lambda _points: None
    ) -> CollectionCheck:
        """Read a collection whole, fetch its points by id, and search it."""
        problems, read, searches, points = list[str](), 0, 0, 0
        try:
            points = reader.describe().points_count
            for page in reader.pages():
                for point in page.points:
                    self._compare(point, reader)
                read += len(page.points)
                done(len(page.points))
            problems += [reader.change_note] if reader.change_note else []
            self._fetch(reader)
        except ChunkproofError as error:
            problems.append(f"{reader.name} could not be read: {error}")
        else:
            try:
                searches = self._search(reader)
            except ChunkproofError as error:
                problems.append(f"{reader.name} could not be searched: {error}")
        return CollectionCheck(
            name=reader.name,
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
        payloads, here = reader.services.payloads, _Where(reader.name, point.id)
        for number in {*self._by_id.get(payloads.id_of(point), ()), *self._by_id.get(str(point.id), ())}:
            self._add_id(number, point, reader)
        for name in ("url", "document_id") if self._urls else ():
            value = payloads.value(name, point.payload)
            if isinstance(value, str):
                self._compare_url(value, here._replace(field=name), "A point is of this document")
        for path, value in _read_values(point, payloads):
            where = here._replace(field=self._name_field(path))
            for form, text in _read_forms(value):
                self._compare_text(text, where, form)

    def _name_field(self, path: str) -> str:
        """Return the path of a value, unless its names may be what must be gone."""
        letters = Letters.of(path).text
        is_shown = len(path) <= LONGEST_FIELD and not any(short in letters for short, _ in self._short)
        return path if is_shown else "(a field whose name is not repeated here)"

    def _compare_url(self, text: str, where: "_Where", details: str) -> None:
        lower = text.lower()
        for part, pattern, number in self._urls:
            if part in lower and pattern.search(text):
                self._add(number, How.URL, where, details)

    def _compare_text(self, text: str, where: "_Where", form: str) -> None:
        self._compare_url(text, where, "A value names this document")
        for number in self._by_hash.get(digest(text), ()):
            self._add(number, How.EXACT_TEXT, where, f"The same text, {form or 'byte for byte'}")
        if not self._documents:
            return
        for whole in (True, False) if find_hidden(text) else (True,):
            self._compare_letters(text, Letters.of(text, whole=whole).text, where)

    def _compare_letters(self, text: str, letters: str, where: "_Where") -> None:
        for short, number in self._short:
            if short in letters:
                self._add(number, How.PASSAGE, where, "The text is in it")
        common: dict[int, int] = {}
        for place in self._index.find_passages(letters):
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
            for point_id, point in reader.read_points(batch).items():
                subject = self.subjects[wanted[point_id]]
                if str(point_id) == subject.name or subject.point_id == point_id:
                    self._add_id(wanted[point_id], point, reader)

    def _add_id(self, number: int, point: Point, reader: Reader) -> None:
        """Count a point with a deleted id; a number is used again in every collection, so its text must fit as well."""
        subject, text = self.subjects[number], reader.services.payloads.find_text(point)
        is_same = not subject.sha256 or text is None or digest(text) == subject.sha256
        if subject.name.isdecimal() and not is_same:
            return
        details = "A point has this id" + ("" if is_same else ", with another text")
        self._add(number, How.ID, _Where(reader.name, point.id), details)

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
        config, embedder, searched = reader.vector, reader.require_embedder(), 0
        for number, part in queries:
            # A stored vector is that of a document; a user searches with a question.
            [vector] = reader.embed(
                [part], InputType.DOCUMENT if part == self.subjects[number].text else InputType.QUERY
            )
            if vector is None:
                continue  # too long; its sentences are searched for
            if len(vector) != config.size:
                raise InvalidParameterError(
                    f"{embedder.model} makes {len(vector)} values, the collection has {config.size}; name its model "
                    "with CHUNKPROOF_MODELS"
                )
            [points] = reader.search([StoreQuery(reader.name, TOP_K, dense=DenseLeg(config, vector))])
            for point in points:
                self._compare(point, reader)
                if point.score >= SAME and part == self.subjects[number].text:
                    details = f"A point has its vector (cosine {point.score:.4f})"
                    self._add(number, How.VECTOR, _Where(reader.name, point.id), details)
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
    parts = [text[begin:end] for begin, end in split_sentences(text)]
    long = sorted({part for part in parts if len(part) >= SENTENCE_CHARS}, key=len, reverse=True)[:SENTENCES]
    return list(dict.fromkeys([text, *(part for part in parts if part in long)]))


def _url_pattern(url: str) -> tuple[str, re.Pattern[str]]:
    """Return what a value must have in lower case, and a pattern of the document's URL.

    Scheme, `www.`, port, fragment and query do not matter, unless the URL has a query itself. What is no URL or path,
    such as a document's id, must be the whole value.
    """
    address = re.sub(r"^\w+://(?:www\.)?", "", url.strip().partition("#")[0]).rstrip("/")
    host, slash, path = unquote(address).partition("/")
    if not slash and "." not in host:
        return address.lower(), re.compile(rf"\s*{re.escape(address)}\s*\Z")
    host = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    core = rf"(?i:{re.escape(host)})(?::\d+)?{re.escape(slash + path)}"
    return host.lower(), re.compile(rf"(?<![\w.-])(?:www\.)?{core}/?(?:index\.html?)?(?![\w/%~.-]*[\w/%~-])")


def _read_forms(value: str) -> Iterator[tuple[str, str]]:
    """Yield a value as it is stored, and each form that it can be decoded to, with how it was encoded."""
    forms = {value: ""}
    yield "", value
    latest = [value]
    for _ in range(MAX_DECODED):
        decoded = {}
        for text in latest:
            for name, sign, decode in DECODERS:
                if sign in text and (form := decode(text)) not in forms:
                    decoded[form] = forms[form] = f"{forms[text]}, {name}".removeprefix(", ")
        for form, how in decoded.items():
            yield f"decoded from {how}", form
        latest = list(decoded)


def _read_values(point: Point, payloads: PayloadMap) -> Iterator[tuple[str, str]]:
    """Yield the text of a chunk, which may be inside a JSON string, and all names and values with their paths."""
    text = payloads.find_text(point)
    if text is not None:
        yield "text", text
    stack: list[tuple[str, Any]] = [("", point.payload)]
    while stack:
        path, each = stack.pop()
        if isinstance(each, str):
            if each and each != text:
                yield path, each
        elif isinstance(each, Mapping):
            stack += [(f"{path}.{key}" if path else str(key), inner) for key, inner in each.items()]
            yield f"names of fields in {path or 'the payload'}", "\n".join(map(str, each))
        elif isinstance(each, list | tuple):
            stack += [(f"{path}[]", inner) for inner in each]
            if len(each) > 1 and all(isinstance(item, str | int | float) for item in each):
                yield f"{path}[]", " ".join(map(str, each))
        elif isinstance(each, int | float) and not isinstance(each, bool):
            yield path, f"{each:.0f}" if isinstance(each, float) and each.is_integer() else str(each)
