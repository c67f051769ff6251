"""The steps of docs/guides/ci.md, run exactly as they are there: a first run, an equal one, a worse one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.stub_api import stub_api

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "ci.md").read_text("utf-8")
WORKFLOW: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.S)[0])
STEPS = {step["name"]: step["run"] for step in WORKFLOW["jobs"]["suite"]["steps"] if "run" in step}
# Replaces GitHub's command: keeps one artefact, and records its arguments.
GH = """#!/bin/sh
echo "$@" >> "$KEPT/asked"
case "$1 $2" in
  "run list") [ -f "$KEPT/report.json" ] && echo 7 ;;
  "run download") mkdir -p baseline && cp "$KEPT/report.json" baseline/ ;;
esac
exit 0
"""


class Runner:
    """Runs steps as a CI runner does: each in a shell that stops at the first failure."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder, self.kept = folder, folder / "kept"
        self.kept.mkdir()
        tools = folder / "bin"
        tools.mkdir()
        (tools / "gh").write_text(GH)
        (tools / "chunkproof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chunkproof_cli "$@"\n')
        for tool in tools.iterdir():
            tool.chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        self._env = dict(os.environ) | {"PATH": path, "KEPT": str(self.kept), "PULL_REQUEST": "12"}
        self._env["CHUNKPROOF_API"] = api

    def __call__(self, name: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]]
        return subprocess.run(command, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False)

    def write(self, expected: str) -> None:
        """Write a suite of eight cases that expect this chunk."""
        cases = [{"name": f"c{n}", "query_text": "q", "expected_doc_ids": [expected]} for n in range(8)]
        suite = {"name": "ci", "collection": "handbook", "cases": cases}
        (self.folder / "suite.yaml").write_text(json.dumps(suite), "utf-8")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """Run against an API that returns chunk `a` for every query."""
    with stub_api() as api:
        yield Runner(tmp_path, api.url)


def test_the_first_run_has_no_baseline_an_equal_one_passes_and_a_worse_one_fails(
    runner: Runner, tmp_path: Path
) -> None:
    runner.write("a")
    assert runner("Baseline").returncode == 0
    first = runner("Suite")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Gate" not in first.stdout
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))

    (tmp_path / "report.json").rename(runner.kept / "report.json")  # the artefact of main
    assert runner("Baseline").returncode == 0
    equal = runner("Suite")
    assert equal.returncode == 0
    assert equal.stdout.strip().splitlines()[-1].startswith("Gate passed")

    runner.write("b")
    for case in report["result"]["test_results"]:  # what is expected now was found then
        case |= {"expected_doc_ids": ["b"]}
    (runner.kept / "report.json").write_text(json.dumps(report), "utf-8")
    assert runner("Baseline").returncode == 0
    worse = runner("Suite")
    assert worse.returncode == 1
    assert worse.stdout.strip().splitlines()[-1].startswith("Gate FAILED: no case passes: 8 of 8 fail; 8 newly")
    assert runner("Comment").returncode == 0
    asked = (runner.kept / "asked").read_text().splitlines()
    assert asked[-1] == "pr comment 12 --body-file report.md --edit-last --create-if-none"
    assert "Gate FAILED" in (tmp_path / "report.md").read_text("utf-8")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_policies_are_json_and_the_role_may_do_one_thing() -> None:
    trust, rights = (json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.S))
    assert [one["Action"] for one in trust["Statement"]] == ["sts:AssumeRoleWithWebIdentity"]
    assert [one["Action"] for one in rights["Statement"]] == ["execute-api:Invoke"]
