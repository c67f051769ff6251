"""Check that texts, chunks and documents are stored nowhere any more: in no collection, under no id, in no form.

Each collection is read whole: every value and every name in every payload is compared as it is stored, then decoded
(`DECODERS`), then as a reader sees it, without comments, link targets and markup. Then the sentences of what was
deleted are searched for, as a user would find them. A report names what was deleted by id, URL, hash and length: it
never repeats the text.
"""

import bz2
import html
import lzma
import re
import sys
import unicodedata
import zlib
from base64 import b32decode, b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from pydantic import Field

from chunkproof.audit.locate import Letters, PassageIndex, SourceDocument, find_hidden
from chunkproof.base.errors import ChunkproofError, InvalidParameterError
from chunkproof.base.words import split_sentences
from chunkproof.collection.lookup import parse_point_id
from chunkproof.collection.payload_map import PayloadMap, parse_json
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
    "texts that are encrypted, translated, transliterated, reworded, reversed or in other encodings, such as Base85",
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
# A value may be encoded several times over: each form is decoded in every way twice, and in the first way that applies,
# which is the surest, so many times.
MAX_ROUNDS = 12
# Ids from so many characters on, with a digit, are looked for inside of values, too.
LONG_ID = 8
# Longer names of fields are not repeated in a report: they may be texts.
LONGEST_FIELD = 80
SEVERAL_FIELDS, SEVERAL = "several fields", "decoded from several encodings"
# Between two readings of one value, whose letters are no text together, is a letter that texts do not have.
BETWEEN = " \ua66e "
# Bytes from so many on may be characters of two or four bytes each.
LEAST_WIDE, MAX_UNPACKED, UNPACKING_MEMORY = 8, 1_000_000, 64_000_000
CODECS = "cp1252", "latin-1", "cp437", "mac_roman", "cp1251"
_ESCAPE = re.compile(
    r"(?:\\|`(?=u\{))(?:[xu]\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[x']([0-9a-fA-F]{2})"
    r"|(?P<octal>[0-3]?[0-7]{1,2})|(?P<sign>[bfnrt\n!-/:-@\[-`{-~]))"
    r"|(?:\\N\{)?U\+([0-9a-fA-F]{4,6})\}? ?"
)
_LONG_REFERENCE = re.compile(r"&#0*([0-9]{8,});?")
_PADDED_REFERENCE = re.compile(r"&#([xX]?)0+(?=[0-9a-fA-F])")
# Tags, colours of a terminal, overstriking, times of subtitles.
_MARKUP = re.compile(
    r"<[a-zA-Z/!?](?:=\s*+(?:\"[^\"]*\"|'[^']*')|[^<>])*+>|\x1b\[[\d;]*[A-Za-z]|.\x08|\[/?[a-z]{1,9}\]"
    r"|(?<![\d:.,])\d[\d:.,]*+ --> [\d:.,]*\d"
)
_COMMAND = re.compile(r"\\[a-zA-Z]+-?\d* ?")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,6}")
_BASE64_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])(?=[a-z/_-]{0,400}[A-Z0-9+=])[A-Za-z0-9+/_-]{12,}={0,6}")
_HEX_RUN = re.compile(r"(?:(?:0x)?[0-9a-fA-F]{2}[ :,-]{0,2}){5,}(?:0x)?[0-9a-fA-F]{2}")
_WRAPPED = re.compile(r"(?<=[A-Za-z0-9+/]{16})\r?\n[ \t>]*(?=[A-Za-z0-9+/]{2})")
_DIGITS = re.compile(r"(?:[01]{8}\s?){3,}|(?:-?\d{1,7}(?:\.0)?[\s,;]{1,3}){2,}-?\d{1,7}(?:\.0)?(?![\d.])")
_NUMBERS, _CONTROL = re.compile(r"\d(?:[\s,;]|\.0|[01]{7})"), re.compile("[\x00-\x07\x0e-\x1a]")
_AT = re.compile(r"[\[({]\s*(?:@|[aA][tT])\s*[\])}]| at (?=[\w.-]+ dot \w)")
_DOT = re.compile(r"[\[({]\s*(?:\.|[dD][oO][tT])\s*[\])}]| dot (?=\w)")
# A line that quoted-printable broke, and a header of a mail in several encoded words.
_BROKEN_WORD = re.compile(r"=\r?\n|\?=\s+=\?[\w-]+\?[bBqQ]\?")
_PUNYCODE = re.compile(r"(?i)\bxn--[a-z0-9-]+")
_HIGH_RUN = re.compile(r"[^\x00-\x7f]{2,}")
_STRINGS = re.compile(rb"(?:[\t\n\r\x1b -~]|[\xc2-\xf4][\x80-\xbf]{1,3}){8,}")
# Letters in circles and squares, and the invisible letters of tags.
_DISGUISED = re.compile("[\u2460-\u24ff\U0001f110-\U0001f1ff\U000e0020-\U000e007e]")
_PLAIN_LETTERS = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F)} | {
    start + at: 65 + at for start in (0x1F150, 0x1F170, 0x1F1E6) for at in range(26)
}
# Inside of an address: characters that a reader does not see, and those that look alike.
_UNSEEN = re.compile(
    "[\0\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u20d0-\u20f0\ufe00-\ufe0f\ufeff\ufff9-\ufffb]"
)
# An address may be broken over lines, also of a comment or of a mail that quotes it.
_LINE_BREAK = re.compile(r"(?<![ \t])[ \t]*+\r?\n[\s>|#*]*")
_DASHES = re.compile("[\u2010-\u2015\u2212]")


def _unescape(text: str) -> str:
    """Decode the escapes of JSON, programming languages and patterns, wherever they are."""

    def decode(escape: re.Match[str]) -> str:
        if sign := escape["sign"]:
            return {"n": "\n", "r": "\n", "t": "\t"}.get(sign, sign.strip("bf\n"))
        octal = escape["octal"]
        code = int(octal, 8) if octal else int(next(digits for digits in escape.groups() if digits), 16)
        return chr(code) if code <= sys.maxunicode else "\ufffd"

    return _ESCAPE.sub(decode, text)


def _decode_codes(name: str, notation: str, base: int) -> "Decoder":
    """Return what decodes characters, or halves of them, that are written as numbers."""
    pattern = re.compile(notation)

    def decode(found: re.Match[str]) -> str:
        code = int(found[1], base)
        return chr(code % 0x10000 if code < 0 else code) if code <= sys.maxunicode else "\ufffd"

    return name, pattern, partial(pattern.sub, decode)


def _replace_references(text: str) -> str:
    """Replace character references, however many digits they have."""
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", _PADDED_REFERENCE.sub(r"&#\1", text)))


def _decode_bytes(sign: str) -> Callable[[str], str]:
    """Return what decodes bytes in hexadecimal digits behind a sign; they are UTF-8, else Latin-1."""
    run = re.compile(rf"(?:{sign}[0-9a-fA-F]{{2}})+")

    def decode(found: re.Match[str]) -> str:
        data = bytes.fromhex(found[0].replace(sign, ""))
        return _read_bytes(data) or data.decode("latin-1")

    return lambda text: run.sub(decode, text)


def _read_bytes(data: bytes) -> str | None:
    """Return the text that these bytes are, or have in them: in UTF-8, 16 or 32, in Latin-1, or packed; else None."""
    for start, unpack in _UNPACKERS.items():
        with suppress(ValueError, OSError, EOFError, lzma.LZMAError, zlib.error):
            data = unpack(data) if data.startswith(start) else data
    if _is_readable(text := data.decode("utf-8", "replace")):
        return text
    text = data.decode("cp1252", "replace")
    if _is_readable(text) and len(re.findall(r"[\w\s]", text, re.ASCII)) > 0.75 * len(text):
        return text
    with suppress(ValueError, zlib.error):
        if _is_readable(text := zlib.decompressobj(-15).decompress(data, MAX_UNPACKED).decode()) and text:
            return text
    encodings = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be") if len(data) >= LEAST_WIDE else ()
    wide = (text for encoding in encodings if _is_readable(text := data.decode(encoding, "ignore")))
    strings = b"\n".join(_STRINGS.findall(data)).decode("utf-8", "replace")
    return BETWEEN.join(filter(None, (*wide, strings))) or None


def _is_readable(text: str) -> bool:
    return "\ufffd" not in text and "".join(_UNSEEN.sub("", text).split()).isprintable()


_UNPACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    **dict.fromkeys((b"\x1f\x8b", b"x"), lambda data: zlib.decompressobj(47).decompress(data, MAX_UNPACKED)),
    b"BZh": lambda data: bz2.BZ2Decompressor().decompress(data, MAX_UNPACKED),
    b"\xfd7z": lambda data: lzma.LZMADecompressor(memlimit=UNPACKING_MEMORY).decompress(data, MAX_UNPACKED),
}


def _decode_base64(text: str) -> str:
    """Decode Base64 in either alphabet, or Base32: the whole value, which may have line breaks, and every long run."""

    def decode(packed: str) -> str:
        plain, found = packed.translate({45: 43, 95: 47}).rstrip("="), []
        with suppress(ValueError):
            found.append(_read_bytes(b32decode(plain + "=" * (-len(plain) % 8), casefold=True)))
        plain = plain[: len(plain) - (len(plain) % 4 == 1)]
        return BETWEEN.join(filter(None, (*found, _read_bytes(b64decode(plain + "=" * (-len(plain) % 4))))))

    whole = "".join(text.split())
    decoded = decode(whole) if _BASE64.fullmatch(whole) else ""
    runs = _BASE64_RUN.sub(lambda run: decode(run[0]) or run[0], _WRAPPED.sub("", text))
    return f"{decoded}{BETWEEN}{runs}" if decoded else runs


def _decode_digits(run: re.Match[str]) -> str:
    """Decode octets of binary digits, or the decimal numbers of bytes or characters."""
    octets = re.findall("[01]{8}", run[0])
    words = re.split(r"[\s,;]+", run[0].replace(".0", ""))
    numbers = [int(octet, 2) for octet in octets] if octets else [int(word) for word in words]
    if all(-128 <= number < 256 for number in numbers):
        data = bytes(number % 256 for number in numbers)
        return _read_bytes(data) or data.decode("latin-1")
    return "".join(chr(number) if 0 <= number <= sys.maxunicode else " " for number in numbers)


def _decode_hex(text: str) -> str:
    return _HEX_RUN.sub(lambda run: _read_bytes(bytes.fromhex(re.sub("0x|[ :,-]", "", run[0]))) or run[0], text)


def _repair_mojibake(encoding: str) -> Callable[[str], str]:
    """Return what repairs UTF-8 that was read in this encoding."""

    def repair(run: re.Match[str]) -> str:
        return run[0].encode(encoding, "ignore").decode("utf-8", "ignore") or run[0]

    return lambda text: _HIGH_RUN.sub(repair, text)


def _decode_punycode(label: re.Match[str]) -> str:
    try:
        return label[0][4:].lower().encode().decode("punycode")
    except (UnicodeError, OverflowError):
        return label[0]


_decode_percent, _decode_equals = _decode_bytes("%"), _decode_bytes("=")
# Name, a pattern without which nothing is encoded, and what decodes it.
Decoder = tuple[str, re.Pattern[str], Callable[[str], str]]
# Commands of LaTeX and RTF, and numbers of characters, in notations of which several may seem to fit.
NOTATIONS: tuple[Decoder, ...] = (
    ("markup", _COMMAND, partial(_COMMAND.sub, "")),
    _decode_codes("SQL escapes", r"\\(\+[0-9a-fA-F]{6}|[0-9a-fA-F]{4})", 16),
    _decode_codes("CSS escapes", r"\\([0-9a-fA-F]{1,6})\s?", 16),
    _decode_codes("RTF escapes", r"\\u(-?\d{1,5}) ?\??", 10),
    _decode_codes("decimal escapes", r"\\(\d{1,3})", 10),
    _decode_codes("calls of CHR", r"[cC][hH][rR]\w?\(\s*(\d{1,7})\s*\)[\s|&+.,]*", 10),
)
DECODERS: tuple[Decoder, ...] = (
    ("JSON escapes", re.compile(r"\\|U\+|`u\{"), _unescape),
    # Before entities, which it may break over lines.
    ("quoted-printable", re.compile("="), lambda text: _decode_equals(_BROKEN_WORD.sub("", text))),
    ("entities", re.compile("&"), _replace_references),
    _decode_codes("URL encoding", "%u([0-9a-fA-F]{4})", 16),
    ("URL encoding", re.compile("%"), lambda text: _decode_percent(text.replace("+", " "))),
    ("Base64", _BASE64, _decode_base64),
    ("hexadecimal digits", re.compile(r"\d[0-9a-fA-F]?(?:[ :,-]{0,2}(?:0x)?[0-9a-fA-F]{2}){3}"), _decode_hex),
    ("numbers of bytes and characters", _NUMBERS, lambda text: _DIGITS.sub(_decode_digits, text)),
    ("bytes as characters", _CONTROL, lambda text: _read_bytes(text.encode("latin-1", "replace")) or text),
    ("UTF-7", re.compile(r"\+[A-Za-z]"), lambda text: text.encode("ascii", "ignore").decode("utf-7", "replace")),
    *(("mojibake", _HIGH_RUN, _repair_mojibake(codec)) for codec in CODECS),
    ("Punycode", re.compile("--"), lambda text: _PUNYCODE.sub(_decode_punycode, text)),
    ("letters in disguise", _DISGUISED, lambda text: unicodedata.normalize("NFKC", text.translate(_PLAIN_LETTERS))),
    ("addresses in words", _AT, partial(_AT.sub, "@")),
    ("addresses in words", _DOT, partial(_DOT.sub, ".")),
    ("markup", _MARKUP, partial(_MARKUP.sub, "")),
)
FORMS = (
    "as stored: texts, names of fields, ids, numbers, items of lists, comments, link targets, and all values together",
    f"decoded, several times over: {', '.join(dict.fromkeys(name for name, _, _ in (*DECODERS[:-1], *NOTATIONS)))}",
    "as a reader sees it: without markup, comments, link targets, case, accents, invisible characters and punctuation",
)


class How(StrEnum):
    """How something deleted was found."""

    ID = "id"
    URL = "url"
    EXACT_TEXT = "exact text"
    NEAR_TEXT = "near-duplicate text"
    PASSAGE = "passage"
    VECTOR = "vector"


_count_letters = lru_cache(lambda text: sum(map(str.isalnum, text)))
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
        self._urls: list[tuple[_UrlPattern, int]] = []
        self._by_hash: dict[str, list[int]] = defaultdict(list)
        for number, subject in enumerate(self.subjects):
            if subject.kind == "chunk":
                for each in {subject.name, str(subject.point_id), str(parse_point_id(subject.name))} - {"None"}:
                    self._by_id[each].append(number)
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
        if sum(len(document.text) for document in self._documents) > MAX_CHARS:
            raise InvalidParameterError(f"More than {MAX_CHARS:,} characters to look for: check them in parts")
        short = [document for document in self._documents if len(document.letters.text) < SHORT_LETTERS]
        for document in short:
            if len(document.letters.text) < LEAST_SUBJECT_LETTERS:
                raise InvalidParameterError("A text to look for must have at least three letters or digits")
        if len(short) > MAX_SHORT_TEXTS:
            raise InvalidParameterError(f"More than {MAX_SHORT_TEXTS:,} texts have few letters: check them in parts")
        # Stored as a number, digits have no leading zeros; the last word of a name may come first.
        self._short = [
            (re.sub(r"\A0+(?=\d{3,}\Z)", "", letters), int(each.name))
            for each in short
            for letters in {each.letters.text, Letters.of(re.sub(r"\A(.+) (\S+)\Z", r"\2 \1", each.text)).text}
        ]
        self._index = PassageIndex(self._documents)
        self._shingles: dict[int, set[int]] = {}
        # The letters of a point that were compared: most forms of a value have the same.
        self._compared: set[str] = set()

    @property
    def without_text(self) -> int:
        """Subjects of which only a hash or an id is known: only equal texts can be found."""
        return sum(subject.kind == "chunk" and not subject.text for subject in self.subjects)

    def check(
        self, reader: Reader, aliases: Iterable[str], done: Callable[[int], None] = lambda _points: None
    ) -> CollectionCheck:
        """Read a collection whole, and search it."""
        problems, read, searches, points = list[str](), 0, 0, 0
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
        self._compared.clear()
        for path, value, may_be_encoded in _read_values(point, payloads):
            where = here._replace(field=path)
            for form, text in _read_forms(value) if may_be_encoded else [("", value)]:
                self._compare_text(text, where, form)

    def _name_field(self, path: str) -> str:
        """Return the path of a value, unless its names may be what must be gone."""
        letters = Letters.of(path).text
        is_shown = len(path) <= LONGEST_FIELD and not any(short in letters for short, _ in self._short)
        return path if is_shown else "(a field whose name is not repeated here)"

    def _compare_text(self, text: str, where: "_Where", form: str) -> None:
        for number in self._by_hash.get(digest(text), ()) if self._by_hash else ():
            self._add(number, How.EXACT_TEXT, where, f"The same text, {form or 'byte for byte'}")
        for whole in (True, False) if find_hidden(text) else (True,):
            letters = Letters.of(text, whole=whole).text
            if whole and self._urls:
                self._compare_url(text, letters, where)
            if self._documents and letters not in self._compared:
                self._compared.add(letters)
                self._compare_letters(text, letters, where)

    def _compare_url(self, text: str, letters: str, where: "_Where") -> None:
        likely = [(pattern, number) for pattern, number in self._urls if pattern.letters in letters]
        forms = {text, _LINE_BREAK.sub("", text)} if likely else ()
        for form in map(plain_address, forms):
            for pattern, number in likely:
                if pattern.is_in(form):
                    self._add(number, How.URL, where, "A value names this document")

    def _compare_letters(self, text: str, letters: str, where: "_Where") -> None:
        for short, number in self._short:
            if short in letters:
                self._add(number, How.PASSAGE, where, "The text is in it")
        common = Counter[int]()
        for place in self._index.find_passages(letters):
            common[int(place.document.name)] += place.end - place.start
        for number, letters_in_common in common.items():
            self._judge_passage(number, letters_in_common, text, len(letters), where)

    def _judge_passage(self, number: int, common: int, text: str, length: int, where: "_Where") -> None:
        subject = self.subjects[number].text or ""
        whole = _count_letters(subject)
        is_part = common >= min(PASSAGE_LETTERS, whole)
        is_most = common >= LEAST_LETTERS and common >= PASSAGE_SHARE * min(whole, length)
        if not (is_part or is_most):
            return
        nearness = similarity(self._shingles.setdefault(number, shingles(subject)), shingles(text))
        if nearness >= NEAR:
            self._add(number, How.NEAR_TEXT, where, f"{nearness:.0%} in common")
        else:
            self._add(number, How.PASSAGE, where, f"{min(1.0, common / max(whole, 1)):.0%} of its letters")

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


class _UrlPattern:
    """A document's URL: scheme, user, `www.`, port, fragment, letter case and further parameters do not matter.

    Many servers know no letter case in paths: one address too many is better than one that is missed. What is no URL or
    path, such as the name of a document, must be the whole value, in the same letter case, unless it is a long id.
    """

    def __init__(self, url: str) -> None:
        address, _, query = url.strip().partition("#")[0].partition("?")
        host, slash, path = plain_address(unquote(re.sub(r"^\w+://(?:www\.)?", "", address))).rstrip("/").partition("/")
        self._query = set(_read_query(query))
        is_long_id = len(host) >= LONG_ID and any(char.isdigit() for char in host)
        self._is_address, name = bool(slash) or "." in host or is_long_id, host
        host = (host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host).lower()
        words = re.findall(r"[^\W_]+", f"{host} {path}")
        # What the letters of every text have that names the document.
        self.letters = max((Letters.of(word, whole=True).text for word in words), key=len, default="")
        if not self._is_address:
            self._pattern = re.compile(rf"\s*{re.escape(name)}\s*\Z")
            return
        labels, parts = (
            [re.escape(each) for each in text.split(sign) if each] for text, sign in ((host, "."), (path, "/"))
        )
        names = ["[.]".join(labels) + r"\.?(?::\d+)?" + r"[/\s\u203a]+".join(["", *parts])]
        if parts:  # a name as that of a package, or of a file
            names += ["[.,]".join(labels[::-1]) + r"\)?" + "[/.]".join(["", *parts]), "[_-]".join(words)]
        self._pattern = re.compile(
            rf"(?i)(?<![\w.-])(?:www\.)?(?:{'|'.join(names)})(?:\.html?|/?(?:index\.\w+)?)(?![\w/%~.-]*[\w/%])"
            r"(?:\?([^#\s\"'<>()\[\]{}|\\`]*))?"
        )

    def is_in(self, text: str) -> bool:
        """Whether a value, which `plain_address` has simplified, names the document."""
        if not self._is_address:
            return bool(self._pattern.match(text))
        return any(self._query <= set(_read_query(found[1] or "")) for found in self._pattern.finditer(text))


def _read_query(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.lower().rstrip(".,;:!/*_~").replace(";", "&"), keep_blank_values=True)


def plain_address(text: str) -> str:
    """Write addresses in a text in one way: Unicode hosts, no accents and invisible characters, no empty segments."""
    text = _PUNYCODE.sub(_decode_punycode, text)
    text = _DASHES.sub("-", _UNSEEN.sub("", unicodedata.normalize("NFKD", text))).replace("\\", "/")
    text = re.sub(r"(?<!:)/(?:\.?/)+", "/", text)
    return re.sub(r"/(?!\.\./)[^/\s?#]+/\.\.(?=/)", "", text) if "/../" in text else text


@lru_cache(maxsize=1_000)
def _read_forms(value: str) -> Sequence[tuple[str, str]]:
    """Return a value as it is stored, and each form that it can be decoded to, with how it was encoded."""
    forms, latest = {value: ""}, [value]
    for _ in range(2):
        texts, latest = latest, []
        for text in texts:
            for name, form in _decode_once(text):
                if form not in forms:
                    forms[form] = f"{forms[text] or 'decoded from'} {name}"
                    latest.append(form)
    for _ in range(MAX_ROUNDS if latest else 0):
        before, value = value, next((form for _, form in _decode_once(value, DECODERS) if form != value), value)
        if value == before:
            break
        forms |= {form: SEVERAL for form in (value, *(form for _, form in _decode_once(value))) if form not in forms}
    return [(how, form) for form, how in forms.items()]


def _decode_once(text: str, decoders: Sequence[Decoder] = (*DECODERS, *NOTATIONS)) -> Iterator[tuple[str, str]]:
    """Yield the text decoded in each way that may apply; half of a character is replaced."""
    for name, pattern, decode in decoders:
        if pattern.search(text):
            yield name, decode(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_values(point: Point, payloads: PayloadMap) -> Iterator[tuple[str, str, bool]]:
    """Yield the text of a chunk, its id, and all names and values, with their paths and whether they may be encoded.

    JSON in a string is read like the payload that it is in. The items of a list may be the characters or the bytes of a
    text, and a text may be spread over values: those of fields with one name, or all of them.
    """
    text = payloads.find_text(point)
    if text is not None:
        yield "text", text, True
    yield "id of the point", str(point.id), False
    names: list[str] = []
    together: dict[str, list[str]] = defaultdict(list)
    stack: list[tuple[str, str, Any]] = [("", "", point.payload)]
    while stack:
        path, name, value = stack.pop()
        if isinstance(value, Mapping):
            names += map(str, value)
            if not all(str(key).isdecimal() for key in value):
                stack += reversed([(f"{path}.{key}".removeprefix("."), str(key), item) for key, item in value.items()])
                continue
            value = [value[key] for key in sorted(value, key=int)]
        if isinstance(value, list | tuple):
            stack += [(f"{path}[]", name, item) for item in reversed(value)]
            items = [_write(item) for item in value if isinstance(item, str | int | float)]
            yield f"{path}[]", ("" if max(map(len, items), default=0) == 1 else " ").join(items), True
        elif value is not None and not isinstance(value, bool):
            inner = parse_json(value)
            stack += [(path, name, inner)] if inner is not None else []
            if value != text:
                yield path, _write(value), inner is None
            together[""].append(_write(value))
            together[name].append(_write(value))
    yield "names of fields", "\n".join(names), True
    for values in together.values():
        if len(values) > 1:
            yield SEVERAL_FIELDS, " ".join(values), False
            yield SEVERAL_FIELDS, " ".join(reversed(values)), False


def _write(value: str | float) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
