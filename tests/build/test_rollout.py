"""The check of a new version before it gets traffic, with the handlers in place of Lambda's versions."""

import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from chunkproof_cli.local.gateway import LambdaContext, find_handler, load_function

from support.memory_handlers import in_memory_handlers
from support.template import stack

Handler = Callable[[dict[str, Any]], dict[str, Any]]
EVENT = {"DeploymentId": "d-1", "LifecycleEventHookExecutionId": "e-1"}
NAMES = ("NEW_SEARCH", "LIVE_SEARCH", "NEW_VALIDATION", "LIVE_VALIDATION")


def serve(event: dict[str, Any]) -> dict[str, Any]:
    """Answer as a version that works."""
    return dict(find_handler(event["rawPath"])(event, LambdaContext()))


def fail(event: dict[str, Any]) -> dict[str, Any]:
    body = {"status": "error", "error": {"code": "QDRANT_UNAVAILABLE", "message": "down"}}
    return {"statusCode": 503, "body": json.dumps(body), "isBase64Encoded": False}


def crash(event: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no module")


def mismatch(event: dict[str, Any]) -> dict[str, Any]:
    return {"statusCode": 200, "body": json.dumps({"matches": False}), "isBase64Encoded": False}


class Account:
    """Lambda and CodeDeploy, as far as the check calls them."""

    def __init__(self, versions: dict[str, Handler]) -> None:
        self.versions = versions
        self.told: dict[str, str] = {}

    def client(self, service: str) -> Any:
        return SimpleNamespace(invoke=self.invoke, put_lifecycle_event_hook_execution_status=self.tell)

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803 - as boto3 names them
        try:
            answer = self.versions.get(FunctionName, serve)(json.loads(Payload))
        except RuntimeError as error:
            crashed = json.dumps({"errorMessage": str(error)}).encode()
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(crashed)}
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    def tell(self, **told: str) -> None:
        self.told = told


@pytest.fixture
def served() -> Iterator[None]:
    with in_memory_handlers():
        yield


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ({}, None),
        ({"NEW_SEARCH": fail}, "POST /search: the new version gives 503 QDRANT_UNAVAILABLE, the live one 200"),
        ({"NEW_SEARCH": fail, "LIVE_SEARCH": fail}, None),  # an outage, which is no fault of the release
        ({"NEW_SEARCH": crash}, "POST /search: the new version gives a crash: no module, the live one 200"),
        ({"NEW_VALIDATION": mismatch}, "POST /validate-chunk: the new version gives 200 a mismatch, the live one 200"),
        (
            {"NEW_VALIDATION": crash, "LIVE_VALIDATION": fail},
            "POST /validate-chunk: the new version gives a crash: no module, the live one 503 QDRANT_UNAVAILABLE",
        ),
    ],
    ids=["works", "fails", "outage", "crashes", "mismatch", "both-otherwise"],
)  # fmt: skip
@pytest.mark.usefixtures("served")
def test_a_version_that_answers_worse_than_the_live_one_gets_no_traffic(
    versions: dict[str, Handler], problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, name)
    account = Account(versions)
    monkeypatch.setattr("boto3.client", account.client)
    assert load_function("rollout").lambda_handler(EVENT, None) == problem
    assert account.told == {
        "deploymentId": "d-1",
        "lifecycleEventHookExecutionId": "e-1",
        "status": "Failed" if problem else "Succeeded",
    }


@pytest.mark.parametrize("function", ["SearchFunction", "ValidateChunkFunction"])
def test_a_gradual_rollout_runs_the_check_on_the_new_versions_first(function: str) -> None:
    assert "RolloutFunction" not in stack().resources
    found = stack(GradualRollout="true")
    policy = found.resources[f"{function}Aliaslive"]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
    assert policy["BeforeAllowTrafficHook"] == "${RolloutFunction}"
    check = found.of_type("Lambda::Function")["RolloutFunction"]
    # The managed policy of CodeDeploy's role allows no other name.
    assert check["FunctionName"].startswith("CodeDeployHook_")
    assert set(NAMES) <= set(check["Environment"]["Variables"])
    assert (
        "VpcConfig"
        not in stack(GradualRollout="true", SubnetIds="s-1", SecurityGroupIds="g-1").of_type("Lambda::Function")[
            "RolloutFunction"
        ]
    )


def test_the_alarm_watches_the_new_version_beside_the_alias() -> None:
    metrics = stack().of_type("CloudWatch::Alarm")["ErrorAlarm"]["Metrics"]
    dimensions = {q["Id"]: {d["Name"] for d in q["MetricStat"]["Metric"].get("Dimensions", [])} for q in metrics[1:]}
    assert dimensions["search"] == dimensions["validation"] == {"FunctionName", "Resource"}
    assert dimensions["new_search"] == dimensions["new_validation"] == {"FunctionName", "Resource", "ExecutedVersion"}
