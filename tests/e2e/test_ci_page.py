"""The shell steps of the GitHub Action and of docs/guides/ci.md, run exactly as they are there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.ci_formats import check_ctrf, check_sarif
from support.stub_api import stub_api
from support.template import ROOT

PAGE = (ROOT / "docs" / "guides" / "ci.md").read_text("utf-8")
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
# Replaces GitHub's command: keeps one artefact, and records its arguments.
GH = """#!/bin/sh
echo "$@" >> "$KEPT/asked"
case "$1 $2" in
  "run list") [ -f "$KEPT/suite.json" ] && echo 7 ;;
  "run download") for folder; do :; done; mkdir -p "$folder" && cp "$KEPT/suite.json" "$folder/" ;;
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
        self._env |= {"CHUNKPROOF_API": api, "GITHUB_WORKFLOW": "retrieval", "RUNNER_TEMP": str(folder)}
        self._env |= {
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_REPOSITORY": "team/docs",
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }

    def __call__(self, name: str, **inputs: str) -> "subprocess.CompletedProcess[str]":
        """Run a step of the action with these inputs, the others as they are by default."""
        step = STEPS[name]
        given = {key: value["default"] for key, value in ACTION["inputs"].items()} | inputs
        values = {
            variable: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], value)
            for variable, value in step.get("env", {}).items()
        }
        return self.shell(step["run"], **{**values, "PULL_REQUEST": "12"})

    def shell(
        self,
        script: str,
        by: Sequence[str] = ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
        **variables: str,
    ) -> "subprocess.CompletedProcess[str]":
        command = [*by, "-c", script]
        environment = {**self._env, **variables}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

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
    first = runner("Suite", suite="suite.yaml")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Gate" not in first.stdout
    reports = tmp_path / "chunkproof" / "report"
    assert (tmp_path / "output").read_text() == f"report={reports}/suite.json\n"
    report = json.loads((reports / "suite.json").read_text("utf-8"))

    (reports / "suite.json").rename(runner.kept / "suite.json")  # the artefact of main
    assert runner("Baseline").returncode == 0
    equal = runner("Suite", suite="suite.yaml")
    assert equal.returncode == 0
    assert equal.stdout.strip().splitlines()[-1].startswith("Gate passed")

    runner.write("b")
    for case in report["result"]["test_results"]:  # what is expected now was found then
        case |= {"expected_doc_ids": ["b"]}
    (runner.kept / "suite.json").write_text(json.dumps(report), "utf-8")
    assert runner("Baseline").returncode == 0
    worse = runner("Suite", suite="suite.yaml")
    assert worse.returncode == 1
    assert worse.stdout.strip().splitlines()[-1].startswith("Gate FAILED: no case passes: 8 of 8 fail; 8 newly")
    assert runner("Comment").returncode == 0
    asked = (runner.kept / "asked").read_text().splitlines()
    assert (
        asked[-1]
        == f"pr comment 12 --repo team/docs --body-file {tmp_path}/chunkproof/comment.md --edit-last --create-if-none"
    )
    assert "Gate FAILED" in (tmp_path / "chunkproof" / "comment.md").read_text("utf-8")
    assert (reports / "suite.html").stat().st_size > 10_000
    assert (reports / "suite.xml").is_file()
    assert check_ctrf((reports / "suite.ctrf.json").read_text("utf-8"))["summary"]["failed"] == 8
    assert runner("Summary").returncode == 0
    assert (tmp_path / "summary.md").read_text("utf-8") == (reports / "suite.md").read_text("utf-8")


def test_the_action_audits_a_collection(runner: Runner, tmp_path: Path) -> None:
    chunks = tmp_path / "chunks.jsonl"
    chunks.write_text('{"chunk_id": "a", "text": "a text", "url": "https://a.example"}\n', "utf-8")
    data = f"--data {tmp_path / 'data'} --collection docs"
    set_up = f"unset CHUNKPROOF_API; chunkproof load {chunks} {data}; chunkproof manifest {chunks} -o m.jsonl"
    made = runner.shell(set_up)
    assert made.returncode == 0, made.stdout + made.stderr
    options = data.replace(" --", "\n--") + "\n"  # as a block of YAML has them
    audit = runner("Audit", manifest="m.jsonl", **{"audit-options": options})
    assert audit.returncode == 0, audit.stdout + audit.stderr
    reports = tmp_path / "chunkproof" / "report"
    assert (reports / "audit.xml").is_file()
    assert check_sarif((reports / "audit.sarif").read_text("utf-8")) == []
    (tmp_path / "m.jsonl").write_text('{"chunk_id": "a", "original_text": "another text"}\n', "utf-8")
    assert runner("Audit", manifest="m.jsonl", **{"audit-options": data}).returncode == 1
    (found,) = check_sarif((reports / "audit.sarif").read_text("utf-8"))
    assert (found["ruleId"], found["level"]) == ("mismatch", "error")
    (tmp_path / "s.yaml").write_text("name: s\ncases:\n  - name: a\n    query_text: q\n    nonsense: 1\n", "utf-8")
    assert runner.shell("chunkproof suite lint s.yaml --offline -o lint.sarif").returncode == 1
    places = [each["locations"][0]["physicalLocation"] for each in check_sarif((tmp_path / "lint.sarif").read_text())]
    assert {"artifactLocation": {"uri": "s.yaml"}, "region": {"startLine": 5}} in places


def test_the_shell_example_keeps_its_baseline(runner: Runner, tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    runner.write("a")
    for _ in range(2):
        shown = runner.shell(script)
        assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.strip().splitlines()[-1].startswith("Gate passed")


@pytest.mark.parametrize("shell", [["sh", "-e"], ["sh"], ["bash"]])
def test_a_failing_gate_ends_the_shell_example_and_leaves_the_baseline(
    runner: Runner, tmp_path: Path, shell: list[str]
) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    runner.write("a")
    assert runner.shell(script, by=shell).returncode == 0
    kept = (tmp_path / "baseline.json").read_bytes()
    runner.write("b")
    assert runner.shell(script + "echo a later command\n", by=shell).returncode == 1
    assert (tmp_path / "baseline.json").read_bytes() == kept
    (tmp_path / "suite.yaml").unlink()
    assert runner.shell(script, by=shell).returncode == 2
    assert (tmp_path / "baseline.json").read_bytes() == kept


def test_the_gitlab_script_fails_when_the_gate_fails(runner: Runner, tmp_path: Path) -> None:
    (job,) = [
        yaml.safe_load(text)["retrieval"] for text in re.findall(r"```yaml\n# .gitlab-ci.yml\n(.*?)```", PAGE, re.S)
    ]
    script = "\n".join(line for line in job["script"] if not line.startswith("pip "))
    on_main = {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
    runner.write("a")
    assert runner.shell(script, by=["sh", "-e"], **on_main).returncode == 0
    kept = (tmp_path / "baseline.json").read_bytes()
    runner.write("b")
    assert runner.shell(script, by=["sh", "-e"], **on_main).returncode == 1
    assert (tmp_path / "baseline.json").read_bytes() == kept


def test_nothing_of_a_pull_request_is_a_baseline_or_a_report(runner: Runner, tmp_path: Path) -> None:
    for name in ("chunkproof-baseline", "chunkproof-report", "baseline", "report"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "suite.json").write_text("{}", "utf-8")
        (tmp_path / name / "forged.md").write_text("Gate passed", "utf-8")
    runner.write("b")
    assert runner("Baseline").returncode == 0
    shown = runner("Suite", suite="suite.yaml")
    assert shown.returncode == 1
    assert "Gate passed" not in shown.stdout
    assert runner("Comment").returncode == 0
    assert "Gate passed" not in (tmp_path / "chunkproof" / "comment.md").read_text("utf-8")
    (listed,) = [line for line in (runner.kept / "asked").read_text().splitlines() if line.startswith("run list")]
    assert "--event push" in listed


def test_the_action_and_its_page_pin_by_commit_and_install_by_hash() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    used += [name for name in re.findall(r"uses: (\S+)", PAGE) if not name.startswith("your-team/")]
    assert used
    assert not [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)]
    installs = [line for line in STEPS["Install"]["run"].splitlines() if line.startswith('"${pip[@]}"')]
    assert installs
    assert not [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line]


def test_every_input_is_used_and_every_step_gets_values_by_its_environment() -> None:
    text = (ROOT / "action.yml").read_text("utf-8")
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    assert not [name for name, step in STEPS.items() if "${{" in step["run"]], "an input could inject code"


def test_the_policies_are_json_and_the_role_may_do_one_thing() -> None:
    trust, rights = (json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.S))
    assert [one["Action"] for one in trust["Statement"]] == ["sts:AssumeRoleWithWebIdentity"]
    assert [one["Action"] for one in rights["Statement"]] == ["execute-api:Invoke"]
