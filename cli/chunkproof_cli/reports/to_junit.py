"""Reports as JUnit XML, as Jenkins, GitLab and GitHub actions read it: failures apart from errors."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from xml.etree import ElementTree as ET

from chunkproof_cli.output import escape_controls

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


def _add(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, {key: _replace_invalid(value) for key, value in attributes.items()})


def _replace_invalid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)
