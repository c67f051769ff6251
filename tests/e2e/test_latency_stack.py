"""`chunkproof latency --stack`: the stack is moto's, its metrics come from a loopback CloudWatch."""

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from chunkproof.service import container
from chunkproof.stores.store_port import Point
from chunkproof_cli.local.gateway import LambdaContext

from support.api import Event, invoke, post, request
from support.chunks import fill, make_services
from support.cloudwatch_server import CloudWatch, cloudwatch_server, refusal
from support.commands import Command
from support.log_lines import CapturedOutput, capture_stdout
from support.stores import MemoryStore
from support.template import template

OUTPUTS = {
    "ApiUrl": "https://a.example",
    "Collection": "docs",
    "Authorization": "AWS_IAM",
    "SearchFunctionName": "stack-SearchFunction-1",
    "ValidateChunkFunctionName": "stack-ValidateChunkFunction-2",
}
PARAMETERS = {"EnvironmentName": "prod", "LatencyTargetMs": "1500"}
SEARCH = {"service": "chunkproof", "environment": "prod", "function": "stack-SearchFunction-1"}
VALIDATE = {**SEARCH, "function": "stack-ValidateChunkFunction-2"}
PAYLOAD = {"text": "one", "url": "https://a.example", "document_title": "A"}


@pytest.fixture
def cloudwatch(aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudWatch]:
    with cloudwatch_server() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", running.server.url)
        yield running


def deploy(outputs: dict[str, str] = OUTPUTS, parameters: dict[str, str] = PARAMETERS) -> None:
    document = {
        "Parameters": {name: {"Type": "String"} for name in parameters},
        "Resources": {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "/x"}}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    boto3.client("cloudformation").create_stack(
        StackName="stack",
        TemplateBody=json.dumps(document),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
    )


def of(group: dict[str, Any], stage: str) -> tuple[float, ...]:
    (row,) = (row for row in group["stages"] if row["stage"] == stage)
    return tuple(row[name] for name in ("count", "p50", "p95", "p99", "max"))


def hundred_searches(cloudwatch: CloudWatch, ago_seconds: float = 600) -> None:
    """Searches of 10, 20, … 1000 ms in their function, each twice as long for its caller: a quarter over 1500 ms."""
    at = time.time() - ago_seconds
    for number in range(1, 101):
        cloudwatch.put("RequestLatency", SEARCH, at, 10.0 * number)
        cloudwatch.put("GatewayLatency", SEARCH, at, 20.0 * number)
        cloudwatch.put("TargetMissed", SEARCH, at, float(20 * number > 1_500))
        cloudwatch.put("ColdStart", SEARCH, at, float(number <= 3))
        cloudwatch.put("Errors", SEARCH, at, float(number <= 5))
    cloudwatch.put("Errors.QDRANT_TIMEOUT", SEARCH, at, 1.0, 1.0)
    cloudwatch.put("Errors.RATE_LIMITED", SEARCH, at, 1.0)


# figures


@pytest.mark.parametrize(
    "answering", [{}, {"pages": 3}, {"by_the_clock": True}], ids=["at once", "in pages", "by the clock"]
)
def test_the_figures_are_those_of_cloudwatch(
    chunkproof: Command, cloudwatch: CloudWatch, answering: dict[str, Any]
) -> None:
    deploy()
    hundred_searches(cloudwatch)
    for name, value in answering.items():
        setattr(cloudwatch, name, value)
    run = chunkproof("latency", "--stack", "stack", "--json")
    assert (run.code, run.err) == (0, "")
    report = run.json
    assert (report["target_ms"], report["requests"], report["missed"]) == (1_500, 100, 25)
    assert (report["within_target_percent"], report["left_out"]) == (75.0, 0)
    search, validate = report["groups"]
    assert (search["name"], validate["name"], validate["requests"]) == ("search", "validate-chunk", 0)
    assert of(search, "total") == (100, 500.0, 950.0, 990.0, 1_000.0)
    assert of(search, "gateway") == (100, 1_000.0, 1_900.0, 1_980.0, 2_000.0)
    assert search["cold_starts"] == 3
    assert search["errors"] == {"QDRANT_TIMEOUT": 2, "(no code)": 2, "RATE_LIMITED": 1}
    assert (search["bucket_seconds"], len(search["buckets"])) == (900, 12)
    assert [(b["requests"], b["p95"]) for b in search["buckets"] if b["requests"]] == [(100, 1_900.0)]


def test_the_terminal_shows_a_table_for_each_function(chunkproof: Command, cloudwatch: CloudWatch) -> None:
    deploy()
    hundred_searches(cloudwatch)
    run = chunkproof("latency", "--stack", "stack", "--slo", "99")
    assert run.code == 1
    assert "100 requests of stack stack, " in run.out
    assert "75.00 % within the target of 1,500 ms (75 of 100): BELOW the SLO of 99 %" in run.out
    assert "Search: 100 requests, 3 cold starts" in run.out
    assert "Validate-chunk: 0 requests" in run.out
    assert "p95 by 15 minutes, against the target of 1,500 ms" in run.out


def test_older_requests_are_reported_only_with_since(chunkproof: Command, cloudwatch: CloudWatch) -> None:
    deploy()
    hundred_searches(cloudwatch, ago_seconds=5 * 3_600)
    nothing = chunkproof("latency", "--stack", "stack")
    assert (nothing.code, nothing.out) == (3, "")
    assert "CloudWatch has no requests of stack stack since" in nothing.err
    assert "--since" in nothing.err
    assert "chunkproof doctor --stack stack" in nothing.err
    assert chunkproof("latency", "--stack", "stack", "--since", "1d", "--json").json["requests"] == 100
    request = json.loads(cloudwatch.server.requests[-1].body)
    assert request["EndTime"] - request["StartTime"] == 86_400
    assert 86_400 in {query["MetricStat"]["Period"] for query in request["MetricDataQueries"]}
    assert len(request["MetricDataQueries"]) <= 500


@pytest.mark.usefixtures("aws")
def test_moto_accepts_the_query_and_has_no_data(chunkproof: Command) -> None:
    deploy()
    run = chunkproof("latency", "--stack", "stack", "--since", "1w", "--json")
    assert (run.code, run.json["error"]["code"]) == (3, "NO_DATA")


# the same as from the log


def arriving_now(event: Event) -> Event:
    event["requestContext"]["timeEpoch"] = int(time.time() * 1000)
    return event


def handle_requests(written: CapturedOutput) -> None:
    """Run searches and validations, some failing, as the functions of the stack."""
    store = MemoryStore()
    fill(store, "docs", Point(1, PAYLOAD, vector=(1.0, 0.0)))
    with container.override(make_services(store, "docs", ENVIRONMENT="prod", LATENCY_TARGET_MS="1500")):
        for number in range(20):
            search = post("/search", {"query_vector": [1, 0] if number % 4 else [1]})
            invoke(arriving_now(search), LambdaContext(function_name=SEARCH["function"]))
            check = post("/validate-chunk", {"chunk_id": "1" if number % 5 else "9", "original_text": "one"})
            invoke(arriving_now(check), LambdaContext(function_name=VALIDATE["function"]))
        invoke(request("GET", "/nowhere"), LambdaContext(function_name=SEARCH["function"]))
    store.close()


def test_cloudwatch_and_the_log_give_the_same_figures(
    chunkproof: Command, cloudwatch: CloudWatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    deploy()
    with capture_stdout(capsys) as written:
        handle_requests(written)
        lines, text = written.lines, written.text
    for line in lines:
        if "_aws" in line:
            cloudwatch.take(line)
    groups = chunkproof("latency", "--stack", "stack", "--json").json["groups"]
    assert [group["requests"] for group in groups] == [21, 20]
    assert [group["errors"] for group in groups] == [
        {"DIMENSION_MISMATCH": 5, "NOT_FOUND": 1},
        {"CHUNK_NOT_FOUND": 4},
    ]
    for group, is_mine in zip(groups, ("nowhere|search", "validate-chunk"), strict=True):
        log = tmp_path / group["name"]
        log.write_text(
            "\n".join(line for line in text.splitlines() if any(f"/{path}" in line for path in is_mine.split("|")))
        )
        (logged,) = chunkproof("latency", "--logs", log, "--json").json["groups"]
        assert (logged["requests"], logged["errors"]) == (group["requests"], group["errors"])
        assert [row for row in logged["stages"] if row["starts"] == "all"] == group["stages"]
        assert (logged["missed"], logged["cold_starts"]) == (group["missed"], group["cold_starts"])


# failures


@pytest.mark.usefixtures("aws")
def test_a_stack_of_another_product_is_rejected(chunkproof: Command) -> None:
    unknown = chunkproof("latency", "--stack", "nothing")
    assert (unknown.code, unknown.err) == (
        2,
        "--stack nothing: there is no such stack in this AWS account and region\n",
    )
    deploy({"Other": "x"})
    other = chunkproof("latency", "--stack", "stack")
    assert (other.code, "not a Chunkproof stack" in other.err) == (2, True)


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("outputs", "parameters"),
    [({**OUTPUTS, "SearchFunctionName": None}, PARAMETERS), (OUTPUTS, {"LatencyTargetMs": "1500"})],
    ids=["no function", "no environment"],
)
def test_the_error_for_a_stack_of_another_version_names_what_it_lacks(
    chunkproof: Command, outputs: dict[str, Any], parameters: dict[str, str]
) -> None:
    deploy({name: value for name, value in outputs.items() if value}, parameters)
    run = chunkproof("latency", "--stack", "stack")
    assert run.code == 2
    assert "lacks the output SearchFunctionName or the parameter EnvironmentName: deploy this version" in run.err


def test_the_template_has_the_outputs_and_parameters_that_latency_reads() -> None:
    written = template()
    assert {*OUTPUTS} <= set(written["Outputs"])
    assert {*PARAMETERS} <= set(written["Parameters"])


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        ("AccessDenied", "User: u is not authorized", "; the credentials need cloudwatch:GetMetricData"),
        ("ExpiredToken", "The token is expired", ""),
    ],
)
def test_an_access_error_names_the_missing_permission(
    chunkproof: Command, cloudwatch: CloudWatch, code: str, message: str, hint: str
) -> None:
    deploy()
    cloudwatch.refusal = refusal(code, message)
    run = chunkproof("latency", "--stack", "stack", "--json")
    assert (run.code, run.json["error"]["code"]) == (3, "AWS_FAILED")
    assert run.err == f"AWS refused ({code}): {message}{hint}\n"


def test_a_metric_that_cloudwatch_fails_to_return_is_an_error(chunkproof: Command, cloudwatch: CloudWatch) -> None:
    deploy()
    hundred_searches(cloudwatch)
    cloudwatch.status = "InternalError"
    run = chunkproof("latency", "--stack", "stack")
    assert (run.code, run.out) == (3, "")
    assert run.err == "CloudWatch returned no data for ValidationLatency: InternalError\n"


def test_the_error_without_credentials_says_how_to_configure_them(
    chunkproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # an earlier test's may have keys
    run = chunkproof("latency", "--stack", "stack")
    assert (run.code, run.out) == (3, "")
    assert "There are no AWS credentials: run aws configure" in run.err
