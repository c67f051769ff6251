"""What a stack costs in a month, item by item: `make costs` computes it from the transformed template.

Idle is what AWS charges for a stack that no one calls; steady adds what `--requests` a month cause. A metric is charged
for each hour in which it has data: with few requests, most hours have none. Prices are AWS's list prices in
cli/chunkproof_cli/prices.toml; Qdrant and Cohere are not included.

Examples:
  make costs
  make costs PARAMS="SnapStart=PublishedVersions Suite=true" REQUESTS=5000000
"""

import argparse
import json
import logging
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

from chunkproof_cli.suites.configurations import PRICES

from support.observability import alarm_metrics, graphed_metrics
from support.template import RefusedError, Stack, stack, whole_stack

REQUESTS = 100_000
# Assumptions about one request: what Lambda charges for, a cold start for one request in a hundred included, and the
# log lines of function and gateway.
BILLED_MS = 400
COLD_SHARE = 0.01
LOG_BYTES = 4_000
# What a request sends and receives through a NAT gateway: an embedding and ten chunks.
NAT_BYTES = 40_000
HOURS = 720
SECRET, NAT = "secrets (made by `make secret`)", "NAT gateways (yours, for SubnetIds)"
# Metrics that only errors, mismatches, suites and the modes text and hybrid emit.
OCCASIONAL = ("Errors.", "ChunkMismatch", "Text", "Hybrid", "DenseResults", "DenseLeg")
GB = 1024**3
# Of one check of canaries: what Lambda charges for, a cold start included, and the states that are entered.
CANARY_SECONDS, CANARY_TRANSITIONS = 5, 4
DAY_OF = {"minute": 24 * 60, "hour": 24, "day": 1}


@dataclass(frozen=True)
class Item:
    """One row: what is charged, how much of it, and the dollars a month."""

    name: str
    amount: str
    usd: float


def idle_items(found: Stack) -> Iterator[Item]:
    """What is charged without any request."""
    month = PRICES["month"]
    yield _counted("dashboards", len(found.of_type("CloudWatch::Dashboard")), month["dashboard"])
    watched = sum(len(alarm_metrics(alarm)) for alarm in found.of_type("CloudWatch::Alarm").values())
    yield _counted("metrics that alarms read", watched, month["alarm_metric"])
    yield _counted("composite alarms", len(found.of_type("CloudWatch::CompositeAlarm")), month["composite_alarm"])
    yield _counted("KMS keys", len(found.of_type("KMS::Key")), month["kms_key"])
    yield _counted(SECRET, 1, month["secret"])
    functions = found.of_type("Lambda::Function")
    in_vpc = any("VpcConfig" in function for function in functions.values())
    yield _counted(NAT, int(in_vpc), PRICES["store"]["prices"]["nat_hour"] * HOURS)
    kept = [alias.get("ProvisionedConcurrencyConfig", {}) for alias in found.of_type("Lambda::Alias").values()]
    waiting = sum(int(one.get("ProvisionedConcurrentExecutions", 0)) for one in kept)
    gigabytes = waiting * int(functions["SearchFunction"]["MemorySize"]) / 1024
    (architecture,) = functions["SearchFunction"]["Architectures"]
    kept_usd = PRICES["gigabyte_second"][f"provisioned_{architecture}"] * HOURS * 3600
    yield _counted("GB of functions kept started", gigabytes, kept_usd)
    yield from canary_items(found)
    yield _counted("GB of SnapStart snapshots", _snapshot_gigabytes(found), month["snapshot_gb"])


def _snapshot_gigabytes(found: Stack) -> float:
    snapshots = [f for f in found.of_type("Lambda::Function").values() if "SnapStart" in f]
    return sum(int(function["MemorySize"]) for function in snapshots) / 1024


def canary_items(found: Stack) -> Iterator[Item]:
    """What checks of canaries cost: two metrics, and the runs of the state machine and its function."""
    schedule = found.of_type("Scheduler::Schedule").get("CanaryTimer")
    if schedule is None:
        return
    function = found.of_type("Lambda::Function")["SuiteFunction"]
    (architecture,) = function["Architectures"]
    seconds = CANARY_SECONDS * int(function["MemorySize"]) / 1024
    run = seconds * PRICES["gigabyte_second"][f"lambda_{architecture}"]
    run += (CANARY_TRANSITIONS * PRICES["million"]["state_transition"] + PRICES["million"]["lambda_request"]) / 1e6
    yield _counted("custom metrics of canaries", 2, PRICES["month"]["custom_metric"])
    yield _counted("checks of canaries", runs_a_month(schedule["ScheduleExpression"]), run)


def runs_a_month(schedule: str) -> int:
    """How often a schedule starts something in 30 days; a cron expression is taken as once a day."""
    rate = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", schedule)
    return 30 * DAY_OF[rate[2]] // int(rate[1]) if rate else 30


def steady_items(found: Stack, requests: int) -> Iterator[Item]:
    """What `requests` requests in a month add."""
    month, million = PRICES["month"], PRICES["million"]
    # Requests that come at random: the share of hours that have at least one.
    busy = 1 - exp(-requests / HOURS)
    emitted = len(emitted_by_requests(found)) * busy
    yield _counted("custom metrics that requests emit, by the hour", emitted, month["custom_metric"])
    routes = sum(len(api["Body"]["paths"]) for api in found.of_type("ApiGatewayV2::Api").values())
    detailed = any(_has_route_metrics(stage) for stage in found.of_type("ApiGatewayV2::Stage").values())
    yield _counted("metrics of routes", routes * 6 if detailed else 0, month["route_metric"])
    yield _counted("million API requests", requests / 1e6, million["api_request"])
    yield _counted("million Lambda requests", requests / 1e6, million["lambda_request"])
    function = found.of_type("Lambda::Function")["SearchFunction"]
    (architecture,) = function["Architectures"]
    seconds = requests * BILLED_MS / 1000 * int(function["MemorySize"]) / 1024
    yield _counted("GB-seconds of Lambda", seconds, PRICES["gigabyte_second"][f"lambda_{architecture}"])
    cold = requests * COLD_SHARE
    restored = cold * int(function["MemorySize"]) / 1024 if _snapshot_gigabytes(found) else 0
    yield _counted("GB of snapshots restored", restored, PRICES["gigabyte"]["snapshot_restored"])
    reads = cold if function["Environment"]["Variables"].get("CHUNKPROOF_SECRET_ARN") else 0
    yield _counted("million reads of the secret", reads / 1e6, million["secret_call"])
    passed = requests * NAT_BYTES / GB if "VpcConfig" in function else 0
    yield _counted("GB through the NAT gateway", passed, PRICES["store"]["prices"]["nat_gb"])
    logged = requests * LOG_BYTES / GB
    yield _counted("GB of logs written", logged, PRICES["gigabyte"]["log_ingested"])
    days = int(found.of_type("Logs::LogGroup")["SearchLogs"]["RetentionInDays"])
    yield _counted("GB of logs stored", logged * days / 30, month["log_gb_stored"])
    traced = function.get("TracingConfig", {}).get("Mode") == "Active"
    yield _counted("million traces", requests / 1e6 if traced else 0, million["trace"])


def emitted_by_requests(found: Stack) -> set[Any]:
    """The product's metrics that ordinary requests emit: each is a custom metric while there is traffic.

    Without the dashboard, which lists them, they are emitted just the same.
    """
    shown = found if found.of_type("CloudWatch::Dashboard") else whole_stack()
    own = {metric for metric in graphed_metrics(shown) if metric.namespace == "Chunkproof"}
    return {
        metric
        for metric in own
        if not metric.name.startswith(OCCASIONAL) and not dict(metric.dimensions)["function"].endswith("-suite")
    }


def report(requests: int = REQUESTS, **parameters: str) -> str:
    """The table, in Markdown."""
    found = whole_stack(**parameters)
    idle, steady = _charged(idle_items(found)), _charged(steady_items(found, requests))
    total = sum(item.usd for item in idle)
    second = sum(item.usd for item in idle if item.name not in (SECRET, NAT))
    rows = [
        f"| item | amount | USD a month ({PRICES['date']}) |",
        "|---|---:|---:|",
        *(_row(item) for item in idle),
        f"| **idle** | | **{total:.2f}** |",
        *(_row(item) for item in steady),
        f"| **steady, {requests:,} requests** | | **{total + sum(item.usd for item in steady):.2f}** |",
        f"| a second stack, idle, with the same secret and NAT gateway | | {second:.2f} |",
    ]
    return "\n".join(rows) + "\n"


def _charged(items: Iterator[Item]) -> list[Item]:
    return [item for item in items if item.usd]


def _counted(name: str, count: float, price: float) -> Item:
    amount = f"{count:,}" if isinstance(count, int) else f"{count:,.0f}" if count >= 100 else f"{count:.2f}"
    return Item(name, amount, count * price)


def _row(item: Item) -> str:
    return f"| {item.name} | {item.amount} | {item.usd:.2f} |"


def _has_route_metrics(stage: dict[str, Any]) -> bool:
    return bool(stage.get("DefaultRouteSettings", {}).get("DetailedMetricsEnabled"))


def main() -> None:
    logging.disable(logging.WARNING)  # of SAM's translator
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=int, default=REQUESTS, help="a month")
    arguments.add_argument("--parameters", default="", help="of the template, such as Suite=true")
    arguments.add_argument("--json", action="store_true", help="print the items as JSON")
    given = arguments.parse_args()
    parameters = dict(one.split("=", 1) for one in shlex.split(given.parameters))
    try:
        stack(**parameters)
    except RefusedError as refused:
        raise SystemExit(f"--parameters: {refused}") from None
    if given.json:
        found = whole_stack(**parameters)
        items = {"idle": idle_items(found), "steady": steady_items(found, given.requests)}
        print(json.dumps({kind: [asdict(item) for item in _charged(rows)] for kind, rows in items.items()}, indent=2))
    else:
        print(report(given.requests, **parameters), end="")


if __name__ == "__main__":
    main()
