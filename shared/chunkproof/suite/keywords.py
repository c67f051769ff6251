"""Whether a keyword is in a text: as a whole word, whatever the case, with or without its accents."""

import re
import unicodedata

# Written without spaces between words: there is no telling where one ends.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
# Combining classes of what is part of a letter in Indic scripts: vowel signs, nukta, virama.
_NO_ACCENTS = (0, 7, 9)


def contains(text: str, keyword: str, *, ignore_accents: bool = False) -> bool:
    """Whether the words of the keyword stand in the text one after the other, apart from other letters.

    Canonically equal spellings are the same. In scripts that put no spaces between words, any place counts.
    """
    folded, words = _folded(text, ignore_accents), _folded(keyword, ignore_accents).split()
    pattern = r"\s+".join(map(re.escape, words))
    for found in re.finditer(f"(?=({pattern}))", folded) if words else ():
        begin, end = found.span(1)
        before, first, last, after = (folded[at : at + 1] for at in (max(begin - 1, 0), begin, end - 1, end))
        if not (begin and _joined(before, first)) and not _joined(last, after):
            return True
    return False


def has_a_word(keyword: str) -> bool:
    """Whether there is anything to look for."""
    return any(map(_is_letter, keyword))


def _folded(text: str, ignore_accents: bool) -> str:
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())
    if ignore_accents:
        apart = "".join(c for c in apart if unicodedata.combining(c) in _NO_ACCENTS)
    return unicodedata.normalize("NFC", apart)


def _joined(left: str, right: str) -> bool:
    """Whether the two characters belong to one word."""
    if not left or not right or not _is_letter(left) or not _is_letter(right):
        return False
    return not (_is_unspaced(left) or _is_unspaced(right))


def _is_letter(character: str) -> bool:
    # Marks too: to Python, the vowel signs of Devanagari are no letters.
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(_UNSPACED)
