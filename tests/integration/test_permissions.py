"""The roles of a stack allow exactly the calls that are made with them: nothing is missing, nothing is spare.

Calls of the functions are recorded while their real handlers run on simulated AWS services; what a state machine calls
is in its definition. AWS documents the rest, such as what Lambda itself does with a function's role.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws

from chunkproof.base.errors import ChunkproofError, CollectionNotFoundError, NotFoundError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.embedders.bedrock import BedrockEmbedder
from chunkproof.embedders.embedder_port import InputType
from chunkproof.net import s3, secrets
from chunkproof.net.secrets import Keys
from chunkproof.net.transport import DeadlineTransport
from chunkproof.service import container
from chunkproof.stores.published import PublishedCollections, list_version
from chunkproof.stores.server import ServerStore
from chunkproof.stores.store_port import Point
from chunkproof_cli.local.gateway import load_function

from support.bedrock_server import CREDENTIALS, REGION, bedrock_server
from support.chunks import SECONDS_60, fill, make_services
from support.published import BUCKET as PUBLISHED
from support.published import lambda_container, make_bucket, publish
from support.qdrant_server import QdrantServer
from support.sdk import sdk
from support.states import Context, definition
from support.template import ROOT, Stack, part_of_stack, stack
from support.words import Words

BUCKET = "bucket-of-a-test"
MODELS, MODEL = "arn:aws:bedrock:us-west-2::foundation-model", "amazon.titan-embed-text-v2:0"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000001"
SECRET_KEY = "arn:aws:kms:eu-central-1:123456789012:key/0f0f0f0f-0000-4000-8000-000000000002"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf"
# IAM's action for an operation, where their names differ.
ACTIONS = {
    "s3:HeadObject": "s3:GetObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
}
# What Lambda does with a function's role, for a function that has a log group, subnets or a key for its settings.
BY_LAMBDA = {"logs:CreateLogStream", "logs:PutLogEvents", "ec2:DescribeSubnets"}

EVERYTHING = {
    "KmsKeyArn": KEY,
    "SecretArn": SECRET,
    "SubnetIds": "subnet-1",
    "SecurityGroupIds": "sg-1",
    "Audit": "true",
    "Suite": "true",
    "Canary": "true",
}
WITHOUT_SERVER = {"Store": "edge", "QdrantUrl": ""}
# Receipts, with a key whose tag names the stack (test_template_permissions.py).
SIGNS = {"kms:Sign", "kms:GetPublicKey"}


@dataclass(frozen=True)
class Call:
    """An action on a resource, as IAM sees it."""

    action: str
    resource: str


class Recorder:
    """The calls of boto3 while this is in use."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: set[Call] = set()
        make = BaseClient._make_api_call  # type: ignore[attr-defined]

        def record(client: Any, operation: str, given: dict[str, Any]) -> Any:
            name = f"{client.meta.service_model.service_name}:{operation}"
            self.calls.add(Call(ACTIONS.get(name, name), _resource(given)))
            try:
                return make(client, operation, given)
            except ClientError as error:
                # Without s3:ListBucket, a missing object is a 403, and not a 404.
                if name == "s3:GetObject" and error.response["Error"]["Code"] == "NoSuchKey":
                    self.calls.add(Call("s3:ListBucket", given["Bucket"]))
                raise

        patch.setattr(BaseClient, "_make_api_call", record)


def _resource(given: dict[str, Any]) -> str:
    return f"{given['Bucket']}/{given['Key']}" if "Key" in given else str(given.get("SecretId", given.get("Bucket")))


@dataclass(frozen=True)
class Grant:
    """One action that a statement allows, on resources that match a pattern."""

    action: str
    pattern: str

    def allows(self, call: Call) -> bool:
        return self.action == call.action and fnmatchcase(call.resource, self.pattern)


# Of any key, but by its condition only what encrypts the secret.
ANY_KEY_OF_THE_SECRET = "arn:${AWS::Partition}:kms:*:*:key/*"


def grants(found: Stack, role: str, bucket: str = "") -> set[Grant]:
    """What a role allows by policies of these stacks; the buckets have the names that they have in tests."""
    made = found.of_type("IAM::Role")[role]
    shared = stack(**EVERYTHING, **WITHOUT_SERVER)  # which has all policies
    own = {**shared.of_type("IAM::ManagedPolicy"), **found.of_type("IAM::ManagedPolicy")}
    arns = made.get("ManagedPolicyArns", [])
    attached = [policy for name, policy in own.items() if any(name in arn for arn in arns)]
    return {
        Grant(
            action,
            resource.replace(f"${{{bucket}.Arn}}", BUCKET)
            .replace("${PublishedBucket.Arn}", PUBLISHED)
            .replace(ANY_KEY_OF_THE_SECRET, SECRET_KEY),
        )
        for policy in (*made["Policies"], *attached)
        for statement in policy["PolicyDocument"]["Statement"]
        for action in _listed(statement["Action"])
        for resource in _listed(statement["Resource"])
    }


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


def differences(granted: Iterable[Grant], calls: Iterable[Call]) -> list[str]:
    """What is called and not allowed, and what is allowed and never called."""
    granted, calls = set(granted), set(calls)
    return [
        *(f"missing: {call}" for call in calls if not any(grant.allows(call) for grant in granted)),
        *(f"spare: {grant}" for grant in granted if not any(grant.allows(call) for call in calls)),
    ]


def with_key(calls: set[Call], key: str) -> set[Call]:
    """The calls, and those of S3 in the caller's name for a bucket with a key."""
    made = {"s3:GetObject": "kms:Decrypt", "s3:PutObject": "kms:GenerateDataKey"}
    return calls | {Call(made[call.action], key) for call in calls if call.action in made}


def by_lambda(granted: set[Grant]) -> set[Call]:
    """The calls of Lambda, on what the role names; the settings of a function are decrypted with their key."""
    own = {Call(grant.action, grant.pattern) for grant in granted if grant.action in BY_LAMBDA}
    assert {call.action for call in own} == BY_LAMBDA
    return own | {Call("kms:Decrypt", KEY)}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Simulated services, with a bucket; calls are recorded."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3.aws_client.cache_clear()
    secrets.clear_secret_cache()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield Recorder(monkeypatch)
    s3.aws_client.cache_clear()
    secrets.clear_secret_cache()


@pytest.fixture
def read_keys(aws: Recorder) -> set[Call]:
    """The calls that reading the keys takes, and Secrets Manager's own with the key of the secret."""
    made = boto3.client("secretsmanager").create_secret(
        Name="keys", SecretString=json.dumps({"COHERE_API_KEY": "c", "QDRANT_API_KEY": "q"})
    )
    aws.calls.clear()
    keys = Keys(Settings.from_env({"CHUNKPROOF_SECRET_ARN": made["ARN"]}))
    assert keys.for_qdrant() == {"api-key": "q"}
    assert keys.for_cohere() == {"authorization": "Bearer c"}
    calls = {Call(call.action, SECRET) for call in aws.calls}
    aws.calls.clear()
    return calls | {Call("kms:Decrypt", SECRET_KEY)}


def chunks_of_three() -> list[Point]:
    texts = [f"pump {n}" for n in range(3)]
    vectors = Words().embed(texts, InputType.DOCUMENT, Deadline(SECONDS_60))
    return [Point(n, {"chunk_id": f"c{n}", "text": text}, vector=tuple(vectors[n])) for n, text in enumerate(texts)]


@pytest.fixture
def collection_of_three(served_qdrant: QdrantServer, collection: str) -> Iterator[str]:
    store = ServerStore(served_qdrant.url, DeadlineTransport())
    fill(store, collection, *chunks_of_three(), size=Words.dimension)
    with container.override(make_services(store, collection, Words(), DEADLINE_MS="20000")):
        yield collection
    sdk(store).delete_collection(collection)
    store.close()


def step(name: str, event: dict[str, Any], *, fails: type[ChunkproofError] | None = None) -> None:
    """Run one step of an application with its real handler."""
    run: Callable[[dict[str, Any], Any], Any] = load_function(name).lambda_handler
    event = {"bucket": BUCKET, **event}
    if fails:
        with pytest.raises(fails):
            run(event, Context(function_name=f"stack-{name}"))
    else:
        run(event, Context(function_name=f"stack-{name}"))


def test_every_client_of_aws_in_the_product_is_one_that_is_recorded_here() -> None:
    sources = [file.read_text("utf-8") for folder in ("shared", "functions") for file in (ROOT / folder).rglob("*.py")]
    made = re.compile(r'(?:\.(?:client|resource)\(\s*|_client\((?:service: str = )?)"([a-z0-9-]+)"')
    used = {name for text in sources for name in made.findall(text)}
    assert used - {"lambda", "codedeploy"} == {  # which the check of a rollout calls: tests/build/test_rollout.py
        "s3",
        "secretsmanager",
        "bedrock-runtime",
        "kms",  # for seals, with the key and the rights of whoever seals; no function does
    }


@pytest.mark.parametrize("role", ["SearchRole", "ValidateChunkRole"])
def test_the_functions_of_the_api_may_do_what_they_do(role: str, read_keys: set[Call]) -> None:
    granted = grants(stack(**EVERYTHING), role)
    assert differences(granted, read_keys | by_lambda(granted)) == []


@pytest.fixture
def embed_with_bedrock(aws: Recorder, monkeypatch: pytest.MonkeyPatch) -> set[Call]:
    """The calls that embedding with Bedrock takes."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with bedrock_server() as server:
        embedder = BedrockEmbedder(DeadlineTransport(), base_url=server.url, region=REGION, model=MODEL)
        embedder.embed(["pump"], InputType.QUERY, Deadline(SECONDS_60))
        embedder.close()
    made = {Call("bedrock:InvokeModel", f"{MODELS}/{MODEL}")}
    assert {call.action for call in aws.calls} == {"bedrock-runtime:InvokeModel"}
    return made


def test_only_what_embeds_may_call_models_and_only_those_that_are_named(
    read_keys: set[Call], embed_with_bedrock: set[Call]
) -> None:
    given = {**EVERYTHING, "BedrockModelArns": f"{MODELS}/{MODEL}"}
    granted = grants(stack(**given), "SearchRole")
    assert differences(granted, read_keys | embed_with_bedrock | by_lambda(granted)) == []
    granted = grants(stack(**given), "ValidateChunkRole")
    assert differences(granted, read_keys | by_lambda(granted)) == []
    own = grants(part_of_stack("Suite", **given), "SuiteFunctionRole")
    assert {grant for grant in own if "bedrock" in grant.action} == {Grant("bedrock:InvokeModel", f"{MODELS}/{MODEL}")}
    without = grants(part_of_stack("Suite", **EVERYTHING), "SuiteFunctionRole")
    assert not [grant for grant in without if "bedrock" in grant.action]


@pytest.mark.parametrize("role", ["SearchRole", "ValidateChunkRole"])
def test_functions_without_a_server_may_read_what_is_published_and_write_nothing(
    role: str, aws: Recorder, read_keys: set[Call], tmp_path: Path
) -> None:
    folder, published = tmp_path / "docs", PublishedCollections(s3.Bucket(BUCKET))
    folder.mkdir()
    file = folder / "collection.json"
    file.write_text("{}", "utf-8")
    published.publish(folder, list_version(folder, [file], "docs", 1), lambda _: None)
    aws.calls.clear()
    assert published.names() == ["docs"]
    published.fetch(published.version(published.pointer("docs").version), tmp_path / "fetched")
    with pytest.raises(CollectionNotFoundError):
        published.pointer("none")
    granted = grants(stack(**EVERYTHING, **WITHOUT_SERVER), role, "PublishedBucket")
    signing = {Call(grant.action, grant.pattern) for grant in granted if grant.action in SIGNS}
    assert {call.action for call in signing} == (SIGNS if role == "SearchRole" else set())
    assert differences(granted, with_key(aws.calls, KEY) | read_keys | by_lambda(granted) | signing) == []


@pytest.fixture
def published_three(aws: Recorder, tmp_path: Path) -> Iterator[str]:
    """Three published chunks, and no Qdrant server."""
    pytest.importorskip("qdrant_edge", reason="Qdrant's engine has no wheel for this system")
    publish(make_bucket(), tmp_path, "docs", chunks_of_three())
    with lambda_container(tmp_path / "container", "docs", Words(), DEADLINE_MS="20000"):
        yield "docs"


def run_audit(aws: Recorder, collection: str) -> None:
    lines = [json.dumps({"chunk_id": f"c{n}", "original_text": f"pump {n}"}) for n in range(12)]
    boto3.client("s3").put_object(Bucket=BUCKET, Key="manifests/m.jsonl", Body="\n".join(lines).encode())
    aws.calls.clear()
    address, audit = f"s3://{BUCKET}/manifests/m.jsonl", {"audit_id": "a"}
    split = {**audit, "step": "split", "manifest": address, "collection": collection, "shard_entries": "2"}
    step("audit", split)
    step("audit", {**split, "manifest": f"{address}.gone"}, fails=NotFoundError)
    step("audit", {**audit, "step": "shard", "shard": 0})
    step("audit", {**audit, "step": "merge"})  # the other shards have no result


@pytest.mark.server
def test_the_function_of_audits_may_do_what_it_does(
    aws: Recorder, read_keys: set[Call], collection_of_three: str
) -> None:
    run_audit(aws, collection_of_three)
    granted = grants(part_of_stack("Audit", **EVERYTHING), "AuditFunctionRole", "AuditBucket")
    assert differences(granted, with_key(aws.calls, KEY) | read_keys | by_lambda(granted)) == []


def test_without_a_server_the_function_of_audits_may_also_read_what_is_published(
    aws: Recorder, read_keys: set[Call], published_three: str
) -> None:
    run_audit(aws, published_three)
    other = {"audit_id": "b", "manifest": f"s3://{BUCKET}/manifests/m.jsonl", "collection": "none"}
    step("audit", {**other, "step": "split", "shard_entries": "2"}, fails=CollectionNotFoundError)
    found = part_of_stack("Audit", **EVERYTHING, **WITHOUT_SERVER)
    granted = grants(found, "AuditFunctionRole", "AuditBucket")
    assert differences(granted, with_key(aws.calls, KEY) | read_keys | by_lambda(granted)) == []


def run_suite(aws: Recorder) -> dict[str, Any]:
    """Run a suite; return the event of its first step."""
    suite = {"name": "s", "cases": [{"name": "one", "query_text": "pump 1", "expected_doc_ids": ["c1"]}]}
    boto3.client("s3").put_object(Bucket=BUCKET, Key="suite.json", Body=json.dumps(suite).encode())
    aws.calls.clear()
    run = {"run_id": "r"}
    split = {**run, "step": "split", "suite": f"s3://{BUCKET}/suite.json", "collection": "", "source": ""}
    step("suite", {**split, "shard_cases": "1"})
    step("suite", {**run, "step": "shard", "shard": 0})
    step("suite", {**run, "step": "merge"})
    return {**split, "shard_cases": "1"}


def test_without_a_server_the_function_of_suites_may_also_read_what_is_published(
    aws: Recorder, read_keys: set[Call], published_three: str
) -> None:
    split = run_suite(aws)
    step("suite", {**split, "collection": f"no-{published_three}"}, fails=CollectionNotFoundError)
    found = part_of_stack("Suite", **{**EVERYTHING, "Canary": "false"}, **WITHOUT_SERVER)
    granted = grants(found, "SuiteFunctionRole", "SuiteBucket")
    assert differences(granted, with_key(aws.calls, KEY) | read_keys | by_lambda(granted)) == []


@pytest.mark.server
@pytest.mark.usefixtures("collection_of_three")
@pytest.mark.parametrize("canary", ["true", "false"])
def test_the_function_of_suites_may_do_what_it_does(aws: Recorder, read_keys: set[Call], canary: str) -> None:
    run_suite(aws)
    if canary == "true":
        step("suite", {"step": "canary", "canary": {"action": "check", "record_missing": True}})
        step("suite", {"step": "canary", "canary": {"action": "check"}})
    found = part_of_stack("Suite", **{**EVERYTHING, "Canary": canary})
    granted = grants(found, "SuiteFunctionRole", "SuiteBucket")
    assert differences(granted, with_key(aws.calls, KEY) | read_keys | by_lambda(granted)) == []


@pytest.mark.parametrize(
    ("name", "shards"), [("audit", f"{BUCKET}/audits/a/shards.json"), ("suite", f"{BUCKET}/runs/r/shards.json")]
)
def test_a_state_machine_may_do_what_its_definition_says(name: str, shards: str) -> None:
    own = {"audit": "ShardEntries", "suite": "ShardCases"}[name]
    filled = {"Function": "f", "Bucket": BUCKET, "MaxConcurrency": "1", "RetrySeconds": "1", own: "1"}
    written = definition(name, filled)
    resources = set(re.findall(r'"Resource": "arn:aws:states:::([^"]+)"', written))
    assert resources == {"lambda:invoke", "s3:getObject"}
    assert '"Mode": "DISTRIBUTED"' in written
    title = name.capitalize()
    arn = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}"
    calls = {
        Call("lambda:InvokeFunction", f"${{{title}Function.Arn}}"),
        Call("s3:GetObject", shards),
        Call("kms:Decrypt", KEY),
        # AWS documents these for a Distributed Map: its shards are executions of the same machine, under a label.
        Call("states:StartExecution", f"{arn}:stateMachine:${{AWS::StackName}}-{name}"),
        Call("states:DescribeExecution", f"{arn}:execution:${{AWS::StackName}}-{name}/Shards:x"),
        Call("states:StopExecution", f"{arn}:execution:${{AWS::StackName}}-{name}/Shards:x"),
        Call("states:DescribeExecution", f"{arn}:execution:${{AWS::StackName}}-{name}:x"),
        Call("states:StopExecution", f"{arn}:execution:${{AWS::StackName}}-{name}:x"),
    }
    found = part_of_stack(title, **EVERYTHING)
    assert differences(grants(found, f"{title}StatesRole", f"{title}Bucket"), calls) == []


@pytest.mark.parametrize(
    ("parameters", "also"),
    [
        ({}, {Call("sqs:SendMessage", "${SuiteNotStarted.Arn}"), Call("kms:Decrypt", KEY)}),
        ({"SuiteSchedule": ""}, {Call("sqs:SendMessage", "${SuiteNotStarted.Arn}"), Call("kms:Decrypt", KEY)}),
        ({"SuiteSchedule": "", "Canary": "false"}, set[Call]()),
    ],
    ids=["schedule", "canaries only", "deployments only"],
)
def test_what_starts_a_suite_may_start_it_and_report_a_failure(parameters: dict[str, str], also: set[Call]) -> None:
    found = part_of_stack("Suite", **{**EVERYTHING, **parameters})
    calls = {Call("states:StartExecution", "${SuiteStateMachine}"), *also}
    assert differences(grants(found, "SuiteStarterRole"), calls) == []
    services = found.of_type("IAM::Role")["SuiteStarterRole"]["AssumeRolePolicyDocument"]["Statement"][0]
    assert ("scheduler.amazonaws.com" in services["Principal"]["Service"]) == bool(also)


def test_a_missing_and_a_spare_permission_are_found() -> None:
    allowed = {Grant("s3:GetObject", "b/*"), Grant("s3:PutObject", "b/runs/*")}
    assert differences(allowed, {Call("s3:GetObject", "b/x"), Call("s3:PutObject", "b/suite.json")}) == [
        "missing: Call(action='s3:PutObject', resource='b/suite.json')",
        "spare: Grant(action='s3:PutObject', pattern='b/runs/*')",
    ]
