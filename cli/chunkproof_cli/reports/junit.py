"""JUnit XML as Jenkins, GitLab and GitHub actions read it: failures apart from errors."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from xml.etree import ElementTree as ET

from chunkproof_cli.output import escape_controls

# Characters that XML 1.0 does not allow, not even escaped.
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One `testcase`; one without a problem passed."""

    name: str
    seconds: float = 0.0
    problem: Literal["failure", "error", "skipped"] | None = None
    type: str = ""
    message: str = ""
    details: str = ""


def render_junit(
    name: str,
    cases: Sequence[Case],
    properties: Iterable[tuple[str, str]],
    *,
    class_name: str,
    started_at: datetime,
    seconds: float,
) -> str:
    """Render one `testsuite` with its properties and cases."""
    counts = Counter(case.problem for case in cases)
    root = ET.Element("testsuites")
    suite = _add(
        root,
        "testsuite",
        id="0",
        name=name,
        package="chunkproof",
        hostname="localhost",
        timestamp=f"{started_at:%Y-%m-%dT%H:%M:%S}",
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time=f"{seconds:.3f}",
    )
    listed = _add(suite, "properties")
    for key, value in properties:
        _add(listed, "property", name=key, value=value)
    for case in cases:
        made = _add(suite, "testcase", name=case.name, classname=class_name, time=f"{case.seconds:.3f}")
        if case.problem:
            given = {"type": case.type, "message": case.message} if case.type else {}
            _add(made, case.problem, **given).text = _replace_invalid(case.details) or None
    _add(suite, "system-out")
    _add(suite, "system-err")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{escape_controls(ET.tostring(root, encoding="unicode"))}\n'


def _add(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, {key: _replace_invalid(value) for key, value in attributes.items()})


def _replace_invalid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)
