"""What holds for audits and suites, which work in shards: the state machine is one, and the bucket is private."""

import json
from typing import Any

import pytest

from support.states import definition
from support.template import Stack, part_of_stack, stack, values_under

KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
APPLICATIONS = ("audit", "suite")
# By application: a substitution of its own, and where its last choice leads when something is left undone.
OWN = {"audit": ("ShardEntries", "Covered"), "suite": ("ShardCases", "AllJudged")}

applications = pytest.mark.parametrize("name", APPLICATIONS)


def application(name: str, **parameters: str) -> Stack:
    return part_of_stack(name.capitalize(), **{name.capitalize(): "true"}, **parameters)


def filled(name: str) -> dict[str, str]:
    shared = {"Partition": "aws", "Function": "arn", "Bucket": "bucket", "MaxConcurrency": "20", "RetrySeconds": "5"}
    return {**shared, OWN[name][0]: "50"}


def states(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(definition(name, filled(name)))["States"]
    return found


@applications
def test_an_application_is_deployed_only_when_enabled(name: str) -> None:
    assert not part_of_stack(name.capitalize()).resources
    assert f"{name.capitalize()}StateMachine" in stack(**{name.capitalize(): "true"}).resources


@applications
def test_without_a_server_the_function_has_the_engine_and_the_published_collections(name: str) -> None:
    function = application(name, Store="edge", QdrantUrl="").only("Lambda::Function")
    variables = function["Environment"]["Variables"]
    shared, engine = function["Layers"]
    assert (shared.startswith("${SharedLayer"), engine.startswith("${EdgeLayer")) == (True, True)
    assert (variables["QDRANT_URL"], variables["CHUNKPROOF_PUBLISHED_BUCKET"]) == ("", "${PublishedBucket}")
    served = application(name).only("Lambda::Function")
    assert len(served["Layers"]) == 1
    assert served["Environment"]["Variables"]["CHUNKPROOF_PUBLISHED_BUCKET"] == ""


@applications
def test_every_substitution_of_the_definition_is_given(name: str) -> None:
    machine = application(name).only("StepFunctions::StateMachine")
    assert set(machine["DefinitionSubstitutions"]) == set(filled(name))


@applications
def test_every_state_leads_somewhere_and_every_failure_is_retried_with_a_backoff(name: str) -> None:
    outer = states(name)
    inner = outer["Shards"]["ItemProcessor"]["States"]
    for among in (outer, inner):
        for state in among.values():
            assert state.get("Next", state.get("Default", "")) in {*among, ""}
    for task in (outer["Split"], outer["Merge"], inner["Shard"]):
        last = task["Retry"][-1]
        assert last["ErrorEquals"] == ["States.ALL"]
        assert last["BackoffRate"] > 1
    assert inner["Shard"]["Catch"] == [{"ErrorEquals": ["States.ALL"], "Next": "Poisoned"}]
    assert outer[OWN[name][1]]["Choices"][0]["Next"] == "Incomplete"
    assert outer["Incomplete"]["Type"] == "Fail"


@applications
def test_a_step_is_given_up_soon_after_lambda_would_have_stopped_it(name: str) -> None:
    allowed = int(application(name).only("Lambda::Function")["Timeout"])
    outer = states(name)
    for task in (outer["Split"], outer["Merge"], outer["Shards"]["ItemProcessor"]["States"]["Shard"]):
        assert allowed < task["TimeoutSeconds"] <= allowed + 60


@applications
def test_reports_outlive_the_stack_but_a_failed_first_deployment_leaves_no_bucket(name: str) -> None:
    (bucket,) = (r for r in application(name).resources.values() if r["Type"] == "AWS::S3::Bucket")
    assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


@applications
def test_only_state_machines_of_this_account_may_use_the_role(name: str) -> None:
    role = application(name).of_type("IAM::Role")[f"{name.capitalize()}StatesRole"]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert list(statement["Condition"]["StringEquals"]) == ["aws:SourceAccount"]


@applications
@pytest.mark.parametrize("parameters", [{}, {"KmsKeyArn": KEY}], ids=["as delivered", "with a key"])
def test_every_role_has_only_the_permissions_it_needs(name: str, parameters: dict[str, str]) -> None:
    documents = [role["Policies"] for role in application(name, **parameters).of_type("IAM::Role").values()]
    actions = {
        action
        for value in values_under(documents, "Action")
        for action in ([value] if isinstance(value, str) else value)
    }
    assert not any("*" in action for action in actions)
    assert "*" not in list(values_under(documents, "Resource"))
    assert ("kms:GenerateDataKey" in actions) == bool(parameters)


@applications
def test_its_objects_are_private_encrypted_and_expire(name: str) -> None:
    bucket = application(name).only("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]
    assert any("ExpirationInDays" in rule for rule in bucket["LifecycleConfiguration"]["Rules"])
    policy = application(name).only("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert [(one["Effect"], one["Condition"]) for one in policy] == [
        ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    ]
