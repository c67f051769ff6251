"""Run both state machines in a second interpreter, LocalStack's, and check their definitions with asl-validator.

moto's interpreter runs them in the tests, with the real functions. A definition that only moto accepts, or reads in its
own way, would pass there. Here the functions are mocked and the list of shards is a real object in S3; every path
through each machine is taken, and its end compared with what is expected.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3

from support.states import definition

VALIDATOR = "asl-validator@4.0.0"
BUCKET = "shards"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:steps"
FILLED = {"Function": FUNCTION, "Bucket": BUCKET, "MaxConcurrency": "2", "RetrySeconds": "1"}
OWN = {"audit": {"ShardEntries": "50"}, "suite": {"ShardCases": "50"}}
INPUT = {
    "audit": {"audit_id": "a", "manifest": "s3://shards/manifest.jsonl", "collection": ""},
    "suite": {"suite": "s3://shards/suite.json", "collection": "", "source": ""},
}
START_S, RUN_S = 120, 120

Answer = dict[str, Any]


def returns(payload: Any) -> Answer:
    return {"Return": {"StatusCode": 200, "Payload": payload}}


def throws(error: str) -> Answer:
    return {"Throw": {"Error": error, "Cause": "as planned"}}


THROTTLED = throws("Lambda.TooManyRequestsException")


@dataclass(frozen=True)
class Case:
    """A path through a machine: what its functions return, in turn, and how it ends."""

    name: str
    machine: str
    ends: str
    error: str | None = None
    split: list[Answer] = field(default_factory=list)
    shard: list[Answer] = field(default_factory=list)
    merge: list[Answer] = field(default_factory=list)
    canary: list[Answer] = field(default_factory=list)

    @property
    def responses(self) -> dict[str, list[Answer]]:
        """The mocked responses by state; the last one is repeated."""
        own = "audit_id" if self.machine == "audit" else "run_id"
        plan = returns({own: "a", "bucket": BUCKET, "shards_key": f"{self.machine}.json"})
        done = returns({"finished": True})
        good = returns({"coverage": 1, "faults": 0} if self.machine == "audit" else {"errors": 0})
        steps = {"Split": self.split or [plan], "Shard": self.shard or [done], "Merge": self.merge or [good]}
        return steps if self.machine == "audit" else {**steps, "Canary": self.canary or [returns({"canaries": []})]}

    @property
    def input(self) -> dict[str, Any]:
        """What the execution is started with."""
        return {"canary": {"action": "check"}} if self.canary else INPUT[self.machine]


def plan(machine: str) -> Answer:
    return Case("", machine, "").responses["Split"][0]


CASES = [
    *(
        case
        for machine, left in (("audit", {"coverage": 0.5, "faults": 0}), ("suite", {"errors": 1}))
        for case in (
            Case("complete", machine, "SUCCEEDED"),
            Case("left-over", machine, "FAILED", f"{machine.capitalize()}Incomplete", merge=[returns(left)]),
            Case("bad-input", machine, "FAILED", "InvalidParameterError", split=[throws("InvalidParameterError")]),
            Case("throttled-split", machine, "SUCCEEDED", split=[THROTTLED] * 4 + [plan(machine)]),
            Case("flaky-shard", machine, "SUCCEEDED", shard=[throws("Boom"), returns({"finished": True})]),
            Case("poisoned-shard", machine, "SUCCEEDED", shard=[throws("Boom")]),
            Case("broken-merge", machine, "FAILED", "Boom", merge=[throws("Boom")]),
        )
    ),
    Case("faulty", "audit", "FAILED", "AuditFoundFaults", merge=[returns({"coverage": 1, "faults": 2})]),
    Case("unfinished-shard", "suite", "SUCCEEDED", shard=[returns({"finished": False}), returns({"finished": True})]),
    Case("not-published", "suite", "SUCCEEDED", split=[throws("NotPublishedError")]),
    # No other step is taken: it would fail.
    Case("canaries", "suite", "SUCCEEDED", canary=[returns({"canaries": []})], split=[throws("Boom")]),
    Case("flaky-canaries", "suite", "SUCCEEDED", canary=[throws("Boom")] * 2 + [returns({"canaries": []})]),
    Case("broken-canaries", "suite", "FAILED", "Boom", canary=[throws("Boom")]),
]


def mock_config() -> dict[str, Any]:
    """The functions' responses, as LocalStack reads them (SFN_MOCK_CONFIG)."""
    machines: dict[str, Any] = {}
    responses: dict[str, Any] = {}
    for case in CASES:
        tests = machines.setdefault(case.machine, {"TestCases": {}})["TestCases"]
        tests[case.name] = {state: f"{case.machine}-{case.name}-{state}" for state in case.responses}
        for state, answers in case.responses.items():
            *first, last = answers
            turns = {str(turn): answer for turn, answer in enumerate(first)}
            responses[f"{case.machine}-{case.name}-{state}"] = {**turns, f"{len(first)}-{len(first) + 50}": last}
    return {"StateMachines": machines, "MockedResponses": responses}


@contextmanager
def localstack(python: Path) -> Iterator[str]:
    """Start LocalStack on a free port; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mocks = Path(folder, "mocks.json")
        mocks.write_text(json.dumps(mock_config()), "utf-8")
        log = Path(folder, "log")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "GATEWAY_LISTEN": f"127.0.0.1:{port}",
            "LOCALSTACK_HOST": f"127.0.0.1:{port}",
            "SERVICES": "s3,stepfunctions,lambda,iam,sts",
            "STRICT_SERVICE_LOADING": "1",
            "FILESYSTEM_ROOT": folder,
            "SFN_MOCK_CONFIG": str(mocks),
            "DISABLE_EVENTS": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [python, "-m", "localstack.runtime.main"], env=environment, cwd=folder, stdout=output, stderr=output
            )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _is_ready(url, process):
                raise SystemExit(f"LocalStack did not start:\n{log.read_text('utf-8')[-2000:]}")
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _is_ready(url: str, process: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(f"{url}/_localstack/health", timeout=5):
                return True
        except (URLError, OSError):
            time.sleep(0.5)
    return False


def run_cases(url: str) -> Iterator[tuple[Case, str]]:
    """Take every path; yield how it ended, where that is not as expected, else an empty text."""

    def client(service: str) -> Any:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)

    storage, states = client("s3"), client("stepfunctions")
    storage.create_bucket(Bucket=BUCKET)
    machines = {}
    for name, sizes in OWN.items():
        own = "audit_id" if name == "audit" else "run_id"
        shards = [{own: "a", "shard": 0}]
        storage.put_object(Bucket=BUCKET, Key=f"{name}.json", Body=json.dumps(shards).encode())
        text = definition(name, {**FILLED, **sizes}).replace('"BackoffRate": 2.0', '"BackoffRate": 1.0')
        text = text.replace('"IntervalSeconds": 5', '"IntervalSeconds": 1')
        role = "arn:aws:iam::000000000000:role/states"
        machines[name] = states.create_state_machine(name=name, definition=text, roleArn=role)["stateMachineArn"]
    for case in CASES:
        started = states.start_execution(
            stateMachineArn=f"{machines[case.machine]}#{case.name}", input=json.dumps(case.input)
        )
        ended = _wait(states, started["executionArn"])
        found = (ended["status"], ended.get("error"))
        yield case, "" if found == (case.ends, case.error) else f"{found}: {ended.get('cause')}"


def _wait(states: Any, run: str) -> dict[str, Any]:
    until = time.monotonic() + RUN_S
    while time.monotonic() < until:
        found: dict[str, Any] = states.describe_execution(executionArn=run)
        if found["status"] != "RUNNING":
            return found
        time.sleep(0.2)
    return {"status": "RUNNING", "cause": f"not over after {RUN_S} s"}


def validate_definitions() -> Iterator[tuple[str, str]]:
    """Check each definition with asl-validator; yield its name and the problems found."""
    npx = shutil.which("npx")
    if npx is None:
        raise SystemExit("npx, which runs asl-validator, is not installed")
    for name, own in OWN.items():
        given = ["--json-definition", definition(name, {**FILLED, **own})]
        run = subprocess.run([npx, "--yes", VALIDATOR, *given], capture_output=True, text=True, check=False)
        yield name, "" if run.returncode == 0 else run.stdout + run.stderr


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", type=Path, required=True, help="of the virtualenv that has LocalStack")
    given = arguments.parse_args()
    problems = 0
    for name, problem in validate_definitions():
        problems += bool(problem)
        print(f"{'FAIL' if problem else 'ok':4}  asl-validator  {name}  {problem}", flush=True)
    with localstack(given.python.absolute()) as url:
        for case, problem in run_cases(url):
            problems += bool(problem)
            ending = f"{case.ends} {case.error or ''}".strip()
            print(f"{'FAIL' if problem else 'ok':4}  {case.machine:6} {case.name:17} {ending}  {problem}", flush=True)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
