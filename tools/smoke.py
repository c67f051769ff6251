"""Try what only a real AWS account shows, step by step, and print a table to paste (docs/first-deployment.md).

Each step says what it did and how long it took. A step that the stack has no part for is skipped, with the parameter
that would make it. Nothing is deployed or deleted; the steps alarm and rollback write a planted error into the log.
Requests are signed, or carry CHUNKPROOF_TOKEN.

Examples:
  make smoke STACK=chunkproof
  make smoke STACK=chunkproof STEPS=api,gzip,cold-start
  make smoke STACK=chunkproof STEPS=rollback      # then start a deployment in another terminal
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from chunkproof.base.errors import ChunkproofError
from chunkproof.net.transport import tls_context
from chunkproof_cli.api_client import _sign
from chunkproof_cli.aws.stack import Stack, aws_client, find_stack

QUERY = "How do I rotate the key?"
PLANTED = {"level": "ERROR", "message": "planted by make smoke", "code": "INTERNAL"}
PARALLEL = 8  # more than are warm in a stack that no one uses
ALARM_S, ROLLBACK_S, LOGS_S = 900, 3600, 120
REPORT = re.compile(r"(?<!Billed )(Init|Restore) Duration: ([\d.]+) ms")


class FailedError(Exception):
    """The step did not find what it should have found."""


class SkippedError(Exception):
    """The step does not apply to this stack."""


@dataclass
class Smoke:
    """The stack under test, and how it is called."""

    stack: Stack
    token: str | None = None
    poll_s: float = 5.0
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60, verify=tls_context()))

    def call(self, path: str, content: bytes = b"", **headers: str) -> httpx.Response:
        """Send a request as a caller does: with a token, or signed."""
        method, url = ("POST" if content else "GET"), self.stack.outputs["ApiUrl"] + path
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        bearer = {**named, "authorization": f"Bearer {self.token}"}
        return self.http.request(
            method, url, content=content, headers=bearer if self.token else _sign(method, url, content, named)
        )

    def search(self, **query: Any) -> dict[str, Any]:
        """Search; the response must be a success."""
        content = json.dumps({"query_text": QUERY, **query}).encode()
        response = self.call("/search", content, content_type="application/json")
        if response.status_code != 200:
            raise FailedError(f"POST /search answered {response.status_code}: {response.text[:200]}")
        found: dict[str, Any] = response.json()
        return found

    def resource(self, logical: str) -> str:
        """The physical name of a resource of the stack."""
        found = aws_client("cloudformation").describe_stack_resource(
            StackName=self.stack.name, LogicalResourceId=logical
        )
        return str(found["StackResourceDetail"]["PhysicalResourceId"])

    def plant_error(self) -> float:
        """Write the log line of a bug, which the metric filter counts; return when."""
        logs, group, stream = aws_client("logs"), self.stack.outputs["SearchLogGroup"], f"smoke-{time.time_ns()}"
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": int(time.time() * 1000), "message": json.dumps(PLANTED)}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
        return time.monotonic()

    def wait_until(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                raise FailedError(f"{what} after {seconds:.0f} s")
            time.sleep(self.poll_s)


def check_stack(smoke: Smoke) -> str:
    """The stack is deployed, and its own checks are good."""
    if not smoke.stack.status.endswith("_COMPLETE") or "ROLLBACK" in smoke.stack.status:
        raise FailedError(f"the stack is {smoke.stack.status}")
    response = smoke.call("/health/deep")
    if response.status_code != 200:
        raise FailedError(f"GET /health/deep answered {response.status_code}: {response.text[:200]}")
    return f"{smoke.stack.status}; Qdrant and the embedder answer"


def check_api(smoke: Smoke) -> str:
    """A search and the validation of what it found."""
    results = smoke.search(top_k=1)["results"]
    if not results:
        raise FailedError("the search found nothing: load chunks first")
    (first,) = results
    body = {"chunk_id": first["metadata"]["chunk_id"], "original_text": first["text"]}
    response = smoke.call("/validate-chunk", json.dumps(body).encode(), content_type="application/json")
    if response.status_code != 200 or not response.json()["matches"]:
        raise FailedError(f"POST /validate-chunk answered {response.status_code}: {response.text[:200]}")
    timings = sorted(smoke.search(top_k=1)["execution"]["latency_ms"] for _ in range(10))
    return f"search and validation agree; warm p50 {timings[5]:.0f} ms in the function"


def check_gzip(smoke: Smoke) -> str:
    """A compressed request, as documented; and one that says it is JSON, which the gateway may mangle."""
    packed = gzip.compress(json.dumps({"query_text": QUERY, "top_k": 1}).encode())
    good = smoke.call("/search", packed, content_type="application/octet-stream", content_encoding="gzip")
    if good.status_code != 200:
        raise FailedError(f"as application/octet-stream: {good.status_code} {good.text[:200]}")
    other = smoke.call("/search", packed, content_type="application/json", content_encoding="gzip")
    return f"as application/octet-stream: 200; as application/json: {other.status_code}"


def check_cold_start(smoke: Smoke) -> str:
    """Several requests at once, so that containers start; Lambda's own report lines say how long that took."""
    began = time.time()
    with ThreadPoolExecutor(PARALLEL) as pool:
        slowest = max(pool.map(lambda _: _timed(smoke.search), range(PARALLEL)))
    found: list[tuple[str, float]] = []

    def read() -> bool:
        found.extend(_starts(smoke.stack.outputs["SearchLogGroup"], int((began - 900) * 1000)))
        return bool(found)

    smoke.wait_until(read, LOGS_S, "the log has no line of a cold start")
    kinds = {"Init": "without SnapStart", "Restore": "from a snapshot"}
    said = [
        f"{len(ms)} {kinds[kind]}: {min(ms):.0f} to {max(ms):.0f} ms"
        for kind in kinds
        if (ms := [taken for name, taken in found if name == kind])
    ]
    return f"{'; '.join(said)}; slowest of {PARALLEL} requests at once {slowest:.0f} ms"


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return (time.monotonic() - began) * 1000


def _starts(group: str, since_ms: int) -> Iterator[tuple[str, float]]:
    events = aws_client("logs").filter_log_events(logGroupName=group, startTime=since_ms, filterPattern="REPORT")
    for event in events["events"]:
        # With SnapStart, a line has both: what counts then is the restore.
        if starts := dict(REPORT.findall(event["message"])):
            kind = "Restore" if "Restore" in starts else "Init"
            yield kind, float(starts[kind])


def check_alarm(smoke: Smoke) -> str:
    """A planted error raises the error alarm, and the alarm ends by itself."""
    name = smoke.resource("ErrorAlarm")

    def state() -> str:
        (alarm,) = aws_client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
        return str(alarm["StateValue"])

    if state() == "ALARM":
        raise SkippedError("the alarm is on already; try again when it is over")
    planted = smoke.plant_error()
    smoke.wait_until(lambda: state() == "ALARM", ALARM_S, "the alarm is not on")
    raised = time.monotonic() - planted
    smoke.wait_until(lambda: state() == "OK", ALARM_S, "the alarm is still on")
    return f"on {raised:.0f} s after the error, over {time.monotonic() - planted:.0f} s after it"


def check_rollback(smoke: Smoke) -> str:
    """A planted error during a gradual rollout takes the release back."""
    if smoke.stack.parameters.get("GradualRollout") != "true":
        raise SkippedError("deploy with GradualRollout=true")
    functions, deploys = aws_client("lambda"), aws_client("codedeploy")
    function = smoke.stack.outputs["SearchFunctionName"]
    before = functions.get_alias(FunctionName=function, Name="live")["FunctionVersion"]
    group = {
        "applicationName": smoke.resource("ServerlessDeploymentApplication"),
        "deploymentGroupName": smoke.resource("SearchFunctionDeploymentGroup"),
    }
    print("Now change a line of the code and run `make deploy` in another terminal.", file=sys.stderr)
    running: list[str] = []

    def begun() -> bool:
        found = deploys.list_deployments(**group, includeOnlyStatuses=["InProgress"])["deployments"]
        running.extend(found)
        return bool(found)

    smoke.wait_until(begun, ROLLBACK_S, "no deployment began")
    planted = smoke.plant_error()

    def status() -> str:
        return str(deploys.get_deployment(deploymentId=running[0])["deploymentInfo"]["status"])

    smoke.wait_until(lambda: status() in ("Stopped", "Failed", "Succeeded"), ROLLBACK_S, "the deployment goes on")
    ended, taken = status(), time.monotonic() - planted
    smoke.wait_until(
        lambda: functions.get_alias(FunctionName=function, Name="live")["FunctionVersion"] == before,
        ALARM_S,
        f"the deployment ended as {ended}, and the alias is not back on version {before}",
    )
    return f"{ended} {taken:.0f} s after the error; live serves version {before} again"


def check_audit(smoke: Smoke) -> str:
    """An audit of what a search returns."""
    if "AuditStateMachineArn" not in smoke.stack.outputs:
        raise SkippedError("deploy with Audit=true")
    lines = [
        json.dumps({"chunk_id": found["metadata"]["chunk_id"], "original_text": found["text"]})
        for found in smoke.search(top_k=20)["results"]
    ]
    return _run_command("audit --partial", "manifest.jsonl", "\n".join(lines), smoke.stack.name)


def check_suite(smoke: Smoke) -> str:
    """A suite of one question."""
    if "SuiteStateMachineArn" not in smoke.stack.outputs:
        raise SkippedError("deploy with Suite=true")
    best = smoke.search(top_k=1)["results"][0]["metadata"]["chunk_id"]
    case = {"name": "smoke", "query_text": QUERY, "expected_doc_ids": [best]}
    return _run_command("suite run", "suite.json", json.dumps({"name": "smoke", "cases": [case]}), smoke.stack.name)


def check_canaries(smoke: Smoke) -> str:
    """The vectors of fixed texts, recorded and then compared."""
    if "CanaryRecords" not in smoke.stack.outputs:
        raise SkippedError("deploy with Suite=true and Canary=true")
    _run_chunkproof("canary record", [], smoke.stack.name)
    return _run_chunkproof("canary check", [], smoke.stack.name)


def _run_command(command: str, name: str, content: str, stack: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_text(content, "utf-8")
        return _run_chunkproof(command, [str(file)], stack)


def _run_chunkproof(command: str, arguments: list[str], stack: str) -> str:
    run = [sys.executable, "-m", "chunkproof_cli", *command.split(), *arguments, "--stack", stack]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"chunkproof {command} exited with {done.returncode}: {done.stderr.strip()[-200:]}")
    return f"chunkproof {command} --stack {stack}: exit code 0"


STEPS: dict[str, Callable[[Smoke], str]] = {
    "stack": check_stack,
    "api": check_api,
    "gzip": check_gzip,
    "cold-start": check_cold_start,
    "alarm": check_alarm,
    "audit": check_audit,
    "suite": check_suite,
    "canary": check_canaries,
    "rollback": check_rollback,
}


def run_step(name: str, smoke: Smoke) -> tuple[str, float, str]:
    """The verdict on a step, its seconds, and what it found."""
    began = time.monotonic()
    try:
        verdict, detail = "ok", STEPS[name](smoke)
    except SkippedError as skipped:
        verdict, detail = "skipped", str(skipped)
    except FailedError as failed:
        verdict, detail = "FAILED", str(failed)
    except Exception as error:  # noqa: BLE001 - the other steps should still run
        verdict, detail = "FAILED", f"{type(error).__name__}: {error}"
    return verdict, time.monotonic() - began, " ".join(detail.replace("|", "/").split())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--stack", required=True)
    arguments.add_argument("--steps", default=",".join(STEPS), help="some of: " + ", ".join(STEPS))
    given = arguments.parse_args()
    steps = given.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        raise SystemExit(f"--steps: no step is called {', '.join(sorted(unknown))}; the steps are {', '.join(STEPS)}")
    try:
        smoke = Smoke(find_stack(given.stack), os.environ.get("CHUNKPROOF_TOKEN") or None)
    except ChunkproofError as error:
        raise SystemExit(str(error)) from None
    parameters = smoke.stack.parameters
    print(f"Stack {given.stack}, SnapStart {parameters.get('SnapStart')}, {parameters.get('MemorySize')} MB\n")
    print("| step | verdict | seconds | found |\n|---|---|---:|---|", flush=True)
    verdicts = []
    for name in steps:
        verdict, seconds, detail = run_step(name, smoke)
        verdicts.append(verdict)
        print(f"| {name} | {verdict} | {seconds:.1f} | {detail} |", flush=True)
    sys.exit("FAILED" in verdicts)


if __name__ == "__main__":
    main()
