"""Stored against original, in examples written by hand."""

from hashlib import sha256
from time import process_time

import pytest

from chunkproof.contract import MismatchKind, TextPosition
from chunkproof.proof.integrity import compare, digest, first_difference


def kind_and_details(stored: str, original: str) -> tuple[str, str]:
    mismatch, details = compare(stored, original)
    return mismatch.kind.value, details


def test_the_contracts_own_example():
    mismatch, details = compare("To set up a vector dat", "To set up a vector database")

    assert details == "Stored text truncated: 22 of 27 characters kept"
    assert mismatch.model_dump(mode="json") == {
        "kind": "truncated",
        "first_difference": {"byte": 22, "char": 22, "line": 1, "column": 23},
        "stored_excerpt": "…vector dat",
        "original_excerpt": "…vector database",
        "stored_bytes": 22,
        "original_bytes": 27,
        "stored_sha256": sha256(b"To set up a vector dat").hexdigest(),
        "original_sha256": sha256(b"To set up a vector database").hexdigest(),
    }


@pytest.mark.parametrize("text", ["", "a", "é", "e\u0301", "\r\n", "\ufeff", "🙂", "\x00", "a" * 1_000_000])
def test_equal_texts_match(text):
    assert compare(text, str(text)) is None


@pytest.mark.parametrize(
    ("kind", "stored", "original", "details"),
    [
        ("empty", "", "abc", "Stored text is empty; the original has 3 characters"),
        ("truncated", "abc", "abcdef", "Stored text truncated: 3 of 6 characters kept"),
        ("truncated", "def", "abcdef", "Stored text truncated at the start: 3 of 6 characters kept"),
        ("extended", "abcdef", "abcd", "Stored text extended: 2 characters after the original's 4"),
        ("extended", "abcdef", "cdef", "Stored text extended: 2 characters before the original's 4"),
        ("extended", "abc", "", "Stored text extended: 3 characters after the original's 0"),
        (
            "unicode_normalization", "cafe\u0301", "caf\u00e9",
            "Unicode normalization differs: stored is NFD and NFKD, the original NFC and NFKC",
        ),
        (
            "unicode_normalization", "file", "\ufb01le",
            "Unicode compatibility normalization differs: stored is NFC and NFD and NFKC and NFKD, "
            "the original NFC and NFD",
        ),
        ("unicode_normalization", "\u00c5", "\u212b", None),  # the angstrom sign
        ("whitespace", "a b", "a\u00a0b", None),  # more telling than NFKC, and true
        ("unicode_normalization", "ＡＢＣ", "ABC", None),
        ("unicode_normalization", "e\u0301\u00e9", "\u00e9e\u0301", None),  # in no normal form, both
        ("line_endings", "a\nb", "a\r\nb", "Line endings differ: stored has 1 LF, the original 1 CRLF"),
        ("line_endings", "a\rb\r\n", "a\nb\n", "Line endings differ: stored has 1 CRLF, 1 CR, the original 2 LF"),
        (
            "whitespace", "a b", "a  b",
            "Whitespace differs: stored has 1 whitespace characters, the original 2",
        ),
        ("whitespace", "a b", "a\tb", "Whitespace differs: the same amount, other characters or places"),
        ("whitespace", "abc", "abc\n", "Whitespace differs: only one trailing newline, which the original has"),
        ("whitespace", "a\u2028b", "a\nb", None),
        (
            "invisible_characters", "\ufeffabc", "abc",
            "Invisible characters differ: stored has 1 (U+FEFF ZERO WIDTH NO-BREAK SPACE), the original none",
        ),
        (
            "invisible_characters", "co-operate", "co\u00ad-oper\u200bate",
            "Invisible characters differ: stored has none, "
            "the original 2 (U+00AD SOFT HYPHEN, U+200B ZERO WIDTH SPACE)",
        ),
        ("invisible_characters", "👨👩", "👨\u200d👩", None),
        ("invisible_characters", "❤", "❤\ufe0f", None),
        ("case", "hello", "Hello", "Only upper and lower case differ"),
        ("case", "STRASSE", "straße", "Only upper and lower case differ"),
        ("case", "ΟΔΟΣ", "οδος", "Only upper and lower case differ"),
        ("html_entities", "a &lt; b &amp; c", "a < b & c", "Stored text is HTML-escaped"),
        ("html_entities", "a < b", "a &lt; b", "Stored text has the original's HTML entities replaced"),
        ("html_entities", "&#39;x&#39;", "&apos;x&apos;", "Stored text and original are HTML-escaped differently"),
        ("html_entities", "caf&eacute;", "café", "Stored text is HTML-escaped"),
        ("mojibake", "cafÃ©", "café", "Stored text is the original's UTF-8 read as cp1252"),
        ("mojibake", "â€œhiâ€\x9d", "“hi”", "Stored text is the original's UTF-8 read as cp1252"),
        ("mojibake", "â\x80\x9chiâ\x80\x9d", "“hi”", "Stored text is the original's UTF-8 read as latin-1"),
        ("mojibake", "caf├⌐", "café", "Stored text is the original's UTF-8 read as cp437"),
        ("mojibake", "café", "cafÃ©", "The original is UTF-8 read as cp1252; the stored text was repaired"),
        ("mojibake", "caf��", "café", "Stored text is the original's UTF-8 read as ascii, with � for what it lacks"),
        ("mojibake", "caf?", "café", "Stored text went through ascii, with ? for what it lacks"),
        ("mojibake", "? é", "Ω é", "Stored text went through cp1252, with ? for what it lacks"),
        (
            "different", "one\ntwo", "one\ntoo",
            "Stored text differs from line 2, column 2 on (7 characters, the original has 7)",
        ),
        ("different", " ", "abc", None),
    ],
)  # fmt: skip
def test_each_kind_by_example(kind, stored, original, details):
    found = kind_and_details(stored, original)

    assert found[0] == kind
    assert details in (None, found[1])


@pytest.mark.parametrize(
    ("stored", "original", "place"),
    [
        ("abc", "abd", (2, 2, 1, 3)),
        ("", "a", (0, 0, 1, 1)),
        ("a\nb\nc", "a\nb\nd", (4, 4, 3, 1)),
        ("a\n", "a\nb", (2, 2, 2, 1)),
        ("é", "è", (1, 0, 1, 1)),  # C3 A9 and C3 A8 share their first byte
        ("xé", "xe\u0301", (1, 1, 1, 2)),
        ("🙂", "🙃", (3, 0, 1, 1)),  # F0 9F 99 82 and F0 9F 99 83
        ("ééb", "ééa", (4, 2, 1, 3)),
        ("a\rb", "a\rc", (2, 2, 1, 3)),  # only a line feed begins a line
        ("a\r\nb", "a\nb", (1, 1, 1, 2)),
    ],
)
def test_the_first_difference_is_given_in_bytes_characters_line_and_column(stored, original, place):
    byte, char, line, column = place

    assert first_difference(stored, original) == TextPosition(byte=byte, char=char, line=line, column=column)


@pytest.mark.parametrize(
    ("stored", "original", "stored_excerpt", "original_excerpt"),
    [
        ("abc", "abd", "abc", "abd"),
        ("0123456789X", "0123456789Y", "0123456789X", "0123456789Y"),
        ("_0123456789X", "_0123456789Y", "…0123456789X", "…0123456789Y"),
        ("X" * 30, "Y" * 30, "X" * 30, "Y" * 30),
        ("X" * 31, "Y" * 30, "X" * 30 + "…", "Y" * 30),
    ],
)
def test_an_excerpt_has_ten_characters_before_and_thirty_from_the_difference(
    stored, original, stored_excerpt, original_excerpt
):
    mismatch, _ = compare(stored, original)

    assert (mismatch.stored_excerpt, mismatch.original_excerpt) == (stored_excerpt, original_excerpt)


def test_a_digest_is_the_sha256_of_the_utf8_text():
    assert digest("test") == "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    assert digest("é") == sha256(b"\xc3\xa9").hexdigest()


@pytest.mark.parametrize("unit", ["a", "é", "🙂", "word \n", "&amp;"])
def test_a_difference_at_the_very_end_of_a_megabyte_is_found(unit):
    base = unit * (1_000_000 // len(unit.encode()))

    mismatch, _ = compare(base + "x", base + "y")

    assert mismatch.kind == "different"
    assert mismatch.first_difference.char == len(base)
    assert mismatch.first_difference.byte == len(base.encode())
    assert mismatch.first_difference.line == base.count("\n") + 1
    assert mismatch.stored_excerpt == "…" + base[-10:] + "x"


def test_one_lost_character_of_a_megabyte_is_a_truncation():
    assert kind_and_details("a" * 999_999, "a" * 1_000_000) == (
        "truncated",
        "Stored text truncated: 999999 of 1000000 characters kept",
    )


def test_a_megabyte_of_lines_with_other_endings_is_recognised():
    kind, details = kind_and_details("line\n" * 200_000, "line\r\n" * 200_000)

    assert kind == "line_endings"
    assert details == "Line endings differ: stored has 200000 LF, the original 200000 CRLF"


@pytest.mark.parametrize("at", [0, 499_999, 999_999])
def test_one_other_byte_anywhere_in_a_megabyte_is_found(at):
    original = "a" * 1_000_000

    mismatch, _ = compare(original[:at] + "b" + original[at + 1 :], original)

    assert mismatch.first_difference == TextPosition(byte=at, char=at, line=1, column=at + 1)


@pytest.mark.parametrize(("stored", "original"), [("&#" + "9" * 5000 + ";", "x"), ("x", "y&#" + "0" * 4301)])
def test_a_character_reference_of_any_length_is_compared(stored, original):
    assert kind_and_details(stored, original)[0] == "different"


def test_a_letter_that_only_folds_alike_is_not_called_case():
    mismatch, _ = compare("Strasse", "Straße")
    assert mismatch.kind == "different"
    assert compare("STRASSE", "Straße")[0].kind == "case"


@pytest.mark.parametrize(
    "text",
    [
        "\u0f71\u0f74" * 900_000,  # Tibetan vowel signs
        ("a" + "\u0301\u0323" * 15) * 60_000,  # runs as long as stream-safe text allows
        ("a" + "\u0301\u0323" * 3) * 250_000,
        "\u0344" * 500_000,  # each decomposes into two marks
    ],
    ids=["endless", "stream-safe", "short", "decomposing"],
)
def test_runs_of_combining_marks_take_time_in_proportion_to_their_length(text: str) -> None:
    compare("é", "e")  # reads the character database, once
    started = process_time()
    found = compare(text, text + "x")
    assert found is not None
    assert found[0].kind is MismatchKind.TRUNCATED
    assert process_time() - started < 30.0, "a quadratic sort takes minutes"


def test_millions_of_invisible_characters_are_counted_in_time() -> None:
    started = process_time()
    found = compare("a" + "\u00ad" * 3_000_000, "a")
    assert process_time() - started < 0.5
    assert found is not None
    assert found[1] == ("Invisible characters differ: stored has 3000000 (U+00AD SOFT HYPHEN), the original none")
