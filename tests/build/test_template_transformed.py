"""The stacks as CloudFormation gets them: SAM's transform applied, with the stages, versions and permissions it makes.

cfn-lint does not expand SAM's resources, so that a check of the written template never sees these.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.template import (
    QDRANT_URL,
    ROOT,
    TEMPLATE,
    RefusedError,
    Stack,
    failed_assertions,
    parameter_values,
    references,
    resolve,
    stack,
    strings,
    template,
    transform,
    whole_stack,
)

EVERYTHING = {
    "SecretArn": "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys-AbCdEf",
    "KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001",
    "TracingLayerArn": "arn:aws:lambda:us-east-1:901920570463:layer:aws-otel-python-arm64-ver-1-32-0:2",
    "SubnetIds": "subnet-1,subnet-2",
    "SecurityGroupIds": "sg-1",
    "ReservedConcurrency": "20",
    "GradualRollout": "true",
    "SnapStart": "PublishedVersions",
    "Audit": "true",
    "Suite": "true",
    "Canary": "true",
    "Observability": "on-call@example.com",
}
VARIANTS: dict[str, dict[str, str]] = {
    "default": {},
    "everything": EVERYTHING,
    "without a server": {
        "Store": "edge",
        "QdrantUrl": "",
        **{name: EVERYTHING[name] for name in ("KmsKeyArn", "SecretArn", "Audit", "Suite", "Canary")},
    },
    "tokens": {"JwtIssuer": "https://issuer.example", "JwtAudience": "search", "PublicHealth": "true"},
}
# Regions of each partition in which a stack is meant to work; cfn-lint knows which resources a region has.
REGIONS = ("us-east-1", "eu-central-1", "ap-southeast-2", "cn-north-1", "us-gov-west-1")
# SAM resolves some parameters itself, and writes some `Fn::Sub` without a variable. SnapStart, which is off unless a
# parameter turns it on, is not in every region (docs/guides/deploy.md says so).
IGNORED = ("W2001", "W1020", "E2530")

variants = pytest.mark.parametrize("parameters", VARIANTS.values(), ids=VARIANTS)


def write_transformed(path: Path, parameters: dict[str, str], into: Path) -> Path:
    """Write the transformed template, nested ones as `sam package` names them, into a file of this name."""
    written = template(path)
    given = {"QdrantUrl": QDRANT_URL, **parameters} if path == TEMPLATE else {}
    made = transform(written, given)
    for resource in made["Resources"].values():
        if resource["Type"] == "AWS::CloudFormation::Stack":
            resource["Properties"]["TemplateURL"] = "https://s3.us-east-1.amazonaws.com/packaged/nested.template"
    into.write_text(json.dumps(made, indent=1, default=str), "utf-8")
    return into


def cfn_lint(*files: Path) -> str:
    command = [
        str(Path(sys.executable).with_name("cfn-lint")),
        *("--format", "parseable", "--regions", *REGIONS, "--ignore-checks", *IGNORED, "--", *map(str, files)),
    ]
    folder = files[0].parent
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}  # without the settings of this machine
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


def test_cfn_lint_finds_nothing_in_the_transformed_stacks(tmp_path: Path) -> None:
    files = [
        write_transformed(TEMPLATE, parameters, tmp_path / f"{name.replace(' ', '-')}.json")
        for name, parameters in VARIANTS.items()
    ]
    for path in sorted(ROOT.glob("functions/*/template.yaml")):
        files.append(write_transformed(path, {}, tmp_path / f"nested-{path.parent.name}.json"))
    assert cfn_lint(*files) == ""  # one process: most of its time goes into reading the schemas


def test_cfn_lint_finds_a_mistake_in_what_sam_makes(tmp_path: Path) -> None:
    file = write_transformed(TEMPLATE, {}, tmp_path / "mistaken.json")
    made = json.loads(file.read_text("utf-8"))
    made["Resources"]["SearchFunctionAliaslive"]["Properties"]["FunctionVersion"] = {"Fn::GetAtt": ["Gone", "Version"]}
    file.write_text(json.dumps(made), "utf-8")
    assert "Gone" in cfn_lint(file)


# What SAM makes


@variants
def test_every_route_calls_the_alias_and_only_this_api_may(parameters: dict[str, str]) -> None:
    found = stack(**parameters)
    aliases = {f"${{{name}}}" for name in found.of_type("Lambda::Alias")}
    uris = set(re.findall(r"functions/([^/]+)/invocations", json.dumps(found.api)))
    assert uris == aliases
    permissions = found.of_type("Lambda::Permission").values()
    assert {permission["FunctionName"] for permission in permissions} == aliases
    for permission in permissions:
        assert permission["Action"] == "lambda:InvokeFunction"
        assert ":${Api}/" in permission["SourceArn"]


@variants
def test_the_stage_throttles_logs_and_deploys_itself(parameters: dict[str, str]) -> None:
    stage = stack(**parameters).only("ApiGatewayV2::Stage")
    assert (stage["StageName"], stage["AutoDeploy"]) == ("$default", True)
    assert {"ThrottlingRateLimit", "ThrottlingBurstLimit"} <= set(stage["DefaultRouteSettings"])
    assert stage["AccessLogSettings"]["DestinationArn"] == "${AccessLogs.Arn}"


@variants
def test_every_alias_has_a_version_and_no_version_is_left_behind(parameters: dict[str, str]) -> None:
    found = stack(**parameters)
    served = {alias["FunctionVersion"] for alias in found.of_type("Lambda::Alias").values()}
    assert served == {f"${{{name}.Version}}" for name in found.of_type("Lambda::Version")}
    for name in found.of_type("Lambda::Version"):
        kept = "Delete" if parameters.get("SnapStart") == "PublishedVersions" else "Retain"
        assert found.resources[name]["DeletionPolicy"] == kept


def test_nothing_is_bound_to_one_partition() -> None:
    found: Stack = whole_stack(**{k: v for k, v in EVERYTHING.items() if not v.startswith("arn:")})
    own = {name: made for name, made in found.resources.items() if name != "CodeDeployServiceRole"}  # SAM knows where
    assert not [text for text in strings(own) if "arn:aws:" in text]
    for file in ROOT.glob("functions/*/*.asl.json"):
        resources = re.findall(r'"Resource": "([^"]+)"', file.read_text("utf-8"))
        assert resources
        assert all(name.startswith("arn:${Partition}:states:::") for name in resources), file


def test_names_fit_the_limits_of_aws() -> None:
    # The longest stack name that docs/guides/deploy.md allows.
    limits: dict[str, tuple[str, int]] = {
        "StepFunctions::StateMachine": ("StateMachineName", 80),
        "SQS::Queue": ("QueueName", 80),
        "Lambda::Function": ("FunctionName", 64),
        "Scheduler::Schedule": ("Name", 64),
    }
    found = whole_stack(Audit="true", Suite="true", Canary="true")
    for kind, (key, limit) in limits.items():
        for made in found.of_type(kind).values():
            name: Any = made.get(key, "")
            assert len(name.replace("${AWS::StackName}", "s" * 57)) <= limit, name


# Every combination of options

OPTIONS: dict[str, tuple[dict[str, str], ...]] = {
    "store": ({}, {"Store": "edge", "QdrantUrl": ""}),
    "callers": ({}, VARIANTS["tokens"] | {"CorsOrigins": "https://app.example"}),
    "start": ({}, {"SnapStart": "PublishedVersions"}, {"ProvisionedConcurrency": "2"}),
    "rollout": ({}, {"GradualRollout": "true"}),
    "audit": ({}, {"Audit": "true"}),
    "suite": ({}, {"Suite": "true"}, {"Suite": "scheduled", "Canary": "true"}, {"Suite": "true", "SuiteSchedule": ""}),
    "canary alone": ({}, {"Canary": "true", "Suite": "false"}),
    "observed": ({}, {"Observability": "false"}),
    "key, seals and network": (
        {},
        {
            "KmsKeyArn": EVERYTHING["KmsKeyArn"],
            "Seals": "s3://seals/docs",
            **{"SubnetIds": "subnet-1", "SecurityGroupIds": "sg-1", "SecretArn": EVERYTHING["SecretArn"]},
        },
    ),
}
# SAM itself reads these; the rest are conditions, which CloudFormation decides.
READ_BY_SAM = ("GradualRollout", "SnapStart")


def test_every_combination_of_options_is_a_whole_stack_or_refused_by_a_rule() -> None:
    written = template()
    transformed: dict[tuple[str | None, ...], dict[str, Any]] = {}
    counted = 0
    for combination in itertools.product(*OPTIONS.values()):
        given = {"QdrantUrl": QDRANT_URL, "ReleaseDigest": "0a1b"} | {
            k: v for one in combination for k, v in one.items()
        }
        values = parameter_values(written, given)
        snapshots = given.get("SnapStart") == "PublishedVersions"
        expected = [
            *(["With Canary"] if (given.get("Canary"), given.get("Suite", "false")) == ("true", "false") else []),
            *(["With SnapStart"] if snapshots and given.get("Store") == "edge" else []),
        ]
        broken = failed_assertions(written, values)
        assert [message.split(",")[0] for message in broken] == expected, given
        if broken:
            continue
        key = tuple(given.get(name) for name in READ_BY_SAM)
        if key not in transformed:
            transformed[key] = transform(written, {name: given[name] for name in READ_BY_SAM if name in given} | given)
        try:
            found = resolve(transformed[key], values)
        except RefusedError as refused:
            raise AssertionError(f"{given}: {refused}") from None
        missing = {name for name in references(found.resources) if "::" not in name} - set(found.resources)
        assert not missing, (given, missing)
        counted += 1
    assert counted == 640
