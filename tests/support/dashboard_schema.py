"""The part of CloudWatch's documented dashboard structure that is used here.

After "Dashboard Body Structure and Syntax" in the CloudWatch API reference. CloudWatch silently drops properties
that it does not know, so an unknown one is a problem here. What a schema cannot say, `problems` checks by hand.
"""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from jsonschema import Draft202012Validator

COLUMNS = 24
FUNCTIONS = {"IF", "MAX"}

Schema = dict[str, Any]
Widget = dict[str, Any]


def _closed(required: list[str], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
# "-PT12H" or "-P28D": relative to now.
START: Schema = {"type": "string", "pattern": r"^-P(T\d+[MH]|\d+[DWM])$"}
PERIOD: Schema = {"type": "integer", "minimum": 60, "multipleOf": 60}
STAT: Schema = {
    "type": "string",
    "pattern": r"^(Average|Sum|Minimum|Maximum|SampleCount|p\d{1,2}(\.\d+)?)$",
}
SIDE: Schema = {"enum": ["left", "right"]}
ID: Schema = {"type": "string", "pattern": r"^[a-z]\w*$"}
AXIS = _closed([], min=NUMBER, max=NUMBER, label=TEXT, showUnits=FLAG)
LINE = _closed(["value"], value=NUMBER, label=TEXT, color=TEXT, yAxis=SIDE)
OPTIONS = _closed(
    [], id=ID, expression=TEXT, stat=STAT, label=TEXT, visible=FLAG, yAxis=SIDE, period=PERIOD, color=TEXT
)
ROW: Schema = {
    "oneOf": [
        {"type": "array", "minItems": 1, "maxItems": 1, "items": {**OPTIONS, "required": ["expression"]}},
        # Namespace, name, up to thirty dimensions, and options.
        {"type": "array", "minItems": 2, "maxItems": 63, "items": {"anyOf": [TEXT, OPTIONS]}},
    ]
}
PROPERTIES: dict[str, Schema] = {
    "text": _closed(["markdown"], markdown=TEXT, background={"enum": ["transparent", "solid"]}),
    "alarm": _closed(["alarms"], alarms={"type": "array", "minItems": 1, "maxItems": 100, "items": TEXT}, title=TEXT),
    "log": _closed(
        ["query", "region"],
        query={"type": "string", "pattern": r"^SOURCE '[^']+'( \| SOURCE '[^']+')* \| "},
        region=TEXT,
        title=TEXT,
        view={"enum": ["table", "timeSeries", "bar", "pie"]},
    ),
    "metric": _closed(
        ["metrics", "region"],
        metrics={"type": "array", "minItems": 1, "maxItems": 500, "items": ROW},
        region=TEXT,
        title=TEXT,
        view={"enum": ["timeSeries", "singleValue", "gauge", "bar", "pie"]},
        stacked=FLAG,
        stat=STAT,
        period=PERIOD,
        start=START,
        setPeriodToTimeRange=FLAG,
        yAxis=_closed([], left=AXIS, right=AXIS),
        annotations=_closed([], horizontal={"type": "array", "items": LINE}),
    ),
}


def _widget(kind: str) -> Schema:
    return _closed(
        ["type", "x", "y", "width", "height", "properties"],
        type={"const": kind},
        x={"type": "integer", "minimum": 0, "maximum": COLUMNS - 1},
        y={"type": "integer", "minimum": 0},
        width={"type": "integer", "minimum": 1, "maximum": COLUMNS},
        height={"type": "integer", "minimum": 1, "maximum": 1000},
        properties=PROPERTIES[kind],
    )


WIDGETS = {kind: Draft202012Validator(_widget(kind)) for kind in PROPERTIES}
BODY = Draft202012Validator(
    _closed(
        ["widgets"],
        start=START,
        periodOverride={"enum": ["auto", "inherit"]},
        widgets={"type": "array", "maxItems": 500, "items": {"type": "object", "required": ["type"]}},
    )
)


def problems(body: Any) -> list[str]:
    """List why CloudWatch would not show the dashboard as intended."""
    found = [f"{error.json_path}: {error.message[:200]}" for error in BODY.iter_errors(body)]
    for number, widget in enumerate([] if found else body["widgets"]):
        at = widget.get("properties", {}).get("title", f"widget {number}")
        if widget["type"] not in WIDGETS:
            found.append(f"{at}: no widget is of type {widget['type']}")
            continue
        wrong = [f"{e.json_path}: {e.message[:200]}" for e in WIDGETS[widget["type"]].iter_errors(widget)]
        if not wrong and widget["type"] == "metric":
            wrong = list(math_problems(_parts(widget["properties"]["metrics"])))
        found += [f"{at}: {problem}" for problem in wrong]
    return found or list(_overlaps(body["widgets"]))


def _parts(rows: list[Any]) -> dict[str, str | None]:
    """Ids of a widget's rows and their expressions; a hidden row without an id is of no use."""
    options = [row[-1] if isinstance(row[-1], dict) else {} for row in rows]
    return {
        option.get("id", f"row {number}"): option.get("expression")
        for number, option in enumerate(options)
        if "id" in option or not option.get("visible", True)
    }


def math_problems(parts: dict[str, str | None]) -> Iterator[str]:
    """What is wrong with expressions over these ids; the value of a plain metric is None."""
    read = set()
    for name, expression in parts.items():
        if (expression or "").startswith("SEARCH("):
            continue
        words = set(re.findall(r"[A-Za-z_]\w*", expression or ""))
        read |= words
        for word in sorted(words - FUNCTIONS - set(parts)):
            yield f"{name} reads {word}, which is not there"
    for name in sorted(name for name, expression in parts.items() if expression is None and name not in read):
        yield f"{name} is read by no expression"


def _overlaps(widgets: list[Widget]) -> Iterator[str]:
    for widget in widgets:
        if widget["x"] + widget["width"] > COLUMNS:
            yield f"{_title(widget)} is wider than the dashboard"
    for one, other in combinations(widgets, 2):
        if _meets(one, other, "x", "width") and _meets(one, other, "y", "height"):
            yield f"{_title(one)} covers {_title(other)}"


def _meets(one: Widget, other: Widget, start: str, length: str) -> bool:
    return bool(one[start] < other[start] + other[length] and other[start] < one[start] + one[length])


def _title(widget: Widget) -> str:
    return str(widget["properties"].get("title", widget["type"]))
