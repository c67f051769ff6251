"""The SearchQuery table of the contract, row by row."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import Limits, SearchQuery, read_json

from .strategies import JSON_VALUES

FIELDS = [*SearchQuery.model_fields, *SearchQuery.aliases, "nonsense"]


def parsed(limits: Limits | None = None, **fields: object) -> SearchQuery:
    return SearchQuery.parse({"query_text": "vector database"} | fields, limits)


def problems(body: str | dict[str, object], limits: Limits | None = None) -> tuple[str, ...]:
    document = read_json(body) if isinstance(body, str) else body
    with pytest.raises(InvalidParameterError) as refused:
        SearchQuery.parse(document, limits)
    return refused.value.messages


def problem_with(limits: Limits | None = None, **fields: object) -> str:
    [problem] = problems({"query_text": "vector database"} | fields, limits)
    return problem


def test_a_text_alone_gets_the_defaults_of_the_contract():
    query = SearchQuery.parse({"query_text": "vector database"})

    assert (query.query_text, query.query_vector) == ("vector database", None)
    assert (query.top_k, query.similarity_threshold) == (5, 0.0)
    assert (query.collection, query.filters) == (None, ())
    assert (query.include_metadata, query.with_payload, query.with_vectors) == (True, False, False)


def test_a_query_without_an_id_gets_a_uuid4_of_its_own():
    first, second = parsed().query_id, parsed().query_id

    assert UUID(first).version == 4
    assert first != second


def test_a_query_without_a_time_gets_now_in_utc():
    before = datetime.now(UTC)
    created = parsed().created_at

    assert before <= created <= datetime.now(UTC)
    assert created.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("alias", "field", "value", "read"),
    [
        ("text", "query_text", "hello", "hello"),
        ("threshold", "similarity_threshold", 0.25, 0.25),
        ("score_threshold", "similarity_threshold", 0.25, 0.25),
        ("collection_name", "collection", "books", "books"),
        ("timestamp", "created_at", "2025-12-16T14:30:01Z", datetime(2025, 12, 16, 14, 30, 1, tzinfo=UTC)),
    ],
)
def test_each_alias_is_read_as_its_field_and_refused_beside_it(alias, field, value, read):
    base = {} if field == "query_text" else {"query_text": "hello"}

    assert getattr(SearchQuery.parse(base | {alias: value}), field) == read
    assert problems(base | {field: value, alias: value}) == (
        f"{field} and {alias} are the same field: give one of them",
    )


def test_threshold_and_score_threshold_are_the_same_field():
    assert problem_with(threshold=0.5, score_threshold=0.5) == (
        "threshold and score_threshold are the same field: give one of them"
    )


@given(st.text(min_size=1).filter(lambda text: text.strip() and len(text) <= 10_000))
def test_a_text_is_kept_code_point_for_code_point(text):
    assert SearchQuery.parse(read_json(json.dumps({"query_text": text}))).query_text == text


@pytest.mark.parametrize("text", ["", " ", "\t\r\n", "\u00a0\u2003\u3000"])
def test_a_blank_text_is_refused(text):
    assert problem_with(query_text=text) == "query_text cannot be empty"


@pytest.mark.parametrize("length", [1, 10_000])
def test_a_text_at_the_hard_limits_is_taken(length):
    assert parsed(query_text="x" * length).query_text == "x" * length


def test_a_text_beyond_the_hard_limit_is_refused():
    assert problem_with(query_text="x" * 10_001) == "query_text must be between 1 and 10000 characters"


@pytest.mark.parametrize("text", ["ab", "x" * 1001])
def test_a_text_is_refused_with_the_limits_in_force(text):
    limits = Limits(min_query_chars=3, max_query_chars=1000)

    assert problem_with(limits, query_text=text) == "query_text must be between 3 and 1000 characters"


def test_length_is_counted_in_characters_and_not_in_bytes():
    assert parsed(Limits(max_query_chars=3), query_text="🙂🙂🙂").query_text == "🙂🙂🙂"


def test_any_language_is_a_query():
    assert parsed(query_text="ベクトルデータベース").query_text == "ベクトルデータベース"


def test_a_vector_may_come_instead_of_a_text():
    query = SearchQuery.parse({"query_vector": [0.6, -0.8, 1]})

    assert query.query_text is None
    assert query.query_vector == (0.6, -0.8, 1.0)


@pytest.mark.parametrize(
    "fields",
    [{}, {"query_text": None}, {"query_vector": None}, {"query_text": None, "query_vector": None}],
)
def test_text_or_vector_is_required(fields):
    assert problems(fields) == ("query_text is required",)


@pytest.mark.parametrize("text", ["query_text", "text"])
def test_text_and_vector_together_are_refused(text):
    assert problems({text: "hello", "query_vector": [1.0]}) == ("Give query_text or query_vector, not both",)


@pytest.mark.parametrize("vector", [[], [0.0], [0, 0.0, -0.0]])
def test_a_vector_without_direction_is_refused(vector):
    assert problems({"query_vector": vector}) == ("query_vector cannot be empty or all zeros",)


def test_a_vector_beyond_32_bit_floats_is_refused():
    assert problems({"query_vector": [1.0, 3.5e38]}) == ("query_vector must hold finite 32-bit numbers",)
    assert SearchQuery.parse({"query_vector": [3.4e38]}).query_vector == (3.4e38,)


@pytest.mark.parametrize(
    ("vector", "messages"),
    [
        ('["0.5"]', ("query_vector[0] must be a number",)),
        ("[true]", ("query_vector[0] must be a number",)),
        ("[1, null, [2]]", ("query_vector[1] must be a number", "query_vector[2] must be a number")),
        ("[1, NaN]", ("query_vector[1] must be a finite number, not NaN",)),
        ("[1e400]", ("query_vector[0] must be a finite number; it is too large",)),
        ('"0.5"', ("query_vector must be a list",)),
        ('{"0": 0.5}', ("query_vector must be a list",)),
        ("0.5", ("query_vector must be a list",)),
    ],
)
def test_a_vector_holds_numbers_and_nothing_else(vector, messages):
    assert problems('{"query_vector": ' + vector + "}") == messages


@pytest.mark.parametrize("top_k", [1, 5, 1000])
def test_top_k_from_one_to_the_hard_limit_is_taken(top_k):
    assert parsed(top_k=top_k).top_k == top_k


@pytest.mark.parametrize("top_k", [0, -1, 1001, 2**63, 10**399])
def test_top_k_out_of_bounds_is_refused_with_the_hard_limit(top_k):
    assert problem_with(top_k=top_k) == "top_k must be between 1 and 1000"


def test_top_k_zero_is_refused_with_the_limit_in_force():
    assert problem_with(Limits(max_top_k=20), top_k=0) == "top_k must be between 1 and 20"
    assert problem_with(Limits(max_top_k=20), top_k=21) == "top_k must be between 1 and 20"


@pytest.mark.parametrize("threshold", [0, 0.0, 0.5, 1, 1.0])
def test_a_threshold_from_zero_to_one_is_taken_both_included(threshold):
    assert parsed(similarity_threshold=threshold).similarity_threshold == threshold


@pytest.mark.parametrize("threshold", [-0.0001, 1.0001, -1, 2, 1e308])
def test_a_threshold_out_of_bounds_is_refused(threshold):
    assert problem_with(similarity_threshold=threshold) == ("similarity_threshold must be between 0.0 and 1.0")


def test_a_threshold_of_four_hundred_digits_is_out_of_bounds_like_any_other():
    assert problem_with(similarity_threshold=10**399) == "similarity_threshold must be between 0.0 and 1.0"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("top_k", "5", "top_k must be an integer"),
        ("top_k", True, "top_k must be an integer"),
        ("top_k", 5.0, "top_k must be an integer"),
        ("similarity_threshold", "0.5", "similarity_threshold must be a number"),
        ("similarity_threshold", True, "similarity_threshold must be a number"),
        ("query_text", 5, "query_text must be a string"),
        ("query_text", ["a"], "query_text must be a string"),
        ("collection", 5, "collection must be a string"),
        ("query_id", 5, "query_id must be a string"),
        ("include_metadata", 1, "include_metadata must be true or false"),
        ("include_metadata", "true", "include_metadata must be true or false"),
        ("with_payload", 0, "with_payload must be true or false"),
        ("created_at", 1734359401, "created_at must be an ISO 8601 date and time"),
        ("filters", [], "filters must be an object"),
        ("filters", "a=1", "filters must be an object"),
    ],
)
def test_a_value_of_another_type_is_refused_and_never_converted(field, value, problem):
    assert problem_with(**{field: value}) == problem


@pytest.mark.parametrize("field", ["include_metadata", "with_payload", "with_vectors"])
@pytest.mark.parametrize("value", [True, False])
def test_switches_are_taken_as_given(field, value):
    assert getattr(parsed(**{field: value}), field) is value


@pytest.mark.parametrize("field", ["collection", "query_id"])
def test_names_have_1_to_255_characters(field):
    assert getattr(parsed(**{field: "n" * 255}), field) == "n" * 255
    for wrong in ("  ", "n" * 256, *([] if field == "query_id" else [""])):
        assert problem_with(**{field: wrong}) == f"{field} must have 1 to 255 characters"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2025-12-16T14:30:01Z", datetime(2025, 12, 16, 14, 30, 1, tzinfo=UTC)),
        (
            "2025-12-16T14:30:01.250+05:30",
            datetime(2025, 12, 16, 14, 30, 1, 250_000, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        ),
        ("2025-12-16T14:30", datetime(2025, 12, 16, 14, 30, tzinfo=UTC)),
        ("2025-12-16", datetime(2025, 12, 16, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_from_iso_8601_and_is_utc_unless_it_says_otherwise(text, time):
    assert parsed(created_at=text).created_at == time


@pytest.mark.parametrize(
    "text",
    ["now", "16.12.2025", "2025-13-01", "2025-02-30", "2025-12-16T25:00", "20251216", "２０２５-12-16"],
)
def test_a_time_in_any_other_form_is_refused(text):
    assert problem_with(created_at=text) == "created_at must be an ISO 8601 date and time"


@pytest.mark.parametrize("text", ["2025-12-16Q14:30", "2025-12-16🙂14:30", "2025-12-16\n14:30"])
def test_a_time_with_another_separator_is_refused(text):
    assert problem_with(created_at=text) == "created_at must be an ISO 8601 date and time"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"query_text": "a\\ud800"}', "query_text has a lone surrogate, which is not valid Unicode"),
        ('{"text": "a\\ud800"}', "text has a lone surrogate, which is not valid Unicode"),
        ('{"query_text": "a", "query_text": "a"}', "query_text is given twice"),
        ('{"query_text": "a", "top_k": 1e400}', "top_k must be a finite number; it is too large"),
        (
            '{"query_text": "a", "similarity_threshold": Infinity}',
            "similarity_threshold must be a finite number, not Infinity",
        ),
        ('{"query_text": "a", "topk": 5}', "topk is not a known field; did you mean top_k?"),
        ('{"query_text": "a", "filters": {"x": NaN}}', "filters.x must be a finite number, not NaN"),
        ('{"query_text": "a", "filters": {"x": 1, "x": 2}}', "filters.x is given twice"),
    ],
)
def test_strictness_is_a_problem_that_names_the_place(body, problem):
    assert problems(body) == (problem,)


def test_all_problems_are_reported_at_once_one_message_each():
    body = {
        "query_text": " ",
        "top_k": 0,
        "similarity_threshold": 1.5,
        "collection": "",
        "filters": {"a": None, "b": []},
        "created_at": "yesterday",
        "limit": 3,
    }

    assert problems(body) == (
        "query_text cannot be empty",
        "top_k must be between 1 and 1000",
        "similarity_threshold must be between 0.0 and 1.0",
        "collection must have 1 to 255 characters",
        "filters.a must not be null",
        "filters.b must name at least one value",
        "created_at must be an ISO 8601 date and time",
        "limit is not a known field",
    )


@pytest.mark.parametrize("levels", [33, 300, 900])
def test_deep_filters_are_refused_and_never_overflow(levels):
    body = '{"query_text": "a", "filters": ' + '{"not": ' * levels + '{"a": 1}' + "}" * levels + "}"

    assert problems(body) == ("filters is nested deeper than 32 levels",)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4))
def test_any_json_object_is_a_query_or_the_callers_mistake(document):
    try:
        query = SearchQuery.parse(read_json(json.dumps(document)))
    except InvalidParameterError:
        return

    assert 1 <= query.top_k <= 1000
    assert 0.0 <= query.similarity_threshold <= 1.0
    given = (query.query_text, query.query_vector, query.queries)
    assert sum(one is not None for one in given) == 1


def test_a_default_top_k_follows_a_lower_limit():
    assert SearchQuery.parse({"query_text": "x"}, Limits(max_top_k=3)).top_k == 3
    assert SearchQuery.parse({"query_text": "x"}).top_k == 5
    with pytest.raises(InvalidParameterError, match="top_k must be between 1 and 3"):
        SearchQuery.parse({"query_text": "x", "top_k": 5}, Limits(max_top_k=3))
