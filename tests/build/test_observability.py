"""The nested observability application: its alarms, whom they notify, and its dashboard."""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from chunkproof.contract.validation import MismatchKind
from chunkproof.service.telemetry import SLOW_EMBEDDING_MS, SLOW_SEARCH_MS, STAGE_METRICS

from support import dashboard_schema
from support.observability import (
    APPLICATION,
    AUDIT_FUNCTION,
    SUITE_FUNCTION,
    Metric,
    alarm_metrics,
    dashboard_body,
    error_codes,
    find_widget,
    graphed_metrics,
    is_found,
    metrics_by_rule,
    observability_stack,
    queries,
    rows,
    watched_metrics,
    widgets,
)
from support.template import (
    ROOT,
    RefusedError,
    Stack,
    part_of_stack,
    references,
    stack,
    template,
    values_under,
)

WORKS_IN_SHARDS = {"Audit": "true", "Suite": "true", "Canary": "true"}
NESTED = ROOT / "functions" / "observability" / "template.yaml"
TOPIC = "arn:aws:sns:eu-central-1:123456789012:on-call"
SEARCH, VALIDATION = "${SearchFunction}", "${ValidateChunkFunction}"
# https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
MACHINE = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:stateMachine:${AWS::StackName}-"
OF_AWS = {
    ("AWS/ApiGateway", (("ApiId", "${Api}"),)): {"Count", "4xx", "5xx", "Latency"},
    **{
        ("AWS/States", (("StateMachineArn", f"{MACHINE}{name}"),)): {
            "ExecutionsFailed",
            "ExecutionsTimedOut",
            "ExecutionsAborted",
        }
        for name in ("audit", "suite")
    },
    ("AWS/SQS", (("QueueName", "${AWS::StackName}-suite-not-started"),)): {"ApproximateNumberOfMessagesVisible"},
    ("AWS/Lambda", (("FunctionName", SEARCH),)): {"Errors", "Throttles", "ConcurrentExecutions"},
    ("AWS/Lambda", (("FunctionName", VALIDATION),)): {"Errors", "Throttles", "ConcurrentExecutions"},
}
# Halves of a composite alarm: logical id, seconds, burn rate.
WINDOWS = [
    ("FastBurnHour", 3600, 14.4),
    ("FastBurnMinutes", 300, 14.4),
    ("SlowBurnHours", 6 * 3600, 6),
    ("SlowBurnMinutes", 1800, 6),
]
MISSING_DATA = {
    **dict.fromkeys(
        ["LatencyAlarm", "FaultAlarm", "CircuitAlarm", "ChangedChunksAlarm", "ThrottleAlarm"], "notBreaching"
    ),
    **{name: "notBreaching" for name, _, _ in WINDOWS},
}
LOGS = [
    stack().of_type("Logs::LogGroup")[name]["LogGroupName"]
    for name in ("SearchLogs", "ValidateChunkLogs", "AccessLogs")
]
PERCENTILES = {"p50", "p95", "p99"}
WHOLE = {"search: whole request (ms)": SEARCH, "validate-chunk: whole request (ms)": VALIDATION}
STAGES = {
    "EmbeddingLatency": "Stage: embed (ms)",
    "QdrantLatency": "Stage: search in Qdrant (ms)",
    "RerankLatency": "Stage: rerank (ms)",
    "ValidationLatency": "Stage: validate the request (ms)",
    "FormatLatency": "Stage: format the answer (ms)",
}


def alarm(name: str, **parameters: str) -> dict[str, Any]:
    return dict(observability_stack(**parameters).of_type("CloudWatch::Alarm")[name])


def returned(found: dict[str, Any]) -> dict[str, Any]:
    """The one of an alarm's queries that it compares."""
    (query,) = (query for query in found["Metrics"] if query.get("ReturnData", True))
    return dict(query)


def computed(expression: str, **values: float | None) -> float:
    """An expression's value as CloudWatch computes it; None is a metric without data."""
    values = {"ls": None, "lv": None, **values}
    if "MAX(" not in expression:  # a sum leaves out what is missing
        values = {name: value or 0.0 for name, value in values.items()}
    functions: dict[str, Callable[..., Any]] = {
        "MAX": lambda given: max(value for value in given if value is not None),
        "IF": lambda condition, then, otherwise: then if condition else otherwise,
    }
    return float(eval(expression, {"__builtins__": {}}, {**functions, **values}))


def expression(title: str, name: str, **parameters: str) -> str:
    """An expression of the widget with this title."""
    (found,) = (
        options["expression"]
        for _, options in rows(find_widget(observability_stack(**parameters), title))
        if options.get("id") == name and "expression" in options
    )
    return str(found)


def notifying_alarms(found: Stack) -> dict[str, dict[str, Any]]:
    """The alarms that send notifications."""
    every = {**found.of_type("CloudWatch::Alarm"), **found.of_type("CloudWatch::CompositeAlarm")}
    return {name: properties for name, properties in every.items() if "AlarmActions" in properties}


# In the stack, or not


def test_observability_is_deployed_unless_turned_off() -> None:
    assert APPLICATION in stack().resources
    without = stack(Observability="false")
    assert not without.of_type("CloudFormation::Stack")
    assert set(stack().outputs) - set(without.outputs) == {"DashboardName", "AlarmTopicArn"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"Observability": "false"},
        {"SloPercent": "99.9", "MinPassRate": "80", "Observability": "on-call@example.com"},
    ],
    ids=["without", "otherwise"],
)
def test_no_other_resource_depends_on_its_parameters(parameters: dict[str, str]) -> None:
    before, after = dict(stack().resources), dict(stack(**parameters).resources)
    assert before.pop(APPLICATION) != after.pop(APPLICATION, None)
    assert before == after


def test_the_resources_passed_to_it_exist_in_the_stack() -> None:
    given = stack().resources[APPLICATION]["Properties"]
    own = {name for name in references(given) if not name.startswith("AWS::")}
    assert own == {
        "SearchFunction",
        "ValidateChunkFunction",
        "Api",
    }
    assert stack().resources[APPLICATION]["DependsOn"] == ["SearchLogs", "ValidateChunkLogs", "AccessLogs"]
    assert given["TemplateURL"] == NESTED.relative_to(ROOT).as_posix()


def test_each_of_its_parameters_is_given_described_and_used() -> None:
    written = template(NESTED)
    used = json.dumps([written["Conditions"], written["Resources"]])
    assert set(stack().resources[APPLICATION]["Properties"]["Parameters"]) == set(written["Parameters"])
    for name, rules in written["Parameters"].items():
        assert rules["Description"].strip()
        assert "Default" not in rules, "the stack's parameter has it"
        assert f'"Ref": "{name}"' in used or f"${{{name}}}" in used, name


def test_every_environment_may_deploy_a_template_with_another_one_inside() -> None:
    deploys = list(values_under(tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8")), "deploy"))
    assert len(deploys) == 3
    for found in deploys:
        assert found["parameters"]["capabilities"] == ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Observability", "yes"),
        ("SloPercent", "100"),
        ("SloPercent", "90"),
        ("MinPassRate", "101"),
        ("Observability", "on call@example.com"),
        ("Observability", "arn:aws:sqs:eu-central-1:123456789012:on-call"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_created(name: str, value: str) -> None:
    with pytest.raises(RefusedError, match=name):
        stack(**{name: value})


# Notifications


def test_every_alarm_notifies_the_topic_when_it_starts_and_ends() -> None:
    alarms = notifying_alarms(observability_stack(**WORKS_IN_SHARDS))
    assert set(alarms) == {
        "LatencyAlarm",
        "FastBurnAlarm",
        "SlowBurnAlarm",
        "FaultAlarm",
        "CircuitAlarm",
        "ChangedChunksAlarm",
        "ThrottleAlarm",
        "PassRateAlarm",
        "AuditFailedAlarm",
        "AuditFindingsAlarm",
        "SuiteFailedAlarm",
        "CanaryAlarm",
        "SuiteNotStartedAlarm",
    }
    for found in alarms.values():
        assert found["AlarmActions"] == found["OKActions"] == ["${AlarmTopic}"]


def test_a_part_of_a_composite_alarm_sends_no_notification() -> None:
    silent = set(observability_stack().of_type("CloudWatch::Alarm")) - set(notifying_alarms(observability_stack()))
    assert silent == {name for name, _, _ in WINDOWS}


def test_an_address_is_subscribed_only_when_given() -> None:
    assert not observability_stack().of_type("SNS::Subscription")
    assert observability_stack(Observability="on-call@example.com").only("SNS::Subscription") == {
        "TopicArn": "${AlarmTopic}",
        "Protocol": "email",
        "Endpoint": "on-call@example.com",
    }


def test_an_existing_topic_is_used_instead_of_a_new_one() -> None:
    found = observability_stack(Observability=TOPIC)
    assert {topic for alarm in notifying_alarms(found).values() for topic in alarm["AlarmActions"]} == {TOPIC}
    assert found.outputs["AlarmTopicArn"]["Value"] == TOPIC
    assert not [made for made in found.resources.values() if made["Type"].startswith(("AWS::SNS", "AWS::KMS"))]


def test_the_topic_is_encrypted_with_a_key_that_alarms_may_use() -> None:
    found = observability_stack()
    assert found.only("SNS::Topic")["KmsMasterKeyId"] == "${AlarmKey}"
    key = found.only("KMS::Key")
    assert key["EnableKeyRotation"] is True
    owner, alarms = key["KeyPolicy"]["Statement"]
    assert owner["Principal"] == {"AWS": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert alarms["Action"] == ["kms:Decrypt", "kms:GenerateDataKey*"]


def test_only_alarms_of_this_account_and_region_may_use_key_and_topic() -> None:
    found = observability_stack()
    (publish,) = found.only("SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    assert (publish["Action"], publish["Resource"]) == ("sns:Publish", "${AlarmTopic}")
    for statement in (publish, found.only("KMS::Key")["KeyPolicy"]["Statement"][1]):
        assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        assert statement["Condition"] == {
            "StringEquals": {"aws:SourceAccount": "${AWS::AccountId}"},
            "ArnLike": {"aws:SourceArn": "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:*"},
        }


# What alarms watch


def test_cloudwatch_accepts_every_alarm() -> None:
    for name, found in observability_stack(**WORKS_IN_SHARDS).of_type("CloudWatch::Alarm").items():
        if "Metrics" not in found:
            continue
        stats = [query["MetricStat"] for query in found["Metrics"] if "MetricStat" in query]
        (period,) = {stat["Period"] for stat in stats}
        assert period * found["EvaluationPeriods"] <= 86_400, name
        assert len(found["Metrics"]) <= 10, name
        assert "Expression" in returned(found), name
        parts = {query["Id"]: query.get("Expression") for query in found["Metrics"]}
        assert list(dashboard_schema.math_problems(parts)) == [], name


def test_alarm_names_are_unique_and_begin_with_the_stack_name() -> None:
    found = observability_stack()
    every = [
        *found.of_type("CloudWatch::Alarm").values(),
        *found.of_type("CloudWatch::CompositeAlarm").values(),
    ]
    names = [properties["AlarmName"] for properties in every]
    assert len(set(names)) == len(names)
    assert all(name.startswith("${AWS::StackName}-") for name in names)


def test_missing_data_is_handled_on_purpose_and_the_template_says_why() -> None:
    alarms = observability_stack().of_type("CloudWatch::Alarm")
    assert {name: found["TreatMissingData"] for name, found in alarms.items()} == MISSING_DATA
    every = observability_stack(**WORKS_IN_SHARDS).of_type("CloudWatch::Alarm")
    text = NESTED.read_text("utf-8")
    reasons = re.findall(r"TreatMissingData: \w+ # \w.{20,}|# \w.{20,}\n +TreatMissingData: \w+", text)
    assert len(reasons) == len(every)
    assert {name: every[name]["TreatMissingData"] for name in set(every) - set(alarms)} == {
        "AuditFailedAlarm": "notBreaching",
        "AuditFindingsAlarm": "ignore",
        "PassRateAlarm": "ignore",
        "SuiteFailedAlarm": "notBreaching",
        "CanaryAlarm": "ignore",  # the last verdict stands
        "SuiteNotStartedAlarm": "ignore",  # a message stays, its metric does not
    }


def test_p95_over_the_target_in_three_of_five_minutes() -> None:
    found = alarm("LatencyAlarm", LatencyTargetMs="500")
    assert (found["DatapointsToAlarm"], found["EvaluationPeriods"]) == (3, 5)
    assert (found["ComparisonOperator"], found["Threshold"]) == ("GreaterThanThreshold", "500")
    stats = [query["MetricStat"] for query in found["Metrics"] if "MetricStat" in query]
    assert [(stat["Stat"], stat["Period"]) for stat in stats] == [("p95", 60), ("p95", 60)]
    assert {metric["MetricName"] for metric in alarm_metrics(found)} == {"GatewayLatency"}
    slower = returned(found)["Expression"]
    assert computed(slower, search=400.0, validation=900.0) == 900.0
    assert computed(slower, search=400.0, validation=None) == 400.0


@pytest.mark.parametrize(("name", "seconds", "rate"), WINDOWS)
def test_a_burn_is_measured_over_its_window(name: str, seconds: int, rate: float) -> None:
    found = alarm(name)
    assert (found["EvaluationPeriods"], found["Threshold"]) == (1, rate)
    assert found["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    stats = {query["Id"]: query["MetricStat"] for query in found["Metrics"] if "MetricStat" in query}
    assert {stat["Period"] for stat in stats.values()} == {seconds}
    assert {key: stat["Stat"] for key, stat in stats.items()} == {
        "ms": "Sum",
        "mv": "Sum",
        "ns": "SampleCount",
        "nv": "SampleCount",
        "ls": "Sum",
        "lv": "Sum",
    }
    assert {metric["MetricName"] for metric in alarm_metrics(found)} == {"TargetMissed", "Errors"}


@pytest.mark.parametrize("name", [name for name, _, _ in WINDOWS])
def test_a_burn_rate_is_the_share_missed_over_the_share_that_may_be(name: str) -> None:
    burn = returned(alarm(name))["Expression"]
    # 4 of 200 are 2 %, twice the 1 % that 99 % leave.
    assert computed(burn, ms=3, mv=1, ns=150, nv=50) == pytest.approx(2.0)
    # Of 100, two were late, and Lambda stopped two, which emitted nothing.
    assert computed(burn, ms=2, mv=0, ns=98, nv=0, ls=1, lv=1) == pytest.approx(4.0)
    # validate-chunk was not called: 30 of 100.
    assert computed(burn, ms=30, mv=None, ns=100, nv=None) == pytest.approx(30.0)
    strict = returned(alarm(name, SloPercent="99.9"))["Expression"]
    assert computed(strict, ms=3, mv=1, ns=150, nv=50) == pytest.approx(20.0)


def test_a_few_requests_do_not_make_a_long_window() -> None:
    for name in ("FastBurnHour", "SlowBurnHours"):
        burn = returned(alarm(name))["Expression"]
        assert computed(burn, ms=19, mv=0, ns=10, nv=9) == 0.0
        assert computed(burn, ms=20, mv=0, ns=11, nv=9) == pytest.approx(100.0)


def test_the_least_objective_can_still_burn_fast() -> None:
    least = template()["Parameters"]["SloPercent"]["MinValue"]
    burn = returned(alarm("FastBurnHour", SloPercent=str(least)))["Expression"]
    assert computed(burn, ms=100, mv=0, ns=100, nv=0) >= 14.4


def test_a_burn_needs_both_of_its_windows() -> None:
    rules = {
        name: found["AlarmRule"] for name, found in observability_stack().of_type("CloudWatch::CompositeAlarm").items()
    }
    assert rules == {
        "FastBurnAlarm": 'ALARM("${FastBurnHour}") AND ALARM("${FastBurnMinutes}")',
        "SlowBurnAlarm": 'ALARM("${SlowBurnHours}") AND ALARM("${SlowBurnMinutes}")',
    }


def test_five_percent_of_failures_raise_an_alarm_and_a_single_one_does_not() -> None:
    found = alarm("FaultAlarm")
    share = returned(found)["Expression"]
    assert (found["ComparisonOperator"], found["Threshold"]) == ("GreaterThanThreshold", 5)
    assert computed(share, faults=1, requests=2) == 0.0
    assert computed(share, faults=2, requests=40) == pytest.approx(5.0)
    assert computed(share, faults=3, requests=40) == pytest.approx(7.5)
    assert {(m["Namespace"], m["MetricName"]) for m in alarm_metrics(found)} == {
        ("AWS/ApiGateway", "5xx"),
        ("AWS/ApiGateway", "Count"),
    }


def test_a_circuit_of_either_service_in_either_function_raises_the_alarm() -> None:
    found = alarm("CircuitAlarm")
    assert (found["DatapointsToAlarm"], found["EvaluationPeriods"], found["Threshold"]) == (2, 5, 0)
    assert computed(returned(found)["Expression"], qs=0, qv=None, cs=1, cv=0) == 1.0
    assert len(alarm_metrics(found)) == 4


def test_one_throttled_request_raises_the_alarm() -> None:
    found = alarm("ThrottleAlarm")
    assert (found["ComparisonOperator"], found["Threshold"]) == ("GreaterThanThreshold", 0)
    assert computed(returned(found)["Expression"], search=None, validation=1) == 1.0


def test_a_pass_rate_below_the_minimum_raises_the_alarm() -> None:
    found = alarm("PassRateAlarm", Suite="true", MinPassRate="80")
    assert (found["MetricName"], found["Statistic"]) == ("PassRate", "Minimum")
    assert (found["ComparisonOperator"], found["Threshold"]) == ("LessThanThreshold", "80")
    assert {"Name": "function", "Value": SUITE_FUNCTION} in found["Dimensions"]


def test_metrics_of_aws_are_named_as_aws_names_them() -> None:
    found = observability_stack(**WORKS_IN_SHARDS)
    for metric in graphed_metrics(found) | watched_metrics(found):
        if metric.namespace.startswith("AWS/"):
            assert metric.name in OF_AWS[metric.namespace, metric.dimensions]


# The dashboard


@pytest.mark.parametrize("parameters", [{}, {"SloPercent": "99.9", "Observability": TOPIC}], ids=["default", "other"])
def test_cloudwatch_accepts_the_dashboard(parameters: dict[str, str]) -> None:
    assert dashboard_schema.problems(dashboard_body(observability_stack(**parameters))) == []


Spoil = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda found: found.update(widget=[]), "'widget' was unexpected"),
        (lambda found: found["widgets"][0].update(type="txt"), "no widget is of type txt"),
        (lambda found: found["widgets"][1]["properties"].update(titel="x"), "'titel' was unexpected"),
        (lambda found: found["widgets"][1]["properties"].pop("region"), "'region' is a required property"),
        (lambda found: found["widgets"][1]["properties"]["metrics"][1][-1].update(stat="P95"), "is not valid"),
        (lambda found: found["widgets"][1]["properties"]["metrics"].pop(), "within reads lv, which is not there"),
        (lambda found: found["widgets"][1]["properties"]["metrics"].pop(0), "ms is read by no expression"),
        (lambda found: found["widgets"][1].update(x=1), "covers Error budget left"),
        (lambda found: found["widgets"][3].update(width=13), "Alarms is wider than the dashboard"),
    ],
    ids=["key", "type", "property", "no-region", "stat", "no-metric", "no-expression", "overlap", "width"],
)  # fmt: skip
def test_a_dashboard_that_cloudwatch_would_not_show_is_found(spoil: Spoil, problem: str) -> None:
    spoiled = dashboard_body(observability_stack())
    spoil(spoiled)
    assert problem in "\n".join(dashboard_schema.problems(spoiled))


def test_the_dashboard_name_contains_stack_and_region() -> None:
    assert observability_stack().only("CloudWatch::Dashboard")["DashboardName"] == "${AWS::StackName}-${AWS::Region}"


@pytest.mark.parametrize("parameters", [{}, {"Audit": "true"}, {"Suite": "true"}, WORKS_IN_SHARDS], ids=str)
def test_the_dashboard_shows_the_state_of_every_alarm_that_notifies(parameters: dict[str, str]) -> None:
    found = observability_stack(**parameters)
    (shown,) = widgets(found, "alarm")
    assert set(shown["properties"]["alarms"]) == {f"${{{name}.Arn}}" for name in notifying_alarms(found)}


def test_an_execution_that_fails_and_a_run_that_cannot_start_raise_an_alarm() -> None:
    found = observability_stack(**WORKS_IN_SHARDS).of_type("CloudWatch::Alarm")
    for name in ("AuditFailedAlarm", "SuiteFailedAlarm"):
        assert returned(found[name])["Expression"] == "failed + late + aborted"
        assert (found[name]["ComparisonOperator"], found[name]["Threshold"]) == ("GreaterThanThreshold", 0)
    by_hand = {"SuiteSchedule": "", "Suite": "scheduled"}
    with_canaries = observability_stack(**{**WORKS_IN_SHARDS, **by_hand}).of_type("CloudWatch::Alarm")
    assert set(with_canaries) == set(found)
    without = observability_stack(Audit="true", **by_hand).of_type("CloudWatch::Alarm")
    assert set(found) - set(without) == {"SuiteNotStartedAlarm", "CanaryAlarm"}
    assert "PassRateAlarm" not in observability_stack().of_type("CloudWatch::Alarm"), "only with suites"


def test_an_audit_that_found_something_raises_the_alarm() -> None:
    found = alarm("AuditFindingsAlarm", **WORKS_IN_SHARDS)
    assert (found["MetricName"], found["Statistic"]) == ("AuditFindings", "Maximum")
    assert (found["ComparisonOperator"], found["Threshold"]) == ("GreaterThanThreshold", 0)
    assert {"Name": "function", "Value": AUDIT_FUNCTION} in found["Dimensions"]
    assert part_of_stack("Audit", **WORKS_IN_SHARDS).only("Lambda::Function")["FunctionName"] == AUDIT_FUNCTION


def test_a_model_that_changed_raises_the_alarm() -> None:
    found = alarm("CanaryAlarm", **WORKS_IN_SHARDS)
    assert (found["MetricName"], found["Statistic"]) == ("CanaryChanged", "Maximum")
    assert (found["ComparisonOperator"], found["Threshold"]) == ("GreaterThanThreshold", 0)
    assert {"Name": "function", "Value": SUITE_FUNCTION} in found["Dimensions"]


@pytest.mark.parametrize("name", ["audit", "suite"])
def test_what_an_alarm_watches_is_what_the_other_application_makes(name: str) -> None:
    made = part_of_stack(name.capitalize(), **WORKS_IN_SHARDS)
    assert made.only("StepFunctions::StateMachine")["StateMachineName"] == f"${{AWS::StackName}}-{name}"
    if name == "suite":
        assert made.only("SQS::Queue")["QueueName"] == "${AWS::StackName}-suite-not-started"


def lines_of(properties: dict[str, Any]) -> list[float]:
    return [line["value"] for line in properties["annotations"]["horizontal"]]


@pytest.mark.parametrize(("title", "function"), WHOLE.items())
def test_the_whole_request_is_shown_against_the_target(title: str, function: str) -> None:
    properties = find_widget(observability_stack(LatencyTargetMs="700"), title)
    assert lines_of(properties) == [700]
    shown = {(metric.name, options["stat"]) for metric, options in rows(properties) if metric}
    assert shown == {(name, stat) for name in ("GatewayLatency", "RequestLatency") for stat in PERCENTILES}
    functions = {dict(metric.dimensions)["function"] for metric, _ in rows(properties) if metric}
    assert functions == {function}


def test_every_stage_has_a_graph() -> None:
    assert set(STAGES) == set(STAGE_METRICS.values())


@pytest.mark.parametrize(("name", "title"), STAGES.items())
def test_a_stage_is_shown_against_its_target_and_warning_threshold(name: str, title: str) -> None:
    properties = find_widget(observability_stack(LatencyTargetMs="700"), title)
    warned_of = {"EmbeddingLatency": [SLOW_EMBEDDING_MS], "QdrantLatency": [SLOW_SEARCH_MS]}
    assert lines_of(properties) == [700, *warned_of.get(name, [])]
    shown: dict[str, set[str]] = {}
    for metric, options in rows(properties):
        assert metric is not None
        assert metric.name == name
        shown.setdefault(dict(metric.dimensions)["function"], set()).add(options["stat"])
    functions = {SEARCH} if name in ("EmbeddingLatency", "RerankLatency") else {SEARCH, VALIDATION}
    assert shown == dict.fromkeys(functions, PERCENTILES)


def test_the_share_within_the_target_and_the_budget_left_are_those_of_the_objective() -> None:
    # 4 of 200 missed the target: 98 % kept to it, and of a budget of 2 misses 4 are spent.
    values = {"ms": 3.0, "mv": 1.0, "ns": 150.0, "nv": 50.0}
    within = expression("Within the target, 28 days (%)", "within")
    assert computed(within, **values) == pytest.approx(98.0)
    budget = "Error budget left, 28 days (%)"
    assert computed(expression(budget, "left"), **values) == pytest.approx(-100.0)
    assert computed(expression(budget, "left", SloPercent="96"), **values) == pytest.approx(50.0)
    assert computed(expression(budget, "left"), ms=0, mv=0, ns=150, nv=50) == pytest.approx(100.0)
    hourly = expression("Burn rate of the error budget, by the hour", "burn")
    assert computed(hourly, **values) == pytest.approx(2.0)


def test_both_figures_cover_28_days_for_any_dashboard_period() -> None:
    for title in ("Within the target, 28 days (%)", "Error budget left, 28 days (%)"):
        properties = find_widget(observability_stack(), title)
        assert (properties["start"], properties["setPeriodToTimeRange"]) == ("-P28D", True)


def names_by_function(title: str) -> dict[str, set[str]]:
    shown: dict[str, set[str]] = {}
    for metric, _ in rows(find_widget(observability_stack(), title)):
        assert metric is not None
        shown.setdefault(dict(metric.dimensions)["function"], set()).add(metric.name)
    return shown


def found_by(title: str, emitted: set[Metric]) -> set[Metric]:
    """What the searches of a widget find."""
    expressions = [options.get("expression", "") for _, options in rows(find_widget(observability_stack(), title))]
    searches = [one for one in expressions if one.startswith("SEARCH(")]
    assert searches
    return {metric for metric in emitted for search in searches if is_found(metric, search)}


def emitted(name: str, function: str) -> Metric:
    return Metric.of("Chunkproof", name, {"service": "chunkproof", "environment": "dev", "function": function})


def test_every_code_and_every_kind_of_mismatch_is_found_and_nothing_else_is() -> None:
    every = metrics_by_rule("dev", SEARCH, VALIDATION)
    others = {emitted("Errors", SEARCH), emitted("ChunkMismatch", VALIDATION), emitted("Errors.INTERNAL", "other")}
    codes = {metric for metric in every if metric.name.startswith("Errors.")}
    assert len(codes) == 2 * len(error_codes())
    assert found_by("Errors by code", every | others) == codes
    assert found_by("Validation: mismatches by kind", every | others) == every - codes
    assert {metric.name for metric in every - codes} == {f"ChunkMismatch.{kind}" for kind in MismatchKind}


def test_findings_of_audits_are_shown_by_kind() -> None:
    dimensions = {"service": "chunkproof", "environment": "dev", "collection": "docs", "kind": "altered"}
    kind = Metric.of("Chunkproof", "ChunkMismatch", dimensions)
    assert found_by("Audits: findings by kind", {kind, emitted("ChunkMismatch", VALIDATION)}) == {kind}


def test_the_quality_of_suites_is_shown() -> None:
    assert names_by_function("Suite quality") == {SUITE_FUNCTION: {"PassRate", "RecallAt5", "MrrAt10"}}
    assert names_by_function("Suite: searches (ms)") == {SUITE_FUNCTION: {"SuiteP95Latency"}}


def test_the_drift_of_canaries_is_shown() -> None:
    title = "Canaries: drift of the embeddings of fixed texts"
    assert names_by_function(title) == {SUITE_FUNCTION: {"CanaryDrift", "CanaryChanged"}}


def test_the_function_that_runs_suites_has_the_name_that_is_looked_for() -> None:
    assert part_of_stack("Suite", Suite="true").only("Lambda::Function")["FunctionName"] == SUITE_FUNCTION


def test_log_widgets_read_the_logs_of_both_functions() -> None:
    shown = {w["properties"]["title"]: w["properties"]["query"] for w in widgets(observability_stack(), "log")}
    assert set(shown) == {"Slowest requests", "Latest errors"}
    for query in shown.values():
        assert query.startswith(f"SOURCE '{LOGS[0]}' | SOURCE '{LOGS[1]}' | filter ")


def test_a_saved_query_is_in_the_stacks_folder_and_reads_its_logs() -> None:
    for query in observability_stack().of_type("Logs::QueryDefinition").values():
        assert query["Name"].startswith("${AWS::StackName}/")
        assert set(query["LogGroupNames"]) <= set(LOGS)


def test_every_query_filters_request_lines_or_shows_all_lines_of_one_request() -> None:
    for name, query in queries(observability_stack()).items():
        if not name.endswith(("/One request", "/Turned away before a function")):
            assert 'filter message = "request"' in query, name
