"""Compare a stored text with its original: equal, or what differs and why.

Texts are equal when their UTF-8 bytes are. A mismatch kind names the likely cause, and each claim is checked: two
texts of kind `unicode_normalization` are equal after that normalization.
"""

import html
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from typing import Literal, TypeVar

from chunkproof.models import Mismatch, MismatchKind, TextPosition

Text = TypeVar("Text", str, bytes)
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
BEFORE, AFTER = 10, 30
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
# Single-byte codecs that UTF-8 is most often misread as; cp1252 as browsers and databases do it.
CODECS = ("cp1252", "latin-1", "cp437", "cp850", "mac_roman", "cp1251", "iso8859-15")

_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
# Normalizing sorts a run of n combining marks in n² steps. Languages need a few marks in a row, and Unicode's
# stream-safe text format (UAX #15) allows 30; a text of nothing but longer runs would take minutes.
LONG_RUN = 4
STREAM_SAFE = 30
MAX_SORTING_STEPS = 1_000_000
_WHITESPACE = re.compile(r"\s+")
_LINE_END = re.compile(r"\r\n?")


def compare(stored: str, original: str) -> tuple[Mismatch, str] | None:
    """Return None when the texts are equal, else the mismatch and a sentence about it."""
    if stored == original:
        return None
    kind, details = _cause(stored, original)
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


def compare_with_hash(stored: str, original_sha256: str) -> tuple[Mismatch, str] | None:
    """Compare with the hash of the original.

    The usual damage is undone and hashed again, which can still find the original and with it the cause.
    """
    if digest(stored) == original_sha256:
        return None
    for candidate in possible_originals(stored):
        if digest(candidate) == original_sha256:
            return compare(stored, candidate)
    return Mismatch(
        kind=MismatchKind.EMPTY if not stored else MismatchKind.DIFFERENT,
        first_difference=None,
        stored_excerpt=_excerpt(stored, 0),
        original_excerpt=None,
        stored_bytes=len(stored.encode()),
        original_bytes=None,
        stored_sha256=digest(stored),
        original_sha256=original_sha256,
    ), "Stored text is empty" if not stored else "The SHA-256 of the stored text differs from the original's"


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


def _cause(stored: str, original: str) -> tuple[MismatchKind, str]:
    if not stored:
        return MismatchKind.EMPTY, f"Stored text is empty; the original has {len(original)} characters"
    for kind, explain in _CAUSES:
        if details := explain(stored, original):
            return kind, details
    position = first_difference(stored, original)
    return MismatchKind.DIFFERENT, (
        f"Stored text differs from line {position.line}, column {position.column} on "
        f"({len(stored)} characters, the original has {len(original)})"
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


def _can_normalize(text: str) -> bool:
    """Whether normalizing takes time in proportion to the length of the text."""
    if text.isascii():
        return True
    steps = 0
    for run in _long_runs().finditer(text):
        steps += (run.end() - run.start()) ** 2
        if steps > MAX_SORTING_STEPS:
            return False
    return True


def _normalization(stored: str, original: str) -> str | None:
    if not (_can_normalize(stored) and _can_normalize(original)):
        return None
    if unicodedata.normalize("NFC", stored) != unicodedata.normalize("NFC", original):
        return None
    return f"Unicode normalization differs: stored is {_form(stored)}, the original {_form(original)}"


def _compatibility(stored: str, original: str) -> str | None:
    if not (_can_normalize(stored) and _can_normalize(original)):
        return None
    if unicodedata.normalize("NFKC", stored) != unicodedata.normalize("NFKC", original):
        return None
    forms = f"stored is {_form(stored)}, the original {_form(original)}"
    return f"Unicode compatibility normalization differs: {forms}"


def _form(text: str) -> str:
    forms = [form for form in FORMS if unicodedata.is_normalized(form, text)]
    return " and ".join(forms) if forms else "in no normal form"


def _line_endings(stored: str, original: str) -> str | None:
    if _LINE_END.sub("\n", stored) != _LINE_END.sub("\n", original):
        return None
    return f"Line endings differ: stored has {_endings(stored)}, the original {_endings(original)}"


def _endings(text: str) -> str:
    crlf = text.count("\r\n")
    counts = {"CRLF": crlf, "LF": text.count("\n") - crlf, "CR": text.count("\r") - crlf}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def remove_invisible(text: str) -> str:
    """Return the text without byte order marks, zero-width characters and soft hyphens."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def _invisible(stored: str, original: str) -> str | None:
    if _INVISIBLE.sub("", stored) != _INVISIBLE.sub("", original):
        return None
    return f"Invisible characters differ: stored has {_invisibles(stored)}, the original {_invisibles(original)}"


def _invisibles(text: str) -> str:
    found = _INVISIBLE.findall(text)
    names = sorted({f"U+{ord(c):04X} {unicodedata.name(c, '?')}" for c in found})
    return f"{len(found)} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if found else "none"


def _whitespace(stored: str, original: str) -> str | None:
    if _WHITESPACE.sub("", stored) != _WHITESPACE.sub("", original):
        return None
    for text, longer, whose in ((stored, original, "the original"), (original, stored, "the stored text")):
        if longer in (f"{text}\n", f"{text}\r\n"):
            return f"Whitespace differs: only one trailing newline, which {whose} has"
    kept, wanted = (len(text) - len(_WHITESPACE.sub("", text)) for text in (stored, original))
    if kept == wanted:
        return "Whitespace differs: the same amount, other characters or places"
    return f"Whitespace differs: stored has {kept} whitespace characters, the original {wanted}"


def _case(stored: str, original: str) -> str | None:
    # Not casefold, which equates ß and ss; upper() turns ß into SS, which is a change of case.
    changed = (
        original.upper(),
        original.lower(),
        original.title(),
        original.capitalize(),
        original.swapcase(),
    )
    return "Only upper and lower case differ" if stored.lower() == original.lower() or stored in changed else None


def _html(stored: str, original: str) -> str | None:
    plain_stored, plain_original = unescape_html(stored), unescape_html(original)
    if plain_stored == original:
        return "Stored text is HTML-escaped"
    if stored == plain_original:
        return "Stored text has the original's HTML entities replaced"
    if plain_stored == plain_original:
        return "Stored text and original are HTML-escaped differently"
    return None


def unescape_html(text: str) -> str:
    """Return the text with its HTML entities decoded."""
    try:
        return html.unescape(text)
    except ValueError:  # a character reference of thousands of digits
        return text


def _mojibake(stored: str, original: str) -> str | None:
    for codec in CODECS:
        if _misread(original, codec) == stored:
            return f"Stored text is the original's UTF-8 read as {codec}"
        if _misread(stored, codec) == original:
            return f"The original is UTF-8 read as {codec}; the stored text was repaired"
    for codec in ("ascii", *CODECS):
        if original.encode().decode(codec, "replace") == stored:
            return f"Stored text is the original's UTF-8 read as {codec}, with � for what it lacks"
        if original.encode(codec, "replace").decode(codec) == stored:
            return f"Stored text went through {codec}, with ? for what it lacks"
    return None


def _misread(text: str, codec: str) -> str | None:
    if codec == "cp1252":
        return text.encode().decode("latin-1").translate(_CP1252)
    try:
        return text.encode().decode(codec)
    except UnicodeDecodeError:
        return None


# Bytes that cp1252 leaves undefined come out as the control characters of latin-1.
_CP1252 = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xA0)}


_FROM_CP1252 = {ord(char): byte for byte, char in _CP1252.items()}


def _truncation(stored: str, original: str) -> str | None:
    if original.startswith(stored):
        return f"Stored text truncated: {len(stored)} of {len(original)} characters kept"
    if original.endswith(stored):
        return f"Stored text truncated at the start: {len(stored)} of {len(original)} characters kept"
    return None


def _extension(stored: str, original: str) -> str | None:
    if stored.startswith(original):
        return f"Stored text extended: {len(stored) - len(original)} characters after the original's {len(original)}"
    if stored.endswith(original):
        return f"Stored text extended: {len(stored) - len(original)} characters before the original's {len(original)}"
    return None


# Specific causes before general ones: a lost trailing newline is also a truncation, but not the other way round.
_CAUSES: tuple[tuple[MismatchKind, Callable[[str, str], str | None]], ...] = (
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


def possible_originals(stored: str) -> Iterator[str]:
    """Yield what the text was before the usual damage, if it has any."""
    if _can_normalize(stored):
        yield from (unicodedata.normalize(form, stored) for form in FORMS)
    yield from (_LINE_END.sub("\n", stored), _LINE_END.sub("\n", stored).replace("\n", "\r\n"))
    yield from (
        stored.strip(),
        stored.rstrip("\r\n"),
        stored + "\n",
        stored + "\r\n",
        stored + " ",
        " " + stored,
    )
    yield from ("\ufeff" + stored, stored.removeprefix("\ufeff"), _INVISIBLE.sub("", stored))
    yield from (unescape_html(stored), html.escape(stored), html.escape(stored, quote=False))
    for codec in CODECS:
        try:
            yield _reread(stored, codec).decode()
        except UnicodeError:
            continue


def _reread(text: str, codec: str) -> bytes:
    """Return the bytes that gave this text when they were read with this codec."""
    return text.translate(_FROM_CP1252).encode("latin-1") if codec == "cp1252" else text.encode(codec)
