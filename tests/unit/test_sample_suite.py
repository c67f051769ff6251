"""The sample suite keeps its promises: paraphrases are none of the text's own words, quotations are."""

import json
import re
from importlib.resources import as_file
from pathlib import Path

import jsonschema
import pytest

from chunkproof.suite.cases import TestCase
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof.suite.yaml_document import read_yaml
from chunkproof_cli.local.corpus import sample_chunks, sample_suite

with as_file(sample_suite()) as file:
    CASES = read_source(SuiteSource(file)).suite.cases
CHUNKS = list(sample_chunks())


def tagged(tag: str) -> list[TestCase]:
    return [case for case in CASES if tag in case.tags]


def targets(case: TestCase) -> list[str]:
    """The texts of every chunk that the case expects."""
    wanted = set(case.expected_doc_ids)
    return [c["text"] for c in CHUNKS if wanted & {c["chunk_id"], c["document_id"], c["url"]}]


def runs_of_four(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[n : n + 4]) for n in range(len(words) - 3)}


def test_it_is_valid_against_the_suite_schema() -> None:
    schema = json.loads((Path(__file__).parents[2] / "docs" / "suite.schema.json").read_text("utf-8"))
    document = read_yaml(sample_suite().read_text("utf-8"), "suite.yaml").value
    jsonschema.validate(document, schema)
    document["cases"][0]["topk"] = 3
    with pytest.raises(jsonschema.ValidationError, match="topk"):
        jsonschema.validate(document, schema)


def test_there_are_enough_cases_of_every_kind() -> None:
    assert len(CASES) >= 30
    assert len(tagged("english")) >= 20
    assert len(tagged("other-language")) >= 5
    assert sum(case.expect_no_results for case in CASES) >= 4
    assert sum(bool(case.filters) for case in CASES) >= 3
    assert all(case.tags for case in CASES)


@pytest.mark.parametrize("case", [*tagged("english"), *tagged("filter")], ids=lambda case: case.name)
def test_an_english_question_shares_no_four_words_in_a_row_with_its_target(case: TestCase) -> None:
    if case.expected_doc_ids:
        assert targets(case)
    for text in targets(case):
        assert not runs_of_four(case.query_text) & runs_of_four(text)


@pytest.mark.parametrize("case", tagged("other-language"), ids=lambda case: case.name)
def test_a_question_in_another_language_quotes_a_phrase_of_its_target(case: TestCase) -> None:
    phrase = case.query_text.strip("«»„“” ")
    assert len(phrase) > 15
    assert [phrase in text for text in targets(case)] == [True]
