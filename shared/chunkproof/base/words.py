"""The words and sentences of a text in any script, with their offsets in code points.

Every pattern looks at each character a bounded number of times, whatever the text is: stored texts can be hostile.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

# Scripts without spaces between words, as ranges of a character class: Thai, Lao, Myanmar, Khmer, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2eff\u3041-\u30ff\u31c0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# A longer sentence is cut at a space, so that an embedding model can read each part.
MAX_SENTENCE = 500
# Words that say nothing about what a question is after; they count only if the question has no others.
_COMMON = (
    "a an and are as at be by can did do does for from had has have how i if in into is it its me my of on or our "
    "should so that the their them there these they this to was we were what when where which who why will with "
    "would you your"
)
COMMON = frozenset(_COMMON.split())
# Longer runs of letters are not words, and are not looked at.
MAX_WORD = 200
# So many different words of a question are looked for.
MAX_TERMS = 100


@dataclass(frozen=True, slots=True)
class Match:
    """A term of the question in a text: `text[start:end]`."""

    term: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What to look for: whole words, and in scripts without spaces pairs of characters next to each other."""

    words: frozenset[str]
    pairs: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.words or self.pairs)


def read_terms(question: str) -> Terms:
    """Return the terms of a question, without words such as *the* unless it has no others."""
    words: dict[str, None] = {}
    pairs: dict[str, None] = {}
    for found in _word_pattern().finditer(question):
        run = found[0]
        if is_unspaced(run):
            pairs |= dict.fromkeys(run[at : at + 2] for at in range(max(1, len(run) - 1)))
        elif len(run) <= MAX_WORD:
            words[fold(run)] = None
    meaningful = [word for word in words if word not in COMMON]
    return Terms(frozenset((meaningful or list(words))[:MAX_TERMS]), frozenset(list(pairs)[: 2 * MAX_TERMS]))


def find_terms(text: str, terms: Terms) -> Iterator[Match]:
    """Yield where the text has one of the terms, in order."""
    pattern = _ASCII_WORD if text.isascii() else _word_pattern()
    for found in pattern.finditer(text) if terms else ():
        run = found[0]
        if is_unspaced(run):
            if terms.pairs:
                yield from _find_pairs(run, found.start(), terms.pairs)
        elif len(run) <= MAX_WORD and (folded := fold(run)) in terms.words:
            yield Match(folded, found.start(), found.end())


def _find_pairs(run: str, offset: int, pairs: frozenset[str]) -> Iterator[Match]:
    """Yield the parts of a run that consist of pairs of the question; overlapping pairs are one match."""
    begin = end = -1
    for at in range(len(run)):
        length = 2 if run[at : at + 2] in pairs else 1 if run[at] in pairs else 0
        if not length:
            continue
        if at >= end:
            if begin >= 0:
                yield Match(run[begin:end], offset + begin, offset + end)
            begin = at
        end = max(end, min(at + length, len(run)))
    if begin >= 0:
        yield Match(run[begin:end], offset + begin, offset + end)


def fold(word: str) -> str:
    """Return the word as it is compared: without case, and the same for all canonically equivalent spellings.

    Sorting n combining marks takes n² steps, so words are limited to `MAX_WORD`.
    """
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", word).casefold())


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each sentence, list item or line of a table, without surrounding whitespace."""
    begin = 0
    for found in _END.finditer(text):
        if found[0][0] != "." or not _is_abbreviation(text, found.start(), found.end()):
            yield from _split_long(text, begin, found.end())
            begin = found.end()
    yield from _split_long(text, begin, len(text))


def _is_abbreviation(text: str, dot: int, end: int) -> bool:
    """Whether a sentence goes on after this dot: a small letter follows, or an abbreviation precedes it."""
    following = text[end : end + 20].lstrip()[:1]
    if following.islower():
        return True
    before = re.split(r"[\s(]", text[max(0, dot - 10) : dot])[-1]
    return before.lower() in _ABBREVIATIONS or (len(before) == 1 and before.isupper())


def _split_long(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    while begin < end:
        cut = end
        if end - begin > MAX_SENTENCE:
            cut = begin + MAX_SENTENCE
            space = max(text.rfind(" ", begin, cut), text.rfind("\n", begin, cut))
            cut = space + 1 if space > begin else cut
        part = text[begin:cut]
        if stripped := part.strip():
            at = begin + len(part) - len(part.lstrip())
            yield at, at + len(stripped)
        begin = cut


def is_unspaced(run: str) -> bool:
    """Whether it begins with a character of a script without spaces between words."""
    return not run[0].isascii() and _FIRST_UNSPACED.match(run) is not None


@cache
def _word_pattern() -> re.Pattern[str]:
    """Match a word with its combining marks, which Python's `\\w` does not include, or a run without spaces."""
    blocks = ((0x300, 0x3400), (0xA66F, 0xAC00), (0xFB1E, 0xFE30), (0x10000, 0x1F000), (0xE0100, 0xE01F0))
    marks = "".join(
        chr(code) for first, last in blocks for code in range(first, last) if unicodedata.category(chr(code))[0] == "M"
    )
    # Joiners are part of words in Persian and in Indic scripts.
    joined = re.escape(marks) + "\u200c\u200d"
    letters = f"[^\\W{UNSPACED}]"
    return re.compile(f"[{UNSPACED}]++|{letters}++(?:[{joined}]++{letters}*+)*+")


_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_FIRST_UNSPACED = re.compile(f"[{UNSPACED}]")
_CLOSERS = "\"'”’»)\\]}」』）*_`"
# A run of marks is looked at from its first one only.
_END = re.compile(
    rf"(?<![.!?…])[.!?…]++[{_CLOSERS}]*+(?=\s)"
    rf"|[。！？｡؟।॥۔።]++[{_CLOSERS}]*+"
    r"|\n[^\S\n]*+\n\s*+"
    r"|\n(?=[ \t]*+(?:[-+*•#>|]|\d{1,3}[.)]\s))"
)
_ABBREVIATED = "e.g i.e dr mr mrs ms prof fig no vs etc approx eq st cf al ca resp sec vol"
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
