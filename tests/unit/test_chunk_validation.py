"""The ChunkValidation request and the shape of its verdict."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import Check, ChunkValidation, Mismatch, MismatchKind, ValidationResult, read_json

from .strategies import JSON_VALUES
from support.doc_tables import names_in, read_table

DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # SHA-256 of "test"


def problems(fields: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(InvalidParameterError) as refused:
        ChunkValidation.parse(fields)
    return refused.value.messages


def test_an_id_alone_is_enough():
    request = ChunkValidation.parse({"chunk_id": "7"})

    assert request.chunk_id == "7"
    assert (request.collection, request.original_text, request.original_sha256) == (None, None, None)


def test_null_is_the_same_as_nothing_and_collection_has_its_other_name():
    nothing = dict.fromkeys(("original_text", "original_sha256", "collection", "strict"))

    assert ChunkValidation.parse({"chunk_id": "7"} | nothing) == ChunkValidation.parse({"chunk_id": "7"})
    assert ChunkValidation.parse({"chunk_id": "7", "collection_name": "docs"}).collection == "docs"
    assert problems({"chunk_id": "7", "collection_name": "docs", "collection": "docs"}) == (
        "collection_name and collection are the same field: give one of them",
    )


@given(st.text())
def test_the_original_text_is_kept_code_point_for_code_point_even_empty(text):
    body = json.dumps({"chunk_id": "7", "original_text": text})

    assert ChunkValidation.parse(read_json(body)).original_text == text


@pytest.mark.parametrize("written", [DIGEST, DIGEST.upper()])
def test_a_hash_is_taken_in_either_case_and_kept_in_lower(written):
    assert ChunkValidation.parse({"chunk_id": "7", "original_sha256": written}).original_sha256 == DIGEST


@pytest.mark.parametrize("written", ["", DIGEST[:63], DIGEST + "0", "g" + DIGEST[1:], "0x" + DIGEST[2:], DIGEST + "\n"])
def test_a_hash_is_64_hexadecimal_digits(written):
    assert problems({"chunk_id": "7", "original_sha256": written}) == ("original_sha256 must be 64 hexadecimal digits",)


def test_text_and_hash_together_are_refused():
    assert problems({"chunk_id": "7", "original_text": "test", "original_sha256": DIGEST}) == (
        "Give original_text or original_sha256, not both",
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "chunk_id is required"),
        ({"chunk_id": None}, "chunk_id must be a string"),
        ({"chunk_id": 7}, "chunk_id must be a string"),
        ({"chunk_id": ""}, "chunk_id cannot be empty"),
        ({"chunk_id": " \n"}, "chunk_id cannot be empty"),
        ({"chunk_id": "x" * 1001}, "chunk_id must have at most 1000 characters"),
        ({"chunk_id": "7", "collection": 5}, "collection must be a string"),
        ({"chunk_id": "7", "original_text": 5}, "original_text must be a string"),
        ({"chunk_id": "7", "original_sha256": 5}, "original_sha256 must be a string"),
        ({"chunk_id": "7", "orginal_text": ""}, "orginal_text is not a known field; did you mean original_text?"),
        (
            {"chunk_id": "7", "original_text": "\ud800"},
            "original_text has a lone surrogate, which is not valid Unicode",
        ),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(fields, problem):
    assert problems(fields) == (problem,)


def test_an_id_of_a_thousand_characters_is_taken():
    assert ChunkValidation.parse({"chunk_id": "x" * 1000}).chunk_id == "x" * 1000


def test_all_problems_are_reported_at_once():
    assert problems({"chunk_id": "", "original_sha256": "abc", "foo": 1}) == (
        "chunk_id cannot be empty",
        "original_sha256 must be 64 hexadecimal digits",
        "foo is not a known field",
    )


@pytest.mark.parametrize("name", ["", "  ", "n" * 256])
def test_a_collection_has_1_to_255_characters_as_in_a_search(name):
    assert problems({"chunk_id": "7", "collection": name}) == ("collection must have 1 to 255 characters",)


@given(st.dictionaries(st.sampled_from([*ChunkValidation.model_fields, "foo"]), JSON_VALUES))
def test_any_json_object_is_a_request_or_the_callers_mistake(document):
    try:
        request = ChunkValidation.parse(read_json(json.dumps(document)))
    except InvalidParameterError:
        return

    assert request.chunk_id.strip()


@pytest.mark.parametrize("page", ["contract.md", "guides/validate.md"])
def test_the_kinds_are_those_that_the_pages_describe(page):
    described = [
        name for kind, _ in read_table(page, "| kind | what happened to the text |") for name in names_in(kind)
    ]

    assert sorted(described) == sorted(MismatchKind)


def test_a_verdict_is_written_with_the_contracts_names():
    verdict = ValidationResult(
        chunk_id="7",
        matches=False,
        validation_passed=False,
        stored_text="a",
        original_text=None,
        mismatch_details="The SHA-256 of the stored text differs from the original's",
        mismatch=Mismatch(
            kind=MismatchKind.DIFFERENT,
            first_difference=None,
            stored_excerpt="a",
            original_excerpt=None,
            stored_bytes=1,
            original_bytes=None,
            stored_sha256=DIGEST,
            original_sha256=DIGEST,
        ),
        checks=(Check(name="text", passed=False), Check(name="content_hash", passed=None)),
        retrieval_time_ms=12.3,
    )

    assert json.loads(verdict.to_json()) == {
        "chunk_id": "7",
        "matches": False,
        "validation_passed": False,
        "stored_text": "a",
        "original_text": None,
        "mismatch_details": "The SHA-256 of the stored text differs from the original's",
        "mismatch": {
            "kind": "different",
            "first_difference": None,
            "stored_excerpt": "a",
            "original_excerpt": None,
            "stored_bytes": 1,
            "original_bytes": None,
            "stored_sha256": DIGEST,
            "original_sha256": DIGEST,
        },
        "checks": [
            {"name": "text", "passed": False, "details": None},
            {"name": "content_hash", "passed": None, "details": None},
        ],
        "retrieval_time_ms": 12.3,
    }
