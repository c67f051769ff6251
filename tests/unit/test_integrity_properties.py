"""Comparing stored text with the original, over all of Unicode: found, located and explained correctly."""

import html
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chunkproof.contract import MismatchKind
from chunkproof.proof.integrity import CODECS, compare, first_difference

from . import integrity_claims as claims

# Small and full of what the kinds are about, so that true causes come up by themselves.
TRICKY = st.text(
    alphabet="aAsSéÉe\u0301ßﬁ \u00a0\t\r\n\u200b\ufeff\u00ad&amp;lt#39xÃ©â€\x9d�?İıſKΩ🙂\u202e", max_size=7
)
# A form, and a piece of text that this form changes wherever it stands.
NOT_NORMALIZED = [
    *(("NFC", piece) for piece in ("e\u0301", "\u212b", "\u1112\u1161", "\u0301\u0323")),
    *(("NFD", piece) for piece in ("é", "\u212b", "각", "ΐ", "\u0301\u0323")),
    *(("NFKC", piece) for piece in ("e\u0301", "ﬁ", "½", "\u00a0", "\u1112\u1161", "\u0301\u0323")),
    *(("NFKD", piece) for piece in ("é", "ﬁ", "½", "\u00a0", "각", "ΐ", "\u0301\u0323")),
]
LETTERS = st.text(alphabet=st.characters(categories=["Ll", "Lu", "Lo"]), min_size=1)


@st.composite
def edited(draw) -> tuple[str, str]:
    """A text, and the same with a slice replaced."""
    text = draw(st.text() | TRICKY)
    start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    return text[:start] + draw(st.text(max_size=3) | TRICKY) + text[end:], text


PAIRS = st.tuples(st.text(), st.text()) | st.tuples(TRICKY, TRICKY) | edited()


def found(stored: str, original: str) -> tuple[MismatchKind, str]:
    mismatch, details = compare(stored, original)
    return mismatch.kind, details


def insert(text: str, piece: str, at: int) -> str:
    at %= len(text) + 1
    return text[:at] + piece + text[at:]


@given(st.text())
def test_equal_texts_always_match(text):
    assert compare(text, "".join(list(text))) is None


@given(PAIRS)
def test_texts_match_exactly_when_their_bytes_are_equal(pair):
    stored, original = pair

    assert (compare(stored, original) is None) == (stored.encode() == original.encode())


@given(PAIRS)
def test_what_a_kind_claims_is_true(pair):
    stored, original = pair
    assume(stored != original)

    kind, details = found(stored, original)

    assert claims.holds(kind, stored, original, details), (kind, details)


@given(PAIRS)
def test_the_first_difference_is_where_the_bytes_part(pair):
    stored, original = pair
    assume(stored != original)
    position = first_difference(stored, original)
    left, right = stored.encode(), original.encode()

    assert left[: position.byte] == right[: position.byte]
    assert left[position.byte : position.byte + 1] != right[position.byte : position.byte + 1]


@given(PAIRS)
def test_char_line_and_column_are_those_of_that_byte(pair):
    stored, original = pair
    assume(stored != original)
    position = first_difference(stored, original)
    # The whole characters before the byte, and the lines that they make.
    before = stored.encode()[: position.byte].decode("utf-8", "ignore")
    lines = before.split("\n")

    assert position.char == len(before)
    assert (position.line, position.column) == (len(lines), len(lines[-1]) + 1)


@given(PAIRS)
def test_excerpts_and_sizes_are_those_of_the_texts(pair):
    stored, original = pair
    assume(stored != original)
    mismatch, _ = compare(stored, original)

    assert mismatch.stored_excerpt.removeprefix("…").removesuffix("…") in stored + "…"
    assert mismatch.original_excerpt.removeprefix("…").removesuffix("…") in original + "…"
    assert (mismatch.stored_bytes, mismatch.original_bytes) == (len(stored.encode()), len(original.encode()))
    assert mismatch.stored_sha256 != mismatch.original_sha256


@given(st.text(min_size=1))
def test_an_empty_stored_text_is_empty(original):
    assert found("", original)[0] == MismatchKind.EMPTY


@given(st.text(), st.sampled_from(NOT_NORMALIZED), st.text())
def test_a_normalized_text_is_unicode_normalization(before, form_and_piece, after):
    form, piece = form_and_piece
    original = before + piece + after
    stored = unicodedata.normalize(form, original)
    # Where only spaces differ (NFKC makes a no-break space a space), whitespace is the more precise cause.
    allowed = {MismatchKind.UNICODE_NORMALIZATION} | (
        {MismatchKind.WHITESPACE} if "".join(stored.split()) == "".join(original.split()) else set()
    )

    assert found(stored, original)[0] in allowed


@given(st.lists(st.text(), min_size=2), st.permutations(["\n", "\r\n", "\r"]))
def test_other_line_ends_are_line_endings(lines, ends):
    # A line that ends or begins with a CR or LF of its own would merge with the ends put there.
    lines = [line.replace("\r", "").replace("\n", "") for line in lines]

    kind, _ = found(ends[0].join(lines), ends[1].join(lines))

    assert kind == MismatchKind.LINE_ENDINGS


@given(st.text(), st.sampled_from("\ufeff\u200b\u200c\u200d\u2060\u00ad\u200e"), st.integers(0))
def test_an_inserted_invisible_character_is_invisible_characters(original, piece, at):
    # No normalization removes one, so nothing more telling can be true.
    assert found(insert(original, piece, at), original)[0] == MismatchKind.INVISIBLE_CHARACTERS


@given(st.text(), st.text(alphabet=" \t\u3000\u2003\v", min_size=1, max_size=3), st.integers(0))
def test_inserted_white_space_is_whitespace(original, piece, at):
    # It changes how many there are, which neither a normalization nor a line ending explains.
    assert found(insert(original, piece, at), original)[0] == MismatchKind.WHITESPACE


@given(st.text(min_size=1), st.sampled_from(["\n", "\r"]), st.integers(0))
def test_an_inserted_line_end_is_whitespace_or_completes_another(original, piece, at):
    stored = insert(original, piece, at)
    # Beside its counterpart it makes a CRLF of a lone CR or LF, and the text is the same but for that.
    expected = MismatchKind.LINE_ENDINGS if claims.as_lf(stored) == claims.as_lf(original) else MismatchKind.WHITESPACE

    assert found(stored, original)[0] == expected


@given(
    st.text(alphabet=st.characters(categories=["Ll", "Lu", "Zs", "Nd"]), min_size=1),
    st.sampled_from([str.upper, str.lower, str.swapcase]),
)
def test_another_case_is_case(original, change):
    stored = change(original)
    # Some letters have no way back: the upper case of the dotless i is I, which folds to i.
    assume(stored != original and stored.casefold() == original.casefold())
    # Where both texts are also one after NFKC, that is the more telling cause.
    allowed = {MismatchKind.CASE} | (
        {MismatchKind.UNICODE_NORMALIZATION} if claims.is_normalization(stored, original) else set()
    )

    assert found(stored, original)[0] in allowed


@given(st.text(), st.sampled_from("<>&"), st.text(), st.booleans())
def test_escaped_html_is_html_entities_both_ways(before, special, after, quote):
    text = before + special + after
    escaped = html.escape(text, quote=quote)

    assert found(escaped, text) == (MismatchKind.HTML_ENTITIES, "Stored text is HTML-escaped")
    assert found(text, escaped)[0] == MismatchKind.HTML_ENTITIES


@given(st.text(min_size=1), st.sampled_from(CODECS))
def test_utf8_read_as_another_codec_is_mojibake(original, codec):
    stored = claims.misread(original, codec)
    assume(stored is not None and stored != original)

    kind, details = found(stored, original)

    if kind == MismatchKind.EXTENDED:
        # "£" read as latin-1 is "Â£": the original with a character before it, which is as true.
        assert stored.startswith(original) or stored.endswith(original)
    else:
        assert kind == MismatchKind.MOJIBAKE
        assert claims.is_mojibake(stored, original, details)


@given(st.text(min_size=1), st.sampled_from(["ascii", "cp1252", "latin-1", "cp437"]))
def test_question_marks_for_what_a_codec_lacks_are_mojibake(original, codec):
    stored = original.encode(codec, "replace").decode(codec)
    assume(stored != original)
    # A full-width question mark becomes a plain one under NFKC as well.
    expected = (
        MismatchKind.UNICODE_NORMALIZATION if claims.is_normalization(stored, original) else MismatchKind.MOJIBAKE
    )

    assert found(stored, original)[0] == expected


@given(LETTERS, LETTERS)
def test_a_text_cut_between_letters_is_truncated_and_the_other_way_round_extended(kept, lost):
    whole = kept + lost
    assert found(kept, whole) == (
        MismatchKind.TRUNCATED,
        f"Stored text truncated: {len(kept)} of {len(whole)} characters kept",
    )
    assert found(whole, kept)[0] == MismatchKind.EXTENDED


@given(st.text(min_size=2), st.data())
def test_any_cut_is_truncated_or_says_what_was_lost(original, data):
    stored = original[: data.draw(st.integers(1, len(original) - 1))]

    kind, details = found(stored, original)

    assert kind in {
        MismatchKind.TRUNCATED,
        MismatchKind.WHITESPACE,  # only white space was lost
        MismatchKind.INVISIBLE_CHARACTERS,  # only a zero-width or the like was lost
        MismatchKind.LINE_ENDINGS,  # the LF of a last CRLF was lost
        MismatchKind.HTML_ENTITIES,  # an entity that stands for nothing was lost
    }
    assert claims.holds(kind, stored, original, details)


@pytest.mark.parametrize("stored", ["a", "é", "🙂", "\r", "\u0301", "&", "\x00", "�"])
@given(original=st.text())
def test_a_single_character_is_compared_with_anything(stored, original):
    result = compare(stored, original)

    assert (result is None) == (stored == original)
