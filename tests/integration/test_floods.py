"""A body that is refused costs at most half a second of processor time, whatever fills its six megabytes."""

import sys
from collections.abc import Iterator
from random import Random

import pytest

from chunkproof.base.errors import MAX_MESSAGES, InvalidParameterError
from chunkproof.contract import SearchQuery
from chunkproof.contract.model import MAX_VALUES, read_json

from support.floods import PLACES, Flood, floods, random_flood, send
from support.memory_handlers import in_memory_handlers

# Coverage follows every line, which multiplies the time.
SECONDS = 0.5 if sys.gettrace() is None else 3.0
TRIES = 4


@pytest.fixture(scope="module", autouse=True)
def _handlers() -> Iterator[None]:
    with in_memory_handlers():
        send(Flood(*PLACES["vector"][:2], "NaN", "]}"), 1000)  # builds what is built once
        yield


def seconds_of(flood: Flood) -> float:
    """The best of a few tries: another process may have used the caches."""
    status, spent = 0, SECONDS + 1
    for _ in range(TRIES):
        if spent > SECONDS:
            reply, spent, _ = send(flood)
            status = reply.status
    assert 400 <= status < 500 or status == 200
    return spent


@pytest.mark.parametrize(
    ("place", "unit"),
    [
        ("vector", "NaN"),
        ("vector", '"a"'),
        ("vector", "[]"),
        ("vector", "1e999"),
        ("filter list", "[]"),
        ("filter list", '"a"'),
        ("filter object", '"n#":[]'),
        ("filter bounds", '"n#":1'),
        ("filter not", '"n#":{"n#":null}'),
        ("shared filter text", "a"),
        ("shared filter list", '"n#"'),
        ("rerank", '"n#":1'),
        ("names", '"n#":1'),
        ("names", '"a":NaN'),
        ("chunks", "{}"),
        ("chunk", '"n#":NaN'),
        ("name", "a"),
        ("open", "["),
        ("open", '"\\"'),
    ],
)
def test_the_worst_that_is_known_is_refused_in_time(place, unit):
    route, before, after, joint = PLACES[place]

    assert seconds_of(Flood(route, before, unit, after, joint)) < SECONDS


def test_floods_of_many_kinds_are_refused_in_time():
    random = Random(18)
    kinds = [*random.sample(list(floods()), 15), *(random_flood(random) for _ in range(15))]

    slow = [flood for flood in kinds if seconds_of(flood) >= SECONDS]

    assert slow == []


def test_the_first_problems_are_listed_and_the_others_counted():
    with pytest.raises(InvalidParameterError) as refused:
        SearchQuery.parse(read_json('{"query_vector": [' + "NaN," * 11_999 + "NaN]}"))

    assert len(refused.value.messages) == MAX_MESSAGES + 1
    assert refused.value.messages[0] == "query_vector[0] must be a finite number, not NaN"
    assert refused.value.messages[-1] == f"… and {12_000 - MAX_MESSAGES} more"


def test_wrong_items_of_a_vector_are_counted_too():
    with pytest.raises(InvalidParameterError) as refused:
        SearchQuery.parse({"query_vector": ["a"] * 5_000})

    assert refused.value.messages[0] == "query_vector[0] must be a number"
    assert refused.value.messages[-1] == f"… and {5_000 - MAX_MESSAGES} more"


def test_a_vector_beyond_qdrants_limit_is_refused_by_its_length():
    with pytest.raises(InvalidParameterError, match=r"^query_vector must have at most 65536 numbers, not 70000$"):
        SearchQuery.parse({"query_vector": [0.5] * 70_000})


def test_thousands_of_unknown_names_are_refused_by_their_number():
    with pytest.raises(InvalidParameterError, match=r"^The request body has 5,001 fields; 100 are the most$"):
        SearchQuery.parse({"query_text": "a", **{f"n{number}": 1 for number in range(5_000)}})


def test_a_long_text_full_of_commas_and_brackets_is_one_value():
    assert read_json('{"a": "{[,\\\\\\" ' + "[,{" * 500_000 + '"}', max_values=MAX_VALUES)["a"].count("[") == 500_001


def test_a_document_of_too_many_values_is_refused_before_it_is_parsed():
    with pytest.raises(InvalidParameterError, match=r"^The request body has more than 200,000 values$"):
        read_json("[" + "1," * MAX_VALUES + "1", max_values=MAX_VALUES)
