"""Long texts are changed block by block with the same result as at once, and no longer than the deadline allows."""

import html
import re
import sys
import unicodedata
from random import Random

import pytest

from chunkproof.base.request import Deadline
from chunkproof.contract import MismatchKind
from chunkproof.proof import integrity as text_blocks
from chunkproof.proof.integrity import (
    CODECS,
    NOT_SEARCHED,
    Budget,
    NotNormalizableError,
    are_equal,
    compare,
    compare_with_hash,
    digest,
)

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
HARD = (
    "a", "e\u0301", "\u0301", "\u0323", "\u1100", "\u1161", "\u11a8", "\uac00", "\u09c7", "\u09be", "\uff9e", "か",
    "\u3099", "ﬁ", "\ufdfa", "\u0344", "\r", "\n", "\r\n", "&", "&amp", ";", "&#6", "5;", "lt;", "&notit", " ", "<",
    "\u200b", "é", "ß", "\u2003", "漢", "ά", "\U0001f468\u200d\U0001f469",
)  # fmt: skip


@pytest.fixture(params=range(20))
def text(request, monkeypatch):
    """A random text of what is hard to cut, in many small blocks."""
    monkeypatch.setattr(text_blocks, "BLOCK", 7)
    random = Random(request.param)
    return "".join(random.choices(HARD, k=300))


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_blocks_are_normalized_like_the_whole(text, form):
    assert "".join(text_blocks.normalize(form, text)) == unicodedata.normalize(form, text)
    normal = unicodedata.normalize(form, text)
    for one in (text, normal):
        assert text_blocks.is_normalized(form, one, Budget()) is unicodedata.is_normalized(form, one)


def test_blocks_are_changed_like_the_whole(text):
    assert "".join(text_blocks.unify_line_ends(text)) == re.sub("\r\n?", "\n", text)
    assert "".join(text_blocks.unescape(text)) == html.unescape(text)
    for codec in CODECS:
        assert "".join(text_blocks.misread(text, codec, "replace")) == text.encode().decode(codec, "replace")
        assert "".join(text_blocks.squeeze_through(text, codec)) == text.encode(codec, "replace").decode(codec)


def test_no_character_that_a_block_begins_with_joins_the_one_before():
    """Every composition of this Python's Unicode database is looked at."""
    second = {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}  # by Hangul's own rules
    for char in CHARACTERS:
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            second.add(chr(int(parts[1], 16)))

    joining = [char for char in CHARACTERS if text_blocks._is_starter(char) and _decompose(char)[0] in second]
    marks = [c for c in CHARACTERS if text_blocks._is_starter(c) and unicodedata.combining(_decompose(c)[0])]

    assert joining == marks == []


def _decompose(char):
    return unicodedata.normalize("NFKD", char)


@pytest.mark.parametrize("unit", ["\u0301", "\u0f71\u0f74", "\uff9e"])
def test_a_long_text_without_a_place_to_cut_is_not_normalized(unit):
    with pytest.raises(NotNormalizableError):
        list(text_blocks.normalize("NFC", unit * (2 * text_blocks.BLOCK)))


def test_texts_are_compared_across_blocks_of_different_lengths():
    assert are_equal(iter(["ab", "", "c"]), iter(["a", "bc", ""]), Budget())
    assert not are_equal(iter(["ab"]), iter(["a", "bc"]), Budget())
    assert not are_equal(iter(["ab"]), iter([]), Budget())


def spent_deadline():
    return Deadline(0)


def test_the_cause_of_a_usual_difference_is_found_however_little_time_is_left():
    text = "naïve words " * 1_000

    mismatch, _ = compare(text, text.upper(), Budget(spent_deadline()))

    assert mismatch.kind is MismatchKind.CASE


@pytest.mark.parametrize("unit", ["ab c\r", "&amp;x", "é", "\ufdfa", "\u200b", "Σ.", "가", "a\u0301\u0323"])
def test_the_cause_of_a_long_difference_is_searched_until_the_time_is_over(unit):
    text = unit * 300_000
    deadline = spent_deadline()

    mismatch, details = compare(text + "x", text + "y" + text, Budget(deadline))
    by_hash, why = compare_with_hash(text, digest("x"), Budget(deadline))

    assert mismatch.kind is by_hash.kind is MismatchKind.DIFFERENT
    assert details.endswith(NOT_SEARCHED)
    assert why.endswith(NOT_SEARCHED)
    assert mismatch.first_difference.char == len(text)


def test_a_long_text_that_was_cut_is_called_so_without_any_time():
    text = "&amp;\r\n" * 300_000

    mismatch, _ = compare(text[:-5], text, Budget(spent_deadline()))

    assert mismatch.kind is MismatchKind.TRUNCATED


def test_equal_texts_are_equal_without_any_time():
    text = "\ufdfa" * 1_000_000

    assert compare(text, text, Budget(spent_deadline())) is None
    assert compare_with_hash(text, digest(text), Budget(spent_deadline())) is None


def test_many_chunks_of_a_request_share_its_time():
    budget = Budget(spent_deadline())
    text = "wörter " * 3_000

    kinds = [compare(text, text.upper(), budget)[0].kind for _ in range(100)]

    assert kinds[0] is MismatchKind.CASE
    assert kinds[-1] is MismatchKind.DIFFERENT
