"""The nested application that runs suites: what starts it, who may do what, and that its state machine is one."""

import json
from typing import Any

import pytest

from chunkproof.settings import Settings
from chunkproof.suite.shards import PUBLISHED
from chunkproof_cli.local.handlers import function

from support.states import definition
from support.template import Stack, named, nested, stack

APPLICATION = "SuiteApplication"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
FILLED = {
    "Function": "arn",
    "Bucket": "bucket",
    "ShardCases": "50",
    "MaxConcurrency": "4",
    "RetrySeconds": "5",
}
INPUT = {"suite": f"s3://${{SuiteBucket}}/{PUBLISHED}", "collection": "", "source": ""}
by_hand = {"SuiteSchedule": "", "SuiteAfterDeployment": "false"}
variants = pytest.mark.parametrize(
    "parameters", [{}, {"KmsKeyArn": KEY}, by_hand], ids=["as delivered", "with a key", "by hand"]
)


def application(**parameters: str) -> Stack:
    return nested(APPLICATION, Suite="true", **parameters)


def test_it_is_there_only_when_asked_for() -> None:
    assert APPLICATION not in stack().resources
    assert APPLICATION in stack(Suite="true").resources


def test_every_substitution_of_the_definition_is_given() -> None:
    machine = application().only("StepFunctions::StateMachine")
    assert set(machine["DefinitionSubstitutions"]) == set(FILLED)


def test_every_state_leads_somewhere_and_every_failure_is_retried_with_a_backoff() -> None:
    states = json.loads(definition("suite", FILLED))["States"]
    inner = states["Shards"]["ItemProcessor"]["States"]
    for among in (states, inner):
        for state in among.values():
            assert state.get("Next", state.get("Default", "")) in {*among, ""}
    for task in (states["Split"], states["Merge"], inner["Shard"]):
        last = task["Retry"][-1]
        assert last["ErrorEquals"] == ["States.ALL"]
        assert last["BackoffRate"] > 1
    assert inner["Shard"]["Catch"] == [{"ErrorEquals": ["States.ALL"], "Next": "Poisoned"}]
    assert inner["Finished"]["Choices"][0]["Next"] == "Shard"
    assert states["AllJudged"]["Choices"][0]["Next"] == "Incomplete"


def test_a_shard_stops_well_before_its_function_does() -> None:
    made = application().only("Lambda::Function")
    assert made["Timeout"] * 1000 >= function("suite").RESERVE_MS * 2


def test_it_searches_with_the_settings_of_the_search_function() -> None:
    parameters = {"EmbeddingModel": "embed-v4", "MaxTopK": "20", "DeadlineMs": "700", "VectorName": "dense"}
    found = application(**parameters).only("Lambda::Function")["Environment"]["Variables"]
    searching = stack(**parameters).of_type("Lambda::Function")["SearchFunction"]["Environment"]["Variables"]
    read, beside = Settings.from_env(found), Settings.from_env(searching)
    own = {"cache_entries": 0}
    assert read == beside.model_copy(update=own)


# What starts it


def test_the_schedule_runs_the_published_suite_and_what_cannot_be_started_is_kept() -> None:
    found = application(SuiteSchedule="cron(0 6 * * ? *)").only("Scheduler::Schedule")
    assert found["ScheduleExpression"] == "cron(0 6 * * ? *)"
    target = found["Target"]
    assert target["Arn"] == "${SuiteStateMachine}"
    assert json.loads(target["Input"]) == INPUT
    assert target["DeadLetterConfig"] == {"Arn": "${SuiteNotStarted.Arn}"}


def test_a_deployment_of_this_stack_runs_the_published_suite() -> None:
    found = application().only("Events::Rule")
    assert found["EventPattern"] == {
        "source": ["aws.cloudformation"],
        "detail-type": ["CloudFormation Stack Status Change"],
        "detail": {
            "stack-id": ["${AWS::StackId}"],
            "status-details": {"status": ["CREATE_COMPLETE", "UPDATE_COMPLETE"]},
        },
    }
    (target,) = found["Targets"]
    assert target["Arn"] == "${SuiteStateMachine}"
    assert json.loads(target["Input"]) == INPUT
    assert target["DeadLetterConfig"] == {"Arn": "${SuiteNotStarted.Arn}"}
    # The parent's id, not that of the nested stack.
    assert stack(Suite="true").resources[APPLICATION]["Properties"]["Parameters"]["ApplicationId"] == (
        "${AWS::StackId}"
    )


def test_either_can_be_left_out_and_without_both_nothing_waits_for_them() -> None:
    kinds = ("Scheduler::Schedule", "Events::Rule", "SQS::Queue")
    counts = {
        name: [len(application(**parameters).of_type(kind)) for kind in kinds]
        for name, parameters in {
            "both": {},
            "schedule": {"SuiteAfterDeployment": "false"},
            "deployment": {"SuiteSchedule": ""},
            "none": by_hand,
        }.items()
    }
    assert counts == {"both": [1, 1, 1], "schedule": [1, 0, 1], "deployment": [0, 1, 1], "none": [0, 0, 0]}


# What is kept, and who may do what


@variants
def test_nobody_may_do_more_than_a_run_needs(parameters: dict[str, str]) -> None:
    found = application(**parameters)
    documents = [role["Policies"] for role in found.of_type("IAM::Role").values()]
    actions = {
        action
        for value in named(documents, "Action")
        for action in ([value] if isinstance(value, str) else value)
    }
    assert not any("*" in action for action in actions)
    assert "*" not in list(named(documents, "Resource"))
    assert ("kms:GenerateDataKey" in actions) == ("KmsKeyArn" in parameters)
    assert ("sqs:SendMessage" in actions) == (parameters is not by_hand)


def test_the_function_may_not_change_the_suite_that_it_runs() -> None:
    role: dict[str, Any] = application().of_type("IAM::Role")["SuiteFunctionRole"]
    statements = [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]
    (writing,) = (one for one in statements if "s3:PutObject" in one["Action"])
    assert writing["Resource"] == "${SuiteBucket.Arn}/runs/*"


def test_its_objects_are_private_encrypted_versioned_and_expire_but_not_the_suite() -> None:
    bucket = application(SuiteKeptDays="30").only("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert (rules["expire-runs"]["Prefix"], rules["expire-runs"]["ExpirationInDays"]) == ("runs/", "30")
    assert rules["expire-former-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": "30"}
    assert [rule["Id"] for rule in rules.values() if "ExpirationInDays" in rule] == ["expire-runs"]
    policy = application().only("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert [(one["Effect"], one["Condition"]) for one in policy] == [
        ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    ]


def test_logs_are_kept_as_long_as_those_of_the_other_functions() -> None:
    assert application(LogRetentionDays="7").only("Logs::LogGroup")["RetentionInDays"] == "7"
