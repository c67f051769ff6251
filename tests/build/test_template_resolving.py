"""What the other tests of the template rely on: conditions, references and refusals as in CloudFormation."""

from typing import Any

import pytest

from support.template import RefusedError, parameter_values, references, refusal, resolve, stack

YES: dict[str, Any] = {"Fn::Equals": ["a", "a"]}
NO: dict[str, Any] = {"Fn::Equals": ["a", "b"]}


def value_of(node: Any, **values: Any) -> Any:
    """A property with this content, resolved."""
    conditions = {"Yes": YES, "No": NO}
    resources = {
        "It": {"Type": "AWS::X", "Properties": {"P": node}},
        "Absent": {"Type": "AWS::X", "Condition": "No"},
    }
    found = resolve({"Conditions": conditions, "Resources": resources}, values)
    return found.resources["It"]["Properties"].get("P", "left out")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (YES, True),
        (NO, False),
        ({"Fn::Not": [NO]}, True),
        ({"Fn::And": [YES, YES]}, True),
        ({"Fn::And": [YES, NO]}, False),
        ({"Fn::Or": [NO, YES]}, True),
        ({"Fn::Or": [NO, NO]}, False),
        ({"Condition": "Other"}, True),
        ({"Fn::Not": [{"Condition": "Other"}]}, False),
        ({"Fn::Equals": [{"Ref": "Number"}, 7]}, True),
        ({"Fn::Equals": [{"Fn::Join": ["", {"Ref": "List"}]}, "xy"]}, True),
    ],
)
def test_a_condition_decides_whether_a_resource_exists(condition: dict[str, Any], holds: bool) -> None:
    changed = {
        "Conditions": {"Asked": condition, "Other": YES},
        "Resources": {"It": {"Type": "AWS::X", "Condition": "Asked"}},
    }
    assert bool(resolve(changed, {"Number": "7", "List": ["x", "y"]}).resources) is holds


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"Fn::If": ["Yes", 1, 2]}, 1),
        ({"Fn::If": ["No", 1, {"Fn::If": ["Yes", 2, 3]}]}, 2),
        ({"Fn::If": ["No", 1, {"Ref": "AWS::NoValue"}]}, "left out"),
        ([1, {"Fn::If": ["No", 2, {"Ref": "AWS::NoValue"}]}, 3], [1, 3]),
        ({"Ref": "Number"}, "7"),
        ({"Ref": "It"}, "${It}"),
        ({"Fn::GetAtt": ["It", "Arn"]}, "${It.Arn}"),
        ({"Fn::Sub": "${Number}-${It}-${AWS::Region}"}, "7-${It}-${AWS::Region}"),
        ({"Fn::Sub": ["${Own}/${Number}", {"Own": {"Ref": "It"}}]}, "${It}/7"),
    ],
)
def test_a_value_is_what_a_deployment_would_see(node: Any, value: Any) -> None:
    assert value_of(node, Number="7") == value


@pytest.mark.parametrize(
    "node",
    [
        {"Ref": "Nobody"},
        {"Fn::GetAtt": ["Absent", "Arn"]},
        {"Fn::Sub": "${Nobody}"},
        {"Fn::Cidr": ["10.0.0.0/16", 2, 8]},
    ],
    ids=["unknown", "condition-not-met", "unknown-in-text", "function-not-understood"],
)
def test_a_node_that_cannot_be_resolved_is_refused(node: Any) -> None:
    with pytest.raises(RefusedError):
        value_of(node)


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        ({"Type": "Number"}, "many"),
        ({"Type": "Number", "MinValue": 1}, "0"),
        ({"Type": "Number", "MaxValue": 9}, "10"),
        ({"Type": "String", "MinLength": 1}, ""),
        ({"Type": "String", "MaxLength": 1}, "ab"),
        ({"Type": "String", "AllowedValues": ["a"]}, "b"),
        ({"Type": "String", "AllowedPattern": "[a-z]+"}, "a1"),
    ],
)
def test_a_forbidden_value_is_refused(rules: dict[str, Any], value: str) -> None:
    assert refusal(rules, value)


def test_a_missing_value_and_an_unknown_parameter_are_refused() -> None:
    written = {"Parameters": {"Needed": {"Type": "String"}}}
    with pytest.raises(RefusedError, match="Needed must be given"):
        parameter_values(written, {})
    with pytest.raises(RefusedError, match="no parameter Other"):
        parameter_values(written, {"Needed": "a", "Other": "b"})


def test_references_are_found_at_any_depth() -> None:
    assert references({"a": ["${Api}/x", {"b": "${Logs.Arn}"}]}) == {"Api", "Logs"}


def test_a_template_resolves_without_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this-one")
    assert stack(EnvironmentName="elsewhere").resources
