"""The dashboard: its widgets from the metrics of the code, and its layout as a picture.

`make dashboard` writes the body into functions/observability/template.yaml, one row of widgets a line, and draws
docs/dashboard.svg. `${Search}`, `${Validation}`, `${Audit}` and `${Suite}` are the dimensions of a function's metrics.
"""

import json
import logging
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from chunkproof.service.telemetry import (
    CIRCUIT_METRICS,
    EMBEDDER_CIRCUIT_METRIC,
    LEG_METRICS,
    MODE_METRICS,
    SLOW_EMBEDDING_MS,
    SLOW_SEARCH_MS,
    STAGE_METRICS,
)

from support.observability import dashboard_body, observability_stack, rows

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "functions" / "observability" / "template.yaml"
PICTURE = ROOT / "docs" / "dashboard.svg"
COLUMN, ROW, GAP = 42, 21, 4
CHARACTER, LINE = 6.8, 15
FILL = {"metric": "#eef4fb", "log": "#f3f0e8", "alarm": "#fbeeee", "text": "#f4f4f4"}
# What only a deployment knows.
EXAMPLE = {"${AWS::StackName}": "chunkproof", "${AWS::Region}": "us-east-1"}

Widget = dict[str, Any]
Metric = list[Any]

SEARCH, VALIDATION, AUDIT, SUITE = "${Search}", "${Validation}", "${Audit}", "${Suite}"
FUNCTIONS = {"search": SEARCH, "validate-chunk": VALIDATION}
NAMES = {"search": "${SearchFunctionName}", "validate-chunk": "${ValidateChunkFunctionName}"}
TARGET = {"label": "Target", "value": "${LatencyTargetMs}"}
WHOLE_TARGET = {**TARGET, "label": "Target of the whole"}
PERCENTILES = ("p50", "p95", "p99")
STAGE_TITLES = {
    "validate": "validate the request",
    "embed": "embed",
    "search": "search in Qdrant",
    "rerank": "rerank",
    "format": "format the answer",
}
ONLY_SEARCHES = ("embed", "rerank")
WARNED_OF = {"embed": SLOW_EMBEDDING_MS, "search": SLOW_SEARCH_MS}
CIRCUITS = {
    CIRCUIT_METRICS["qdrant"]: "Qdrant",
    EMBEDDER_CIRCUIT_METRIC: "Embedder",
    CIRCUIT_METRICS["rerank"]: "Reranker",
}
ALARMS = ("Latency", "FastBurn", "SlowBurn", "Fault", "Circuit", "ChangedChunks", "Throttle")
LOGS = "SOURCE '/chunkproof/${Application}/search' | SOURCE '/chunkproof/${Application}/validate-chunk' | "
# Requests, and those that missed the target; those that Lambda stopped emit nothing themselves, and missed it too.
MISSED, COUNTED = "(ms + mv + ls + lv)", "(ns + nv + ls + lv)"
SLOW_COLUMNS = (
    "@timestamp, taken_ms, stages_ms.validate, stages_ms.embed, stages_ms.search, stages_ms.format, cold_start, "
    "embedding_cached, route, collection, status, query_sha256, query_text, request_id"
)
ERROR_COLUMNS = "@timestamp, status, code, reasons.0, route, collection, state, stages_ms.total, request_id"


# The widgets


def own(name: str, function: str, **options: Any) -> Metric:
    return ["Chunkproof", name, function, *([options] if options else [])]


def of_lambda(name: str, function: str, **options: Any) -> Metric:
    return ["AWS/Lambda", name, "FunctionName", NAMES[function], options]


def of_gateway(name: str, **options: Any) -> Metric:
    return ["AWS/ApiGateway", name, "ApiId", "${ApiId}", options]


def formula(name: str, expression: str, label: str, **options: Any) -> Metric:
    return [{"expression": expression, "id": name, "label": label, **options}]


def find(schema: str, terms: str, stat: str, period: int, **options: Any) -> Metric:
    """All metrics of this schema that match, however many there will be."""
    condition = f'environment="${{EnvironmentName}}" {terms}'
    return [{"expression": f"SEARCH('{{Chunkproof,{schema}}} {condition}', '{stat}', {period})", **options}]


def objective_inputs() -> list[Metric]:
    inputs = [
        own("TargetMissed", function, id=f"{kind}{function[2].lower()}", stat=stat, visible=False)
        for kind, stat in (("m", "Sum"), ("n", "SampleCount"))
        for function in (SEARCH, VALIDATION)
    ]
    stopped = {"search": "ls", "validate-chunk": "lv"}
    return [*inputs, *(of_lambda("Errors", name, id=id_, stat="Sum", visible=False) for name, id_ in stopped.items())]


def percentiles(name: str, functions: Iterable[str], label: str = "{}") -> Iterator[Metric]:
    for function in functions:
        for stat in PERCENTILES:
            yield own(name, FUNCTIONS[function], stat=stat, label=label.format(f"{function} {stat}"))


def graph(title: str, metrics: Iterable[Metric], *, period: int = 300, **options: Any) -> Widget:
    """A graph over time; `left` and `right` are its axes, `lines` its horizontal lines."""
    left, right, lines = options.pop("left", {}), options.pop("right", None), options.pop("lines", ())
    properties = {"title": title, "view": "timeSeries", "region": "${AWS::Region}", "period": period, **options}
    properties["yAxis"] = {"left": {"min": 0, **left, "showUnits": False}}
    if right is not None:
        properties["yAxis"]["right"] = {"min": 0, **right, "showUnits": False}
    if lines:
        properties["annotations"] = {"horizontal": list(lines)}
    return {"type": "metric", "properties": {**properties, "metrics": list(metrics)}}


def figure(title: str, expression: Metric) -> Widget:
    """One number for 28 days."""
    shown = {"view": "singleValue", "region": "${AWS::Region}", "start": "-P28D", "setPeriodToTimeRange": True}
    metrics = [expression, *objective_inputs()]
    return {"type": "metric", "properties": {"title": title, **shown, "period": 300, "metrics": metrics}}


def listing(title: str, query: str) -> Widget:
    properties = {"title": title, "view": "table", "region": "${AWS::Region}", "query": LOGS + query}
    return {"type": "log", "properties": properties}


def whole_request(function: str) -> Widget:
    shown = (("GatewayLatency", "from the gateway"), ("RequestLatency", "in the function"))
    metrics = [
        own(name, FUNCTIONS[function], stat=stat, label=f"{label} {stat}")
        for name, label in shown
        for stat in PERCENTILES
    ]
    return graph(f"{function}: whole request (ms)", metrics, period=60, lines=[TARGET])


def stage(name: str) -> Widget:
    lines = [WHOLE_TARGET, *({"label": "Warned of", "value": ms} for ms in [WARNED_OF.get(name)] if ms)]
    functions = ["search"] if name in ONLY_SEARCHES else list(FUNCTIONS)
    metrics = percentiles(STAGE_METRICS[name], functions)
    return graph(f"Stage: {STAGE_TITLES[name]} (ms)", metrics, period=60, lines=lines)


def each(name: str, label: str, **options: Any) -> list[Metric]:
    """The metric of both functions."""
    return [own(name, function, **options, label=label.format(key)) for key, function in FUNCTIONS.items()]


def layout() -> Iterator[tuple[int, list[tuple[int, Widget]]]]:  # noqa: PLR0915 - a table
    """The rows of the dashboard: how high, and its widgets, each with its width of 24."""
    burn = f"{MISSED} / {COUNTED} * 100 / (100 - ${{SloPercent}})"
    heading = (
        "# ${Application}\n**${SloPercent} %** of searches and validations should be answered within "
        "**${LatencyTargetMs} ms**, counted from their arrival at the gateway, cold starts included. What an alarm "
        "means and what to do: `docs/guides/operate.md`. Saved queries: Logs Insights, folder `${Application}`."
    )
    alarms = [*(f"${{{name}Alarm.Arn}}" for name in ALARMS), "MORE"]
    within = formula("within", f"100 * (1 - {MISSED} / {COUNTED})", "should be ${SloPercent} or more")
    left = formula("left", f"100 - 100 * {burn}", "below 0 the objective is missed")
    yield 2, [(24, {"type": "text", "properties": {"markdown": heading}})]
    yield (
        5,
        [
            (6, figure("Within the target, 28 days (%)", within)),
            (6, figure("Error budget left, 28 days (%)", left)),
            (12, {"type": "alarm", "properties": {"title": "Alarms", "alarms": alarms}}),
        ],
    )
    shares = [
        *(formula(f"within_{f[2].lower()}", f"100 * (1 - missed_{f[2].lower()})", k) for k, f in FUNCTIONS.items()),
        *(
            own("TargetMissed", f, id=f"missed_{f[2].lower()}", stat="Average", visible=False)
            for f in FUNCTIONS.values()
        ),
    ]
    objective = {"label": "Objective", "value": "${SloPercent}"}
    rates = [{"label": name, "value": rate} for name, rate in (("Fast", 14.4), ("Slow", 6), ("As planned", 1))]
    burning = [formula("burn", burn, "burn rate"), *objective_inputs()]
    yield (
        6,
        [
            (12, graph("Requests within the target (%)", shares, left={"max": 100}, lines=[objective])),
            (12, graph("Burn rate of the error budget, by the hour", burning, period=3600, lines=rates)),
        ],
    )
    answered = [of_gateway("Latency", stat=stat, label=stat) for stat in PERCENTILES]
    at_gateway = graph("All routes at the gateway: latency (ms)", answered, period=60, lines=[TARGET])
    yield 6, [(8, whole_request("search")), (8, whole_request("validate-chunk")), (8, at_gateway)]
    widths = (5, 5, 5, 5, 4)
    yield 6, [(width, stage(name)) for width, name in zip(widths, STAGE_TITLES, strict=True)]
    parts = [own(metric, SEARCH, label=name) for name, metric in STAGE_METRICS.items()]
    modes = [own(metric, SEARCH, label=f"mode {mode}") for mode, metric in MODE_METRICS.items()]
    legs = [own(metric, SEARCH, label=f"explained: {leg} leg") for leg, metric in LEG_METRICS.items()]
    traffic = [
        of_gateway("Count", stat="Sum", label="at the gateway"),
        *each("RequestLatency", "answered by {}", stat="SampleCount"),
        own("Queries", SEARCH, stat="Sum", label="queries in batches"),
        own("FailedQueries", SEARCH, stat="Sum", label="failed queries in batches"),
    ]
    cold = [
        *each("ColdStart", "{}", stat="Sum"),
        formula("share", "100 * (cs + cv) / (ns + nv)", "share of all requests", yAxis="right"),
        *(
            own("ColdStart", function, id=f"{kind}{function[2].lower()}", stat=stat, visible=False)
            for kind, stat in (("c", "Sum"), ("n", "SampleCount"))
            for function in FUNCTIONS.values()
        ),
    ]
    percent = {"max": 100, "label": "% of requests"}
    yield (
        6,
        [
            (6, graph("Where the time of a search goes (average ms)", parts, stacked=True, stat="Average")),
            (6, graph("Search by mode and by leg (p95 ms)", [*modes, *legs], stat="p95")),
            (6, graph("Traffic (requests a minute)", traffic, period=60)),
            (6, graph("Cold starts", cold, right=percent)),
        ],
    )
    errors = [
        of_gateway("5xx", label="5xx at the gateway"),
        of_gateway("4xx", label="4xx at the gateway"),
        *(of_lambda("Errors", name, label=f"{name} crashed or was stopped") for name in FUNCTIONS),
        *each("Faults", "5xx of {}"),
        *each("Errors", "4xx and 5xx of {}"),
    ]
    functions = 'function=("${SearchFunctionName}" OR "${ValidateChunkFunctionName}")'
    codes = find("environment,function,service", f'MetricName=Errors NOT MetricName="Errors" {functions}', "Sum", 300)
    yield (
        6,
        [
            (12, graph("Errors", errors, stat="Sum")),
            (12, graph("Errors by code", [codes], stacked=True)),
        ],
    )
    circuits = [metric for name, label in CIRCUITS.items() for metric in each(name, f"{label}, {{}}")]
    cached = [
        formula("share", "100 * hits", "cache hits"),
        own("EmbeddingCacheHit", SEARCH, id="hits", stat="Average", visible=False),
        formula("skipped", "100 * skips", "reranking skipped"),
        own("RerankSkipped", SEARCH, id="skips", stat="Average", visible=False),
    ]
    concurrency = [
        *(of_lambda("Throttles", name, stat="Sum", label=f"{name} throttled") for name in FUNCTIONS),
        *(
            of_lambda("ConcurrentExecutions", name, stat="Maximum", label=f"{name} at once", yAxis="right")
            for name in FUNCTIONS
        ),
    ]
    title = "Queries embedded from the cache, searches not reranked (%)"
    opened = "Circuits (1 is open, in some container)"
    yield (
        6,
        [
            (8, graph(opened, circuits, period=60, stat="Maximum", left={"max": 1})),
            (8, graph(title, cached, left={"max": 100})),
            (8, graph("Throttles, and requests at once", concurrency, period=60, right={"label": "at once"})),
        ],
    )
    results = [
        own("ResultCount", SEARCH, stat="Average", label="results a search"),
        own("DenseResults", SEARCH, stat="Average", label="found by meaning (text, hybrid)"),
        own("TextResults", SEARCH, stat="Average", label="found by words (text, hybrid)"),
        own("ChangedChunks", SEARCH, stat="Sum", label="changed chunks"),
        own("TopScore", SEARCH, stat="p50", label="best score p50", yAxis="right"),
        own("TopScore", SEARCH, stat="p10", label="best score p10", yAxis="right"),
    ]
    low = {"label": "Warned of", "value": 0.3, "yAxis": "right"}
    kinds = 'MetricName=ChunkMismatch NOT MetricName="ChunkMismatch" function="${ValidateChunkFunctionName}"'
    mismatches = [
        find("environment,function,service", kinds, "Sum", 300),
        own("ChunkMismatch", VALIDATION, stat="SampleCount", label="requests that validated", yAxis="right"),
    ]
    faults = 'MetricName=AuditFindings NOT MetricName="AuditFindings" function="${Application}-audit"'
    found = [
        own("AuditFindings", AUDIT, label="all faults"),
        find("environment,function,service", faults, "Maximum", 3600),
        find("collection,environment,kind,service", 'MetricName="ChunkMismatch"', "Maximum", 3600),
    ]
    covered = [
        find("collection,environment,service", 'MetricName="AuditCoverage"', "Minimum", 3600),
        find("collection,environment,service", 'MetricName="ChunksAudited"', "Maximum", 3600, yAxis="right"),
    ]
    days = {"period": 3600, "start": "-P28D"}
    validated = {"label": "requests that validated"}
    yield (
        6,
        [
            (6, graph("Results and best scores", results, right={"max": 1, "label": "score"}, lines=[low])),
            (6, graph("Validation: mismatches by kind", mismatches, stacked=True, right=validated)),
            (6, graph("Audits: findings by kind", found, stat="Maximum", **days)),
            (6, graph("Audits: share judged (%)", covered, left={"max": 100}, right={"label": "chunks"}, **days)),
        ],
    )
    quality = [
        own("PassRate", SUITE, label="pass rate"),
        own("RecallAt5", SUITE, label="recall@5", yAxis="right"),
        own("MrrAt10", SUITE, label="MRR@10", yAxis="right"),
    ]
    least = {"label": "Least pass rate", "value": "${MinPassRate}"}
    passed = {"max": 100, "label": "% passed"}
    drift = [
        own("CanaryDrift", SUITE, label="largest drift"),
        own("CanaryChanged", SUITE, label="models changed", yAxis="right"),
    ]
    changed = {"label": "models changed"}
    title = "Canaries: drift of the embeddings of fixed texts"
    run = own("SuiteP95Latency", SUITE, label="p95 of a run")
    yield (
        6,
        [
            (8, graph("Suite quality", quality, stat="Minimum", left=passed, right={"max": 1}, lines=[least], **days)),
            (8, graph("Suite: searches (ms)", [run], stat="Maximum", lines=[TARGET], **days)),
            (8, graph(title, drift, stat="Maximum", left={"label": "1 - cosine"}, right=changed, **days)),
        ],
    )
    slow = "fields coalesce(gateway_ms, stages_ms.total) as taken_ms | sort taken_ms desc | limit 20"
    yield 7, [(24, listing("Slowest requests", f'filter message = "request" | {slow} | display {SLOW_COLUMNS}'))]
    failed = 'filter message = "request" and status >= 400 | sort @timestamp desc | limit 20'
    yield 7, [(24, listing("Latest errors", f"{failed} | display {ERROR_COLUMNS}"))]


def write_body() -> Iterator[str]:
    """The lines of the body, as the template has them."""
    yield '{"start": "-PT12H", "periodOverride": "inherit", "widgets": ['
    placed: list[list[Widget]] = []
    y = 0
    for height, row in layout():
        x, widgets = 0, []
        for width, widget in row:
            widgets.append({"type": widget["type"], "x": x, "y": y, "width": width, "height": height, **widget})
            x += width
        placed.append(widgets)
        y += height
    for number, widgets in enumerate(placed, 1):
        text = json.dumps(widgets)[1:-1]
        for dimensions in (SEARCH, VALIDATION, AUDIT, SUITE):
            text = text.replace(json.dumps(dimensions), dimensions)
        text = re.sub(r'"value": "(\$\{\w+\})"', r'"value": \1', text)
        text = text.replace(', "MORE"', "${AuditAlarms}${SuiteAlarms}${CanaryState}${StartAlarm}")
        yield text + ("," if number < len(placed) else "")
    yield "]}"


def fill_template(text: str) -> str:
    """The template with the body of now."""
    begin, end = text.index("      DashboardBody: !Sub\n"), text.index("        - Search: !Sub")
    body = "".join(f"          {line}\n" for line in write_body())
    return f"{text[:begin]}      DashboardBody: !Sub\n        - |\n{body}{text[end:]}"


# The picture


def draw() -> str:
    """The picture: a box for each widget where it stands on the dashboard, with its title and what it shows."""
    widgets = dashboard_body(observability_stack())["widgets"]
    width = max(w["x"] + w["width"] for w in widgets) * COLUMN
    height = max(w["y"] + w["height"] for w in widgets) * ROW
    boxes = "\n".join(line for widget in widgets for line in _box(widget))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"\n'
        '  font-family="system-ui, sans-serif" font-size="12" fill="#222">\n'
        "<title>Layout of the CloudWatch dashboard</title>\n"
        f'<rect width="{width}" height="{height}" fill="white"/>\n{boxes}\n</svg>\n'
    )


def _box(widget: Widget) -> Iterator[str]:
    left, top = widget["x"] * COLUMN + GAP, widget["y"] * ROW + GAP
    width, height = widget["width"] * COLUMN - 2 * GAP, widget["height"] * ROW - 2 * GAP
    title, *rest = _label_lines(widget)
    yield (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="4" '
        f'fill="{FILL[widget["type"]]}" stroke="#9ab"/>'
    )
    room = int((width - 16) / CHARACTER)
    lines = [*((text, "bold") for text in textwrap.wrap(title, room))]
    lines += [(text, "normal") for part in rest for text in textwrap.wrap(part, room)]
    for number, (text, weight) in enumerate(lines[: height // LINE]):
        y = top + LINE + number * LINE
        yield f'<text x="{left + 8}" y="{y}" font-weight="{weight}">{escape(_fill(text))}</text>'


def _label_lines(widget: Widget) -> Iterator[str]:
    """A widget's title, then what it shows."""
    properties = widget["properties"]
    match widget["type"]:
        case "text":
            heading, _, text = properties["markdown"].partition("\n")
            yield heading.strip("# ")
            yield text.replace("*", "").partition(". ")[0]
        case "alarm":
            yield properties["title"]
            yield ", ".join(arn.removeprefix("${").removesuffix(".Arn}") for arn in properties["alarms"])
        case "log":
            yield properties["title"]
            yield "Logs Insights: " + properties["query"].rpartition("display ")[2]
        case "metric":
            yield properties["title"]
            yield _metric_names(properties)
            if lines := properties.get("annotations", {}).get("horizontal"):
                yield "Lines: " + ", ".join(f"{line['label']} {line['value']:g}" for line in lines)


def _metric_names(properties: dict[str, Any]) -> str:
    """The distinct metrics of a graph, and the percentiles it has of them."""
    found = [(metric.name, options.get("stat", "")) for metric, options in rows(properties) if metric]
    searched = re.findall(r"SEARCH\(.*?MetricName=\"?(\w+)", json.dumps(properties).replace('\\"', '"'))
    names = list(dict.fromkeys([*(name for name, _ in found), *(f"each {name}" for name in searched)]))
    percentiles = [stat for stat in dict.fromkeys(stat for _, stat in found) if stat.startswith("p")]
    few = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{few}: {' '.join(percentiles)}" if percentiles else few


def _fill(text: str) -> str:
    for reference, value in EXAMPLE.items():
        text = text.replace(reference, value)
    return text


def main() -> None:
    logging.disable(logging.WARNING)  # the translator's remarks on itself
    TEMPLATE.write_text(fill_template(TEMPLATE.read_text("utf-8")), "utf-8")
    PICTURE.write_text(draw(), "utf-8")
    print(TEMPLATE.relative_to(ROOT), PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
