"""Chunks are found in their documents however they were cleaned, and what no chunk covers is known exactly."""

import random
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.audit.locate import Letters, PassageIndex, SourceDocument, cover, find_gaps, is_same_document
from chunkproof.audit.source_coverage import CoverageRun, SourceCoverage, StoredText, StoredTexts

WORDS = [f"{first}{second}" for first in ("alpha", "beta", "Größe", "naïve", "omega") for second in range(40)]
GUIDE = """# Set up a robot

Bolt the **base** to a table, then connect the [controller](https://example.com/controller) with the red cable.
Do not plug it in before the emergency stop is wired!

## Calibrate

Move each joint to its mark and run `calibrate --all`. It takes about ten minutes, and the arm must be empty.
"""


def prose(count: int, seed: int = 1) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def covered(document: str, *chunks: str, source: str | None = None) -> tuple[SourceDocument, list[str | None]]:
    """Locate the chunks in one document; return it, and the kind of each chunk: None for a verbatim one."""
    found = SourceDocument("guide.md", document)
    index = PassageIndex([found])
    kinds: list[str | None] = []
    for chunk in chunks:
        located = index.locate(chunk, source)
        if located is None:
            kinds.append("stale")
            continue
        cover(located)
        kinds.append(located.kind)
    return found, kinds


def gaps(document: SourceDocument) -> list[str]:
    offsets = document.letters.offsets
    return [document.text[offsets[start] : offsets[end - 1] + 1] for start, end in find_gaps(document)]


def test_overlapping_verbatim_chunks_cover_a_document() -> None:
    text = prose(300)
    chunks = [text[at : at + 500] for at in range(0, len(text), 400)]
    document, kinds = covered(text, *chunks)
    assert kinds == [None] * len(chunks)
    assert gaps(document) == []


def test_a_passage_in_no_chunk_is_the_gap() -> None:
    text = prose(300)
    document, _ = covered(text, text[:500], text[700:])
    assert gaps(document) == [text[500:700].strip()]


@pytest.mark.parametrize(
    ("clean", "kind"),
    [
        (lambda text: " ".join(text.split()), "whitespace"),
        (lambda text: text.replace("\n", "\r\n"), "line_endings"),
        (lambda text: unicodedata.normalize("NFD", text), "unicode_normalization"),
        (str.upper, "case"),
        (lambda text: re.sub(r"[*#`]|\]\([^)]*\)|\[", "", text), "markup"),
        (lambda text: "\ufeff" + text, "invisible_characters"),
        (lambda text: "Robots > Set up\n\n" + text.rstrip(), "extended"),
    ],
    ids=["whitespace", "line_endings", "unicode_normalization", "case", "markup", "invisible", "extended"],
)
def test_a_cleaned_chunk_is_located_with_what_differs(clean, kind: str) -> None:
    text = GUIDE.replace("table", "Tisch für Geräte")
    document, kinds = covered(text, clean(text))
    assert kinds == [kind]
    assert gaps(document) == []


def test_a_chunk_with_an_edited_sentence_is_located_and_the_sentence_is_a_gap() -> None:
    document, kinds = covered(GUIDE, GUIDE.replace("the red cable", "a blue wire of two metres"))
    assert kinds == ["different"]
    assert gaps(document) == ["red cable"] or gaps(document) == ["the red cable"]


def test_a_text_of_another_document_is_stale_and_covers_nothing() -> None:
    document, kinds = covered(prose(200), prose(200, seed=9), "Set up a robot")
    assert kinds == ["stale", "stale"]
    assert len(find_gaps(document)) == 1


def test_a_short_chunk_is_found_anywhere() -> None:
    text = prose(100) + " Do not panic. " + prose(100, seed=2)
    document, kinds = covered(text, "Do not panic.")
    assert kinds == [None]
    assert len(find_gaps(document)) == 2


def test_a_repeated_passage_is_covered_everywhere_unless_the_chunk_names_its_document() -> None:
    passage = prose(60)
    documents = [
        SourceDocument(name, f"{passage}\n\n{prose(50, seed)}") for seed, name in enumerate(("a.md", "b/c.md"), 5)
    ]
    index = PassageIndex(documents)
    everywhere, own = index.locate(passage), index.locate(passage, "https://docs.example.com/b/c?lang=en")
    assert everywhere is not None
    assert own is not None
    assert [place.document.name for place in everywhere.places] == ["a.md", "b/c.md"]
    assert [place.document.name for place in own.places] == ["b/c.md"]


def test_a_url_or_path_names_a_document_by_its_end() -> None:
    assert is_same_document("https://x.example/guide/intro#top", "guide/intro.md")
    assert is_same_document("C:\\docs\\guide\\intro.md", "guide/intro.md")
    assert not is_same_document("https://x.example/other-intro", "intro.md")


@given(st.text(alphabet="ab é\u0301ﬁ한\n*_[](x)<!--> 🤖", max_size=80))
def test_letters_come_from_where_their_offsets_say(text: str) -> None:
    letters = Letters.of(text)
    assert len(letters.text) == len(letters.offsets)
    assert list(letters.offsets) == sorted(letters.offsets)
    assert all(text[offset].isalnum() for offset in letters.offsets)


@given(st.data())
def test_any_slice_of_a_document_is_verbatim_and_covers_exactly_its_letters(data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="abcdef gh.\n", min_size=60, max_size=400))
    start = data.draw(st.integers(0, len(text) - 40))
    chunk = text[start : start + 40]
    if not Letters.of(chunk).text:
        return
    document, kinds = covered(text, chunk)
    assert kinds == [None]
    first = text.find(chunk)
    inside = {offset for offset in document.letters.offsets if first <= offset < first + 40}
    marked = {document.letters.offsets[at] for start, end in document.covered for at in range(start, end)}
    assert inside <= marked


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "ab" * 150_000, "<!--" * 50_000, "](" * 100_000, "\u0301" * 100_000, "x y " * 60_000],
    ids=["one letter", "two letters", "comments", "links", "marks", "words"],
)
def test_hostile_documents_and_chunks_are_located_in_linear_time(text: str) -> None:
    """Quadratic steps would take hours."""
    index = PassageIndex([SourceDocument("a", text), SourceDocument("b", prose(200))])
    located = [index.locate(chunk) for chunk in (text, text[:150_000] + "b", prose(200) + "." + text)]
    assert (located[0] is None) == (not Letters.of(text).text)
    assert located[2] is not None


def measure(tmp_path: Path, chunks: list[str], documents: dict[str, str]) -> SourceCoverage:
    texts = StoredTexts(tmp_path)
    for number, chunk in enumerate(chunks):
        texts.add(StoredText(number, f"c{number}", None, chunk))
    run = CoverageRun(texts)
    run.add_documents(documents.items())
    report = run.report("docs", [], 0.99)
    texts.close()
    return report


def test_a_report_counts_letters_documents_and_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkproof.audit.source_coverage.ROUND_CHARS", 1)  # a round for each document
    documents = {"a.md": "one two three four five six seven", "b.md": "Eight nine ten eleven twelve!", "c.md": "***"}
    chunks = ["one two three four five six seven", "eight nine  ten eleven twelve", "thirteen fourteen fifteen"]
    report = measure(tmp_path, chunks, documents)
    assert (report.characters, report.covered, report.share) == (27 + 24, 51, 1.0)
    assert (report.verbatim, report.not_verbatim, report.stale) == (1, {"markup": 1}, 1)
    assert [(one.chunk_id, one.kind) for one in report.listed] == [("c2", "stale"), ("c1", "markup")]
    assert not report.is_enough
    lost = measure(tmp_path, chunks[:1], documents)
    assert (lost.without_chunks, lost.covered, lost.documents[0].name) == (1, 27, "b.md")
    assert [(p.offset, p.line, p.excerpt) for p in lost.documents[0].passages] == [
        (0, 1, "Eight nine ten eleven twelve")
    ]
    assert [(s.covered, s.text) for s in lost.documents[0].segments] == [
        (False, "Eight nine ten eleven twelve"),
        (True, "!"),
    ]
