"""The part of the stack that runs suites: what starts it, what it runs with, what it keeps."""

import json
from typing import Any

from chunkproof.base.settings import Settings
from chunkproof.suite.suite_job import PUBLISHED
from chunkproof_cli.local.gateway import load_function

from support.template import Stack, broken_rules, part_of_stack, stack

INPUT = {"suite": f"s3://${{SuiteBucket}}/{PUBLISHED}", "collection": "", "source": ""}
by_hand = {"SuiteSchedule": "", "Suite": "scheduled"}


def application(**parameters: str) -> Stack:
    return part_of_stack("Suite", **{"Suite": "true", **parameters})


def test_a_shard_stops_well_before_its_function_does() -> None:
    made = application().only("Lambda::Function")
    assert made["Timeout"] * 1000 >= load_function("suite").RESERVE_MS * 2


def test_it_searches_with_the_settings_of_the_search_function() -> None:
    given = {
        "CHUNKPROOF_EMBEDDER": "openai",
        "CHUNKPROOF_MODEL": "text-embedding-3-large",
        "CHUNKPROOF_QUERY_MODEL": "text-embedding-3-large-q",
        "OPENAI_BASE_URL": "https://models.example/v1",
        "CHUNKPROOF_MODELS": {"faq": {"provider": "cohere", "model": "embed-v4.0"}},
        "CHUNKPROOF_MAX_TOP_K": 20,
        "CHUNKPROOF_CACHE_ENTRIES": 5,
    }
    parameters = {"Settings": json.dumps(given), "LatencyTargetMs": "500"}
    found = application(**parameters).only("Lambda::Function")["Environment"]["Variables"]
    searching = stack(**parameters).of_type("Lambda::Function")["SearchFunction"]["Environment"]["Variables"]
    read, beside = Settings.from_env(found), Settings.from_env(searching)
    own = {"cache_entries": 0}
    assert read == beside.model_copy(update=own)


def test_without_a_server_it_searches_with_the_memory_and_disk_of_the_search_function() -> None:
    given = {"MemorySize": "2048"}
    found = application(Store="edge", QdrantUrl="", **given).only("Lambda::Function")
    assert (found["MemorySize"], found["EphemeralStorage"]) == ("2048", {"Size": 10240})
    assert application(**given).only("Lambda::Function")["MemorySize"] == 1769


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


def test_either_can_be_left_out_and_without_both_nothing_waits_for_them() -> None:
    kinds = ("Scheduler::Schedule", "Events::Rule", "SQS::Queue")
    counts = {
        name: [len(application(**parameters).of_type(kind)) for kind in kinds]
        for name, parameters in {
            "both": {},
            "schedule": {"Suite": "scheduled"},
            "deployment": {"SuiteSchedule": ""},
            "none": by_hand,
        }.items()
    }
    assert counts == {"both": [1, 1, 1], "schedule": [1, 0, 1], "deployment": [0, 1, 1], "none": [0, 0, 0]}


def test_canaries_have_a_schedule_of_their_own_and_record_at_first() -> None:
    found = application(Canary="true", **by_hand)
    schedule = found.only("Scheduler::Schedule")
    assert (schedule["Name"], schedule["ScheduleExpression"]) == ("${AWS::StackName}-canary", "rate(6 hours)")
    target = schedule["Target"]
    assert target["Arn"] == "${SuiteStateMachine}"
    assert json.loads(target["Input"]) == {"canary": {"action": "check", "record_missing": True}}
    assert target["DeadLetterConfig"] == {"Arn": "${SuiteNotStarted.Arn}"}
    assert len(application(Canary="true").of_type("Scheduler::Schedule")) == 2
    assert application(**by_hand).of_type("Scheduler::Schedule") == {}


def test_canaries_need_suites_and_are_an_output_of_the_stack() -> None:
    (broken,) = broken_rules(Canary="true")
    assert broken.startswith("With Canary, Suite must not be false")
    assert broken_rules(Canary="true", Suite="true") == []
    outputs = stack(Canary="true", Suite="true").outputs
    assert outputs["CanaryRecords"]["Value"] == "s3://${SuiteBucket}/canaries/"
    assert "CanaryRecords" not in stack(Suite="true").outputs


# What is kept, and who may do what


def test_the_function_may_not_change_the_suite_that_it_runs() -> None:
    role: dict[str, Any] = application().of_type("IAM::Role")["SuiteFunctionRole"]
    statements = [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]
    (writing,) = (one for one in statements if "s3:PutObject" in one["Action"])
    assert writing["Resource"] == ["${SuiteBucket.Arn}/runs/*"]


def test_its_objects_have_versions_and_expire_but_for_the_published_suite() -> None:
    bucket = application(KeptDays="30").only("S3::Bucket")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert (rules["expire-runs"]["Prefix"], rules["expire-runs"]["ExpirationInDays"]) == ("runs/", "30")
    # An expired run is a former version first, and would otherwise stay as long again.
    assert rules["remove-expired-runs"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    assert rules["expire-former-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": "30"}
    assert [rule["Id"] for rule in rules.values() if "ExpirationInDays" in rule] == ["expire-runs"]


def test_logs_are_kept_as_long_as_those_of_the_other_functions() -> None:
    assert application(LogRetentionDays="7").only("Logs::LogGroup")["RetentionInDays"] == "7"
