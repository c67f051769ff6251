"""Find a keyword in a text: as whole words, in any case, with or without its accents."""

import re
import unicodedata

from chunkproof.base.words import is_unspaced
from chunkproof.proof.integrity import shorten_runs

# Combining classes of marks that belong to a letter in Indic scripts: vowel signs, nukta, virama.
_NO_ACCENTS = (0, 7, 9)


def contains(text: str, keyword: str, *, ignore_accents: bool = False) -> bool:
    """Return whether the text has the keyword's words one after the other, as whole words.

    Canonically equivalent spellings are equal. In scripts without spaces between words, any match counts.
    """
    folded, words = _fold(text, ignore_accents), _fold(keyword, ignore_accents).split()
    pattern = r"\s+".join(map(re.escape, words))
    for found in re.finditer(f"(?=({pattern}))", folded) if words else ():
        begin, end = found.span(1)
        before, first, last, after = (folded[at : at + 1] for at in (max(begin - 1, 0), begin, end - 1, end))
        if not (begin and _are_joined(before, first)) and not _are_joined(last, after):
            return True
    return False


def has_a_word(keyword: str) -> bool:
    """Return whether there is anything to look for."""
    return any(map(_is_letter, keyword))


def _fold(text: str, ignore_accents: bool) -> str:
    safe = shorten_runs(text)  # a stored text may be nothing but marks
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFD", safe).casefold())
    if ignore_accents:
        apart = "".join(c for c in apart if unicodedata.combining(c) in _NO_ACCENTS)
    return unicodedata.normalize("NFC", apart)


def _are_joined(left: str, right: str) -> bool:
    """Return whether the two characters belong to one word."""
    if not left or not right or not _is_letter(left) or not _is_letter(right):
        return False
    return not (is_unspaced(left) or is_unspaced(right))


def _is_letter(character: str) -> bool:
    # Marks too: str.isalnum() is false for the vowel signs of Devanagari.
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
