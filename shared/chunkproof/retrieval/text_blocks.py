"""Change and compare long texts block by block, and stop when the time of a request is nearly over.

Normalizing or unescaping six megabytes takes seconds in one call, which nothing can interrupt. A block takes some
milliseconds, and most texts differ in their first one.
"""

import html
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal

from chunkproof.deadline import Deadline

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
FindCut = Callable[[str, int], int]

BLOCK = 65_536
# A text without a place to cut for so many characters is not normalized.
MAX_OVERHANG = 4_096
# So many characters are looked at however little time is left: a chunk of usual size, for every cause.
FREE_CHARS = 1_000_000
# This part of the time is kept for writing the response.
RESERVE = 0.3

# Normalizing sorts a run of n combining marks in n² steps. Languages need a few marks in a row, and Unicode's
# stream-safe text format (UAX #15) allows 30; a text of nothing but longer runs would take minutes.
LONG_RUN = 4
STREAM_SAFE = 30
MAX_SORTING_STEPS = (BLOCK + MAX_OVERHANG) * (STREAM_SAFE + 1)
_LINE_END = re.compile(r"\r\n?")
# In the name or number of a character reference there is none of these.
_NOT_IN_REFERENCES = re.compile(r"[& \t\n\f<]")
# Categories of characters that begin a new cluster: letters, numbers, punctuation, symbols, spaces, controls.
_STARTERS = re.compile("L[ulo]|N[dlo]|P[cdseifo]|S[mco]|Z[slp]|Cc")


class OutOfTimeError(Exception):
    """The texts are too long for the time that is left."""


class NotNormalizableError(Exception):
    """Normalizing the text would take more than linear time."""


class Budget:
    """How much text may be looked at: without a deadline all of it, else until most of its time is over."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._chars = 0

    def spend(self, chars: int) -> None:
        """Note that so many characters are looked at next; raise `OutOfTimeError` when there is no time for them."""
        self._chars += chars
        deadline = self._deadline
        if (
            deadline is not None
            and self._chars > FREE_CHARS
            and deadline.remaining_ms() <= deadline.budget_ms * RESERVE
        ):
            raise OutOfTimeError


def blocks(text: str, find_cut: FindCut | None = None) -> Iterator[str]:
    """Cut a text into blocks, at any place or at the next one that `find_cut` returns."""
    start = 0
    while start < len(text):
        end = start + BLOCK
        if find_cut is not None and end < len(text):
            end = find_cut(text, end)
        yield text[start:end]
        start = end


def are_equal(left: Iterator[str], right: Iterator[str], budget: Budget) -> bool:
    """Whether two texts are equal that are made block by block; stops at the first difference."""
    ours = theirs = ""
    while True:
        while not ours and (block := next(left, None)) is not None:
            budget.spend(len(block))
            ours = block
        while not theirs and (block := next(right, None)) is not None:
            budget.spend(len(block))
            theirs = block
        length = min(len(ours), len(theirs))
        if not length:
            return ours == theirs
        if ours[:length] != theirs[:length]:
            return False
        ours, theirs = ours[length:], theirs[length:]


def join(changed: Iterator[str], budget: Budget) -> str:
    """Return the whole text."""
    parts = []
    for block in changed:
        budget.spend(len(block))
        parts.append(block)
    return "".join(parts)


def normalize(form: Form, text: str) -> Iterator[str]:
    """Normalize a text block by block; `NotNormalizableError` where that would not take linear time."""
    if text.isascii():
        yield text
        return
    for block in _cut_for_normalizing(text):
        yield unicodedata.normalize(form, block)


def is_normalized(form: Form, text: str, budget: Budget) -> bool:
    """Whether normalizing would not change the text."""
    for block in _cut_for_normalizing(text):
        budget.spend(len(block))
        if not unicodedata.is_normalized(form, block):
            return False
    return True


def _cut_for_normalizing(text: str) -> Iterator[str]:
    for block in blocks(text, _find_starter):
        if not block.isascii() and _count_sorting_steps(block) > MAX_SORTING_STEPS:
            raise NotNormalizableError
        yield block


def _count_sorting_steps(text: str) -> int:
    return sum((run.end() - run.start()) ** 2 for run in _long_runs().finditer(text))


def _find_starter(text: str, start: int) -> int:
    for at in range(start, min(start + MAX_OVERHANG, len(text))):
        if _is_starter(text[at]):
            return at
    if start + MAX_OVERHANG < len(text):
        raise NotNormalizableError
    return len(text)


def _is_starter(char: str) -> bool:
    """Whether no normalization joins the character, or what it decomposes to, with what precedes it."""
    first = unicodedata.normalize("NFKD", char)[0]
    name = unicodedata.name(first, "")
    return (
        _STARTERS.fullmatch(unicodedata.category(char)) is not None
        and _STARTERS.fullmatch(unicodedata.category(first)) is not None
        and not name.startswith(("HANGUL JUNGSEONG", "HANGUL JONGSEONG"))
        and "VOWEL SIGN" not in name
    )


@cache
def _long_runs() -> re.Pattern[str]:
    """Match a long run of combining marks (non-starters, according to Python's Unicode database)."""
    marks = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.combining(char)
        or (unicodedata.decomposition(char) and unicodedata.combining(unicodedata.normalize("NFKD", char)[0]))
    ]
    return re.compile(f"[{''.join(marks)}]{{{LONG_RUN},}}")


def shorten_runs(text: str) -> str:
    """Return the text with at most 30 combining marks in a row, so that normalizing it takes linear time."""
    return text if text.isascii() else _long_runs().sub(lambda run: run[0][:STREAM_SAFE], text)


def unify_line_ends(text: str) -> Iterator[str]:
    """Write every line end as LF, block by block."""
    return (_LINE_END.sub("\n", block) for block in blocks(text, lambda text, at: at + (text[at] == "\n")))


def unescape(text: str) -> Iterator[str]:
    """Replace HTML's character references, block by block."""
    return map(unescape_html, blocks(text, _find_end_of_reference))


def _find_end_of_reference(text: str, start: int) -> int:
    found = _NOT_IN_REFERENCES.search(text, start)
    return found.start() if found else len(text)


def unescape_html(text: str) -> str:
    """Replace HTML's character references at once."""
    try:
        return html.unescape(text)
    except ValueError:  # a character reference of thousands of digits
        return text


def remove(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Remove what matches single characters, block by block."""
    return (pattern.sub("", block) for block in blocks(text))


def misread(text: str, codec: str, errors: str = "strict") -> Iterator[str]:
    """Read the text's UTF-8 as a single-byte codec, block by block; cp1252 as browsers and databases do it."""
    octets = text.encode()
    for start in range(0, len(octets), BLOCK):
        block = octets[start : start + BLOCK]
        if codec == "cp1252" and errors == "strict":
            yield block.decode("latin-1").translate(CP1252)
        else:
            yield block.decode(codec, errors)


def squeeze_through(text: str, codec: str) -> Iterator[str]:
    """Write the text in a single-byte codec, with ? for what it lacks, and read it again, block by block."""
    return (block.encode(codec, "replace").decode(codec) for block in blocks(text))


# Bytes that cp1252 leaves undefined come out as the control characters of latin-1.
CP1252 = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xA0)}
