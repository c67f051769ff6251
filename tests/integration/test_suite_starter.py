"""A starter suite from a person's own collection."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid1, uuid4

import pytest

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.proof.backend import LocalBackend
from chunkproof.stores.store_port import Point, WritableStore
from chunkproof.suite.cases import assign_collection, read_suite
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.runner import run_case
from chunkproof.suite.yaml_document import read_yaml
from chunkproof_cli.commands.suite_init import MAX_COPIES, Starter, build_starter, pick_question, to_yaml

from support.chunks import fill, make_services
from support.words import Words


def starter(store: WritableStore, collection: str, texts: dict[str, str], count: int = 50) -> Starter:
    points = [
        Point(n, {"text": text, "chunk_id": key}, vector=(1.0, 0.0)) for n, (key, text) in enumerate(texts.items())
    ]
    fill(store, collection, *points)
    return build_starter(make_services(store, collection).collection(collection, Deadline(60_000)), count)


def test_each_case_asks_a_sentence_of_the_chunk_it_expects(memory_store: WritableStore, collection: str) -> None:
    texts = {f"c{n}": f"Short one. The answer to question number {n} stands in this sentence." for n in range(600)}
    found = starter(memory_store, collection, texts, count=20)
    assert (found.scanned, found.total, len(found.items)) == (600, 600, 20)
    for item in found.items:
        assert item.question in texts[item.chunk_ids[0]]
    assert len({item.chunk_ids for item in found.items}) == 20
    again = build_starter(make_services(memory_store, collection).collection(collection, Deadline(60_000)), 20)
    assert again == found


def test_chunks_of_the_same_text_are_one_case_and_boilerplate_is_none(
    memory_store: WritableStore, collection: str
) -> None:
    texts = {"a": "The very same sentence is stored twice.", "b": "The very same sentence is stored twice."}
    texts |= {f"x{n}": "All rights are reserved by the publisher." for n in range(MAX_COPIES + 1)}
    found = starter(memory_store, collection, texts)
    assert [set(item.chunk_ids) for item in found.items] == [{"a", "b"}]
    case = read_suite(read_yaml(to_yaml(found), "s").value).cases[0]
    assert case.expect == "any"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (
            "## Heading\n\nOne two three. A longer sentence is the one to ask.",
            "A longer sentence is the one to ask.",
        ),
        (
            "```\ncode that is long enough to be taken\n```\nBut prose is what people ask for.",
            "But prose is what people ask for.",
        ),
        ("| a table | with | some | cells | in | it |", "a table with some cells in it"),
        ("INSTALLING THE PUMP\nThe valve has to be closed first.", "The valve has to be closed first."),
        (
            "<h2>Installing <b>it</b></h2><p>The valve has to be <i>closed</i> first.</p>",
            "Installing it The valve has to be closed first.",
        ),
        ("<h2>Installing</h2>\n<p>The valve has to be closed first.</p>", "The valve has to be closed first."),
        (
            "指南车是中国古代的一种车。车上的木人始终指向南方，靠的不是磁铁。",
            "车上的木人始终指向南方，靠的不是磁铁。",
        ),
        ("three words only", "three words only"),
        ("word " * 40, " ".join(["word"] * 30)),
    ],
)
def test_the_question_is_the_longest_sentence_that_can_be_asked(text: str, question: str) -> None:
    assert pick_question(text) == question


@pytest.mark.parametrize(
    "text",
    [
        'A "quoted" text: with # marks, {braces} and \\ backslashes.',
        "Line\u2028separator, next\x85line, bell\x07, delete\x7f, mark\ufeff and \u202ereversed words.",
        "An emoji 🤖 and a noncharacter \uffff in one sentence here.",
        "yes: no? - 1e3 is five words",
    ],
)
def test_any_text_comes_back_from_the_file_as_it_was(memory_store: WritableStore, collection: str, text: str) -> None:
    found = starter(memory_store, collection, {"id: 'x' #1": text})
    written = to_yaml(found)
    suite = read_suite(read_yaml(written, "s").value)
    assert suite.cases[0].query_text == found.items[0].question
    assert suite.cases[0].expected_doc_ids == ("id: 'x' #1",)
    assert suite.cases[0].tags == ("generated",)
    assert "\u202e" not in written


def test_a_collection_without_text_is_reported(memory_store: WritableStore, collection: str) -> None:
    with pytest.raises(InvalidParameterError, match="has no text to make questions from"):
        starter(memory_store, collection, {"a": " "})


def payload_of(text: str, make_id: Callable[[], str]) -> dict[str, Any]:
    return {"id": make_id(), "content": text, "meta": {"source_id": uuid4().hex}}


@pytest.mark.parametrize(
    "make",
    [
        lambda text: {"page_content": text},
        lambda text: {"page_content": text, "metadata": {"source": "page.md"}},
        lambda text: {"_node_content": json.dumps({"text": text}), "doc_id": str(uuid4())},
        lambda text: payload_of(text, lambda: str(uuid1())),
        lambda text: payload_of(text, lambda: uuid4().hex),
        lambda text: payload_of(text, lambda: uuid4().hex * 2),  # as long as a SHA-256
        lambda text: payload_of(text, lambda: uuid4().hex[:24]),
        lambda text: payload_of(text, lambda: f"01ARZ3NDEKTSV4RRF{uuid4().hex[:9].upper()}"),
    ],
    ids=["LangChain", "LangChain with a source", "LlamaIndex", "UUID by time", "hex", "Haystack", "ObjectId", "ULID"],
)
def test_where_ids_are_random_the_same_documents_pass_after_another_import(
    memory_store: WritableStore, collection: str, make: Callable[[str], dict[str, Any]]
) -> None:
    texts = [f"# Part {n}\n\nThe valve number {n} is opened by turning the red handle." for n in range(3)]
    texts.append("# Only a heading of more than five words")
    others = ["| valve | turns |\n|---|---|\n| red | 4 |", 'SELECT valve_number FROM valves WHERE name = "red";']

    def ingest(name: str) -> LocalBackend:
        stored = [*texts, *others]
        vectors = Words().embed(stored, InputType.DOCUMENT, Deadline(60_000))
        points = [Point(str(uuid4()), make(t), vector=tuple(v)) for t, v in zip(stored, vectors, strict=True)]
        fill(memory_store, name, *points, size=Words.dimension)
        return LocalBackend(make_services(memory_store, name, Words()), lambda: Deadline(60_000))

    first = ingest(collection).services.collection(collection, Deadline(60_000))
    suite = read_suite(read_yaml(to_yaml(build_starter(first, 9)), "s").value)
    names = [f"The valve number {n} is opened by turning" for n in range(3)]
    assert sorted(case.name for case in suite.cases) == [
        "SELECT valve_number FROM valves WHERE name red",
        *names,
        "valve turns red 4",
    ]
    again = ingest(f"{collection}-again")
    for case in assign_collection(
        [case.model_copy(update={"top_k": 1}) for case in suite.cases], f"{collection}-again"
    ):
        assert run_case(case, again.search).status is TestStatus.PASSED
