"""`make smoke`: the steps that a simulated account cannot take, and the verdicts."""

from types import SimpleNamespace
from typing import Any

import pytest

from chunkproof_cli.aws.stack import Stack

from tools import smoke
from tools.smoke import STEPS, FailedError, SkippedError, Smoke, run_step

OUTPUTS = {"ApiUrl": "https://a", "SearchLogGroup": "g", "SearchFunctionName": "f"}


def stack(**parameters: str) -> Smoke:
    return Smoke(Stack("s", "UPDATE_COMPLETE", OUTPUTS, parameters), poll_s=0)


class Deploying:
    """CodeDeploy and Lambda during a rollout that stops when an error is planted."""

    def __init__(self, *, stops: bool = True) -> None:
        self.stops = stops
        self.asked = 0
        self.planted: list[dict[str, Any]] = []

    def client(self, service: str) -> Any:
        return {
            "cloudformation": SimpleNamespace(
                describe_stack_resource=lambda **given: {
                    "StackResourceDetail": {"PhysicalResourceId": f"s-{given['LogicalResourceId']}"}
                }
            ),
            "logs": SimpleNamespace(
                create_log_stream=lambda **_: None,
                put_log_events=lambda **given: self.planted.extend(given["logEvents"]),
            ),
            "lambda": SimpleNamespace(get_alias=lambda **_: {"FunctionVersion": self.version()}),
            "codedeploy": SimpleNamespace(list_deployments=self.running, get_deployment=self.status),
        }[service]

    def version(self) -> str:
        return "7" if self.stops or not self.planted else "8"

    def running(self, **given: Any) -> dict[str, list[str]]:
        assert given["deploymentGroupName"] == "s-SearchFunctionDeploymentGroup"
        self.asked += 1
        return {"deployments": ["d-1"] if self.asked > 2 else []}

    def status(self, **_: Any) -> dict[str, Any]:
        return {"deploymentInfo": {"status": "Stopped" if self.stops else "Succeeded"}}


def test_a_rollback_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    deploying = Deploying()
    monkeypatch.setattr(smoke, "aws_client", deploying.client)
    verdict, _, found = run_step("rollback", stack(GradualRollout="true"))
    assert (verdict, len(deploying.planted)) == ("ok", 1)
    assert found == "Stopped 0 s after the error; live serves version 7 again"


def test_a_release_that_is_not_taken_back_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "aws_client", Deploying(stops=False).client)
    monkeypatch.setattr(smoke, "ALARM_S", 0)
    verdict, _, found = run_step("rollback", stack(GradualRollout="true"))
    assert verdict == "FAILED"
    assert "the deployment ended as Succeeded, and the alias is not back on version 7" in found


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        ("rollback", "deploy with GradualRollout=true"),
        ("audit", "deploy with Audit=true"),
        ("suite", "deploy with Suite=true"),
        ("canary", "deploy with Suite=true and Canary=true"),
    ],
)
def test_a_step_without_its_part_of_the_stack_is_skipped_with_the_parameter(step: str, advice: str) -> None:
    assert run_step(step, stack())[::2] == ("skipped", advice)


@pytest.mark.parametrize(
    ("raised", "row"),
    [
        (FailedError("no | sign\nof it"), ("FAILED", "no / sign of it")),
        (SkippedError("later"), ("skipped", "later")),
        (KeyError("x"), ("FAILED", "KeyError: 'x'")),
    ],
    ids=["failed", "skipped", "unexpected"],
)
def test_no_step_stops_the_others(monkeypatch: pytest.MonkeyPatch, raised: Exception, row: tuple[str, str]) -> None:
    def step(_: Smoke) -> str:
        raise raised

    monkeypatch.setitem(STEPS, "api", step)
    assert run_step("api", stack())[::2] == row


def test_a_start_from_a_snapshot_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "REPORT RequestId: 1 Duration: 5.00 ms Init Duration: 812.50 ms",
        "REPORT RequestId: 2 Duration: 5.00 ms Restore Duration: 301.00 ms Billed Restore Duration: 99 ms",
        "REPORT RequestId: 3 Duration: 5.00 ms",
    ]
    logs = SimpleNamespace(filter_log_events=lambda **_: {"events": [{"message": line} for line in lines]})
    monkeypatch.setattr(smoke, "aws_client", lambda _: logs)
    assert list(smoke._starts("g", 0)) == [("Init", 812.5), ("Restore", 301.0)]
