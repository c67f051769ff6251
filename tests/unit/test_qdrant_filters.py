"""Typed conditions as Qdrant filters."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import QdrantClient, models
from qdrant_client.local.payload_filters import check_filter

from chunkproof.contract.conditions import AnyOf, Between, Either, Not, parse_filters
from chunkproof.contract.model import BrokenRules
from chunkproof.stores.qdrant import required_indexes
from chunkproof.stores.qdrant import to_qdrant_filter as to_json

AT = datetime(2025, 1, 1, tzinfo=UTC)


def to_qdrant(conditions):
    """Return the filter as a model of Qdrant's client."""
    built = to_json(conditions)
    return None if built is None else models.Filter.model_validate(built)


def matches(filters: dict[str, object], payload: dict[str, object]) -> bool:
    """Whether Qdrant's local mode finds this payload with the filters."""
    built = to_qdrant(parse_filters(filters))
    return built is None or check_filter(built, payload, 1, {})


def only(*conditions):
    [condition] = to_qdrant(conditions).must
    return condition


def test_without_conditions_there_is_no_filter():
    assert to_qdrant(()) is None


@pytest.mark.parametrize("value", ["guide", 5, True, False])
def test_a_value_is_matched_with_its_own_type(value):
    condition = only(AnyOf("a", (value,)))

    assert condition == models.FieldCondition(key="a", match=models.MatchValue(value=value))
    assert type(condition.match.value) is type(value)


def test_a_float_is_a_range_of_one_value():
    assert only(AnyOf("a", (0.5,))) == models.FieldCondition(key="a", range=models.Range(gte=0.5, lte=0.5))


def test_several_strings_are_one_match_any():
    assert only(AnyOf("a", ("x", "y"))) == models.FieldCondition(key="a", match=models.MatchAny(any=["x", "y"]))


def test_values_of_several_types_are_alternatives():
    assert only(AnyOf("a", ("x", 1, 2, True, 0.5))) == models.Filter(
        should=[
            models.FieldCondition(key="a", match=models.MatchValue(value="x")),
            models.FieldCondition(key="a", match=models.MatchAny(any=[1, 2])),
            models.FieldCondition(key="a", match=models.MatchValue(value=True)),
            models.FieldCondition(key="a", range=models.Range(gte=0.5, lte=0.5)),
        ]
    )


def test_numbers_are_a_range_and_dates_a_range_of_dates():
    assert only(Between("a", gte=1.0, lt=2.0)) == models.FieldCondition(key="a", range=models.Range(gte=1.0, lt=2.0))
    assert only(Between("a", gt=AT)) == models.FieldCondition(key="a", range=models.DatetimeRange(gt=AT))


def test_not_means_not_all_of_them_together():
    a, b = AnyOf("a", (1,)), AnyOf("b", (2,))

    assert only(Not((a, b))) == models.Filter(must_not=[models.Filter(must=[only(a), only(b)])])


def test_either_means_at_least_one():
    a, b = AnyOf("a", (1,)), AnyOf("b", (2,))

    assert only(Either((a, b))) == models.Filter(should=[only(a), only(b)])


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("url", "url"),
        ("metadata.source-url_2", "metadata.source-url_2"),
        ("tags[].name", "tags[].name"),
        ("with space", '"with space"'),
        ("meta.größe", 'meta."größe"'),
        ("$x.a", '"$x".a'),
        pytest.param(
            "my tags[]", '"my tags"[]'
        ),
    ],
)  # fmt: skip
def test_a_path_is_written_in_qdrants_notation(field, key):
    assert only(AnyOf(field, (1,))).key == key


@pytest.mark.parametrize(
    ("condition", "schema"),
    [
        (AnyOf("a", ("x",)), "keyword"),
        (AnyOf("a", (1, 2)), "integer"),
        (AnyOf("a", (0.5,)), "float"),
        (AnyOf("a", (True,)), "bool"),
        (Between("a", gte=1.0), "float"),
        (Between("a", lt=AT), "datetime"),
    ],
)
def test_each_condition_names_the_index_that_it_needs(condition, schema):
    assert list(required_indexes((condition,))) == [("a", schema)]


def test_nested_conditions_name_their_indexes_in_order():
    conditions = (Not((AnyOf("a", ("x",)), Either((Between("b", gt=1.0),)))), AnyOf("c", (1,)))

    assert list(required_indexes(conditions)) == [("a", "keyword"), ("b", "float"), ("c", "integer")]


@pytest.mark.parametrize(
    ("filters", "matching", "other"),
    [
        ({"lang": "en"}, {"lang": "en"}, {"lang": "EN"}),
        ({"lang": ["en", "de"]}, {"lang": "de"}, {"lang": "fr"}),
        ({"lang": "en"}, {"lang": ["de", "en"]}, {}),
        ({"n": {"gte": 1, "lt": 3}}, {"n": 1}, {"n": 3}),
        ({"n": {"gt": 1, "lte": 3}}, {"n": 3}, {"n": 1}),
        ({"n": 0.5}, {"n": 0.5}, {"n": 0.50001}),
        ({"flag": True}, {"flag": True}, {"flag": False}),
        ({"at": {"gte": "2025-01-01"}}, {"at": "2025-01-01T00:00:00Z"}, {"at": "2024-12-31T23:59:59Z"}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1, "b": 3}),
        ({"not": {"a": 1, "b": 2}}, {"a": 1, "b": 3}, {"a": 1, "b": 2}),
        ({"not": {"a": 1}}, {}, {"a": 1}),
        ({"not": {"not": {"a": 1}}}, {"a": 1}, {"a": 2}),
        ({"meta.with space": "x"}, {"meta": {"with space": "x"}}, {"meta": {"with": "x"}}),
        ({"parts[].n": 2}, {"parts": [{"n": 1}, {"n": 2}]}, {"parts": [{"n": 3}]}),
    ],
)
def test_qdrant_finds_the_payloads_that_the_filter_describes(filters, matching, other):
    assert matches(filters, matching)
    assert not matches(filters, other)


@given(st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=1, max_size=12))
def test_every_name_that_is_a_payload_path_finds_its_field(name):
    try:
        parse_filters({name: "x"})
    except BrokenRules:
        return
    payload: object = "x"
    for step in reversed(name.split(".")):
        payload = {step: payload}

    assert matches({name: "x"}, payload)


def test_a_store_accepts_the_filter():
    client = QdrantClient(":memory:")
    client.create_collection("c", models.VectorParams(size=1, distance=models.Distance.DOT))
    client.upsert("c", [models.PointStruct(id=n, vector=[1.0], payload={"n": n}) for n in (1, 2, 3)])

    built = to_qdrant(parse_filters({"n": [1, 3], "not": {"n": {"gt": 2}}}))

    assert client.count("c", count_filter=built).count == 1
    client.close()
