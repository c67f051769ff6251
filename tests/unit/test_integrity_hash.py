"""When only the original's hash is known: the usual damage is undone, and the original found again."""

import html
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chunkproof.proof.integrity import CODECS, compare, compare_with_hash, digest

from .integrity_claims import misread


def assert_recovered(stored: str, original: str) -> None:
    assert compare_with_hash(stored, digest(original)) == compare(stored, original)


@given(st.text())
def test_the_hash_of_the_stored_text_matches(text):
    assert compare_with_hash(text, digest(text)) is None


@given(st.text(), st.text())
def test_another_text_never_matches_by_its_hash(stored, original):
    assume(stored != original)
    mismatch, details = compare_with_hash(stored, digest(original))

    assert details
    assert mismatch.original_sha256 == digest(original)
    assert (mismatch.first_difference is None) == (mismatch.original_excerpt is None)


@pytest.mark.parametrize(
    ("stored", "original", "kind"),
    [
        ("cafe\u0301", "caf\u00e9", "unicode_normalization"),
        ("caf\u00e9", "cafe\u0301", "unicode_normalization"),
        ("\ufb01le", "file", "unicode_normalization"),
        ("a\nb\n", "a\r\nb\r\n", "line_endings"),
        ("a\r\nb\r\n", "a\nb\n", "line_endings"),
        ("a\rb", "a\nb", "line_endings"),
        ("abc", "abc\n", "whitespace"),
        ("abc", "abc\r\n", "whitespace"),
        ("abc", "abc ", "whitespace"),
        ("abc", " abc", "whitespace"),
        (" \tabc\n\n", "abc", "whitespace"),
        (" abc\r\n", " abc", "whitespace"),
        ("abc", "\ufeffabc", "invisible_characters"),
        ("\ufeffabc", "abc", "invisible_characters"),
        ("a\u200bb\u00adc", "abc", "invisible_characters"),
        ("a &lt; b", "a < b", "html_entities"),
        ("a < \"b\" & 'c'", "a &lt; &quot;b&quot; &amp; &#x27;c&#x27;", "html_entities"),
        ('a < "b"', 'a &lt; "b"', "html_entities"),
        ("cafÃ©", "café", "mojibake"),
        ("caf├⌐", "café", "mojibake"),
        ("â€œhi", "“hi", "mojibake"),
        pytest.param("â€œhiâ€\x9d", "“hi”", "mojibake"),
        ("", "\n", "empty"),
    ],
)
def test_the_original_is_found_again_and_with_it_the_cause(stored, original, kind):
    mismatch, _ = compare_with_hash(stored, digest(original))

    assert mismatch.kind == kind
    assert mismatch.original_bytes == len(original.encode())
    assert_recovered(stored, original)


FORMS = st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])


@given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from("éÅﬁ½각\u0301\u0323")), FORMS, FORMS)
def test_a_normal_form_is_found_again_from_another(text, stored_form, original_form):
    original = unicodedata.normalize(original_form, text)
    stored = unicodedata.normalize(stored_form, original)
    # A compatibility form cannot be undone: ﬁ is not to be had from fi.
    assume(unicodedata.normalize(original_form, stored) == original)

    assert_recovered(stored, original)


@given(st.text())
def test_unix_line_ends_are_found_again(text):
    original = text.replace("\r", "")

    assert_recovered(original.replace("\n", "\r\n"), original)
    assert_recovered(original.replace("\n", "\r"), original)


@given(st.text())
def test_windows_line_ends_are_found_again(text):
    stored = text.replace("\r", "")

    assert_recovered(stored, stored.replace("\n", "\r\n"))


@given(st.text(), st.sampled_from(["\n", "\r\n", " "]))
def test_a_lost_last_character_of_white_space_is_found_again(stored, lost):
    assert_recovered(stored, stored + lost)


@given(st.text(), st.text(alphabet=" \t\r\n"), st.text(alphabet=" \t\r\n"))
def test_white_space_added_around_is_taken_off(text, before, after):
    original = text.strip()

    assert_recovered(before + original + after, original)


@given(st.text())
def test_a_byte_order_mark_is_put_back_or_taken_off(text):
    assert_recovered("\ufeff" + text, text)
    assert_recovered(text, "\ufeff" + text)


@given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from("<>&\"'")), st.booleans())
def test_html_is_unescaped_and_escaped_again(text, quote):
    escaped = html.escape(text, quote=quote)

    assert_recovered(escaped, text)
    assert_recovered(text, escaped)


@given(st.text(), st.sampled_from(sorted(set(CODECS) - {"cp1252"})))
def test_utf8_read_as_another_codec_is_read_again(original, codec):
    stored = misread(original, codec)
    assume(stored is not None)

    assert_recovered(stored, original)


@given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from("“”‘’–…éÝ")))
def test_utf8_read_as_cp1252_is_read_again(original):
    assert_recovered(misread(original, "cp1252"), original)


def test_damage_that_cannot_be_undone_is_different_with_nothing_said_of_the_original():
    mismatch, details = compare_with_hash("To set up a vector dat", digest("To set up a vector database"))

    assert details == "The SHA-256 of the stored text differs from the original's"
    assert mismatch.model_dump(mode="json") == {
        "kind": "different",
        "first_difference": None,
        "stored_excerpt": "To set up a vector dat",
        "original_excerpt": None,
        "stored_bytes": 22,
        "original_bytes": None,
        "stored_sha256": digest("To set up a vector dat"),
        "original_sha256": digest("To set up a vector database"),
    }


def test_an_empty_stored_text_is_named_without_the_original():
    mismatch, details = compare_with_hash("", digest("something"))

    assert (mismatch.kind, details) == ("empty", "Stored text is empty")


@pytest.mark.parametrize("lost", ["\n", "\r\n"])
def test_the_last_line_end_of_a_megabyte_is_found_again(lost):
    assert_recovered("word " * 200_000, "word " * 200_000 + lost)


def test_a_character_reference_of_any_length_is_hashed():
    mismatch, _ = compare_with_hash("&#" + "9" * 5000 + ";", digest("x"))

    assert mismatch.kind == "different"
