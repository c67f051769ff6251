"""Reports for CI systems: cases as JUnit XML or CTRF, failures apart from errors; findings as SARIF."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote
from xml.etree import ElementTree as ET

from chunkproof import __version__
from chunkproof.proof.integrity import digest
from chunkproof_cli.output import escape_controls

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# Characters that XML 1.0 does not allow, not even escaped.
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JunitCase:
    """One `testcase`; one without a problem passed."""

    name: str
    seconds: float = 0.0
    problem: Literal["failure", "error", "skipped"] | None = None
    type: str = ""
    message: str = ""
    details: str = ""


@dataclass(frozen=True)
class JunitSuite:
    """One `testsuite`: what a kind of report shows as JUnit."""

    name: str
    class_name: str
    cases: Sequence[JunitCase]
    properties: Sequence[tuple[str, str]]
    started_at: datetime
    seconds: float


def render_junit(suite: JunitSuite) -> str:
    """Render the suite with its properties and cases."""
    counts = Counter(case.problem for case in suite.cases)
    root = ET.Element("testsuites")
    parent = _add(
        root,
        "testsuite",
        id="0",
        name=suite.name,
        package="chunkproof",
        hostname="localhost",
        timestamp=f"{suite.started_at:%Y-%m-%dT%H:%M:%S}",
        tests=str(len(suite.cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=f"{suite.seconds:.3f}",
    )
    properties = _add(parent, "properties")
    for key, value in suite.properties:
        _add(properties, "property", name=key, value=value)
    for case in suite.cases:
        element = _add(parent, "testcase", name=case.name, classname=suite.class_name, time=f"{case.seconds:.3f}")
        if case.problem:
            attributes = {"type": case.type, "message": case.message} if case.type else {}
            _add(element, case.problem, **attributes).text = _replace_invalid(case.details) or None
    _add(parent, "system-out")
    _add(parent, "system-err")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{escape_controls(ET.tostring(root, encoding="unicode"))}\n'


CTRF_STATES = {"failure": "failed", "error": "other", "skipped": "skipped", None: "passed"}


def render_ctrf(suite: JunitSuite) -> str:
    """Render the suite in the Common Test Report Format; a case that could not be judged is `other`."""
    tests = [
        {
            "name": case.name,
            "status": CTRF_STATES[case.problem],
            "duration": round(case.seconds * 1000),
            "suite": [suite.name],
            **({"rawStatus": case.type} if case.type else {}),
            **({"message": case.message} if case.message else {}),
            **({"trace": case.details} if case.details else {}),
        }
        for case in suite.cases
    ]
    counts = Counter(test["status"] for test in tests)
    started = round(suite.started_at.timestamp() * 1000)
    summary = {state: counts[state] for state in ("passed", "failed", "pending", "skipped", "other")}
    times = {"start": started, "stop": started + round(suite.seconds * 1000)}
    results = {
        "tool": {"name": "chunkproof", "version": __version__},
        "summary": {"tests": len(tests), **summary, **times},
        "tests": tests,
        "extra": dict(suite.properties),
    }
    return _write_json({"reportFormat": "CTRF", "specVersion": "0.0.0", "results": results})


@dataclass(frozen=True)
class SarifResult:
    """A finding at a line of a file; `subject` names its object, such as the id of a chunk."""

    rule: str
    level: Literal["error", "warning", "note"]
    message: str
    file: str
    line: int = 1
    subject: str = ""


def render_sarif(results: Sequence[SarifResult]) -> str:
    """Render findings as SARIF 2.1.0, which GitHub and others show beside the code."""
    rules = dict.fromkeys(result.rule for result in results)
    driver = {
        "name": "chunkproof",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("_", " ")}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [
            {
                "ruleId": result.rule,
                "level": result.level,
                "message": {"text": result.message},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": quote(result.file)},
                            "region": {"startLine": max(result.line, 1)},
                        },
                        **({"logicalLocations": [{"name": result.subject}]} if result.subject else {}),
                    }
                ],
                # The same finding of a later run is recognized, wherever its line went.
                "partialFingerprints": {
                    "finding/v1": digest(f"{result.rule} {result.file} {result.subject or result.message}")
                },
            }
            for result in results
        ],
    }
    return _write_json({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _write_json(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"


def _add(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, {key: _replace_invalid(value) for key, value in attributes.items()})


def _replace_invalid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)
