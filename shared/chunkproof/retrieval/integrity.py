"""Compare a stored text with its original: equal, or what differs and why.

Texts are equal when their UTF-8 bytes are. A mismatch kind names the likely cause, and each claim is checked: two
texts of kind `unicode_normalization` are equal after that normalization.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TypeVar

from chunkproof.models import Mismatch, MismatchKind, TextPosition
from chunkproof.retrieval import text_blocks
from chunkproof.retrieval.text_blocks import Budget, Form, NotNormalizableError, OutOfTimeError, are_equal

Text = TypeVar("Text", str, bytes)
BEFORE, AFTER = 10, 30
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
# Single-byte codecs that UTF-8 is most often misread as; cp1252 as browsers and databases do it.
CODECS = ("cp1252", "latin-1", "cp437", "cp850", "mac_roman", "cp1251", "iso8859-15")

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
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


def _normalization(stored: str, original: str, budget: Budget) -> str | None:
    forms = _equal_forms("NFC", stored, original, budget)
    return f"Unicode normalization differs: {forms}" if forms else None


def _compatibility(stored: str, original: str, budget: Budget) -> str | None:
    forms = _equal_forms("NFKC", stored, original, budget)
    return f"Unicode compatibility normalization differs: {forms}" if forms else None


def _equal_forms(form: Form, stored: str, original: str, budget: Budget) -> str | None:
    """Name the forms of two texts that normalizing makes equal."""
    if stored.isascii() and original.isascii():
        return None
    try:
        if are_equal(text_blocks.normalize(form, stored), text_blocks.normalize(form, original), budget):
            return f"stored is {_form(stored, budget)}, the original {_form(original, budget)}"
    except NotNormalizableError:
        pass
    return None


def _form(text: str, budget: Budget) -> str:
    forms = [form for form in FORMS if text_blocks.is_normalized(form, text, budget)]
    return " and ".join(forms) if forms else "in no normal form"


def _line_endings(stored: str, original: str, budget: Budget) -> str | None:
    if not are_equal(text_blocks.unify_line_ends(stored), text_blocks.unify_line_ends(original), budget):
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
    if not are_equal(text_blocks.remove(_INVISIBLE, stored), text_blocks.remove(_INVISIBLE, original), budget):
        return None
    return f"Invisible characters differ: stored has {_invisibles(stored)}, the original {_invisibles(original)}"


def _invisibles(text: str) -> str:
    found = _INVISIBLE.findall(text)
    names = sorted({f"U+{ord(c):04X} {unicodedata.name(c, '?')}" for c in found})
    return f"{len(found)} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if found else "none"


def _whitespace(stored: str, original: str, budget: Budget) -> str | None:
    if not are_equal(text_blocks.remove(_WHITESPACE, stored), text_blocks.remove(_WHITESPACE, original), budget):
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
    unescape = text_blocks.unescape
    if are_equal(unescape(stored), text_blocks.blocks(original), budget):
        return "Stored text is HTML-escaped"
    if are_equal(text_blocks.blocks(stored), unescape(original), budget):
        return "Stored text has the original's HTML entities replaced"
    if are_equal(unescape(stored), unescape(original), budget):
        return "Stored text and original are HTML-escaped differently"
    return None


def _mojibake(stored: str, original: str, budget: Budget) -> str | None:
    misread = text_blocks.misread

    def is_stored(blocks: Iterator[str]) -> bool:
        return are_equal(blocks, text_blocks.blocks(stored), budget)

    for codec in CODECS:
        with suppress(UnicodeDecodeError):
            if is_stored(misread(original, codec)):
                return f"Stored text is the original's UTF-8 read as {codec}"
        with suppress(UnicodeDecodeError):
            if are_equal(misread(stored, codec), text_blocks.blocks(original), budget):
                return f"The original is UTF-8 read as {codec}; the stored text was repaired"
    for codec in ("ascii", *CODECS):
        if is_stored(misread(original, codec, "replace")):
            return f"Stored text is the original's UTF-8 read as {codec}, with � for what it lacks"
        if is_stored(text_blocks.squeeze_through(original, codec)):
            return f"Stored text went through {codec}, with ? for what it lacks"
    return None


_FROM_CP1252 = {ord(char): byte for byte, char in text_blocks.CP1252.items()}


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
    (MismatchKind.UNICODE_NORMALIZATION, _normalization),
    (MismatchKind.LINE_ENDINGS, _line_endings),
    (MismatchKind.INVISIBLE_CHARACTERS, _invisible),
    (MismatchKind.WHITESPACE, _whitespace),
    (MismatchKind.UNICODE_NORMALIZATION, _compatibility),
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
        return text_blocks.join(changed, budget)

    for form in FORMS:
        with suppress(NotNormalizableError):
            yield whole(text_blocks.normalize(form, stored))
    with_lf = whole(text_blocks.unify_line_ends(stored))
    yield from (with_lf, with_lf.replace("\n", "\r\n"))
    yield from (stored.strip(), stored.rstrip("\r\n"))
    yield from (stored + "\n", stored + "\r\n", stored + " ", " " + stored)
    yield from ("\ufeff" + stored, stored.removeprefix("\ufeff"))
    yield whole(text_blocks.remove(_INVISIBLE, stored))
    yield whole(text_blocks.unescape(stored))
    yield from (html.escape(stored), html.escape(stored, quote=False))
    for codec in CODECS:
        budget.spend(len(stored))
        with suppress(UnicodeError):
            yield _reread(stored, codec).decode()


def _reread(text: str, codec: str) -> bytes:
    """Return the bytes that gave this text when they were read with this codec."""
    return text.translate(_FROM_CP1252).encode("latin-1") if codec == "cp1252" else text.encode(codec)
