"""CloudWatch's embedded metric format: the rules that a log line must follow to become metrics.

After the specification in the CloudWatch user guide. What a schema cannot say, `problems` checks by hand.
"""

import json
from typing import Any

from jsonschema import Draft202012Validator

MAX_LINE_BYTES = 256 * 1024
UNITS = [
    "Seconds",
    "Microseconds",
    "Milliseconds",
    *(prefix + unit for unit in ("Bytes", "Bits") for prefix in ("", "Kilo", "Mega", "Giga", "Tera")),
    "Percent",
    "Count",
    *(prefix + unit for unit in ("Bytes/Second", "Bits/Second") for prefix in ("", "Kilo", "Mega", "Giga", "Tera")),
    "Count/Second",
    "None",
]

METRIC = {
    "type": "object",
    "required": ["Name"],
    "additionalProperties": False,
    "properties": {
        "Name": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": r"\S"},
        "Unit": {"enum": UNITS},
        "StorageResolution": {"enum": [1, 60]},
    },
}
DIRECTIVE = {
    "type": "object",
    "required": ["Namespace", "Dimensions", "Metrics"],
    "additionalProperties": False,
    "properties": {
        "Namespace": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": r"^[^:]"},
        "Dimensions": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "array",
                "maxItems": 30,
                "uniqueItems": True,
                "items": {"type": "string", "minLength": 1, "maxLength": 250, "pattern": r"^[^:]"},
            },
        },
        "Metrics": {"type": "array", "minItems": 1, "maxItems": 100, "items": METRIC},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["_aws"],
    "properties": {
        "_aws": {
            "type": "object",
            "required": ["Timestamp", "CloudWatchMetrics"],
            "properties": {
                "Timestamp": {"type": "integer", "minimum": 0},
                "CloudWatchMetrics": {"type": "array", "minItems": 1, "items": DIRECTIVE},
            },
        }
    },
}
VALUE = {
    "anyOf": [
        {"type": "number"},
        {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "number"}},
    ]
}
DIMENSION_VALUE = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "pattern": r"^[\x20-\x7e]*\S[\x20-\x7e]*$",
}


def problems(document: Any) -> list[str]:
    """List why CloudWatch would not create all metrics that the document declares."""
    found = _schema_problems(SCHEMA, document)
    if found:
        return found
    size = len(json.dumps(document, ensure_ascii=False).encode())
    if size > MAX_LINE_BYTES:
        found.append(f"{size} bytes are more than {MAX_LINE_BYTES}")
    for directive in document["_aws"]["CloudWatchMetrics"]:
        metrics = [metric["Name"] for metric in directive["Metrics"]]
        found += [f"{name} is declared twice" for name in set(metrics) if metrics.count(name) > 1]
        dimensions = {name for names in directive["Dimensions"] for name in names}
        found += [f"{name} is a metric and a dimension" for name in dimensions & set(metrics)]
        found += [
            f"{name}: {why}"
            for schema, names in ((VALUE, metrics), (DIMENSION_VALUE, dimensions))
            for name in names
            for why in (_schema_problems(schema, document[name]) if name in document else ["has no value"])
        ]
    return found


def figures(document: Any) -> dict[str, float]:
    """Each metric's one value."""
    names = [metric["Name"] for metric in document["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    values = {name: document[name] for name in names}
    return {name: value[0] if isinstance(value, list) else value for name, value in values.items()}


def _schema_problems(schema: dict[str, Any], document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in Draft202012Validator(schema).iter_errors(document)]
