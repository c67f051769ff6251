"""JSON read strictly: every silent leniency of Python's parser is named, with its place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract.model import Faulty, find_faults, format_path, read_json

from .strategies import JSON_VALUES


def messages(body: str | bytes) -> list[str]:
    return [fault.message for fault in find_faults(read_json(body))]


def refusal(body: str | bytes) -> str:
    with pytest.raises(InvalidParameterError) as refused:
        read_json(body)
    return str(refused.value)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@given(JSON_VALUES)
def test_a_sound_document_is_read_as_it_is_and_has_no_faults(value):
    read = read_json(json.dumps(value).encode())

    assert read == value
    assert find_faults(read) == []


@given(st.text() | st.binary() | st.text(alphabet='{}[]":,0123456789eE+-.\\u"truefalsenulNaInity \n'))
def test_any_body_is_read_or_refused_as_the_callers_mistake(body):
    try:
        document = read_json(body)
    except InvalidParameterError as error:
        message = error.message
    else:
        assert isinstance(find_faults(document), list)
        return

    assert message.startswith("The request body is not ")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"a": NaN}', "a must be a finite number, not NaN"),
        ('{"a": Infinity}', "a must be a finite number, not Infinity"),
        ('{"a": [1, -Infinity]}', "a[1] must be a finite number, not -Infinity"),
        ('{"a": 1e400}', "a must be a finite number; it is too large"),
        ('{"a": {"b": -1e400}}', "a.b must be a finite number; it is too large"),
        ('{"a": "\\ud800"}', "a has a lone surrogate, which is not valid Unicode"),
        ('{"a": ["x\\udfffy"]}', "a[0] has a lone surrogate, which is not valid Unicode"),
        ('{"a": 1, "a": 2}', "a is given twice"),
        ('{"a": [{"b": 1, "b": 1}]}', "a[0].b is given twice"),
        ('{"a": {"\\ud800": 1}}', "a.� has a lone surrogate, which is not valid Unicode"),
        ("NaN", "The request body must be a finite number, not NaN"),
    ],
)
def test_what_json_or_utf8_cannot_carry_is_named_with_its_place(body, message):
    assert messages(body) == [message]


def test_every_fault_is_listed_in_reading_order():
    body = '{"c": NaN, "a": "\\udc00", "b": [1e999, {"d": 1, "d": 2}]}'

    assert messages(body) == [
        "c must be a finite number, not NaN",
        "a has a lone surrogate, which is not valid Unicode",
        "b[0] must be a finite number; it is too large",
        "b[1].d is given twice",
    ]


def test_a_name_given_three_times_is_one_fault():
    assert messages('{"a": 1, "b": 0, "a": 2, "a": 3}') == ["a is given twice"]


def test_two_repeated_names_are_two_faults():
    assert messages('{"a": 1, "b": 0, "a": 2, "b": 3}') == ["a is given twice", "b is given twice"]


def test_a_repeated_name_among_a_thousand_is_found():
    body = "{" + ", ".join(f'"n{i}": 0' for i in range(1000)) + ', "n500": 1}'

    assert messages(body) == ["n500 is given twice"]


def test_a_surrogate_pair_is_one_sound_character():
    assert read_json('"\\ud83d\\ude42"') == "🙂"
    assert messages('"\\ud83d\\ude42"') == []


def test_a_number_too_small_to_tell_from_zero_is_zero():
    assert read_json("1e-400") == 0.0


def test_integers_are_read_exactly_up_to_400_digits():
    assert read_json("9" * 400) == 10**400 - 1


@pytest.mark.parametrize("digits", [401, 4301, 100_000])
def test_longer_integers_are_faulty_and_never_a_crash(digits):
    assert read_json("9" * digits) == Faulty("must be a finite number; it is too large")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "The request body is not valid JSON: Expecting value at line 1 column 1"),
        ('{"a": 1,\n "b"}', "The request body is not valid JSON: Expecting ':' delimiter at line 2 column 5"),
        ("{} {}", "The request body is not valid JSON: Extra data at line 1 column 4"),
        (b'{"a": "\xff"}', "The request body is not UTF-8 at byte 7"),
        (b"\xff\xfe{\x00}\x00", "The request body is not UTF-8 at byte 0"),
    ],
)
def test_a_body_that_is_no_json_is_refused_with_the_place(body, message):
    assert refusal(body) == message


def test_a_byte_order_mark_is_refused_and_not_skipped():
    assert refusal(b"\xef\xbb\xbf{}").startswith("The request body is not valid JSON: Unexpected UTF-8 BOM")


def test_a_raw_control_character_is_refused_in_a_readable_sentence():
    assert (
        refusal('{"a": "\x01"}') == "The request body is not valid JSON: Invalid control character at line 1 column 8"
    )


def test_thirty_two_levels_are_read():
    assert messages('{"a": ' + nested(31) + "}") == []
    assert messages('{"a": ' + nested(32) + "}") == []


@pytest.mark.parametrize("levels", [33, 34, 500])
def test_deeper_nesting_is_refused_with_the_field_that_has_it(levels):
    with pytest.raises(InvalidParameterError, match=r"^a is nested deeper than 32 levels$"):
        find_faults(read_json('{"ok": 1, "a": ' + nested(levels) + "}"))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_beyond_any_stack_is_refused(opening):
    assert refusal(opening * 200_000) == "The request body is nested deeper than 32 levels"


def test_a_message_carries_no_escape_codes_of_the_caller():
    [message] = messages('{"a\\u001b[31m": NaN}')

    assert "\x1b" not in message


def test_a_message_does_not_grow_with_the_callers_name():
    [message] = messages('{"' + "n" * 100_000 + '": NaN}')

    assert len(message) < 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "The request body"),
        (("top_k",), "top_k"),
        (("filters", "tags", 2), "filters.tags[2]"),
        ((0, "a"), "[0].a"),
    ],
)
def test_a_place_is_written_as_people_write_it(path, text):
    assert format_path(path) == text
