"""Texts of nothing but combining marks cost linear time, wherever stored or original text is normalized."""

import sys
import unicodedata
from time import thread_time

import pytest

from chunkproof.proof.integrity import STREAM_SAFE, compare, compare_with_hash, digest, shorten_runs
from chunkproof.suite.cases import contains

LENGTH = 200_000
BY_CLASS = {unicodedata.combining(char): char for char in map(chr, range(sys.maxunicode + 1))}
MARKS = [char for order, char in BY_CLASS.items() if order]


@pytest.mark.parametrize("unit", ["\u0f71\u0f74", "\u0344\u0323", "".join(MARKS), "".join(reversed(MARKS))])
def test_a_text_of_marks_is_compared_and_searched_in_time(unit):
    text = (unit * (LENGTH // len(unit) + 1))[:LENGTH]
    started = thread_time()

    assert compare(text, text[::-1] + "x") is not None
    assert compare("a" + text, text) is not None
    assert compare_with_hash(text, digest("x")) is not None
    assert contains(f"{text} word", "word")

    assert thread_time() - started < 5


def test_thirty_marks_in_a_row_are_kept():
    assert shorten_runs("a" + "\u0323" * STREAM_SAFE) == "a" + "\u0323" * STREAM_SAFE
    assert shorten_runs("a" + "\u0323" * 5_000 + "b") == "a" + "\u0323" * STREAM_SAFE + "b"


def test_a_run_of_any_marks_is_long():
    chars = map(chr, range(sys.maxunicode + 1))
    marks = [char for char in chars if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])]

    assert [mark for mark in marks if len(shorten_runs(f"a{mark * 99}b")) != STREAM_SAFE + 2] == []
    assert all(shorten_runs(text) == text for text in ("\u00e9" * 99, "\u03b1" * 99, "\u65e5\u672c" * 99))
