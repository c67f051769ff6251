"""Filters: a caller's JSON → typed conditions, or a message for each one that is wrong."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.contract import read_json
from chunkproof.contract.conditions import AnyOf, Between, Condition, Either, Not, fields_of, parse_filters, parse_time
from chunkproof.contract.model import BrokenRules

from .strategies import JSON_VALUES


def problems(filters: object) -> tuple[str, ...]:
    with pytest.raises(BrokenRules) as broken:
        parse_filters(filters)
    return broken.value.messages


def outcome(filters: object) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    try:
        return parse_filters(filters), ()
    except BrokenRules as broken:
        return (), broken.messages


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_filters_are_no_conditions(nothing):
    assert parse_filters(nothing) == ()


@pytest.mark.parametrize("value", ["guide", "", 5, -(2**63), 2**63 - 1, 0.5, True, False, "2025-01-01"])
def test_a_value_must_be_equal(value):
    [condition] = parse_filters({"field": value})

    assert condition == AnyOf("field", (value,))
    assert type(condition.values[0]) is type(value)


def test_a_list_means_any_of_its_values():
    assert parse_filters({"tags": ["a", "b", 3]}) == (AnyOf("tags", ("a", "b", 3)),)


def test_repeated_values_count_once():
    assert parse_filters({"tags": ["a", "b", "a"]}) == (AnyOf("tags", ("a", "b")),)


def test_true_is_not_dropped_as_a_repetition_of_one():
    [condition] = parse_filters({"flag": [1, True]})

    assert [type(value) for value in condition.values] == [int, bool]


def test_a_float_is_not_dropped_as_a_repetition_of_an_integer():
    [condition] = parse_filters({"version": [1, 1.0]})

    assert [type(value) for value in condition.values] == [int, float]


def test_bounds_are_read_as_numbers():
    assert parse_filters({"position": {"gte": 1, "lt": 2.5}}) == (Between("position", gte=1.0, lt=2.5),)


@pytest.mark.parametrize("bound", ["gte", "gt", "lte", "lt"])
def test_each_bound_may_stand_alone(bound):
    [condition] = parse_filters({"position": {bound: 7}})

    assert condition == Between("position", **{bound: 7.0})
    assert not condition.is_about_time


def test_iso_dates_become_a_date_range():
    [condition] = parse_filters({"timestamp": {"gte": "2025-01-01", "lt": "2025-02-01T00:00:00+02:00"}})

    assert condition == Between(
        "timestamp",
        gte=datetime(2025, 1, 1, tzinfo=UTC),
        lt=datetime(2025, 2, 1, tzinfo=timezone(timedelta(hours=2))),
    )
    assert condition.is_about_time


def test_all_conditions_stand_together_in_the_order_given():
    assert parse_filters({"b": 1, "a": {"gt": 0}}) == (AnyOf("b", (1,)), Between("a", gt=0.0))


def test_not_takes_conditions_together():
    assert parse_filters({"not": {"lang": "de", "position": {"gt": 3}}}) == (
        Not((AnyOf("lang", ("de",)), Between("position", gt=3.0))),
    )


def test_not_may_hold_a_not():
    assert parse_filters({"not": {"not": {"a": 1}}}) == (Not((Not((AnyOf("a", (1,)),)),)),)


@pytest.mark.parametrize(
    "path", ["url", "metadata.url", "tags[]", "a[].b[].c", "größe", "with space", "it's", "a-b_c", "$x", "🙂"]
)
def test_names_joined_by_dots_are_payload_paths(path):
    assert parse_filters({path: 1}) == (AnyOf(path, (1,)),)


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "a[0]", "a[", "a]", "[]", "a[][]", 'a"b', "a\nb", "a\x00", "a[].[]"]
)
def test_anything_else_is_no_payload_path(path):
    [problem] = problems({path: 1})

    assert problem.endswith(" is not a payload path: use names joined by dots")


def test_a_name_of_more_than_a_thousand_characters_is_no_payload_path():
    assert parse_filters({"n" * 1000: 1}) == (AnyOf("n" * 1000, (1,)),)
    assert problems({"n" * 1001: 1}) == (
        "filters." + "n" * 59 + "… is not a payload path: it has more than 1000 characters",
    )


def test_a_refused_name_is_shown_bounded_and_harmless():
    assert problems({"\x1b[31m" + "n" * 900: 1}) == (
        "filters.�[31m" + "n" * 54 + "… is not a payload path: use names joined by dots",
    )


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ({"a": None}, "filters.a must not be null"),
        ({"a": [1, None]}, "filters.a[1] must not be null"),
        ({"a": []}, "filters.a must name at least one value"),
        ({"a": [["b"]]}, "filters.a[0] must be a string, a number, true or false"),
        ({"a": [{"gte": 1}]}, "filters.a[0] must be a string, a number, true or false"),
        ({"a": 2**63}, "filters.a must fit in 64 bits"),
        ({"a": -(2**63) - 1}, "filters.a must fit in 64 bits"),
        ({"a": [1, 10**399]}, "filters.a[1] must fit in 64 bits"),
        ({"a": {}}, "filters.a must have at least one of gte, gt, lte, lt"),
        ({"a": {"eq": 1}}, "filters.a.eq is not one of gte, gt, lte, lt"),
        ({"a": {"gte": 1, "$ne": 2}}, "filters.a.$ne is not one of gte, gt, lte, lt"),
        ({"a": {"gte": "soon"}}, "filters.a.gte must be a number or an ISO 8601 date"),
        ({"a": {"gte": None}}, "filters.a.gte must be a number or an ISO 8601 date"),
        ({"a": {"gte": True}}, "filters.a.gte must be a number or an ISO 8601 date"),
        ({"a": {"gte": [1]}}, "filters.a.gte must be a number or an ISO 8601 date"),
        ({"a": {"gte": 1, "lt": "2025-01-01"}}, "filters.a mixes numbers and dates"),
        ({"not": {}}, "filters.not must be an object with at least one condition"),
        ({"not": 1}, "filters.not must be an object with at least one condition"),
        ({"not": [{"a": 1}]}, "filters.not must be an object with at least one condition"),
        ({"not": {"a": None}}, "filters.not.a must not be null"),
    ],
)
def test_a_wrong_condition_is_named_with_its_place(filters, problem):
    assert problems(filters) == (problem,)


@pytest.mark.parametrize("filters", [[], ["a"], "a", 1, True])
def test_filters_are_an_object(filters):
    assert problems(filters) == ("filters must be an object",)


def test_every_wrong_condition_has_a_message_of_its_own():
    filters = {"a": None, "b": {"near": 1}, "not": {"c": []}, "ok": 1}

    assert problems(filters) == (
        "filters.a must not be null",
        "filters.b.near is not one of gte, gt, lte, lt",
        "filters.not.c must name at least one value",
    )


@pytest.mark.parametrize("number", [1e300, -1.7e308])
def test_any_finite_number_is_a_bound(number):
    assert parse_filters({"a": {"gte": number}}) == (Between("a", gte=number),)


@pytest.mark.parametrize("filters", ['{"a": {"gte": NaN}}', '{"not": NaN}'])
def test_a_faulty_value_is_left_to_find_faults(filters):
    parse_filters(read_json(filters))


def test_fields_are_found_however_deep():
    a, b, c = AnyOf("a", (1,)), Between("b", gt=1.0), AnyOf("c", (2,))

    assert list(fields_of((Not((a, Either((b, Not((c,)))))), a))) == [a, b, c, a]


@given(JSON_VALUES)
def test_any_json_is_conditions_or_broken_rules(filters):
    conditions, messages = outcome(filters)

    assert all(message.startswith("filters") for message in messages)
    assert messages or len(conditions) == len(filters or {})


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2025-01-31", datetime(2025, 1, 31, tzinfo=UTC)),
        ("2025-01-31T10:30:00Z", datetime(2025, 1, 31, 10, 30, tzinfo=UTC)),
        ("2025-01-31 10:30:00", datetime(2025, 1, 31, 10, 30, tzinfo=UTC)),
        ("2025-01-31T10:30:00-08:00", datetime(2025, 1, 31, 18, 30, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
        ("2025-1-31", None),
        ("2025-W05-5", None),
        ("2025-01-32", None),
        ("1738319400", None),
        ("", None),
    ],
)
def test_a_time_is_read_or_is_none(text, time):
    assert parse_time(text) == time


@given(st.text() | st.from_regex(r"\d{4}-\d\d-\d\d.{0,20}"))
def test_no_text_breaks_the_reading_of_a_time(text):
    time = parse_time(text)

    assert time is None or time.tzinfo is not None


# limits


def flat(count: int, first: int = 0) -> dict[str, object]:
    """So many conditions of one value each."""
    return {f"field{number}": number for number in range(first, first + count)}


def test_a_hundred_conditions_are_as_many_as_a_filter_may_have():
    assert len(parse_filters(flat(100))) == 100
    assert problems(flat(101)) == ("filters must have at most 100 conditions, not 101",)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({**flat(60), "not": flat(41)}, 101),
        ({"not": {**flat(50), "not": {**flat(50), "not": flat(50)}}}, 150),
        ({**flat(100), "range": {"gte": 1, "lt": 2}}, 101),
    ],
    ids=["not", "not within not", "a range"],
)
def test_conditions_count_however_deep_and_of_whatever_kind(filters, count):
    assert problems(filters) == (f"filters must have at most 100 conditions, not {count}",)


def test_a_not_is_no_condition_of_its_own():
    assert len(parse_filters({**flat(99), "not": {"last": 1}})) == 100


def test_a_thousand_values_are_as_many_as_a_filter_may_name():
    [condition] = parse_filters({"tags": list(range(1_000))})

    assert condition.values == tuple(range(1_000))
    assert problems({"tags": list(range(1_001))}) == ("filters must name at most 1000 values, not 1001",)


def test_values_count_over_all_conditions_together():
    halves = {"tags": list(range(500)), "not": {"pages": list(range(500))}}

    assert len(parse_filters(halves)) == 2
    assert problems({**halves, "last": "one more"}) == ("filters must name at most 1000 values, not 1001",)


def test_a_repeated_value_counts_once_and_a_bound_not_at_all():
    filters = {"tags": [*range(1_000), *range(1_000)], "pages": {"gte": 1, "lt": 9}}

    assert len(parse_filters(filters)) == 2


def test_exceeded_limits_are_reported_with_the_other_problems():
    filters = {**flat(101), "tags": list(range(1_000)), "wrong": None}

    assert problems(filters) == (
        "filters.wrong must not be null",
        "filters must have at most 100 conditions, not 102",
        "filters must name at most 1000 values, not 1101",
    )
