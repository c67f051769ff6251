"""docs/guides/operate.md explains every alarm: what it means, what to look at and what to do."""

import re

from support.observability import observability_stack, widgets
from support.template import ROOT, stack, template

PAGE = (ROOT / "docs" / "guides" / "operate.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
STACK = "${AWS::StackName}"
# EventBridge says why in the message; the queries look at logs of the API's functions, not of the suite's.
NOT_IN_LOGS = {"suite-not-started", "canary-changed"}
WITH_EVERYTHING = observability_stack(Audit="true", Suite="true", Canary="true")


def names(kind: str) -> dict[str, str]:
    """Short names of the application's alarms of a kind, by logical id."""
    found = WITH_EVERYTHING.of_type(f"CloudWatch::{kind}")
    return {key: properties["AlarmName"].removeprefix(f"{STACK}-") for key, properties in found.items()}


def saved_queries() -> set[str]:
    found = WITH_EVERYTHING.of_type("Logs::QueryDefinition").values()
    return {query["Name"].removeprefix(f"{STACK}/") for query in found}


def notifying_alarms() -> set[str]:
    """Names of the alarms that send notifications."""
    found = WITH_EVERYTHING
    every = {**found.of_type("CloudWatch::Alarm"), **found.of_type("CloudWatch::CompositeAlarm")}
    return {a["AlarmName"].removeprefix(f"{STACK}-") for a in every.values() if "AlarmActions" in a}


def test_every_alarm_has_a_section_and_every_section_an_alarm() -> None:
    of_the_stack = set(stack().of_type("CloudWatch::Alarm"))
    written = {name for heading in SECTIONS for name in heading.split(", ")}
    assert written == notifying_alarms() | of_the_stack


def test_a_section_says_what_the_alarm_means_what_to_look_at_and_what_to_do() -> None:
    for heading, text in SECTIONS.items():
        assert re.findall(r"^\*\*(\w[\w ]*)\.\*\*", text, re.M) == ["Means", "Look at", "Do"], heading


def test_a_section_names_a_saved_query_to_look_at() -> None:
    for heading, text in SECTIONS.items():
        look = text.partition("**Look at.**")[2].partition("**Do.**")[0]
        named = {" ".join(name.split()) for name in re.findall(r"\*([^*]+)\*", look)}
        assert named & saved_queries() or heading in NOT_IN_LOGS, heading


def test_what_is_named_to_look_at_exists() -> None:
    titles = {widget["properties"].get("title", "") for widget in widgets(WITH_EVERYTHING)}
    labels = {
        row[-1].get("label", "")
        for widget in widgets(WITH_EVERYTHING, "metric")
        for row in widget["properties"]["metrics"]
    }
    for text in SECTIONS.values():
        for words in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text):
            name = " ".join(words.split())
            known = any(name.lower() in shown.lower() for shown in titles | labels)
            assert known or name in saved_queries(), name


def test_halves_of_a_burn_are_named_where_their_alarm_is_explained() -> None:
    for name in set(names("Alarm").values()) - notifying_alarms():
        (heading,) = (heading for heading in SECTIONS if name.startswith(heading))
        assert f"`{name}`" in SECTIONS[heading]


def test_an_alarm_says_where_to_read_on() -> None:
    found = WITH_EVERYTHING
    every = {**found.of_type("CloudWatch::Alarm"), **found.of_type("CloudWatch::CompositeAlarm")}
    for alarm in every.values():
        name = alarm["AlarmName"].removeprefix(f"{STACK}-")
        if name in notifying_alarms():
            assert re.search(rf"docs/guides/operate\.md[,:] {name}$", alarm["AlarmDescription"])


def test_every_saved_query_is_in_the_table_and_no_other() -> None:
    table = PAGE.partition("## Saved queries")[2].partition("## Alarms")[0]
    assert set(re.findall(r"^\| ([A-Z][^|]+?) \|", table, re.M)) == saved_queries()


def test_parameters_in_the_table_have_the_defaults_of_the_template() -> None:
    found = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", PAGE, re.M))
    assert set(found) == {"LatencyTargetMs", "SloPercent", "MinPassRate", "Observability"}
    parameters = template()["Parameters"]
    for name, default in found.items():
        assert str(parameters[name]["Default"] or "none") == default


def test_a_parameter_that_the_page_advises_exists() -> None:
    advised = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z0-9]*)+)(?:=\w+)?`", PAGE))
    others = {"PassRate", "DashboardName", "AuditIncomplete", "AuditFoundFaults", "SuiteIncomplete"}
    others |= {"CanaryDrift", "CanaryChanged", "CanaryRecords", "AlarmTopicArn"}
    assert advised - others <= set(template()["Parameters"])
    assert "SnapStart" in advised


def test_the_page_shows_the_picture() -> None:
    assert "](../dashboard.svg)" in PAGE
    assert (ROOT / "docs" / "dashboard.svg").is_file()
