"""The nested application that audits: who may do what, and that its state machine is one."""

import json

import pytest

from support.states import definition
from support.template import ROOT, Stack, nested, stack
from tools import scale

APPLICATION = "AuditApplication"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
FILLED = {
    "Function": "arn",
    "Bucket": "bucket",
    "ShardEntries": "5000",
    "MaxConcurrency": "20",
    "RetrySeconds": "5",
}


def application(**parameters: str) -> Stack:
    return nested(APPLICATION, Audit="true", **parameters)


def test_it_is_there_only_when_asked_for() -> None:
    assert APPLICATION not in stack().resources
    assert APPLICATION in stack(Audit="true").resources


def test_every_substitution_of_the_definition_is_given() -> None:
    machine = application().only("StepFunctions::StateMachine")
    assert set(machine["DefinitionSubstitutions"]) == set(FILLED)


def test_every_state_leads_somewhere_and_every_failure_is_retried_with_a_backoff() -> None:
    states = json.loads(definition("audit", FILLED))["States"]
    inner = states["Shards"]["ItemProcessor"]["States"]
    for among in (states, inner):
        for state in among.values():
            assert state.get("Next", state.get("Default", "")) in {*among, ""}
    for task in (states["Split"], states["Merge"], inner["Shard"]):
        last = task["Retry"][-1]
        assert last["ErrorEquals"] == ["States.ALL"]
        assert last["BackoffRate"] > 1
    assert inner["Shard"]["Catch"] == [{"ErrorEquals": ["States.ALL"], "Next": "Poisoned"}]
    assert states["Covered"]["Choices"][0]["Next"] == "Incomplete"
    assert states["Incomplete"]["Type"] == "Fail"


@pytest.mark.parametrize("parameters", [{}, {"KmsKeyArn": KEY}], ids=["as delivered", "with a key"])
def test_nobody_may_do_more_than_the_audit_needs(parameters: dict[str, str]) -> None:
    roles = application(**parameters).of_type("IAM::Role")
    actions = {
        action
        for role in roles.values()
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert not any("*" in action for action in actions)
    resources = json.dumps([role["Policies"] for role in roles.values()])
    assert '"Resource": "*"' not in resources
    assert ("kms:GenerateDataKey" in actions) == bool(parameters)


def test_its_objects_are_private_encrypted_and_expire() -> None:
    bucket = application().only("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]
    assert any("ExpirationInDays" in rule for rule in bucket["LifecycleConfiguration"]["Rules"])
    policy = application().only("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert [(one["Effect"], one["Condition"]) for one in policy] == [
        ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    ]


def test_the_page_on_scale_has_the_arithmetics_figures() -> None:
    page = (ROOT / "docs/scale.md").read_text("utf-8")
    for line in (*scale.laptop(), *scale.table()):
        assert line in page, "run tests/tools/scale.py and put its tables into docs/scale.md"


def test_the_arithmetic_adds_up() -> None:
    # 1,000,000 chunks, 10,000 reads a second: 1.5 s + 43.5 s of splitting + 100 s of reading + 8 s of merging.
    one = scale.Estimate(1_000_000, 10_000)
    assert (one.concurrency, one.shards, one.executions) == (4, 200, 1)
    assert one.seconds == pytest.approx(1.5 + 43.478 + 100 + 8, abs=0.01)
