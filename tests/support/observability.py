"""The metrics and log fields that dashboard, alarms and saved queries read, and those that are emitted."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from chunkproof.base import errors
from chunkproof.base.errors import ChunkproofError
from chunkproof.contract.validation import MismatchKind
from chunkproof.service.telemetry import NAMESPACE

from support.log_lines import Line
from support.template import Stack, nested_stack

APPLICATION = "ObservabilityApplication"
# The name of the function that runs suites, as the template of either application has it.
SUITE_FUNCTION = "${AWS::StackName}-suite"
AUDIT_FUNCTION = "${AWS::StackName}-audit"

_WORD = re.compile(r"@?[A-Za-z_][\w.]*")
_TEXT = re.compile(r'"[^"]*"|\'[^\']*\'|/[^/]*/')
_QUERY_WORDS = {
    "as",
    "and",
    "asc",
    "by",
    "desc",
    "display",
    "fields",
    "filter",
    "like",
    "limit",
    "or",
    "sort",
}
_QUERY_WORDS |= {"SOURCE", "stats"}
_BIN = re.compile(r"bin\(\d+[smhd]\)")


@dataclass(frozen=True, order=True)
class Metric:
    """A metric of one function, as CloudWatch identifies it."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: dict[str, str]) -> "Metric":
        """Their order does not matter."""
        return cls(namespace, name, tuple(sorted(dimensions.items())))

    def __str__(self) -> str:
        return f"{self.name} of {dict(self.dimensions).get('function', self.namespace)}"


def observability_stack(**parameters: str) -> Stack:
    """The nested application's stack."""
    return nested_stack(APPLICATION, **parameters)


def dashboard_body(found: Stack) -> dict[str, Any]:
    """The dashboard's definition."""
    return dict(json.loads(found.only("CloudWatch::Dashboard")["DashboardBody"]))


def widgets(found: Stack, kind: str | None = None) -> list[dict[str, Any]]:
    """The dashboard's widgets, all or of a kind."""
    return [widget for widget in dashboard_body(found)["widgets"] if kind in (None, widget["type"])]


def find_widget(found: Stack, title: str) -> dict[str, Any]:
    """Properties of the one widget with this title."""
    (properties,) = (w["properties"] for w in widgets(found) if w["properties"].get("title") == title)
    return dict(properties)


# What dashboard, alarms and queries read


def rows(properties: dict[str, Any]) -> Iterator[tuple[Metric | None, dict[str, Any]]]:
    """A metric widget's rows: a metric, or None for an expression, and its options."""
    for row in properties["metrics"]:
        *words, options = row if isinstance(row[-1], dict) else [*row, {}]
        if {".", "..."} & set(words):
            raise ValueError(f"written in short, which is not read here: {row}")
        pairs = dict(zip(words[2::2], words[3::2], strict=True))
        yield (Metric.of(words[0], words[1], pairs) if words else None), options


def graphed_metrics(found: Stack, emits: Iterable[Metric] = ()) -> set[Metric]:
    """The metrics on the dashboard, and the metrics of `emits` that one of its searches finds."""
    every = [row for widget in widgets(found, "metric") for row in rows(widget["properties"])]
    searches = [options["expression"] for _, options in every if options.get("expression", "").startswith("SEARCH(")]
    searched = {metric for metric in emits for search in searches if is_found(metric, search)}
    return {metric for metric, _ in every if metric} | searched


def is_found(metric: Metric, search: str) -> bool:
    """Whether CloudWatch's SEARCH finds the metric: its dimensions are exactly those named, and every term holds."""
    match = re.fullmatch(r"SEARCH\('\{([^}]+)\} (.+)', '\w+', \d+\)", search)
    assert match, search
    namespace, *names = match[1].split(",")
    values = {**dict(metric.dimensions), "MetricName": metric.name}
    terms = re.findall(r'(NOT )?(\w+)=(\("[^)]+"\)|"[^"]+"|\w+)', match[2])
    assert "".join(f"{no}{key}={value} " for no, key, value in terms).strip() == match[2], "not read here"
    return (
        metric.namespace == namespace
        and names == sorted(name for name, _ in metric.dimensions)
        and all(_holds(values[key], value) != bool(negated) for negated, key, value in terms)
    )


def _holds(value: str, wanted: str) -> bool:
    """Exactly one of the texts in quotation marks, or a word among those of the value."""
    if exact := re.findall(r'"([^"]+)"', wanted):
        return value in exact
    return wanted in re.split(r"[^A-Za-z0-9]+", value)


def watched_metrics(found: Stack) -> set[Metric]:
    """The metrics that alarms watch."""
    return {
        Metric.of(of["Namespace"], of["MetricName"], {d["Name"]: d["Value"] for d in of["Dimensions"]})
        for alarm in found.of_type("CloudWatch::Alarm").values()
        for of in alarm_metrics(alarm)
    }


def alarm_metrics(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """What an alarm reads."""
    if "MetricName" in alarm:
        return [alarm]
    return [query["MetricStat"]["Metric"] for query in alarm["Metrics"] if "MetricStat" in query]


def queries(found: Stack) -> dict[str, str]:
    """Every Logs Insights query by its name: saved ones and the dashboard's."""
    saved = {query["Name"]: query["QueryString"] for query in found.of_type("Logs::QueryDefinition").values()}
    shown = {w["properties"]["title"]: w["properties"]["query"] for w in widgets(found, "log")}
    return {**saved, **{f"dashboard/{title}": query for title, query in shown.items()}}


def fields_of(query: str) -> set[str]:
    """The log fields that a query reads; names that it makes itself are left out."""
    bare = _TEXT.sub(" ", _BIN.sub(" ", query))
    made = set(re.findall(r"\bas (\w+)", bare))
    functions = set(re.findall(r"(\w+)\(", bare))
    words = set(_WORD.findall(bare))
    return {word for word in words - made - functions - _QUERY_WORDS if not word.startswith("@")}


# What is emitted


def emitted_metrics(lines: Iterable[Line]) -> set[Metric]:
    """The metrics that CloudWatch makes of these lines."""
    return {
        Metric.of(directive["Namespace"], metric["Name"], {name: line[name] for name in dimensions})
        for line in lines
        for directive in line["_aws"]["CloudWatchMetrics"]
        for dimensions in directive["Dimensions"]
        for metric in directive["Metrics"]
    }


def error_codes() -> dict[str, int]:
    """Every code of the error tree, and its HTTP status."""
    return {kind.code: int(kind.status) for kind in _tree(ChunkproofError)}


def _tree(kind: type[ChunkproofError]) -> Iterator[type[ChunkproofError]]:
    # A terminal has codes of its own.
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


def metrics_by_rule(environment: str, search: str, validation: str) -> set[Metric]:
    """What is emitted for every code and kind; no test provokes most of them, and a test shows that the rule holds."""

    def of(function: str, name: str) -> Metric:
        dimensions = {"service": "chunkproof", "environment": environment, "function": function}
        return Metric.of(NAMESPACE, name, dimensions)

    return {
        *(of(function, f"Errors.{code}") for code in error_codes() for function in (search, validation)),
        *(of(validation, f"ChunkMismatch.{kind}") for kind in MismatchKind),
    }


def differences(emits: set[Metric], looks_at: set[Metric]) -> list[str]:
    """List the metrics that are emitted but not shown, and those shown but not emitted."""
    own = {metric for metric in looks_at if metric.namespace == NAMESPACE}
    return [
        *(f"{metric} is emitted, but nothing shows it" for metric in sorted(emits - own)),
        *(f"{metric} is shown, but nothing emits it" for metric in sorted(own - emits)),
    ]


def flatten_fields(line: Line, prefix: str = "") -> set[str]:
    """The fields of a line as Logs Insights names them: `stages_ms.total`, `reasons.0`."""
    found = set()
    for key, value in line.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, dict) and inner:
            found |= flatten_fields({str(k): v for k, v in inner.items()}, f"{prefix}{key}.")
        else:
            found.add(f"{prefix}{key}")
    return found
