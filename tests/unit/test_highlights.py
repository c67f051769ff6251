"""Words, sentences and highlights: offsets into the stored text, in any script, in bounded time."""

from collections.abc import Sequence
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import EmbeddingError
from chunkproof.base.words import MAX_SENTENCE, find_terms, read_terms, split_sentences
from chunkproof.search.steps import MAX_CHARS, MAX_CHARS_PER_TEXT, SentenceEmbedder, highlight_texts
from chunkproof.stores.store_port import Vector

TEXT = "Keys expire after 90 days. To rotate a key, create a new one first! Then revoke the old key."


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def terms_in(text: str, question: str) -> list[str]:
    """What is highlighted in the text, as it stands there."""
    return [text[match.start : match.end] for match in find_terms(text, read_terms(question))]


# terms


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("rotate a key", TEXT, ["rotate", "key", "key"]),
        ("How do I rotate THE Key?", TEXT, ["rotate", "key", "key"]),
        ("ERR-4711-X", "See err-4711-x, not ERR-4712.", ["err", "4711", "x", "ERR"]),
        ("Straße", "Die STRASSE und die Straße", ["STRASSE", "Straße"]),
        ("café", "a cafe\u0301 and a cafe", ["cafe\u0301"]),
        ("हिन्दी भाषा", "मैं हिन्दी पढ़ता हूँ", ["हिन्दी"]),
        ("می‌روم", "من می‌روم", ["می‌روم"]),
        ("東京の天気", "今日の東京の天気は晴れ", ["東京の天気"]),
        ("猫", "三匹の猫がいる", ["猫"]),
        ("ΣΊΣΥΦΟΣ", "Ο Σίσυφος", ["Σίσυφος"]),
        ("İstanbul", "i̇stanbul", ["i̇stanbul"]),
        ("snake_case", "use snake_case here", ["snake_case"]),
        ("cat", "concatenate the cats", []),
    ],
)
def test_terms_match_whole_words_in_any_case_and_script(question: str, text: str, found: list[str]) -> None:
    assert terms_in(text, question) == found


def test_common_words_count_only_in_a_question_that_has_no_others() -> None:
    assert terms_in("what is it that is", "what is it?") == ["what", "is", "it", "is"]
    assert terms_in("what is a key", "what is a key?") == ["key"]


def test_a_question_without_words_matches_nothing() -> None:
    assert terms_in("what? is this!", "?!?") == []


# sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (TEXT, ["Keys expire after 90 days.", "To rotate a key, create a new one first!", "Then revoke the old key."]),
        ("Dr. Lee pays 3.14 euros, e.g. for J. Doe. Right?", ["Dr. Lee pays 3.14 euros, e.g. for J. Doe.", "Right?"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("天気は晴れ。気温は二十度！", ["天気は晴れ。", "気温は二十度！"]),
        ("यह सच है। वह नहीं।", ["यह सच है।", "वह नहीं।"]),
        ("A title\n\nA text over\ntwo lines.", ["A title", "A text over\ntwo lines."]),
        ("- one\n- two\n1. three\n# four", ["- one", "- two", "1. three", "# four"]),
        ("  \n \n", []),
        ("", []),
    ],
)
def test_texts_are_split_into_sentences_and_list_items(text: str, sentences: list[str]) -> None:
    assert sentences_of(text) == sentences


def test_a_long_sentence_is_cut_at_spaces() -> None:
    parts = sentences_of("word " * 300)
    assert [len(part) for part in parts] == [499, 499, 499]
    assert [len(part) for part in sentences_of("x" * 1_200)] == [500, 500, 200]


@given(st.text(alphabet="aZé\u0301 .\n!?。-*1\"'字हि्\u200c\ud7ff🤖", max_size=200))
def test_sentences_are_parts_of_the_text_in_order_and_lose_only_whitespace(text: str) -> None:
    spans = list(split_sentences(text))
    assert all(0 < end - start <= MAX_SENTENCE for start, end in spans)
    assert [edge for span in spans for edge in span] == sorted(edge for span in spans for edge in span)
    assert "".join("".join(text[start:end] for start, end in spans).split()) == "".join(text.split())


@given(st.text(max_size=200), st.text(max_size=50))
def test_matches_are_in_order_and_never_overlap(text: str, question: str) -> None:
    edges = [edge for match in find_terms(text, read_terms(question)) for edge in (match.start, match.end)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= len(text) for edge in edges)


# highlights


def test_without_an_embedder_the_sentence_has_the_most_terms_and_is_short() -> None:
    highlight = highlight_texts([TEXT], "rotate a key")[0]
    assert highlight.sentence is not None
    assert highlight.sentence.model_dump() == {
        "text": "To rotate a key, create a new one first!",
        "start": 27,
        "end": 67,
        "by": "terms",
        "score": 2.0,
    }
    assert [(match.term, match.start, match.end) for match in highlight.terms] == [
        ("rotate", 30, 36),
        ("key", 39, 42),
        ("key", 88, 91),
    ]
    assert (highlight.terms_found, highlight.partial) == (3, False)


def test_a_text_without_a_term_has_no_sentence_and_no_terms() -> None:
    highlight = highlight_texts(["Wheels and brakes."], "rotate a key")[0]
    assert (highlight.sentence, highlight.terms, highlight.terms_found) == (None, (), 0)


def embedder_by_first_letter(calls: list[list[str]], max_batch: int = 96) -> SentenceEmbedder:
    """The query is nearest to sentences that begin with T."""

    def embed(texts: Sequence[str]) -> list[Vector]:
        calls.append(list(texts))
        return [[1.0, 0.0] if text.startswith("Then") else [0.6, 0.8] for text in texts]

    return SentenceEmbedder([1.0, 0.0], embed, max_batch)


def test_with_an_embedder_the_sentence_is_the_nearest_one_and_all_texts_are_one_call() -> None:
    calls: list[list[str]] = []
    highlights = highlight_texts([TEXT, "One. Two.", ""], "rotate a key", embedder_by_first_letter(calls))
    assert [sorted(call) for call in calls] == [sorted([*sentences_of(TEXT), "One.", "Two."])]
    found = [(h.sentence.text, h.sentence.by, h.sentence.score) for h in highlights[:2] if h.sentence]
    assert found == [("Then revoke the old key.", "embedding", 1.0), ("One.", "embedding", 0.6)]
    assert highlights[2].sentence is None


def test_more_sentences_than_fit_into_a_call_are_chosen_by_their_terms() -> None:
    calls: list[list[str]] = []
    texts = ["Aa. Bb. Cc rotate. Dd rotate key."] * 2
    highlight_texts(texts, "rotate a key", embedder_by_first_letter(calls, max_batch=4))
    assert calls == [["Dd rotate key.", "Cc rotate."] * 2]


def test_if_the_embedder_fails_the_sentence_is_chosen_by_terms() -> None:
    def fail(_texts: Sequence[str]) -> list[Vector]:
        raise EmbeddingError("down")

    highlight = highlight_texts([TEXT], "rotate a key", SentenceEmbedder([1.0], fail, 96))[0]
    assert highlight.sentence is not None
    assert highlight.sentence.by == "terms"


def test_many_matches_are_counted_and_the_first_hundred_listed() -> None:
    highlight = highlight_texts(["key " * 1_000], "key")[0]
    assert (len(highlight.terms), highlight.terms_found) == (100, 1_000)


def test_no_more_than_allowed_is_looked_at() -> None:
    whole, part, none = highlight_texts(["a key"] * 3, "key", max_chars=8)
    assert (whole.terms_found, whole.partial) == (1, False)
    assert (part.terms_found, part.partial) == (0, True)
    assert (none.terms_found, none.partial, none.sentence) == (0, True, None)


HOSTILE = {
    "dots": "." * 99_999 + "x",
    "dots and quotes": '."' * 50_000,
    "quotes": "." + '"' * 99_999,
    "line ends": "\n " * 50_000,
    "line ends and digits": "\n1" * 50_000,
    "spaces": "\n" + " " * 99_999,
    "marks": "a" + "\u0323" * 99_999,
    "marks to sort": ("a" + "\u0344\u0323" * 95 + " ") * 520,
    "Han": "字" * 100_000,
    "a letter": "a" * 100_000,
    "abbreviations": "e.g. A " * 14_000,
    "words": "key rotate " * 9_000,
    "joiners": "\u200d" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_take_bounded_time_and_only_their_beginning_is_looked_at(text: str) -> None:
    texts = [text * 10] * 10
    started = thread_time()
    highlights = highlight_texts(texts, "rotate a key 字字")
    assert thread_time() - started < 5, "about half a second on a quiet machine"
    assert all(highlight.partial for highlight in highlights)
    assert all(match.end <= MAX_CHARS_PER_TEXT for highlight in highlights for match in highlight.terms)
    beyond = MAX_CHARS // MAX_CHARS_PER_TEXT
    assert all(h.sentence is None and not h.terms for h in highlights[beyond:])
