"""Diagnosis of failed cases: by the store where it is accessible, else by the API alone."""

import shlex
from hashlib import sha256
from typing import Any

import click
import pytest

from chunkproof.base.request import Deadline
from chunkproof.contract import RetrievalResponse
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.backend import LocalBackend
from chunkproof.proof.vector_judge import is_stale
from chunkproof.service.terminal import local_backend
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof.suite.diagnosis import MAX_CASES, Diagnoser
from chunkproof.suite.outcome import Diagnosis, TestStatus
from chunkproof.suite.runner import run_case
from chunkproof.why.causes import Cause
from chunkproof.why.explainer import make_explainer
from chunkproof.why.probe import StackProbe
from chunkproof_cli.main import cli

from support.chunks import fill, make_services
from support.sdk import sdk
from support.suites import Backend, answer, case, chunk
from support.words import Words

TEXTS = {
    "pumps": "how a pump moves water",
    "wells": "how deep a well of water is",
    "rivers": "the water of a river",
    "stars": "a star shines at night",
    "empty": "the payload of this one has no text",
}


def vector(text: str) -> tuple[float, ...]:
    return tuple(Words().embed([text], InputType.DOCUMENT, Deadline(1000))[0])


def point(number: int, name: str, **payload: Any) -> Point:
    """A chunk with its hash, as `load` writes it."""
    text = TEXTS[name]
    fields = {
        "chunk_id": name,
        "text": text,
        "document_id": f"{name}-book",
        "url": f"https://docs.example.com/{name}",
        "document_title": name,
        "content_hash": sha256(text.encode()).hexdigest(),
    }
    return Point(number, {**fields, **payload}, vector=vector(text))


@pytest.fixture
def local(memory_store: WritableStore, collection: str) -> LocalBackend:
    """Five chunks: one about stars that claims to be about wells, and one without a text."""
    points = [
        point(1, "pumps"),
        point(2, "wells", language="en"),
        point(3, "rivers", text="the water of a riv"),
        Point(4, point(4, "stars").payload, vector=vector("seven bakers bake seven breads")),
        point(5, "empty", text=""),
    ]
    fill(memory_store, collection, *points, size=Words.dimension)
    return local_backend(make_services(memory_store, collection, Words()))


def causes(local: LocalBackend, *, by_api: bool = False, **fields: Any) -> list[Diagnosis]:
    """Of a case that must fail."""
    failed = run_case(case(**{"query_text": "water", **fields}), local.search)
    assert failed.status is TestStatus.FAILED, failed
    explainer = StackProbe(local) if by_api else make_explainer(local)
    return Diagnoser(explainer, "--data there").find_causes(failed)


MISSING: list[tuple[dict[str, Any], Cause, str]] = [
    ({"expected_doc_ids": ["ponds"]}, Cause.NOT_IN_COLLECTION, "no chunk, document or URL has this id"),
    ({"expected_doc_ids": ["empty"]}, Cause.UNREADABLE, "empty is stored without a readable text"),
    (
        {"expected_doc_ids": ["pumps"], "top_k": 1, "query_text": "how deep is a well of water"},
        Cause.BEYOND_TOP_K,
        "beyond top_k 1",
    ),
    (
        {"expected_doc_ids": ["rivers-book"], "top_k": 1, "query_text": "pump"},
        Cause.TEXT_CHANGED,
        "no longer matches its hash: The stored text does not match content_hash",
    ),
]


@pytest.mark.parametrize("by_api", [False, True], ids=["store", "api"])
@pytest.mark.parametrize(("fields", "cause", "message"), MISSING, ids=[c.value for _, c, _ in MISSING])
def test_a_missing_chunk_has_a_cause(
    local: LocalBackend, fields: dict[str, Any], cause: Cause, message: str, by_api: bool
) -> None:
    [found] = causes(local, by_api=by_api, **fields)
    assert found.cause is cause, found
    assert message in found.message


def test_a_vector_of_another_text_is_found_by_embedding_the_text_again(local: LocalBackend) -> None:
    [found] = causes(local, query_text="water at night", expected_doc_ids=["stars"], top_k=2)
    assert found.cause is Cause.STALE_VECTOR
    assert "the vector of stars is not the embedding of its text (cosine 0." in found.message
    assert "with its text embedded anew, it is at rank " in found.message


def test_a_diagnosis_against_a_stack_says_that_vectors_were_not_checked(local: LocalBackend) -> None:
    [found] = causes(local, by_api=True, query_text="water at night", expected_doc_ids=["stars"], top_k=2)
    assert found.cause is Cause.BEYOND_TOP_K
    assert found.message.endswith(
        "whether its vector fits its text was not checked, as a stack does not return vectors"
    )


@pytest.mark.parametrize(
    ("by_api", "message"),
    [
        (False, "the filter on language (stored: en) excludes it"),
        (True, "the filter on document_id, language excludes it"),
    ],
)
def test_a_filter_that_excludes_the_chunk_is_named(local: LocalBackend, by_api: bool, message: str) -> None:
    filters = {"language": "de", "document_id": "wells-book"}
    [found] = causes(local, by_api=by_api, expected_doc_ids=["wells"], filters=filters)
    assert found.cause is Cause.FILTERED_OUT
    assert message in found.message


def test_a_score_below_the_threshold_is_a_cause_of_its_own(local: LocalBackend) -> None:
    [found] = causes(local, expected_doc_ids=["pumps"], relevance_threshold=0.9)
    assert (found.cause, found.subject) == (Cause.BELOW_THRESHOLD, "pumps")
    assert "below relevance_threshold 0.9" in found.message


def test_a_keyword_missing_from_a_changed_text_is_diagnosed_as_text_changed(local: LocalBackend) -> None:
    [lost] = causes(local, query_text="river", expected_doc_ids=["rivers"], expected_keywords=["river"])
    assert (lost.cause, lost.subject) == (Cause.TEXT_CHANGED, "rivers")
    [never] = causes(local, expected_doc_ids=["pumps"], expected_keywords=["valve"])
    assert never.cause is Cause.KEYWORD_MISSING
    assert never.message == "Keyword 'valve' is in none of the 4 results; the expected texts are as they were stored"


def test_unwanted_results_and_slow_searches_are_diagnosed_too(local: LocalBackend) -> None:
    [unwanted] = causes(local, expect_no_results=True, relevance_threshold=0.1)
    assert unwanted.cause is Cause.UNWANTED_RESULT
    [slow] = causes(local, expected_doc_ids=["pumps"], max_latency_ms=1e-6)
    assert slow.cause is Cause.TOO_SLOW
    assert "ms: embedding" in slow.message


def test_each_expected_chunk_has_its_own_line_and_any_needs_none_once_one_is_found(
    local: LocalBackend,
) -> None:
    both = causes(local, expected_doc_ids=["ponds", "pumps", "lakes"])
    assert [(found.cause, found.subject) for found in both] == [
        (Cause.NOT_IN_COLLECTION, "ponds"),
        (Cause.NOT_IN_COLLECTION, "lakes"),
    ]
    low = causes(local, expected_doc_ids=["ponds", "pumps"], expect="any", relevance_threshold=0.9)
    assert [found.cause for found in low] == [Cause.BELOW_THRESHOLD]


def test_a_long_list_of_missing_chunks_is_truncated_with_a_count(local: LocalBackend) -> None:
    *_, last = causes(local, expected_doc_ids=[f"pond {n}" for n in range(8)])
    assert last.message == "Not looked into: 3 more expected ids are missing, and only 5 were looked into"


def test_the_command_can_be_pasted(local: LocalBackend, collection: str) -> None:
    [found] = causes(
        local,
        query_text="-it's water",
        collection_name=collection,
        expected_doc_ids=["pumps"],
        filters={"not": {"language": "de"}},
        relevance_threshold=0.99,
    )
    assert found.command is not None
    program, name, *arguments = shlex.split(found.command)
    assert (program, name) == ("chunkproof", "search")
    group = click.Context(cli, **cli.context_settings)
    command = cli.get_command(group, "search")
    assert command is not None
    parsed = command.make_context("search", arguments, parent=group).params
    assert parsed["texts"] == ("-it's water",)
    assert parsed["filters"] == ('not={"language": "de"}',)
    assert str(parsed["data"]) == "there"


def test_a_store_that_fails_during_a_diagnosis_gives_a_reason_and_no_guess(
    local: LocalBackend, memory_store: WritableStore, collection: str
) -> None:
    failed = run_case(case(query_text="water", expected_doc_ids=["ponds"]), local.search)
    sdk(memory_store).delete_collection(collection)
    [found] = Diagnoser(make_explainer(local)).find_causes(failed)
    assert found.cause is Cause.NOT_LOOKED_INTO
    assert found.message == f"Not looked into: Collection {collection} not found"


def test_only_the_first_failed_cases_are_diagnosed(local: LocalBackend) -> None:
    failed = run_case(case(query_text="water", expected_doc_ids=["ponds"]), local.search)
    found = Diagnoser(make_explainer(local)).diagnose([failed] * (MAX_CASES + 1))
    assert [one.diagnosis[0].cause for one in found[-2:]] == [Cause.NOT_IN_COLLECTION, Cause.NOT_LOOKED_INTO]
    assert "101 cases failed, and the first 100 were looked into" in found[-1].diagnosis[0].message


@pytest.mark.parametrize(
    ("cosine", "usual", "stale"),
    [(1.0, 1.0, False), (0.85, 0.85, False), (0.84, 1.0, True), (0.3, 0.85, True), (0.02, 0.03, True)],
)
def test_a_vector_is_stale_compared_with_the_usual_cosine_of_its_collection(
    cosine: float, usual: float, stale: bool
) -> None:
    assert is_stale(cosine, [usual]) is stale


@pytest.mark.parametrize(
    ("expected", "cause", "message"),
    [
        ("pumps", Cause.MISSED_BY_RETRIEVER, "could not be searched: No embedder is configured: set COHERE_API_KEY"),
        ("ponds", Cause.NOT_IN_COLLECTION, "no chunk, document or URL has this id"),
    ],
)
def test_a_collection_beside_a_retriever_is_looked_into_without_an_embedder(
    local: LocalBackend, collection: str, expected: str, cause: Cause, message: str
) -> None:
    asked = case(query_text="water", collection_name=collection, expected_doc_ids=[expected])
    failed = run_case(asked, lambda _: answer())
    local.services.embedder = None
    local.services.queries = None
    [found] = Diagnoser(make_explainer(local), retriever="own").find_causes(failed)
    assert found.cause is cause
    assert found.message.endswith(message)


class Deeper(Backend):
    """A stack whose index misses `a` unless many results are asked for."""

    def search(self, request: dict[str, Any]) -> RetrievalResponse:
        return answer(chunk("a", 0.9), chunk("x")) if request["top_k"] > 10 else answer(chunk("x"))


def test_what_a_stack_s_index_missed_is_shown_by_a_search_that_a_stack_can_make() -> None:
    stack = Deeper(lambda _: answer())
    failed = run_case(case(), stack.search)
    [found] = Diagnoser(StackProbe(stack), "--api https://there").find_causes(failed)
    assert found.cause is Cause.MISSED_BY_INDEX
    assert found.command == "chunkproof search -k 200 --collection docs --api https://there question"
