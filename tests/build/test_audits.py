"""What an audit of template or dependencies finds is mended, or excepted with a reason; and no audit passes unasked."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from support.listeners import refusing_address
from support.recording_server import CannedResponse, RecordedRequest, recording_server
from support.template import broken_rules, stack, whole_stack
from tools import pins
from tools.checks import audit_dependencies, audit_template
from tools.checks.audit_dependencies import BrokenError, UncheckedError, Vulnerable
from tools.checks.audit_template import Finding, ScanError

PLAN = audit_template.plan()
SENTENCE = re.compile(r"[A-Z].{20,}\.")

# The template


@pytest.mark.parametrize("exception", PLAN.exceptions, ids=lambda exception: exception.check)
def test_an_exception_names_what_exists_and_says_why(exception: audit_template.Excepted) -> None:
    assert SENTENCE.fullmatch(exception.reason)
    assert exception.findings()
    for name in exception.stacks:
        assert set(exception.resources) <= set(whole_stack(**PLAN.stacks[name]).resources)


def test_the_stacks_scanned_are_the_delivered_one_and_one_that_can_be_deployed() -> None:
    assert PLAN.stacks["delivered"] == {}
    for name in ("hardened", "edge"):
        assert not broken_rules(**PLAN.stacks[name])


def test_a_stack_is_scanned_with_its_nested_ones() -> None:
    for found in audit_template.stacks(PLAN).values():
        assert {"SearchFunction", "AlarmTopic", "AlarmKey"} <= set(found.resources)


def test_parameters_can_fix_every_exception_of_the_default_stack_except_the_queue() -> None:
    remaining = {finding for exception in PLAN.exceptions for finding in exception.findings()}
    left = {finding for finding in remaining if finding.stack == "hardened"}
    # Audits, suites and gradual rollouts have exceptions of their own, and are deployed only when enabled.
    optional = ("Audit", "Suite", "Rollout")
    assert {one.check for one in left if not one.resource.startswith(optional)} == {"CKV_AWS_116"}


def test_a_finding_fails_unless_excepted_for_that_resource_of_that_stack() -> None:
    excepted = audit_template.Excepted("CKV_1", ["delivered"], ["Logs"], "Because.")
    found = {
        Finding("delivered", "CKV_1", "Logs", "Encrypt"),
        Finding("hardened", "CKV_1", "Logs", "Encrypt"),
        Finding("delivered", "CKV_1", "Other", "Encrypt"),
    }
    assert audit_template.problems(found, [excepted]) == [
        "delivered stack: Other: CKV_1 Encrypt",
        "hardened stack: Logs: CKV_1 Encrypt",
    ]


def test_an_exception_that_nothing_needs_any_more_fails() -> None:
    excepted = audit_template.Excepted("CKV_1", ["delivered"], ["Logs", "Gone"], "Because.")
    assert audit_template.problems({Finding("delivered", "CKV_1", "Logs")}, [excepted]) == [
        "delivered stack: Gone: CKV_1 is excepted but no longer found; remove the exception"
    ]


def report(**summary: int) -> str:
    failed = {
        "check_id": "CKV_1",
        "check_name": "Encrypt",
        "resource": "AWS::Logs::LogGroup.Logs",
        "file_path": "/hardened.json",
    }
    counted = {"passed": 7, "failed": 1, "parsing_errors": 0, "resource_count": 3, **summary}
    return json.dumps({"results": {"failed_checks": [failed]}, "summary": counted})


def test_a_report_says_which_resource_of_which_stack_failed_and_how_many_checks_passed() -> None:
    found, passed = audit_template.findings(report(), resources=3)
    assert [(f.stack, f.check, f.resource, f.title) for f in found] == [("hardened", "CKV_1", "Logs", "Encrypt")]
    assert passed == 7


@pytest.mark.parametrize(
    "seen",
    ["", "Traceback", '{"passed": 0, "failed": 0}', report(resource_count=2), report(parsing_errors=1)],
    ids=["nothing", "no-json", "nothing-scanned", "too-few", "unparsed"],
)
def test_a_scan_that_missed_a_resource_is_an_error(seen: str) -> None:
    with pytest.raises(ScanError, match="checkov"):
        audit_template.findings(seen, resources=3)


def test_a_stack_is_scanned_with_its_references_and_without_conditions() -> None:
    text = audit_template.to_json_text(stack())
    document: dict[str, Any] = json.loads(text)
    assert document["Resources"]["SearchFunction"]["Properties"]["Role"] == {"Fn::Sub": "${SearchRole.Arn}"}
    assert "Fn::If" not in text
    assert set(document["Resources"]) == set(stack().resources)


# The dependencies


def test_every_pinned_file_is_looked_up() -> None:
    folders = [path for path in pins.ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = {str(file.relative_to(pins.ROOT)) for path in folders for file in path.rglob("*requirements*.txt")}
    assert {file for found in audit_dependencies.find_pins().values() for file in found} == files


def test_a_package_with_two_versions_is_looked_up_in_two_rounds() -> None:
    assert audit_dependencies.rounds([("a", "1"), ("a", "2"), ("b", "1")]) == [
        [("a", "1"), ("b", "1")],
        [("a", "2")],
    ]


def advisory(request: RecordedRequest) -> CannedResponse:
    """OSV's answer: idna 3.6 is vulnerable."""
    question = json.loads(request.body)
    if (question["package"]["name"], question["version"]) != ("idna", "3.6"):
        return CannedResponse()
    fixed = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}
    affected = {"package": {"name": "idna", "ecosystem": "PyPI"}, "ranges": [fixed]}
    found = {"id": "PYSEC-1", "aliases": ["CVE-1"], "summary": "Slow", "affected": [affected]}
    return CannedResponse(body=json.dumps({"vulns": [found]}).encode())


def test_every_version_is_looked_up_and_known_vulnerabilities_are_found() -> None:
    with recording_server(advisory) as database:
        found = audit_dependencies.find_vulnerable([("idna", "3.6"), ("idna", "3.7")], osv_url=database.url)
    assert found == [Vulnerable("idna", "3.6", ("PYSEC-1", "CVE-1"), ("3.7",))]
    assert [json.loads(request.body)["version"] for request in database.requests] == ["3.6", "3.7"]


@pytest.mark.parametrize(("options", "code"), [([], 3), (["--may-be-offline"], 0)], ids=["alone", "in-ci"])
def test_an_unreachable_database_is_reported_and_fails_unless_allowed(options: list[str], code: int) -> None:
    command = [sys.executable, "-m", "tools.checks.audit_dependencies", "--osv-url", refusing_address(), *options]
    search_path = {"PYTHONPATH": f"tests{os.pathsep}."}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=pins.ROOT, env={**os.environ, **search_path}
    )
    assert (run.returncode, run.stdout) == (code, "")
    assert run.stderr.startswith("NOT CHECKED for known vulnerabilities: the database cannot be reached (")
    assert "Connection refused" in run.stderr


IDNA = [("idna", "3.6")]
LOOKED_UP = '{"dependencies": [{"name": "idna", "version": "3.6", "vulns": []}]}'


@pytest.mark.parametrize(
    "trouble",
    [
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: …\n\nServiceError",
        "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='…', port=443): Read timed out.",
        "requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ],
    ids=["503", "timeout", "a-login-page"],
)
def test_an_invalid_response_counts_as_unreachable(trouble: str) -> None:
    with pytest.raises(UncheckedError, match=trouble.partition(":")[0].rpartition(".")[2]):
        audit_dependencies.read(IDNA, "", trouble)


@pytest.mark.parametrize(
    ("report", "trouble"),
    [
        ("", "pip-audit: error: unrecognized arguments"),
        ("", ""),
        ('{"dependencies": []}', ""),
        ('{"dependencies": [{"name": "idna", "skip_reason": "not found"}]}', ""),
        (LOOKED_UP, "WARNING:pip_audit._service.osv:OSV vuln entry 'X' is missing 'affected' list"),
    ],
    ids=["usage", "silence", "left-out", "skipped", "unread-advisory"],
)
def test_a_failed_lookup_never_passes(report: str, trouble: str) -> None:
    with pytest.raises(BrokenError):
        audit_dependencies.read(IDNA, report, trouble)


def test_a_package_that_was_looked_up_and_is_fine_is_no_finding() -> None:
    assert audit_dependencies.read(IDNA, LOOKED_UP, "") == []


def test_a_vulnerability_is_shown_with_its_files_and_fix_unless_excepted() -> None:
    found = Vulnerable("idna", "3.6", ("PYSEC-1", "CVE-1"), ("3.7",))
    files = {("idna", "3.6"): ["cli/requirements.txt"]}
    assert audit_dependencies.problems([found], [], files) == [
        "idna 3.6: PYSEC-1 CVE-1, fixed in 3.7 (cli/requirements.txt)"
    ]
    excepted = audit_dependencies.Excepted("idna", "CVE-1", "Because.")
    assert audit_dependencies.problems([found], [excepted], files) == []
    assert audit_dependencies.problems([], [excepted], files) == [
        "idna: CVE-1 is excepted but no longer found; remove the exception"
    ]


def test_an_exception_for_a_package_says_why() -> None:
    assert all(SENTENCE.fullmatch(exception.reason) for exception in audit_dependencies.exceptions())
