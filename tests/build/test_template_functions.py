"""How the functions of a deployed stack run, log, are released and are watched."""

import json
import re
from typing import Any

import pytest

from support.template import QDRANT_URL, Stack, parameter_values, resolve, stack, template, transform, whole_stack
from tools import release

FUNCTIONS = ("SearchFunction", "ValidateChunkFunction")
LOGS = {"SearchFunction": "SearchLogs", "ValidateChunkFunction": "ValidateChunkLogs"}
BROKEN = {"SearchFunction": "SearchBroken", "ValidateChunkFunction": "ValidateChunkBroken"}
SECRETS_LAYER = "arn:aws:lambda:eu-central-1:187925254637:layer:AWS-Parameters-and-Secrets-Lambda-Extension-Arm64:11"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:chunkproof-keys-a1b2c3"
TRACING_LAYER = "arn:aws:lambda:eu-central-1:901920570463:layer:aws-otel-python-arm64-ver-1-32-0:2"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
DIGEST, OTHER_DIGEST = "3b1f" * 16, "a07c" * 16

# Another value for every parameter but the digest.
CHANGED = {
    "EnvironmentName": "prod",
    "Store": "edge",
    "QdrantUrl": "https://elsewhere.example:6333",
    "Collection": "handbook",
    "BedrockModelArns": "arn:aws:bedrock:eu-central-1::foundation-model/amazon.titan-embed-text-v2:0",
    "SecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf",
    "KmsKeyArn": KEY,
    "JwtIssuer": "https://issuer.example",
    "JwtAudience": "search",
    "CorsOrigins": "https://app.example",
    "PublicHealth": "true",
    "ThrottleRate": "5",
    "Architecture": "x86_64",
    "MemorySize": "512",
    "ReservedConcurrency": "20",
    "ProvisionedConcurrency": "5",
    "SnapStart": "PublishedVersions",
    "GradualRollout": "true",
    "LogRetentionDays": "7",
    "Seals": "s3://own-seals/docs",
    "LogLevel": "DEBUG",
    "Audit": "true",
    "Suite": "true",
    "SuiteSchedule": "rate(1 hour)",
    "Canary": "true",
    "KeptDays": "30",
    "Settings": '{"CHUNKPROOF_MAX_TOP_K": 20}',
    "Observability": "false",
    "SloPercent": "99.9",
    "MinPassRate": "80",
    "SubnetIds": "subnet-1",
    "SecurityGroupIds": "sg-1",
    "LatencyTargetMs": "500",
    "TracingLayerArn": TRACING_LAYER,
    "SecretsExtensionArn": SECRETS_LAYER,
}

functions = pytest.mark.parametrize("function", FUNCTIONS)


@functions
def test_a_function_is_traced_only_when_a_layer_for_it_is_given(function: str) -> None:
    def traced(found: Stack) -> tuple[Any, ...]:
        made = found.of_type("Lambda::Function")[function]
        variables = made["Environment"]["Variables"]
        wrapper = variables.get("AWS_LAMBDA_EXEC_WRAPPER")
        return len(made["Layers"]), made["TracingConfig"]["Mode"], variables.get("OTEL_SERVICE_NAME"), wrapper

    assert traced(stack()) == (1, "PassThrough", None, None)
    assert traced(stack(TracingLayerArn=TRACING_LAYER)) == (
        2,
        "Active",
        "chunkproof-dev",
        "/opt/otel-instrument",
    )


@functions
def test_the_secrets_extension_is_added_only_when_enabled_and_with_a_secret(function: str) -> None:
    def extension(**parameters: str) -> tuple[bool, str]:
        made = stack(**parameters).of_type("Lambda::Function")[function]
        return SECRETS_LAYER in made["Layers"], made["Environment"]["Variables"]["CHUNKPROOF_SECRETS_PORT"]

    assert extension(SecretArn=SECRET) == (False, "")
    assert extension(SecretsExtensionArn=SECRETS_LAYER) == (False, "")
    assert extension(SecretArn=SECRET, SecretsExtensionArn=SECRETS_LAYER) == (True, "2773")


# https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging-variables.html
ACCESS_LOG_VARIABLES = {
    "authorizer.claims.sub",
    "error.message",
    "identity.sourceIp",
    "identity.userArn",
    "integrationErrorMessage",
    "integrationLatency",
    "requestId",
    "requestTime",
    "responseLatency",
    "routeKey",
    "status",
}


def properties(found: Stack, function: str) -> dict[str, Any]:
    return dict(found.of_type("Lambda::Function")[function])


def versions(found: Stack) -> set[str]:
    return set(found.of_type("Lambda::Version"))


# How they run


@functions
@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_functions_and_layer_are_for_the_same_processor(function: str, architecture: str) -> None:
    found = stack(Architecture=architecture)
    assert properties(found, function)["Architectures"] == [architecture]
    assert found.only("Lambda::LayerVersion")["CompatibleArchitectures"] == [architecture]
    assert template()["Resources"]["SharedLayer"]["Metadata"] == {
        "BuildMethod": "makefile",
        "BuildArchitecture": {"Ref": "Architecture"},
    }


@functions
def test_functions_and_layer_run_on_python_3_13(function: str) -> None:
    found = stack()
    assert properties(found, function)["Runtime"] == "python3.13"
    assert found.only("Lambda::LayerVersion")["CompatibleRuntimes"] == ["python3.13"]


@functions
def test_a_function_has_the_layer_and_the_configured_memory(function: str) -> None:
    found = stack(MemorySize="2048")
    (layer,) = found.of_type("Lambda::LayerVersion")
    assert properties(found, function)["Layers"] == [f"${{{layer}}}"]
    assert properties(found, function)["MemorySize"] == "2048"


@functions
def test_the_layer_replaces_packages_of_a_tracing_layer(function: str) -> None:
    found = stack(TracingLayerArn=CHANGED["TracingLayerArn"])
    (layer,) = found.of_type("Lambda::LayerVersion")
    assert properties(found, function)["Layers"] == [CHANGED["TracingLayerArn"], f"${{{layer}}}"]


@functions
def test_lambda_waits_longer_than_the_longest_deadline(function: str) -> None:
    assert properties(stack(), function)["Timeout"] * 1000 > release.LONGEST_DEADLINE_MS
    assert release.LONGEST_DEADLINE_MS < 30_000  # where an HTTP API gives up


@functions
def test_a_function_is_in_a_vpc_only_with_subnets(function: str) -> None:
    assert "VpcConfig" not in properties(stack(), function)
    assert "VpcConfig" not in properties(stack(SecurityGroupIds="sg-1"), function)
    inside = stack(SubnetIds="subnet-1,subnet-2", SecurityGroupIds="sg-1")
    assert properties(inside, function)["VpcConfig"] == {
        "SubnetIds": ["subnet-1", "subnet-2"],
        "SecurityGroupIds": ["sg-1"],
    }


@functions
def test_a_function_has_reserved_concurrency_only_when_set(function: str) -> None:
    assert "ReservedConcurrentExecutions" not in properties(stack(), function)
    limited = stack(ReservedConcurrency="20")
    assert properties(limited, function)["ReservedConcurrentExecutions"] == "20"


@functions
def test_a_customer_key_encrypts_the_environment_only_when_given(function: str) -> None:
    assert "KmsKeyArn" not in properties(stack(), function)
    assert properties(stack(KmsKeyArn=KEY), function)["KmsKeyArn"] == KEY


def test_nothing_is_invoked_asynchronously_so_that_no_failure_needs_a_queue() -> None:
    types = {resource["Type"] for name in ({}, CHANGED) for resource in stack(**name).resources.values()}
    assert {kind for kind in types if kind.startswith("AWS::Lambda::")} == {
        "AWS::Lambda::Alias",
        "AWS::Lambda::Function",
        "AWS::Lambda::LayerVersion",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Version",
    }
    callers = {given["Principal"] for given in stack(**CHANGED).of_type("Lambda::Permission").values()}
    assert callers == {"apigateway.amazonaws.com"}


# How they log


@functions
def test_a_function_logs_to_a_group_of_its_own(function: str) -> None:
    group = f"${{{LOGS[function]}}}"
    assert properties(stack(), function)["LoggingConfig"] == {"LogGroup": group, "LogFormat": "Text"}
    as_json = {"LogGroup": group, "LogFormat": "JSON", "ApplicationLogLevel": "DEBUG"}
    found = properties(stack(LogLevel="WARN"), function)
    assert found["LoggingConfig"] == as_json
    assert found["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == "WARN"


def test_every_log_group_belongs_to_the_stack_and_has_the_configured_retention() -> None:
    groups = stack(LogRetentionDays="14").of_type("Logs::LogGroup")
    assert {name: group["LogGroupName"] for name, group in groups.items()} == {
        "SearchLogs": "/chunkproof/${AWS::StackName}/search",
        "ValidateChunkLogs": "/chunkproof/${AWS::StackName}/validate-chunk",
        "AccessLogs": "/aws/vendedlogs/chunkproof/${AWS::StackName}/access",
    }
    assert {group["RetentionInDays"] for group in groups.values()} == {"14"}


def test_a_customer_key_encrypts_every_log_group_only_when_given() -> None:
    assert not [group for group in stack().of_type("Logs::LogGroup").values() if "KmsKeyId" in group]
    groups = stack(KmsKeyArn=KEY).of_type("Logs::LogGroup").values()
    assert [group["KmsKeyId"] for group in groups] == [KEY, KEY, KEY]


def test_requests_are_logged_as_one_line_of_json_each() -> None:
    settings = stack().only("ApiGatewayV2::Stage")["AccessLogSettings"]
    assert settings["DestinationArn"] == "${AccessLogs.Arn}"
    assert "\n" not in settings["Format"]
    line = json.loads(re.sub(r"\$context\.[A-Za-z.]+", "-", settings["Format"]))
    assert set(line.values()) == {"-"}
    assert {"requestId", "route", "status", "latency", "principal", "subject"} <= set(line)


def test_the_access_log_asks_only_for_what_an_http_api_knows() -> None:
    line = json.loads(stack().only("ApiGatewayV2::Stage")["AccessLogSettings"]["Format"])
    assert {value.removeprefix("$context.") for value in line.values()} == ACCESS_LOG_VARIABLES


# How they are released


@functions
def test_live_is_the_version_of_this_release(function: str) -> None:
    found = stack(ReleaseDigest=DIGEST)
    (version,) = (
        name
        for name, published in found.of_type("Lambda::Version").items()
        if published["FunctionName"] == f"${{{function}}}"
    )
    assert found.of_type("Lambda::Alias")[f"{function}Aliaslive"] == {
        "Name": "live",
        "FunctionName": f"${{{function}}}",
        "FunctionVersion": f"${{{version}.Version}}",
    }


def test_a_new_digest_publishes_a_new_version_of_every_function() -> None:
    before, after = versions(stack(ReleaseDigest=DIGEST)), versions(stack(ReleaseDigest=OTHER_DIGEST))
    assert len(before) == len(after) == len(FUNCTIONS)
    assert not before & after


def test_a_version_has_a_name_that_cloudformation_takes() -> None:
    assert all(re.fullmatch("[A-Za-z0-9]{1,255}", name) for name in versions(stack(ReleaseDigest=DIGEST)))


def test_every_parameter_but_the_digest_is_changed_below() -> None:
    assert set(CHANGED) == set(template()["Parameters"]) - {"ReleaseDigest"}


@pytest.mark.parametrize("parameter", CHANGED)
def test_no_other_parameter_publishes_a_version(parameter: str) -> None:
    same = stack(ReleaseDigest=DIGEST)
    assert versions(stack(**{"ReleaseDigest": DIGEST, parameter: CHANGED[parameter]})) == versions(same)


@pytest.mark.parametrize("parameter", CHANGED)
def test_the_digest_counts_every_parameter_that_changes_a_version(parameter: str) -> None:
    counted = release.parameters_of_functions(release.read_template(release.ROOT / "template.yaml"))
    before, after = (
        [
            {key: value for key, value in found.items() if key != "ReservedConcurrentExecutions"}  # of the function
            for found in (properties(stack(**given), name) for name in FUNCTIONS)
        ]
        for given in ({}, {parameter: CHANGED[parameter]})
    )
    assert before == after or parameter in counted


def test_uploading_the_same_release_again_publishes_no_version() -> None:
    written, given = template(), {"QdrantUrl": QDRANT_URL, "ReleaseDigest": DIGEST}
    again = transform(written, given, packaged="s3://another-bucket/later")
    assert versions(resolve(again, parameter_values(written, given))) == versions(stack(ReleaseDigest=DIGEST))


@functions
def test_snapstart_is_on_only_when_enabled(function: str) -> None:
    assert "SnapStart" not in properties(stack(), function)
    assert properties(stack(SnapStart="PublishedVersions"), function)["SnapStart"] == {"ApplyOn": "PublishedVersions"}


def test_a_version_is_deleted_when_its_successor_serves_only_if_aws_charges_for_it() -> None:
    for snapshots, policy in (("None", "Retain"), ("PublishedVersions", "Delete")):
        found = stack(SnapStart=snapshots)
        assert {found.resources[name]["DeletionPolicy"] for name in versions(found)} == {policy}


@functions
def test_a_function_is_kept_started_only_when_asked_for(function: str) -> None:
    alias = f"{function}Aliaslive"
    assert "ProvisionedConcurrencyConfig" not in stack().of_type("Lambda::Alias")[alias]
    found = stack(ProvisionedConcurrency="5").of_type("Lambda::Alias")[alias]
    assert found["ProvisionedConcurrencyConfig"] == {"ProvisionedConcurrentExecutions": "5"}


@functions
def test_a_new_digest_changes_the_function_itself(function: str) -> None:
    # Lambda refuses to publish a version of a function that is as it was.
    before, after = (properties(stack(ReleaseDigest=digest), function) for digest in (DIGEST, OTHER_DIGEST))
    assert before != after


def test_a_new_version_gets_all_traffic_at_once_by_default() -> None:
    found = stack()
    assert not [name for name, made in found.resources.items() if "CodeDeploy" in name + made["Type"]]
    assert not [name for name, made in found.resources.items() if "UpdatePolicy" in made]


@functions
def test_a_gradual_rollout_rolls_back_on_errors(function: str) -> None:
    found = stack(GradualRollout="true")
    group = found.of_type("CodeDeploy::DeploymentGroup")[f"{function}DeploymentGroup"]
    assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent5Minutes"
    assert group["AlarmConfiguration"] == {"Enabled": True, "Alarms": [{"Name": "${ErrorAlarm}"}]}
    assert group["AutoRollbackConfiguration"]["Enabled"] is True
    assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
    assert found.resources[f"{function}Aliaslive"]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"] == {
        "ApplicationName": "${ServerlessDeploymentApplication}",
        "DeploymentGroupName": f"${{{function}DeploymentGroup}}",
        "BeforeAllowTrafficHook": "${RolloutFunction}",
    }


def test_a_gradual_rollout_is_for_these_functions_and_no_other() -> None:
    groups = stack(GradualRollout="true").of_type("CodeDeploy::DeploymentGroup")
    assert set(groups) == {f"{function}DeploymentGroup" for function in FUNCTIONS}


# How they are watched


@functions
@pytest.mark.parametrize("rollout", ["false", "true"])
def test_an_alarm_watches_for_errors_of_what_callers_reach(function: str, rollout: str) -> None:
    metrics = stack(GradualRollout=rollout).of_type("CloudWatch::Alarm")["ErrorAlarm"]["Metrics"]
    found = {query["Id"]: query["MetricStat"]["Metric"] for query in metrics if "MetricStat" in query}
    metric = found["search" if function == "SearchFunction" else "validation"]
    assert (metric["Namespace"], metric["MetricName"]) == ("AWS/Lambda", "Errors")
    assert {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]} == {
        "FunctionName": f"${{{function}}}",
        "Resource": f"${{{function}}}:live",
    }
    assert metrics[0]["Expression"] == "search + validation + new_search + new_validation + broken"
    assert found["broken"]["MetricName"] == "Broken"


@functions
def test_a_bug_answered_with_a_500_counts_as_an_error_by_its_log_line(function: str) -> None:
    found = stack().of_type("Logs::MetricFilter")[BROKEN[function]]
    assert found["LogGroupName"] == stack().of_type("Lambda::Function")[function]["LoggingConfig"]["LogGroup"]
    assert found["MetricTransformations"][0]["MetricName"] == "Broken"
    for code in ("INTERNAL", "NOT_CONFIGURED"):
        assert f'($.code = "{code}")' in found["FilterPattern"]
    assert "SECRET_TIMEOUT" not in found["FilterPattern"], "a slow cold start takes back no release"


def test_one_error_raises_the_alarm_and_missing_data_does_not() -> None:
    alarm = stack().of_type("CloudWatch::Alarm")["ErrorAlarm"]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    # A metric may arrive minutes late: an error in any of the last five minutes counts.
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (1, 5)
    assert alarm["TreatMissingData"] == "notBreaching"


def test_no_alarm_fills_missing_points() -> None:
    # With FILL, the newest point of a metric that arrives late is always the fill value.
    found = whole_stack(Audit="true", Suite="true").of_type("CloudWatch::Alarm")
    assert len(found) > 10
    assert not [name for name, alarm in found.items() if "FILL" in json.dumps(alarm)]
