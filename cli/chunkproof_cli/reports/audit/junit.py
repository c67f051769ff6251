"""`.xml`: JUnit, as Jenkins, GitLab and GitHub actions read it: a case per kind, failures apart from errors."""

from xml.etree import ElementTree as ET

from chunkproof.audit.findings import Kind
from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit.figures import GOOD, facts, kind_rows, why
from chunkproof_cli.reports.suite.junit import possible

SHOWN = 50
UNJUDGED = (Kind.UNVERIFIABLE, Kind.UNVERIFIABLE_VECTOR)


def junit(report: AuditReport) -> str:
    """One `testsuite`: each kind of fault is a case, which fails when a chunk has it."""
    counts = [(Kind(kind), count) for kind, count in kind_rows(report) if kind not in GOOD]
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "id": "0",
            "name": possible(f"audit of {report.collection}"),
            "package": "chunkproof",
            "hostname": "localhost",
            "timestamp": f"{report.run.started_at:%Y-%m-%dT%H:%M:%S}",
            "tests": str(len(counts)),
            "failures": str(sum(1 for kind, count in counts if count and kind not in UNJUDGED)),
            "errors": str(sum(1 for kind, count in counts if count and kind in UNJUDGED)),
            "skipped": "0",
            "time": f"{report.run.seconds:.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in facts(report):
        ET.SubElement(properties, "property", {"name": name, "value": possible(value)})
    for kind, count in counts:
        _case(suite, report, kind, count)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(suite: ET.Element, report: AuditReport, kind: Kind, count: int) -> None:
    name = {"name": f"no {kind.value}", "classname": possible(f"audit.{report.collection}"), "time": "0"}
    case = ET.SubElement(suite, "testcase", name)
    if not count:
        return
    found = ET.SubElement(
        case,
        "error" if kind in UNJUDGED else "failure",
        {"type": kind.value, "message": f"{count:,} {kind.value}"},
    )
    listed = [one for one in report.findings if one.kind is kind][:SHOWN]
    lines = [f"{one.chunk_id}: {why(one)}" for one in listed]
    lines += [f"… and {count - len(listed):,} more"] if count > len(listed) else []
    found.text = possible("\n".join(lines))
