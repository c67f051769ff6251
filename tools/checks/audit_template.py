"""What a policy scanner, checkov, says of the stacks that template.yaml makes; `make audit-template` runs this.

Stacks are scanned together with their nested ones, and with their conditions decided: a scanner takes a property that
may be absent for present.
Exit 1 for a finding without an exception and for an exception without a finding, 2 when nothing could be scanned.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.template import REFERENCE, Stack, whole_stack

ROOT = Path(__file__).resolve().parents[2]
EXCEPTIONS = ROOT / "tests" / "audit-exceptions.toml"


class ScanError(Exception):
    """The scanner did not scan what it was given."""


@dataclass(frozen=True, order=True)
class Finding:
    """A check that a resource of a stack fails."""

    stack: str
    check: str
    resource: str
    title: str = field(default="", compare=False)


@dataclass(frozen=True)
class Excepted:
    """A finding that may stay, of these resources in these stacks."""

    check: str
    stacks: list[str]
    resources: list[str]
    reason: str

    def findings(self) -> set[Finding]:
        """Every finding that this is about."""
        return {Finding(name, self.check, resource) for name in self.stacks for resource in self.resources}


@dataclass(frozen=True)
class Plan:
    """Parameters of the stacks to scan, by name, and what may be found in them."""

    stacks: dict[str, dict[str, str]]
    exceptions: list[Excepted]


def plan() -> Plan:
    """The plan in `tests/audit-exceptions.toml`."""
    document = tomllib.loads(EXCEPTIONS.read_text("utf-8"))
    return Plan(document["stacks"], [Excepted(**entry) for entry in document["template"]])


def stacks(planned: Plan) -> dict[str, Stack]:
    """The stacks to scan, by name, each with its nested ones."""
    return {name: whole_stack(**parameters) for name, parameters in planned.stacks.items()}


def to_json_text(found: Stack) -> str:
    """A stack as a template without parameters and conditions."""
    return json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": _substitute(found.resources)})


def _substitute(node: Any) -> Any:
    match node:
        case str() if REFERENCE.search(node):
            return {"Fn::Sub": node}
        case dict():
            return {key: _substitute(part) for key, part in node.items()}
        case list():
            return [_substitute(part) for part in node]
    return node


def scan(stacks: dict[str, Stack], checkov: Path) -> tuple[set[Finding], int]:
    """The findings in stacks, and how many checks were passed. Raises `ScanError`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, found in stacks.items():
            (Path(folder) / f"{name}.json").write_text(to_json_text(found), "utf-8")
        options = "--framework cloudformation --output json --skip-download --soft-fail --file"
        run = subprocess.run(
            [checkov.absolute(), *options.split(), *(f"{name}.json" for name in stacks)],
            cwd=folder,
            # Without the settings of this machine.
            env={"PATH": os.environ["PATH"], "HOME": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    return findings(run.stdout or run.stderr, resources=sum(len(found.resources) for found in stacks.values()))


def findings(report: str, *, resources: int) -> tuple[set[Finding], int]:
    """The findings in checkov's report, and how many checks were passed.

    Raises `ScanError` unless it is a report on this many resources.
    """
    try:
        document = json.loads(report)
        summary, failed = document["summary"], document["results"]["failed_checks"]
    except (ValueError, KeyError, TypeError):
        raise ScanError(f"checkov gave no report: {report.strip() or 'no output'}") from None
    if summary["parsing_errors"] or summary["resource_count"] != resources:
        raise ScanError(f"checkov saw {summary['resource_count']} of {resources} resources")
    return {_finding(entry) for entry in failed}, summary["passed"]


def _finding(entry: dict[str, Any]) -> Finding:
    resource = entry["resource"].rpartition(".")[2]
    return Finding(Path(entry["file_path"]).stem, entry["check_id"], resource, entry["check_name"])


def problems(found: set[Finding], exceptions: Iterable[Excepted]) -> list[str]:
    """A line for each finding without an exception and each exception without a finding."""
    excepted = {finding for exception in exceptions for finding in exception.findings()}
    return [
        *(f"{f.stack} stack: {f.resource}: {f.check} {f.title}" for f in sorted(found - excepted)),
        *(
            f"{f.stack} stack: {f.resource}: {f.check} is excepted but no longer found; remove the exception"
            for f in sorted(excepted - found)
        ),
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--checkov", type=Path, required=True)
    given, planned = arguments.parse_args(), plan()
    logging.disable(logging.WARNING)  # the translator's remarks on itself
    try:
        found, passed = scan(stacks(planned), given.checkov)
    except ScanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if wrong := problems(found, planned.exceptions):
        print(*wrong, sep="\n")
        print(f"{len(wrong)} to fix, or to except with a reason in {EXCEPTIONS.relative_to(ROOT)}")
        raise SystemExit(1)
    print(f"{len(planned.stacks)} stacks: {passed} checks passed, {len(found)} findings, each excepted with a reason")


if __name__ == "__main__":
    main()
