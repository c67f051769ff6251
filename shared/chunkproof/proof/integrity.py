"""Compare a stored text with its original: equal, or what differs and why.

Texts are equal when their UTF-8 bytes are. A mismatch kind names the likely cause, and each claim is checked: two
texts of kind `unicode_normalization` are equal after that normalization.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from typing import Literal, TypeVar

from chunkproof.base.request import Deadline
from chunkproof.contract import Mismatch, MismatchKind, TextPosition

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
        runs = () if block.isascii() else _long_runs().finditer(block)
        if sum((run.end() - run.start()) ** 2 for run in runs) > MAX_SORTING_STEPS:
            raise NotNormalizableError
        yield block


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
        for char in map(chr, range(0x20000))  # the planes that have any
        if unicodedata.combining(char)
        or (unicodedata.decomposition(char) and unicodedata.combining(unicodedata.normalize("NFKD", char)[0]))
    ]
    # The set takes 0.2 µs for a character; that one is Latin, or another letter, is seen in a tenth of that.
    return re.compile(f"(?![\x00-\u02ff]|[^\\W\uff9e\uff9f])[{''.join(marks)}]{{{LONG_RUN},}}")


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


Text = TypeVar("Text", str, bytes)
BEFORE, AFTER = 10, 30
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
# Single-byte codecs that UTF-8 is most often misread as; cp1252 as browsers and databases do it.
CODECS = ("cp1252", "latin-1", "cp437", "cp850", "mac_roman", "cp1251", "iso8859-15")

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+")
_WHITESPACE = re.compile(r"\s+")
NOT_SEARCHED = "the texts are too long to find the cause in the time that is left"


def compare(stored: str, original: str, budget: Budget | None = None) -> tuple[Mismatch, str] | None:
    """Return None when the texts are equal, else the mismatch and a sentence about it.

    The budget limits the search for a cause: when it is used up, the kind is `different` and the sentence says so.
    """
    if stored == original:
        return None
    kind, details = _cause(stored, original, budget or Budget())
    difference = first_difference(stored, original)
    return Mismatch(
        kind=kind,
        first_difference=difference,
        stored_excerpt=_excerpt(stored, difference.char),
        original_excerpt=_excerpt(original, difference.char),
        stored_bytes=len(stored.encode()),
        original_bytes=len(original.encode()),
        stored_sha256=digest(stored),
        original_sha256=digest(original),
    ), details


def compare_with_hash(stored: str, original_sha256: str, budget: Budget | None = None) -> tuple[Mismatch, str] | None:
    """Compare with the hash of the original.

    The usual damage is undone and hashed again, which can still find the original and with it the cause, as far as
    the budget allows.
    """
    if digest(stored) == original_sha256:
        return None
    budget = budget or Budget()
    details = "The SHA-256 of the stored text differs from the original's"
    try:
        for candidate in possible_originals(stored, budget):
            if digest(candidate) == original_sha256:
                return compare(stored, candidate, budget)
    except OutOfTimeError:
        details = f"{details}; {NOT_SEARCHED}"
    return Mismatch(
        kind=MismatchKind.EMPTY if not stored else MismatchKind.DIFFERENT,
        first_difference=None,
        stored_excerpt=_excerpt(stored, 0),
        original_excerpt=None,
        stored_bytes=len(stored.encode()),
        original_bytes=None,
        stored_sha256=digest(stored),
        original_sha256=original_sha256,
    ), "Stored text is empty" if not stored else details


def digest(text: str) -> str:
    """Return the SHA-256 of the UTF-8 text in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def first_difference(stored: str, original: str) -> TextPosition:
    """Find the first difference of two texts: its byte, and the character, line and column of that byte."""
    char = _common_length(stored, original)
    same = stored[:char]
    # Two characters can share their first bytes: é and è differ in the second one.
    byte = len(same.encode()) + _common_length(stored[char : char + 1].encode(), original[char : char + 1].encode())
    return TextPosition(byte=byte, char=char, line=same.count("\n") + 1, column=char - (same.rfind("\n") + 1) + 1)


def _common_length(left: Text, right: Text) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:  # comparing slices runs at memory speed; a loop over characters does not
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _excerpt(text: str, char: int) -> str:
    start, end = max(0, char - BEFORE), char + AFTER
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _cause(stored: str, original: str, budget: Budget) -> tuple[MismatchKind, str]:
    if not stored:
        return MismatchKind.EMPTY, f"Stored text is empty; the original has {len(original)} characters"
    addition = ""
    try:
        for kind, explain in _CAUSES:
            if details := explain(stored, original, budget):
                return kind, details
    except OutOfTimeError:
        if details := _truncation(stored, original, budget):
            return MismatchKind.TRUNCATED, details
        if details := _extension(stored, original, budget):
            return MismatchKind.EXTENDED, details
        addition = f"; {NOT_SEARCHED}"
    position = first_difference(stored, original)
    return MismatchKind.DIFFERENT, (
        f"Stored text differs from line {position.line}, column {position.column} on "
        f"({len(stored)} characters, the original has {len(original)}){addition}"
    )


def _normalization(form: Form, name: str, stored: str, original: str, budget: Budget) -> str | None:
    """Name the forms of two texts that normalizing makes equal."""
    if stored.isascii() and original.isascii():
        return None
    with suppress(NotNormalizableError):
        if are_equal(normalize(form, stored), normalize(form, original), budget):
            return f"{name} differs: stored is {_form(stored, budget)}, the original {_form(original, budget)}"
    return None


def _form(text: str, budget: Budget) -> str:
    forms = [form for form in FORMS if is_normalized(form, text, budget)]
    return " and ".join(forms) if forms else "in no normal form"


def _line_endings(stored: str, original: str, budget: Budget) -> str | None:
    if not are_equal(unify_line_ends(stored), unify_line_ends(original), budget):
        return None
    return f"Line endings differ: stored has {_endings(stored)}, the original {_endings(original)}"


def _endings(text: str) -> str:
    crlf = text.count("\r\n")
    counts = {"CRLF": crlf, "LF": text.count("\n") - crlf, "CR": text.count("\r") - crlf}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def remove_invisible(text: str) -> str:
    """Return the text without byte order marks, zero-width characters and soft hyphens."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def _invisible(stored: str, original: str, budget: Budget) -> str | None:
    if not are_equal(remove(_INVISIBLE, stored), remove(_INVISIBLE, original), budget):
        return None
    return f"Invisible characters differ: stored has {_invisibles(stored)}, the original {_invisibles(original)}"


def _invisibles(text: str) -> str:
    counts = {char: text.count(char) for char in set(text) if _INVISIBLE.match(char)}
    names = [f"U+{ord(c):04X} {unicodedata.name(c, '?')}" for c in sorted(counts)]
    return f"{sum(counts.values())} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if counts else "none"


def _whitespace(stored: str, original: str, budget: Budget) -> str | None:
    if not are_equal(remove(_WHITESPACE, stored), remove(_WHITESPACE, original), budget):
        return None
    for text, longer, whose in ((stored, original, "the original"), (original, stored, "the stored text")):
        if longer in (f"{text}\n", f"{text}\r\n"):
            return f"Whitespace differs: only one trailing newline, which {whose} has"
    kept, wanted = (len(text) - len(_WHITESPACE.sub("", text)) for text in (stored, original))
    if kept == wanted:
        return "Whitespace differs: the same amount, other characters or places"
    return f"Whitespace differs: stored has {kept} whitespace characters, the original {wanted}"


def _case(stored: str, original: str, budget: Budget) -> str | None:
    # Not casefold, which equates ß and ss; upper() turns ß into SS, which is a change of case.
    budget.spend(len(stored) + len(original))
    if stored.lower() == original.lower():
        return "Only upper and lower case differ"
    for change in (str.upper, str.lower, str.title, str.capitalize, str.swapcase):
        budget.spend(len(original))
        if stored == change(original):
            return "Only upper and lower case differ"
    return None


def _html(stored: str, original: str, budget: Budget) -> str | None:
    if are_equal(unescape(stored), blocks(original), budget):
        return "Stored text is HTML-escaped"
    if are_equal(blocks(stored), unescape(original), budget):
        return "Stored text has the original's HTML entities replaced"
    if are_equal(unescape(stored), unescape(original), budget):
        return "Stored text and original are HTML-escaped differently"
    return None


def _mojibake(stored: str, original: str, budget: Budget) -> str | None:
    def is_stored(changed: Iterator[str]) -> bool:
        return are_equal(changed, blocks(stored), budget)

    for codec in CODECS:
        with suppress(UnicodeDecodeError):
            if is_stored(misread(original, codec)):
                return f"Stored text is the original's UTF-8 read as {codec}"
        with suppress(UnicodeDecodeError):
            if are_equal(misread(stored, codec), blocks(original), budget):
                return f"The original is UTF-8 read as {codec}; the stored text was repaired"
    for codec in ("ascii", *CODECS):
        if is_stored(misread(original, codec, "replace")):
            return f"Stored text is the original's UTF-8 read as {codec}, with � for what it lacks"
        if is_stored(squeeze_through(original, codec)):
            return f"Stored text went through {codec}, with ? for what it lacks"
    return None


_FROM_CP1252 = {ord(char): byte for byte, char in CP1252.items()}


def _truncation(stored: str, original: str, _budget: Budget) -> str | None:
    if original.startswith(stored):
        return f"Stored text truncated: {len(stored)} of {len(original)} characters kept"
    if original.endswith(stored):
        return f"Stored text truncated at the start: {len(stored)} of {len(original)} characters kept"
    return None


def _extension(stored: str, original: str, _budget: Budget) -> str | None:
    if stored.startswith(original):
        return f"Stored text extended: {len(stored) - len(original)} characters after the original's {len(original)}"
    if stored.endswith(original):
        return f"Stored text extended: {len(stored) - len(original)} characters before the original's {len(original)}"
    return None


# Specific causes before general ones: a lost trailing newline is also a truncation, but not the other way round.
_CAUSES: tuple[tuple[MismatchKind, Callable[[str, str, Budget], str | None]], ...] = (
    (MismatchKind.UNICODE_NORMALIZATION, partial(_normalization, "NFC", "Unicode normalization")),
    (MismatchKind.LINE_ENDINGS, _line_endings),
    (MismatchKind.INVISIBLE_CHARACTERS, _invisible),
    (MismatchKind.WHITESPACE, _whitespace),
    (MismatchKind.UNICODE_NORMALIZATION, partial(_normalization, "NFKC", "Unicode compatibility normalization")),
    (MismatchKind.CASE, _case),
    (MismatchKind.HTML_ENTITIES, _html),
    (MismatchKind.TRUNCATED, _truncation),
    (MismatchKind.EXTENDED, _extension),
    (MismatchKind.MOJIBAKE, _mojibake),
)


def possible_originals(stored: str, budget: Budget | None = None) -> Iterator[str]:
    """Yield what the text was before the usual damage, if it has any."""
    budget = budget or Budget()

    def whole(changed: Iterator[str]) -> str:
        return join(changed, budget)

    for form in FORMS:
        with suppress(NotNormalizableError):
            yield whole(normalize(form, stored))
    with_lf = whole(unify_line_ends(stored))
    yield from (with_lf, with_lf.replace("\n", "\r\n"))
    yield from (stored.strip(), stored.rstrip("\r\n"))
    yield from (stored + "\n", stored + "\r\n", stored + " ", " " + stored)
    yield from ("\ufeff" + stored, stored.removeprefix("\ufeff"))
    yield whole(remove(_INVISIBLE, stored))
    yield whole(unescape(stored))
    yield from (html.escape(stored), html.escape(stored, quote=False))
    for codec in CODECS:
        budget.spend(len(stored))
        with suppress(UnicodeError):
            is_cp1252 = codec == "cp1252"
            yield (stored.translate(_FROM_CP1252).encode("latin-1") if is_cp1252 else stored.encode(codec)).decode()
