"""What CTRF and SARIF 2.1.0 require of the parts that reports have, by hand: no package carries their schemas."""

import json
from typing import Any

from jsonschema import Draft202012Validator

COUNT = {"type": "integer", "minimum": 0}
CTRF = {
    "type": "object",
    "required": ["reportFormat", "specVersion", "results"],
    "additionalProperties": False,
    "properties": {
        "reportFormat": {"const": "CTRF"},
        "specVersion": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "results": {
            "type": "object",
            "required": ["tool", "summary", "tests"],
            "additionalProperties": False,
            "properties": {
                "tool": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                "summary": {
                    "type": "object",
                    "required": ["tests", "passed", "failed", "pending", "skipped", "other", "start", "stop"],
                    "additionalProperties": COUNT,
                },
                "tests": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "status", "duration"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "status": {"enum": ["passed", "failed", "skipped", "pending", "other"]},
                            "duration": COUNT,
                            "suite": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                            "rawStatus": {"type": "string"},
                            "message": {"type": "string"},
                            "trace": {"type": "string"},
                        },
                    },
                },
                "extra": {"type": "object"},
            },
        },
    },
}
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {"shortDescription": MESSAGE},
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "level", "locations"],
                            "properties": {
                                "message": MESSAGE,
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                                "locations": {
                                    "minItems": 1,
                                    "items": {
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "required": ["uri"],
                                                        "properties": {"uri": {"pattern": r"^[\w./%~:+@-]+$"}},
                                                    },
                                                    "region": {
                                                        "required": ["startLine"],
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def check_ctrf(text: str) -> Any:
    document = json.loads(text)
    Draft202012Validator(CTRF).validate(document)
    summary = document["results"]["summary"]
    states = ("passed", "failed", "pending", "skipped", "other")
    assert sum(summary[state] for state in states) == summary["tests"] == len(document["results"]["tests"])
    assert summary["stop"] >= summary["start"] > 1_000_000_000_000, "in milliseconds"
    return document["results"]


def check_sarif(text: str) -> Any:
    document = json.loads(text)
    Draft202012Validator(SARIF).validate(document)
    (run,) = document["runs"]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    return run["results"]
