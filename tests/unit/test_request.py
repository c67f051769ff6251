"""What all requests have in common: strict fields, all problems at once, names in plain words."""

from typing import ClassVar

import pytest
from pydantic import ValidationError

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import Limits, Model, Request, read_json
from chunkproof.contract.model import display_name


class Order(Request):
    aliases: ClassVar[dict[str, str]] = {"count": "amount", "number": "amount"}

    item: str
    amount: int = 1


class Frozen(Model):
    value: int


def problems(body: str) -> tuple[str, ...]:
    with pytest.raises(InvalidParameterError) as refused:
        Order.parse(read_json(body))
    return refused.value.messages


def test_a_sound_request_is_read():
    assert Order.parse({"item": "nail", "amount": 3}) == Order(item="nail", amount=3)


def test_an_alias_means_its_field():
    assert Order.parse({"item": "nail", "count": 3}).amount == 3


@pytest.mark.parametrize(
    "body",
    [
        '{"item": "nail", "amount": 1, "count": 1}',
        '{"item": "nail", "amount": 1, "number": 2}',
    ],
)
def test_a_field_and_its_alias_together_are_refused(body):
    [problem] = problems(body)

    assert problem.startswith("amount and ")
    assert problem.endswith(" are the same field: give one of them")


def test_two_aliases_of_one_field_together_are_refused():
    assert problems('{"item": "nail", "count": 1, "number": 1}') == (
        "count and number are the same field: give one of them",
    )


def test_a_missing_field_is_named():
    assert problems("{}") == ("item is required",)


@pytest.mark.parametrize("body", ["[]", "null", '"text"', "5", "true", "NaN", '[{"item": "nail"}]'])
def test_only_an_object_is_a_request(body):
    assert problems(body) == ("The request body must be a JSON object",)


def test_all_problems_are_reported_at_once_and_each_once():
    assert problems('{"amount": "5", "colour": 1, "item": NaN}') == (
        "item must be a finite number, not NaN",
        "amount must be an integer",
        "colour is not a known field",
    )


def test_an_unknown_field_is_named_with_the_nearest_known_one():
    assert problems('{"item": "nail", "amuont": 5}') == ("amuont is not a known field; did you mean amount?",)


def test_an_unknown_field_may_mean_an_alias():
    assert problems('{"item": "nail", "countt": 5}') == ("countt is not a known field; did you mean count?",)


def test_an_unknown_name_of_any_length_is_quoted_in_sixty_characters():
    assert problems('{"item": "nail", "' + "z" * 50_000 + '": 5}') == ("z" * 59 + "… is not a known field",)


def test_an_unknown_name_cannot_act_on_a_terminal():
    assert problems('{"item": "nail", "\\u001b[2J\\u202e": 5}') == ("�[2J� is not a known field",)


def test_a_fault_under_the_canonical_name_is_one_problem():
    assert problems('{"item": "nail", "amount": NaN}') == ("amount must be a finite number, not NaN",)


def test_a_fault_under_an_alias_is_one_problem_too():
    assert problems('{"item": "nail", "count": NaN}') == ("count must be a finite number, not NaN",)


def test_a_name_that_is_no_unicode_text_is_one_problem():
    assert problems('{"item": "nail", "\\ud800": 5}') == ("� has a lone surrogate, which is not valid Unicode",)


def test_the_hard_limits_are_the_contracts():
    assert Limits() == Limits(min_query_chars=1, max_query_chars=10_000, max_top_k=1_000)


@pytest.mark.parametrize("value", ["5", True, 5.0, None])
def test_a_model_takes_no_value_of_another_type(value):
    with pytest.raises(ValidationError):
        Frozen(value=value)


def test_a_model_takes_no_unknown_field():
    with pytest.raises(ValidationError):
        Frozen(value=5, other=1)


def test_a_model_cannot_be_changed():
    with pytest.raises(ValidationError):
        Frozen(value=5).value = 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("title", "title"),
        ("größe 🙂", "größe 🙂"),
        ("a\nb\tc\x00", "a�b�c�"),
        ("\u202egnp.exe", "�gnp.exe"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
    ],
)
def test_a_callers_name_is_shown_bounded_and_harmless(name, text):
    assert display_name(name) == text
