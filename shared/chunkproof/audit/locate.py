"""Locate chunks in the documents that they were made from.

A chunk is looked for by its letters and digits alone: whitespace, punctuation, markup, accents and case do not count,
so that a cleaned text is found too. Where it is found, the comparison with the original passage says whether it is
verbatim, and otherwise what differs. Documents are indexed by every twelfth sequence of twelve letters, which is in
every passage of at least 23 letters; the time is linear in the length of the texts, and limited for texts that repeat
themselves.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from chunkproof.contract import MismatchKind
from chunkproof.proof.integrity import compare

SEED = 12
# Of a sequence that occurs more often, the first places are compared.
MAX_PLACES = 64
MAX_PLACES_OF_PART = 8
# A passage in common counts from this length on; shorter ones occur by chance.
LEAST_PART = 24
# A chunk is a changed passage, and not a text of its own, from this share in common on.
LEAST_SHARE = 0.5
# All searches for texts shorter than two seeds may read this many letters together.
MAX_SHORT_SEARCH = 5_000_000_000
# Every sequence of so many letters is kept.
MAX_DENSE = 200_000
MARKUP = "markup"
# Letters that look like Latin ones, and those that nobody sees.
_PLAIN = str.maketrans("авекмнорстухіјѕαβεηικνορτυχ", "abekmhopctyxijsabenikvoptux", "\u0640\u115f\u1160\u3164")
# Latin letters that Unicode does not decompose, such as those with a stroke and small capitals.
_LATIN = re.compile(r"LATIN (?:(?:SMALL|CAPITAL) LETTER|LETTER SMALL CAPITAL) ([A-Z])(?: WITH .*)?\Z")
_OTHERS = re.compile(r"[^\x00-\x7f]+")
_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
# The targets of links, which a renderer of Markdown leaves out.
_TARGET = re.compile(r"(?<=\])\([^()\s]{0,2000}\)|(?<=\])\[[^\[\]\n]{0,200}\]")


@dataclass(frozen=True)
class Letters:
    """The letters and digits of a text, in one case and without accents."""

    text: str
    _source: str
    _shown: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, text: str, *, whole: bool = False) -> "Letters":
        """Take the letters of a text; what a renderer of Markdown hides is left out, unless the `whole` is wanted."""
        shown, at = [], 0
        for start, end in () if whole else find_hidden(text):
            if start >= at:
                shown.append((at, start))
                at = end
        shown.append((at, len(text)))
        parts = text if len(shown) == 1 else "".join(text[slice(*part)] for part in shown)
        return cls(fold_letters(parts), text, tuple(shown))

    @cached_property
    def offsets(self) -> "array[int]":
        """Where each letter comes from."""
        offsets: array[int] = array("I")
        for start, end in self._shown:
            for at, char in enumerate(self._source[start:end], start):
                offsets.extend([at] * len(_FOLDED[ord(char)]))
        return offsets


class _Folded(dict[int, str]):
    """The letters of each character, in one case and without accents."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
        letters: list[str] = []
        for each in folded if char.isalnum() else "":
            latin = None if each.isascii() else _LATIN.match(unicodedata.name(each, ""))
            letters += [latin[1].lower()] if latin else [str(unicodedata.digit(each, each))] if each.isalnum() else []
        self[code] = "".join(letters).translate(_PLAIN)
        return self[code]


_FOLDED = _Folded()


def find_hidden(text: str) -> list[tuple[int, int]]:
    """Find comments and the targets of links, in order."""
    found = [found.span() for found in _TARGET.finditer(text)] if "](" in text or "][" in text else []
    start = text.find("<!--")
    while start >= 0 and (end := text.find("-->", start)) >= 0:
        found.append((start, end + 3))
        start = text.find("<!--", end)
    return sorted(found)


def fold_letters(text: str) -> str:
    """Return the letters and digits alone: the path for texts that are mostly ASCII is several times faster."""
    plain = text if text.isascii() else _OTHERS.sub(lambda run: run[0].translate(_FOLDED), text)
    if plain.isascii():
        return plain.encode().translate(None, _SIGNS).decode().lower()
    return text.translate(_FOLDED)


@dataclass
class SourceDocument:
    """A source document, and the parts of its letters that chunks cover, as start and end."""

    name: str
    text: str
    letters: Letters = field(init=False)
    covered: list[tuple[int, int]] = field(default_factory=list)
    chunks: int = 0
    whole: bool = False

    def __post_init__(self) -> None:
        self.letters = Letters.of(self.text, whole=self.whole)


@dataclass(frozen=True)
class SourcePlace:
    """A passage of a document: start and end among its letters."""

    document: SourceDocument
    start: int
    end: int


@dataclass(frozen=True)
class Located:
    """Where a chunk was found; `kind` is what differs from the original, None for a verbatim one.

    `share` of its letters are there: below 1, it is a changed passage.
    """

    places: tuple[SourcePlace, ...]
    share: float
    kind: str | None
    details: str = ""


class PassageIndex:
    """Documents to locate chunks in."""

    def __init__(self, documents: Sequence[SourceDocument]) -> None:
        self._documents = documents
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._short_search = 0
        for number, document in enumerate(documents):
            letters = document.letters.text
            for at in range(0, len(letters) - SEED + 1, SEED):
                places = self._places.setdefault(letters[at : at + SEED], [])
                if len(places) < MAX_PLACES:
                    places.append((number, at))

    def locate(self, text: str, source: str | None = None) -> Located | None:
        """Find a chunk, first in the document that it names; None when it is in none."""
        letters = Letters.of(text)
        if not letters.text:
            return None
        if whole := list(self._find_whole(letters.text)):
            own = [place for place in whole if source and is_same_document(source, place.document.name)]
            whole = own or whole
            kind, details = _compare_whole(text, letters, whole[0])
            return Located(tuple(whole), 1.0, kind, details)
        parts = list(self._find_parts(letters.text))
        share = sum(place.end - place.start for place in parts) / len(letters.text)
        if share < LEAST_SHARE:
            return None
        kind, details = _compare_parts(text, letters, parts)
        return Located(tuple(parts), share, kind, details)

    def find_passages(self, letters: str) -> list[SourcePlace]:
        """Find the passages of the documents that are in the letters of a text, from 24 letters on."""
        size, step = len(letters), SEED if self._dense else 1
        parts = map(letters.__getitem__, map(slice, range(0, size - SEED + 1, step), range(SEED, size + 1, step)))
        is_possible = not (self._dense or self._places.keys()).isdisjoint(parts)
        return list(self._find_parts(letters)) if is_possible else []

    @cached_property
    def _dense(self) -> set[str]:
        """All sequences of the documents, if they are few: one of a passage is then found at every twelfth letter."""
        whole = [document.letters.text for document in self._documents]
        few = whole if sum(map(len, whole)) <= MAX_DENSE else ()
        return {letters[at : at + SEED] for letters in few for at in range(len(letters) - SEED + 1)}

    def _find_whole(self, letters: str) -> Iterator[SourcePlace]:
        if len(letters) < 2 * SEED - 1:
            yield from self._find_short(letters)
            return
        seen: set[tuple[int, int]] = set()
        for first in range(SEED):
            for number, at in self._places.get(letters[first : first + SEED], ()):
                start = at - first
                if start < 0 or (number, start) in seen:
                    continue
                seen.add((number, start))
                document = self._documents[number]
                if document.letters.text.startswith(letters, start):
                    yield SourcePlace(document, start, start + len(letters))

    def _find_short(self, letters: str) -> Iterator[SourcePlace]:
        """Find a text that may lie between two seeds, by reading the documents."""
        for document in self._documents:
            whole, start = document.letters.text, -1
            for _ in range(MAX_PLACES):
                if self._short_search > MAX_SHORT_SEARCH:
                    return
                before, start = start, whole.find(letters, start + 1)
                self._short_search += (len(whole) if start < 0 else start) - before
                if start < 0:
                    break
                yield SourcePlace(document, start, start + len(letters))

    def _find_parts(self, letters: str) -> Iterator[SourcePlace]:
        """Find the longest passages in common, from the start of the text on."""
        at = done = 0
        while at <= len(letters) - SEED:
            best: tuple[int, int, int, SourceDocument] | None = None
            for number, place in self._places.get(letters[at : at + SEED], ())[:MAX_PLACES_OF_PART]:
                document = self._documents[number]
                whole = document.letters.text
                # Further back, a seed before this one would have been found.
                back = min(at - done, place, SEED)
                before = _common_prefix(letters[at - back : at][::-1], 0, whole[place - back : place][::-1], 0)
                after = _common_prefix(letters, at, whole, place)
                if best is None or before + after > best[0]:
                    best = (before + after, place - before, at + after, document)
            if best is None or best[0] < LEAST_PART:
                at += 1
                continue
            length, start, at, document = best
            done = at
            yield SourcePlace(document, start, start + length)


def cover(located: Located) -> None:
    """Mark the passages of a chunk as covered in their documents."""
    for place in located.places:
        place.document.covered.append((place.start, place.end))
    for document in {id(place.document): place.document for place in located.places}.values():
        document.chunks += 1


def is_same_document(source: str, name: str) -> bool:
    """Whether a chunk's URL or path names this file: its path ends alike, with or without the extension."""
    path = source.partition("#")[0].partition("?")[0].replace("\\", "/").rstrip("/")
    stem = name.rpartition(".")[0] or name
    return any(path == each or path.endswith(f"/{each}") for each in (name, stem, f"{stem}.html"))


def _compare_whole(text: str, letters: Letters, place: SourcePlace) -> tuple[str | None, str]:
    """Compare a chunk with the passage that has the same letters."""
    offsets, original = place.document.letters.offsets, place.document.text
    lead, trail = letters.offsets[0], len(text) - letters.offsets[-1] - 1
    start, end = offsets[place.start] - lead, offsets[place.end - 1] + 1 + trail
    passage = original[max(0, start) : end]
    difference = None if passage == text else compare(text, passage)
    if difference is None:
        return None, ""
    mismatch, details = difference
    if mismatch.kind in (MismatchKind.DIFFERENT, MismatchKind.TRUNCATED, MismatchKind.EXTENDED):
        return MARKUP, "Punctuation or markup differs; letters and digits are the same"
    return mismatch.kind.value, details


def _compare_parts(text: str, letters: Letters, parts: Sequence[SourcePlace]) -> tuple[str, str]:
    first, last = parts[0], parts[-1]
    if first.document is last.document and first.start < last.end:
        whole, offsets, original = first.document.letters.text, first.document.letters.offsets, first.document.text
        start, end = offsets[first.start], offsets[last.end - 1] + 1
        # Punctuation before the first and after the last letter belongs to the passage if the chunk has it there.
        if letters.text.startswith(whole[first.start : first.start + LEAST_PART]):
            start = max(0, start - letters.offsets[0])
        if letters.text.endswith(whole[last.end - LEAST_PART : last.end]):
            end += len(text) - letters.offsets[-1] - 1
        if end - start < 2 * len(text) and (difference := compare(text, original[start:end])):
            return difference[0].kind.value, difference[1]
    return MismatchKind.DIFFERENT.value, f"{len(parts)} passages of the sources are in it, with other text between"


def _common_prefix(left: str, left_at: int, right: str, right_at: int) -> int:
    """Return how many characters are equal from there on, in time proportional to them."""
    same, step = 0, 2 * SEED
    while step:
        part = left[left_at + same : left_at + same + step]
        if len(part) == step and right.startswith(part, right_at + same):
            same, step = same + step, 2 * step
        else:
            step //= 2
    return same


def find_gaps(document: SourceDocument) -> list[tuple[int, int]]:
    """Return the parts of a document's letters that no chunk covers."""
    gaps: list[tuple[int, int]] = []
    at = 0
    for start, end in sorted(document.covered):
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    if at < len(document.letters.text):
        gaps.append((at, len(document.letters.text)))
    return gaps
