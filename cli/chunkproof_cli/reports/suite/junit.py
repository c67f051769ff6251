"""`.xml`: JUnit, as Jenkins, GitLab and GitHub actions read it: failures apart from errors."""

import re
from xml.etree import ElementTree as ET

from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.figures import why

# What XML 1.0 cannot carry, not even escaped.
_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: SuiteReport) -> str:
    """One `testsuite`; a case that was not run is skipped."""
    result = report.result
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "id": "0",
            "name": possible(report.suite.name),
            "package": "chunkproof",
            "hostname": "localhost",
            "timestamp": f"{report.validation.started_at:%Y-%m-%dT%H:%M:%S}",
            "tests": str(result.total_tests),
            "failures": str(result.failed),
            "errors": str(result.errors),
            "skipped": str(result.total_tests - result.passed - result.failed - result.errors),
            "time": f"{result.execution_time_ms / 1000:.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in result.metrics.items():
        ET.SubElement(properties, "property", {"name": name, "value": f"{value:.6f}"})
    for one in report.criteria:
        ET.SubElement(properties, "property", {"name": one.id, "value": f"{one.shown_figure}, {one.verdict}"})
    if report.comparison:
        verdict = possible(report.comparison.verdict)
        ET.SubElement(properties, "property", {"name": "baseline", "value": verdict})
    for case in result.test_results:
        _case(suite, case, report.suite.name)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _case(suite: ET.Element, case: TestCaseResult, suite_name: str) -> None:
    seconds = case.timing.latency_ms / 1000 if case.timing else 0.0
    element = ET.SubElement(
        suite,
        "testcase",
        {"name": possible(case.name), "classname": possible(suite_name), "time": f"{seconds:.3f}"},
    )
    message = possible(why(case))
    if case.status is TestStatus.FAILED:
        kind = case.unmet[0].kind if case.unmet else "ExpectationError"
        found = ET.SubElement(element, "failure", {"type": kind, "message": message})
        found.text = possible(_details(case))
    elif case.status is TestStatus.ERROR:
        found = ET.SubElement(element, "error", {"type": case.error_code or "INTERNAL", "message": message})
        found.text = possible(f"query: {case.query_text}")
    elif not case.status.is_judged:
        ET.SubElement(element, "skipped")


def _details(case: TestCaseResult) -> str:
    lines = [f"query: {case.query_text}", *(f"{unmet.kind}: {unmet.message}" for unmet in case.unmet)]
    for found in case.diagnosis:
        lines += [f"{found.cause}: {found.message}", *([f"  {found.command}"] if found.command else [])]
    lines += [f"{r.rank}. {r.similarity_score:.3f} {r.chunk_id}" for r in case.actual_results or ()]
    return "\n".join(lines)


def possible(text: str) -> str:
    """The text without what XML cannot carry."""
    return _IMPOSSIBLE.sub("\N{REPLACEMENT CHARACTER}", text)
