"""What a function of a deployed stack may do: nothing that it does not need."""

from typing import Any

import pytest

from support.template import Stack, stack, values_under

SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf"
OWN_KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
TRACING_LAYER = "arn:aws:lambda:eu-central-1:901920570463:layer:aws-otel-python-arm64-ver-1-32-0:2"
TRACE_POLICY = "arn:${AWS::Partition}:iam::aws:policy/AWSXRayDaemonWriteAccess"
SUBNETS = {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"}
EVERYTHING = {
    "SecretArn": SECRET,
    "KmsKeyArn": OWN_KEY,
    "ReservedConcurrency": "20",
    "GradualRollout": "true",
    "TracingLayerArn": TRACING_LAYER,
    **SUBNETS,
}
ENI_POLICY = "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaENIManagementAccess"

Statement = tuple[str, tuple[str, ...], Any]

LOGS_OF_FUNCTION = {"SearchFunction": "SearchLogs", "ValidateChunkFunction": "ValidateChunkLogs"}
READ_SECRET: Statement = ("Allow", ("secretsmanager:GetSecretValue",), SECRET)
# Of any key, but only what encrypts that secret.
DECRYPT: Statement = ("Allow", ("kms:Decrypt",), "arn:${AWS::Partition}:kms:*:*:key/*")
ONLY_THE_SECRET = {
    "StringLike": {"kms:ViaService": "secretsmanager.*"},
    "StringEquals": {"kms:EncryptionContext:SecretARN": SECRET},
}
# EC2 knows no resource for it.
DESCRIBE_SUBNETS: Statement = ("Allow", ("ec2:DescribeSubnets",), "*")
DECRYPT_SETTINGS: Statement = ("Allow", ("kms:Decrypt",), OWN_KEY)

functions = pytest.mark.parametrize("function", LOGS_OF_FUNCTION)


def write_own_logs(function: str) -> Statement:
    return "Allow", ("logs:CreateLogStream", "logs:PutLogEvents"), f"${{{LOGS_OF_FUNCTION[function]}.Arn}}"


def role_of(found: Stack, function: str) -> dict[str, Any]:
    reference = found.of_type("Lambda::Function")[function]["Role"]
    name = reference.removeprefix("${").removesuffix(".Arn}")
    return dict(found.of_type("IAM::Role")[name])


def granted(found: Stack, function: str) -> tuple[list[Statement], list[str]]:
    """What a function's role says, in policies of this stack, and the AWS-managed policies it has besides."""
    role = role_of(found, function)
    own = {f"${{{name}}}": policy for name, policy in found.of_type("IAM::ManagedPolicy").items()}
    attached = role.get("ManagedPolicyArns", [])
    policies = [*role["Policies"], *(own[arn] for arn in attached if arn in own)]
    statements = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]
    return [_read(statement) for statement in statements], [arn for arn in attached if arn not in own]


def _read(statement: dict[str, Any]) -> Statement:
    action = statement["Action"]
    assert statement.get("Condition") == (ONLY_THE_SECRET if statement["Resource"] == DECRYPT[2] else None)
    return statement["Effect"], tuple([action] if isinstance(action, str) else action), statement["Resource"]


@functions
def test_without_a_secret_a_function_may_only_write_its_own_logs(function: str) -> None:
    assert granted(stack(), function) == ([write_own_logs(function)], [])


@functions
def test_with_a_secret_a_function_may_read_that_one_and_decrypt_it_with_whichever_key_it_has(function: str) -> None:
    assert granted(stack(SecretArn=SECRET), function) == ([write_own_logs(function), READ_SECRET, DECRYPT], [])


@functions
def test_with_a_key_for_its_settings_a_function_may_decrypt_with_that_one(function: str) -> None:
    found = stack(KmsKeyArn=OWN_KEY)
    assert granted(found, function) == ([write_own_logs(function), DECRYPT_SETTINGS], [])


@functions
def test_in_a_vpc_a_function_may_manage_its_network_interfaces(function: str) -> None:
    assert granted(stack(**SUBNETS), function) == ([write_own_logs(function), DESCRIBE_SUBNETS], [ENI_POLICY])


@functions
def test_with_a_tracing_layer_a_function_may_write_traces(function: str) -> None:
    found = stack(TracingLayerArn=TRACING_LAYER)
    assert granted(found, function) == ([write_own_logs(function)], [TRACE_POLICY])


def test_with_seals_searches_may_read_them_and_sign_with_keys_that_are_marked_for_the_stack() -> None:
    found = stack(Seals="s3://own-seals/docs/prod")
    read, listed, sign = role_of(found, "SearchFunction")["Policies"][0]["PolicyDocument"]["Statement"][1:]
    arn = "arn:${AWS::Partition}:s3:::own-seals"
    assert (read["Action"], read["Resource"]) == ("s3:GetObject", f"{arn}/docs/prod/*")
    assert (listed["Action"], listed["Resource"]) == ("s3:ListBucket", arn)
    assert sign["Action"] == ["kms:Sign", "kms:GetPublicKey"]
    assert sign["Condition"] == {"StringEquals": {"aws:ResourceTag/chunkproof": "${AWS::StackName}"}}
    variables = found.of_type("Lambda::Function")["SearchFunction"]["Environment"]["Variables"]
    assert variables["CHUNKPROOF_SEALS"] == "s3://own-seals/docs/prod"
    assert granted(found, "ValidateChunkFunction") == ([write_own_logs("ValidateChunkFunction")], [])


@functions
def test_everything_at_once_grants_the_sum_and_no_more(function: str) -> None:
    found = stack(**EVERYTHING)
    assert granted(found, function) == (
        [write_own_logs(function), READ_SECRET, DECRYPT, DESCRIBE_SUBNETS, DECRYPT_SETTINGS],
        [TRACE_POLICY, ENI_POLICY],
    )


def test_every_function_has_a_role_of_its_own_that_only_lambda_takes() -> None:
    found = stack()
    roles = [function["Role"] for function in found.of_type("Lambda::Function").values()]
    assert sorted(roles) == ["${SearchRole.Arn}", "${ValidateChunkRole.Arn}"]
    for function in LOGS_OF_FUNCTION:
        assert role_of(found, function)["AssumeRolePolicyDocument"]["Statement"] == [
            {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ]


@pytest.mark.parametrize("parameters", [{}, EVERYTHING], ids=["default", "everything"])
def test_no_policy_has_a_wildcard_and_every_policy_has_a_role(parameters: dict[str, str]) -> None:
    found = stack(**parameters)
    assert not found.of_type("IAM::Policy")
    documents = list(values_under(found.resources, "PolicyDocument"))
    statements = [one for document in documents for one in document["Statement"]]
    assert statements
    granted_rights = {(str(one["Action"]), str(one["Resource"])) for one in statements}
    # The check of a rollout calls versions of the two functions, and reports to deployment groups of this stack.
    versions = [f"${{{name}.Arn}}:*" for name in LOGS_OF_FUNCTION]
    groups = "arn:${AWS::Partition}:codedeploy:${AWS::Region}:${AWS::AccountId}:deploymentgroup:${AWS::StackName}-*"
    assert {(action, resource) for action, resource in granted_rights if "*" in action + resource} <= {
        ("ec2:DescribeSubnets", "*"),
        ("kms:Decrypt", DECRYPT[2]),
        ("lambda:InvokeFunction", str(versions)),
        ("codedeploy:PutLifecycleEventHookExecutionStatus", groups),
    }
    for key in ("NotAction", "NotResource"):
        assert not list(values_under(documents, key))
