import pytest

from chunkproof.suite.cases import contains


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("The gripper holds.", "gripper"),
        ("The GRIPPER holds.", "Gripper"),
        ("an operating\n  system", "operating system"),
        ("STRASSE", "Straße"),
        ("use C++, not C", "C++"),
        ("caf\u0065\u0301 at noon", "café"),  # decomposed in the text, composed in the keyword
        ("而是齿轮：车转弯", "齿轮"),
        ("अच्छी खोज दोनों", "खोज"),
        ("cart, art", "art"),
    ],
)
def test_a_keyword_is_found_as_a_whole_word_in_any_case(text: str, keyword: str) -> None:
    assert contains(text, keyword)


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("grippers hold", "gripper"),
        ("the bigripper", "gripper"),
        ("operating the system", "operating system"),
        ("snake_case", "case"),
        ("v1.2 is out", "1.2 is"),
        ("हिन्दी", "हिन"),  # the next sign belongs to the last letter
        ("résumé", "resume"),
        ("", "x"),
    ],
)
def test_a_part_of_a_word_is_not_the_word(text: str, keyword: str) -> None:
    assert not contains(text, keyword)


@pytest.mark.parametrize(
    ("text", "keyword"),
    [("résumé", "resume"), ("resume", "résumé"), ("كَتَبَ", "كتب"), ("teléfono", "TELEFONO")],
)
def test_accents_are_ignored_on_request(text: str, keyword: str) -> None:
    assert not contains(text, keyword)
    assert contains(text, keyword, ignore_accents=True)


def test_ignoring_accents_keeps_the_signs_that_make_another_letter() -> None:
    assert not contains("कमल", "कमला", ignore_accents=True)
