"""The costs that `make costs` computes from the transformed template."""

import json

import pytest

from support.template import Stack, whole_stack
from tools import costs


def usd(items: "costs.Iterator[costs.Item]") -> dict[str, float]:
    return {item.name: round(item.usd, 2) for item in items if item.usd}


def test_an_idle_stack_costs_less_than_ten_dollars() -> None:
    # A dashboard, 40 watched metrics, two composite alarms, a key and a secret.
    assert usd(costs.idle_items(whole_stack())) == {
        "dashboards": 3.00,
        "metrics that alarms read": 4.00,
        "composite alarms": 1.00,
        "KMS keys": 1.00,
        "secrets (made by `make secret`)": 0.40,
    }


def test_snapshots_are_charged_by_memory_for_each_function() -> None:
    found = whole_stack(SnapStart="PublishedVersions", MemorySize="2048")
    assert usd(costs.idle_items(found))["GB of SnapStart snapshots"] == pytest.approx(4 * 3.90, abs=0.01)


def test_canaries_cost_two_metrics_and_their_runs() -> None:
    found = usd(costs.idle_items(whole_stack(Suite="true", Canary="true")))
    # 120 runs of 5 s at 1769 MB on arm64 and of 4 states: 0.014 and 0.012 USD.
    assert (found["custom metrics of canaries"], found["checks of canaries"]) == (0.60, 0.03)
    assert not any("canaries" in name for name in usd(costs.idle_items(whole_stack(Suite="true"))))


@pytest.mark.parametrize(
    ("schedule", "runs"),
    [("rate(6 hours)", 120), ("rate(1 day)", 30), ("rate(15 minutes)", 2880), ("cron(0 6 * * ? *)", 30)],
)
def test_runs_are_counted_from_the_schedule(schedule: str, runs: int) -> None:
    assert costs.runs_a_month(schedule) == runs


def test_requests_add_what_they_use() -> None:
    found = usd(costs.steady_items(whole_stack(), 1_000_000))
    assert (found["million API requests"], found["million Lambda requests"]) == (1.00, 0.20)
    # A million times 0.4 s at 1 GB on arm64.
    assert found["GB-seconds of Lambda"] == 5.33
    slower = usd(costs.steady_items(whole_stack(Architecture="x86_64", MemorySize="2048"), 1_000_000))
    assert slower["GB-seconds of Lambda"] == 13.33


def test_metrics_are_charged_by_the_hour_in_which_they_have_data() -> None:
    name = "custom metrics that requests emit, by the hour"
    often, seldom = (usd(costs.steady_items(whole_stack(), requests))[name] for requests in (1_000_000, 72))
    # 72 requests at random meet 9.5 % of 720 hours.
    assert seldom == pytest.approx(often * 0.0952, abs=0.01)


def test_what_options_cost_is_counted() -> None:
    secret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys-AbCdEf"
    found = whole_stack(SnapStart="PublishedVersions", SecretArn=secret, SubnetIds="s-1", SecurityGroupIds="g-1")
    assert usd(costs.idle_items(found))[costs.NAT] == 32.40
    steady = usd(costs.steady_items(found, 10_000_000))
    # A cold start in a hundred requests: 100,000 restores of 1 GB, and as many reads of the secret.
    assert (steady["GB of snapshots restored"], steady["million reads of the secret"]) == (14.00, 0.50)
    assert steady["GB through the NAT gateway"] == pytest.approx(16.76, abs=0.01)
    kept = usd(costs.idle_items(whole_stack(ProvisionedConcurrency="2")))
    # Two of each function at 1 GB for 720 hours.
    assert kept["GB of functions kept started"] == pytest.approx(34.56, abs=0.01)
    assert "| a second stack, idle, with the same secret and NAT gateway | | 9.00 |" in costs.report()


def test_metrics_of_routes_are_off_and_would_be_counted() -> None:
    stage = whole_stack().only("ApiGatewayV2::Stage")
    assert stage["DefaultRouteSettings"]["DetailedMetricsEnabled"] is False
    assert "metrics of routes" not in usd(costs.steady_items(whole_stack(), 1))
    resources = json.loads(json.dumps(whole_stack().resources))
    for resource in resources.values():
        if resource["Type"] == "AWS::ApiGatewayV2::Stage":
            resource["Properties"]["DefaultRouteSettings"]["DetailedMetricsEnabled"] = True
    assert usd(costs.steady_items(Stack(resources, {}), 1))["metrics of routes"] == pytest.approx(12.60)


def test_metrics_are_emitted_without_a_dashboard_too() -> None:
    without = whole_stack(Observability="false")
    assert costs.emitted_by_requests(without) == costs.emitted_by_requests(whole_stack())
    assert {metric.name for metric in costs.emitted_by_requests(without)} >= {"RequestLatency", "TargetMissed"}


def test_the_command_names_a_wrong_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["costs", "--parameters", "MemorySize=1"])
    with pytest.raises(SystemExit, match="--parameters: MemorySize is out of range"):
        costs.main()


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["costs", "--json"])
    costs.main()
    printed = json.loads(capsys.readouterr().out)
    assert round(sum(item["usd"] for item in printed["idle"]), 2) == 9.40
