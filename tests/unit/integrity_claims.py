"""What each kind of mismatch claims, worked out apart from the code that makes the claim."""

import html
import re
import unicodedata
from collections.abc import Callable

from chunkproof.contract import MismatchKind


def as_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_whitespace(text: str) -> str:
    return "".join(c for c in text if not c.isspace())


def without_named_invisibles(text: str) -> str:
    """Without what the contract names: BOM, zero-width, soft hyphen."""
    return "".join(c for c in text if c not in "\ufeff\u200b\u200c\u200d\u2060\u00ad")


def without_invisibles(text: str) -> str:
    """Without format characters, variation selectors and the other ignorables (U+034F, U+2065)."""
    return "".join(
        c for c in text if unicodedata.category(c) != "Cf" and c not in "\u034f\u2065" and not "\ufe00" <= c <= "\ufe0f"
    )


def misread(text: str, codec: str) -> str | None:
    """UTF-8 read byte by byte as another codec; where cp1252 has no character, browsers keep the byte."""
    characters = []
    for byte in text.encode():
        try:
            characters.append(bytes([byte]).decode(codec))
        except UnicodeDecodeError:
            if codec != "cp1252":
                return None
            characters.append(chr(byte))
    return "".join(characters)


def is_normalization(stored: str, original: str) -> bool:
    return any(unicodedata.normalize(form, stored) == unicodedata.normalize(form, original) for form in ("NFC", "NFKC"))


def is_html(stored: str, original: str) -> bool:
    return original in (stored, html.unescape(stored)) or html.unescape(original) in (
        stored,
        html.unescape(stored),
    )


def is_truncated(stored: str, original: str) -> bool:
    return 0 < len(stored) < len(original) and (original.startswith(stored) or original.endswith(stored))


def is_mojibake(stored: str, original: str, details: str) -> bool:
    codec = re.search(r"(?:read as|through) ([\w-]+)", details)[1]
    if "with �" in details:
        return original.encode().decode(codec, "replace") == stored
    if "with ?" in details:
        return original.encode(codec, "replace").decode(codec) == stored
    if "repaired" in details:
        return misread(stored, codec) == original
    return misread(original, codec) == stored


def any_usual_cause(stored: str, original: str) -> bool:
    """Whether one of the contract's causes explains the difference."""
    return (
        not stored
        or is_normalization(stored, original)
        or as_lf(stored) == as_lf(original)
        or without_named_invisibles(stored) == without_named_invisibles(original)
        or without_whitespace(stored) == without_whitespace(original)
        or stored.casefold() == original.casefold()
        or is_html(stored, original)
        or is_truncated(stored, original)
        or is_truncated(original, stored)
        or any(misread(original, codec) == stored for codec in ("latin-1", "cp1252", "cp437", "mac_roman"))
    )


CLAIMS: dict[MismatchKind, Callable[[str, str], bool]] = {
    MismatchKind.EMPTY: lambda stored, _: stored == "",
    MismatchKind.UNICODE_NORMALIZATION: is_normalization,
    MismatchKind.LINE_ENDINGS: lambda stored, original: as_lf(stored) == as_lf(original),
    MismatchKind.INVISIBLE_CHARACTERS: lambda s, o: without_invisibles(s) == without_invisibles(o),
    MismatchKind.WHITESPACE: lambda s, o: without_whitespace(s) == without_whitespace(o),
    MismatchKind.CASE: lambda stored, original: stored.casefold() == original.casefold(),
    MismatchKind.HTML_ENTITIES: is_html,
    MismatchKind.TRUNCATED: is_truncated,
    MismatchKind.EXTENDED: lambda stored, original: not original or is_truncated(original, stored),
    MismatchKind.DIFFERENT: lambda stored, original: not any_usual_cause(stored, original),
}


def holds(kind: MismatchKind, stored: str, original: str, details: str) -> bool:
    """Whether the claim of this kind is true of these texts; mojibake names its codec in the details."""
    if kind == MismatchKind.MOJIBAKE:
        return is_mojibake(stored, original, details)
    return CLAIMS[kind](stored, original)
