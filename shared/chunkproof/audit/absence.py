"""Check that texts, chunks and documents are stored nowhere any more: in no collection, under no id, in no form.

Each collection is read whole, and every reading of every value (`readings.py`) is compared with what was deleted. Then
the sentences of what was deleted are searched for, as a user would find them. A report names what was deleted by id,
URL, hash and length: it never repeats the text.
"""

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import accumulate, compress
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from pydantic import Field

from chunkproof.audit.locate import Letters, PassageIndex, SourceDocument, find_hidden, fold_letters
from chunkproof.audit.readings import (
    BETWEEN,
    LINE_BREAKS,
    MARKUP,
    PART,
    SEVERAL_FIELDS,
    WORD,
    plain_address,
    read_forms,
    read_values,
)
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.words import is_unspaced, split_sentences
from chunkproof.collection.lookup import parse_point_id
from chunkproof.collection.payload_map import PayloadMap
from chunkproof.collection.reader import Reader
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
    "names of collections, aliases, vectors and payload indexes",
    "copies outside of the vector store: sources, caches, logs, manifests and reports",
    "texts that are encrypted, hashed, translated, transliterated, reworded, drawn or in encodings that are not listed",
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
# Texts of so many letters are looked for in up to so many fields; together up to so many, also reversed and in ROT13.
PARTS_LETTERS, MAX_PARTS, MAX_TURNED, LEAST_TURNED = 200, 12, 1_000_000, 8
# Sentences of one text that are searched for, besides the whole of it, and results that are read.
SENTENCES, SENTENCE_CHARS, TOP_K = 4, 30, 10
MAX_HITS = 1_000
# Ids from so many characters on, with a digit, are looked for inside of values, too.
LONG_ID = 8
# Longer names of fields are not repeated in a report: they may be texts.
LONGEST_FIELD = 80


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
        self._by_id, self._by_hash, self._long_ids = (defaultdict[str, list[int]](list) for _ in range(3))
        self._urls: list[tuple[_UrlPattern, int]] = []
        for number, subject in enumerate(self.subjects):
            if subject.kind == "chunk":
                for each in {subject.name, str(subject.point_id), str(parse_point_id(subject.name))} - {"None"}:
                    self._by_id[each].append(number)
                    if len(each) >= LONG_ID and any(map(str.isdigit, each)) and not each.isdecimal():
                        self._long_ids[fold_letters(each)].append(number)
            elif subject.kind == "url":
                self._urls.append((_UrlPattern(subject.name), number))
            if subject.sha256:
                self._by_hash[subject.sha256].append(number)
        self._documents = [
            SourceDocument(str(number), subject.text, whole=whole)
            for number, subject in enumerate(self.subjects)
            if subject.text
            for whole in ((False, True) if find_hidden(subject.text) else (True,))
        ]
        plain = [(each.name, each.text) for each in self._documents]
        is_turned = sum(len(text) for _, text in plain) <= MAX_TURNED
        # The last word of a name may come first.
        turned = [
            (name, re.sub(r"\A(.+) (\S+)\Z", r"\2 \1", text)) for name, text in plain if len(text) < 2 * SHORT_LETTERS
        ]
        turned += [(name, MARKUP.sub("", text)) for name, text in plain if "<" in text]
        for name, text in plain if is_turned else ():
            if len(fold_letters(text)) >= LEAST_TURNED:
                turned += [(name, text[::-1]), (name, codecs.encode(text, "rot13"))]
        self._documents += [
            SourceDocument(name, text, whole=True) for name, text in turned if (name, text) not in plain
        ]
        if sum(len(document.text) for document in self._documents) > MAX_CHARS:
            raise InvalidParameterError(f"More than {MAX_CHARS:,} characters to look for: check them in parts")
        short = [document for document in self._documents if len(document.letters.text) < SHORT_LETTERS]
        if any(len(document.letters.text) < LEAST_SUBJECT_LETTERS for document in short):
            raise InvalidParameterError("A text to look for must have at least three letters or digits")
        if len(short) > MAX_SHORT_TEXTS:
            raise InvalidParameterError(f"More than {MAX_SHORT_TEXTS:,} texts have few letters: check them in parts")
        # Stored as a number, digits have no leading zeros.
        self._short = [(re.sub(r"\A0+(?=\d{3,}\Z)", "", each.letters.text), int(each.name)) for each in short]
        texts = [subject.name if subject.kind == "url" else subject.text or "" for subject in self.subjects]
        self._parts = _Parts(texts)
        self._index = PassageIndex(self._documents)
        self._least_letters = {
            int(each.name): len(each.letters.text)
            for each in sorted(self._documents, key=lambda each: len(each.letters.text), reverse=True)
        }
        self._shingles: dict[int, set[int]] = {}
        # The letters of a point that were compared: most forms of a value have the same.
        self._compared: set[str] = set()
        # Values that were not decoded to their end, of the collection that is being read.
        self._unread: list[str] = []

    @property
    def without_text(self) -> int:
        """Subjects of which only a hash or an id is known: only equal texts can be found."""
        return sum(subject.kind == "chunk" and not subject.text for subject in self.subjects)

    def check(
        self, reader: Reader, aliases: Iterable[str], done: Callable[[int], None] = lambda _points: None
    ) -> CollectionCheck:
        """Read a collection whole, and search it."""
        problems, read, searches, points = list[str](), 0, 0, 0
        self._unread.clear()
        try:
            points = reader.describe().points_count
            for page in reader.pages():
                for point in page.points:
                    self._compare(point, reader)
                read += len(page.points)
                done(len(page.points))
            problems += [reader.change_note] if reader.change_note else []
        except ChunkproofError as error:
            problems.append(f"{reader.name} could not be read: {error}")
        else:
            try:
                searches = self._search(reader)
            except ChunkproofError as error:
                problems.append(f"{reader.name} could not be searched: {error}")
        if self._unread:
            unread = f"{len(self._unread):,} values are too large, or encoded too often, to decode all of them"
            problems.append(f"{reader.name}: {unread}, such as {self._unread[0]}")
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
            self._add_id(number, point, payloads, here)
        self._compared.clear()
        for path, value, may_be_encoded in read_values(point, payloads):
            where = here._replace(field=path)
            forms, is_whole = read_forms(value) if may_be_encoded else ([("", value)], True)
            for form, text in forms:
                self._compare_text(text, where, form)
            if not is_whole:
                self._unread.append(f"{self._name_field(path)} of point {point.id}")

    def _name_field(self, path: str) -> str:
        """Return the path of a value, unless its names may be what must be gone."""
        letters = Letters.of(path).text
        is_shown = len(path) <= LONGEST_FIELD and not any(short in letters for short, _ in self._short)
        return path if is_shown else "(a field whose name is not repeated here)"

    def _compare_text(self, text: str, where: "_Where", form: str) -> None:
        for number in self._by_hash.get(digest(text), ()) if self._by_hash else ():
            self._add(number, How.EXACT_TEXT, where, f"The same text, {form or 'byte for byte'}")
        if PART in text:
            for values in text.split(BETWEEN):
                self._compare_parts(values.split(PART), where)
        for whole in (True, False) if find_hidden(text) else (True,):
            letters = fold_letters(text) if whole else Letters.of(text).text
            if whole and self._urls:
                self._compare_url(text, letters, where)
            if self._documents and letters not in self._compared:
                self._compared.add(letters)
                self._compare_letters(text, letters, where)

    def _compare_parts(self, values: Sequence[str], where: "_Where") -> None:
        for number in self._parts.find(values):
            how = How.URL if self.subjects[number].kind == "url" else How.PASSAGE
            self._add(number, how, where._replace(field=SEVERAL_FIELDS), "All its parts are in several fields")
        for value in values if self._long_ids else ():
            self._compare_id(fold_letters(value), where)

    def _compare_id(self, letters: str, where: "_Where") -> None:
        for number in self._long_ids.get(letters, ()):
            self._add(number, How.ID, where, "A value is this id")

    def _compare_url(self, text: str, letters: str, where: "_Where") -> None:
        for url, number in self._urls:
            changes = compress(_URL_CHANGES, (all(map(letters.__contains__, words)) for words in url.letters))
            if any(url.is_in(plain_address(form)) for change in changes for form in change(text)):
                self._add(number, How.URL, where, "A value names this document")

    def _compare_letters(self, text: str, letters: str, where: "_Where") -> None:
        self._compare_id(letters, where)
        for short, number in self._short:
            if short in letters:
                self._add(number, How.PASSAGE, where, "The text is in it")
        common = Counter[int]()
        for place in self._index.find_passages(letters):
            common[int(place.document.name)] += place.end - place.start
        for number, count in common.items():
            whole = self._least_letters[number]
            is_most = count >= LEAST_LETTERS and count >= PASSAGE_SHARE * min(whole, len(letters))
            if is_most or count >= min(PASSAGE_LETTERS, whole):
                self._add_passage(number, count, text, where)

    def _add_passage(self, number: int, common: int, text: str, where: "_Where") -> None:
        subject, whole = self.subjects[number].text or "", self._least_letters[number]
        nearness = similarity(self._shingles.setdefault(number, shingles(subject)), shingles(text))
        if nearness >= NEAR:
            self._add(number, How.NEAR_TEXT, where, f"{nearness:.0%} in common")
        else:
            self._add(number, How.PASSAGE, where, f"{min(1.0, common / max(whole, 1)):.0%} of its letters")

    def _add_id(self, number: int, point: Point, payloads: PayloadMap, where: "_Where") -> None:
        """Count a point with a deleted id; a number is used again in every collection, so its text must fit as well."""
        subject, text = self.subjects[number], payloads.find_text(point)
        is_same = not subject.sha256 or text is None or digest(text) == subject.sha256
        if subject.name.isdecimal() and not is_same:
            return
        self._add(number, How.ID, where, "A point has this id" + ("" if is_same else ", with another text"))

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
            is_whole = part == self.subjects[number].text
            [vector] = reader.embed([part], InputType.DOCUMENT if is_whole else InputType.QUERY)
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
                if point.score >= SAME and is_whole:
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
            at = None if where.field is None else self._name_field(where.field)
            found.append(Hit(how=how, details=details, **where._replace(field=at)._asdict()))


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


class _Parts:
    """Short texts and addresses, which may be stored in several values; each is some of their words."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._ends: dict[tuple[int, int], tuple[str, dict[int, int]]] = {}
        self._starts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._whole: dict[int, int] = {}
        for number, text in enumerate(texts if len(texts) <= MAX_SHORT_TEXTS else ()):
            words = [fold_letters(word) for word in WORD.findall(self._strip(text)[: 4 * PARTS_LETTERS])]
            words = [each for word in words for each in (word if is_unspaced(word) else (word,)) if each]
            letters = "".join(words)
            if not len(words) > 1 or len(letters) > PARTS_LETTERS:
                continue
            self._whole[number] = (1 << len(words)) - 1
            places = list(accumulate(map(len, words), initial=0))
            for word, at in enumerate(places[:-1]):
                ends = {end - at: (1 << last) - (1 << word) for last, end in enumerate(places) if last > word}
                self._ends[number, at] = letters[at:], ends
                for size in (1, 2, 3):
                    self._starts[letters[at : at + size]].append((number, at))

    def find(self, values: Sequence[str]) -> Iterator[int]:
        """Yield the numbers of the texts all of whose words are in these values."""
        seen: dict[int, int] = defaultdict(int)
        used: dict[int, int] = defaultdict(int)
        for value in values if self._starts else ():
            letters = fold_letters(self._strip(unquote(value))) if len(value) <= 2 * PARTS_LETTERS else ""
            for place in set(self._starts.get(letters[:3], ())):
                following, ends = self._ends[place]
                mask = ends.get(len(letters), 0)
                if mask & ~seen[place[0]] and following.startswith(letters):
                    seen[place[0]] |= mask
                    used[place[0]] += 1
        yield from (each for each, mask in seen.items() if mask == self._whole[each] and 1 < used[each] <= MAX_PARTS)

    @staticmethod
    def _strip(text: str) -> str:
        return re.sub(r"\A\w+:/+(?:www\.)?|\Awww\.|\.git\Z", "", text) if "://" in text or "." in text else text


class _UrlPattern:
    """A document's URL: scheme, user, `www.`, port, fragment, letter case and further parameters do not matter.

    Many servers know no letter case in paths: one address too many is better than one that is missed. What is no URL or
    path, such as the name of a document, must be the whole value, in the same letter case, unless it is a long id. The
    host of a store is one of several that serve the same object.
    """

    def __init__(self, url: str) -> None:
        address, _, query = url.strip().replace("\\", "/").partition("#")[0].partition("?")
        store = re.match(r"(?i)(s3|gs|abfs|wasb)\w*://", address)
        address = re.sub(r"^[\w.-]+@([\w.-]+):(?!\d)", r"\1/", address)
        address = re.sub(r"^(?:file:/+|\w+://|/+)(?:www\.|localhost/)?", "", address)
        if store and "@" in address.partition("/")[0]:  # the account of the container
            address = re.sub(r"^([^@/]+)@([^./]+)[^/]*", r"\2/\1", address)
        address = re.sub(r"^[^/@]*@", "", address)
        host, slash, path = plain_address(unquote(address)).rstrip("/").partition("/")
        path = re.sub(r"(?<=\w)(?:\.git|\.html?|\.php|\.aspx)\Z", "", path)
        self._query = _read_query(query)
        is_long_id = len(host) >= LONG_ID and any(char.isdigit() for char in host)
        self._is_address, self._name = bool(slash) or "." in host or is_long_id, unquote(address)
        host = re.sub(r":\d*\Z", "", host)
        words = WORD.findall(f"{host} {path}")
        # What the letters of every text have that names the document, also where it is turned around.
        plain = sorted({fold_letters(word) for word in WORD.findall(f"{host} {path}")}, key=len, reverse=True)
        self.letters = plain, [word[::-1] for word in plain], [codecs.encode(word, "rot13") for word in plain]
        labels, parts = (
            [re.escape(each).replace("\\ ", r"[\s+]") for each in text.split(sign) if each]
            for text, sign in ((host, "."), (path, "/"))
        )
        to_next = r"\s*[/=\s\u203a\u2192\xbb>|!:+_]+"
        names = [r"\s?[.]\s?".join(labels) + r"\.?(?::\d+)?" + to_next.join(["", *parts])]
        if store:
            more = r"(?:[.@][\w.-]+)?(?:/[\w-]+)?/?(?:[?&]prefix)?"
            names = [labels[0] + more + to_next.join(["", *parts])]
            names += [f"{parts[0]}@{labels[0]}[.\\w-]*{to_next.join(['', *parts[1:]])}"] if len(parts) > 1 else []
        elif parts:  # a name as that of a package, a proxy, or a file
            names += [
                "[.,]".join(labels[::-1]) + r"(?:[.,]www)?,?\)?" + "[/.]".join(["", *parts]),
                "-".join(labels) + r"(?:\.[\w-]+)+" + to_next.join(["", *parts]),
                "[_.+-]".join(words),
            ]
        # The name of a file may have the query.
        more_words = "[_.+-]".join([*words, *WORD.findall(plain_address(unquote(query)))])
        self._file = re.compile(rf"(?<![^\W_]){more_words}(?![^\W_])") if self._query else None
        self._pattern = re.compile(
            rf"(?:https?[_.-]+)?(?<![^\W_])(?<![.-])(?:(?:www\d?|m|mobile|amp|cdn|touch)[._-])?(?:{'|'.join(names)})"
            r"(?:[._-](?:git|html?|php|aspx?|md|txt)){0,2}(?:/(?:(?:index|default)(?:\.\w+)?|amp)?)?/?(?:;[\w=.-]*)?"
            r"(?![\w/%~.-]*[a-z\d\xe0-\u024f\u0400-\u04ff]|/[^\s/])"
            r"(?:\?([^#\s\"'<>()\[\]{}|\\`\u3000-\u303f]*))?"
        )

    def is_in(self, text: str) -> bool:
        """Whether a value, which `plain_address` has simplified, names the document."""
        if not self._is_address:
            return text.strip() == self._name.casefold()
        if self._file and self._file.search(text):
            return True
        return any(self._query <= _read_query(found[1] or "") for found in self._pattern.finditer(text))


def _read_query(query: str) -> set[tuple[str, str]]:
    pairs = parse_qsl(plain_address(query.replace(";", "&")), keep_blank_values=True)
    return {(name, re.sub(r"(?:\.html?|[.,;:!/*_~\s])*\Z", "", value)) for name, value in pairs}


# What may have been done to an address, by the form of its letters that is there.
_URL_CHANGES: tuple[Callable[[str], Iterable[str]], ...] = (
    lambda text: dict.fromkeys((text, *(each.sub("", text) for each in LINE_BREAKS))),
    lambda text: (text[::-1],),
    lambda text: (codecs.encode(text, "rot13"),),
)
