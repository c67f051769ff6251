"""A state machine in moto's interpreter; its tasks call the function's real handler."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto import mock_aws
from moto.awslambda_simple.models import LambdaSimpleBackend
from moto.stepfunctions.parser.models import StepFunctionsParserBackend

from chunkproof.net import s3
from chunkproof_cli.aws import jobs
from chunkproof_cli.aws.stack import Stack
from chunkproof_cli.local.gateway import LambdaContext, load_function
from chunkproof_cli.main import main

from support.template import ROOT

BUCKET, REGION = "bucket-of-a-test", "eu-central-1"
INTERPRETED = {"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}

Answered = tuple[int, str, str]


@dataclass
class Context(LambdaContext):
    """The context of a function with a long timeout; `left_ms` may be set."""

    left_ms: int = 900_000

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


class Cloud:
    """The deployed state machine; `trouble` may raise before a step is run, `calls` counts the steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trouble: Callable[[dict[str, Any], int], None] = lambda _event, _call: None
        self.calls: Counter[tuple[str, int | None]] = Counter()
        self.context = Context(function_name=f"stack-{name}")

    def invoke(self, event: dict[str, Any]) -> dict[str, Any]:
        step = (event["step"], event.get("shard"))
        self.calls[step] += 1
        self.trouble(event, self.calls[step])
        answer: dict[str, Any] = load_function(self.name).lambda_handler(event, self.context)
        return answer

    def execute(self, given: dict[str, Any], name: str | None = None) -> dict[str, Any]:
        """Run an execution to its end."""
        states = boto3.client("stepfunctions")
        run = states.start_execution(stateMachineArn=machine(), name=name or uuid4().hex, input=json.dumps(given))
        for _ in range(600):
            found = states.describe_execution(executionArn=run["executionArn"])
            if found["status"] != "RUNNING":
                return dict(found)
            time.sleep(0.1)
        raise AssertionError("the execution does not end")

    def put(self, key: str, content: bytes) -> str:
        """Put an object into the bucket; return its address."""
        boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def get(self, key: str) -> dict[str, Any]:
        """Read a JSON object of the bucket."""
        found: dict[str, Any] = json.loads(boto3.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read())
        return found


def machine() -> str:
    """Return the state machine's ARN."""
    return str(boto3.client("stepfunctions").list_state_machines()["stateMachines"][0]["stateMachineArn"])


@contextmanager
def deployed(name: str, filled: Mapping[str, str], patch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """AWS as moto simulates it, with the state machine of `functions/NAME` and its bucket."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(variable, "testing")
    patch.setenv("AWS_DEFAULT_REGION", REGION)
    s3.aws_client.cache_clear()
    made = Cloud(name)

    def invoke(_backend: Any, _name: str, _qualifier: str, body: Any, _headers: Any, response_headers: Any) -> bytes:
        try:
            return json.dumps(made.invoke(json.loads(body))).encode()
        except Exception as error:  # noqa: BLE001 - as Lambda does
            response_headers["x-amz-function-error"] = "Unhandled"
            return json.dumps({"errorType": type(error).__name__, "errorMessage": str(error)}).encode()

    def list_map_runs(backend: Any, execution_arn: str) -> dict[str, Any]:
        # moto fails until the thread of the execution has begun; AWS has no map runs by then.
        execution = backend.describe_execution(execution_arn=execution_arn)
        return read_map_runs(backend, execution_arn) if execution.exec_worker.env else {"mapRuns": []}

    read_map_runs = StepFunctionsParserBackend.list_map_runs
    patch.setattr(StepFunctionsParserBackend, "list_map_runs", list_map_runs)
    patch.setattr(LambdaSimpleBackend, "invoke", invoke)
    with mock_aws(config=INTERPRETED):
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        _deploy(name, filled)
        yield made
    s3.aws_client.cache_clear()


def _deploy(name: str, filled: Mapping[str, str]) -> None:
    role = f"arn:aws:iam::123456789012:role/{name}"
    boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    boto3.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role,
        Handler="app.lambda_handler",
        Code={"ZipFile": b"-"},
    )
    text = definition(name, {"Function": name, "Bucket": BUCKET, "RetrySeconds": "1", **filled})
    text = text.replace('"BackoffRate": 2.0', '"BackoffRate": 1.0')  # no waiting in tests
    boto3.client("stepfunctions").create_state_machine(name=name, definition=text, roleArn=role)


def definition(name: str, filled: Mapping[str, str]) -> str:
    """Return the state machine's definition with its substitutions made."""
    text = (ROOT / f"functions/{name}/{name}.asl.json").read_text("utf-8")
    for key, value in {"Partition": "aws", **filled}.items():
        text = text.replace("${" + key + "}", value)
    assert "${" not in text
    return text


def command(
    kind: str, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str], **outputs: str
) -> Callable[..., Answered]:
    """Return a function that runs `chunkproof …` with a stack whose `Audit` or `Suite` is this state machine."""
    outputs |= {f"{kind}StateMachineArn": machine(), f"{kind}BucketName": BUCKET}
    patch.setattr(jobs, "find_stack", lambda name: Stack(name, "CREATE_COMPLETE", outputs, {}))
    patch.setattr(jobs, "POLL_S", 1.0)

    def run(*arguments: object) -> Answered:
        patch.setattr(sys, "argv", ["chunkproof", *map(str, arguments)])
        captured.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        found = captured.readouterr()
        return code, found.out, found.err

    return run
