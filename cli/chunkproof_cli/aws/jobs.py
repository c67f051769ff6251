"""Jobs of a deployed stack: audits, suite runs and canaries. Each starts a state machine and waits for its end.

Ctrl-C stops the waiting, not the job.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from chunkproof.base.errors import InvalidParameterError
from chunkproof.collection.payload_map import parse_json
from chunkproof.net.s3 import Bucket, is_s3_address
from chunkproof_cli.aws.stack import AwsError, aws_client, find_stack, translate_aws_errors
from chunkproof_cli.output import print_note, progress_bar

if TYPE_CHECKING:  # each kind of job imports its own: the modules of the others would double the start of a command
    from chunkproof.audit.audit_report import AuditReport
    from chunkproof.proof.canaries import Canary
    from chunkproof.suite.cases import Suite
    from chunkproof.suite.suite_report import SuiteReport

POLL_S = 2.0
INPUT_ERRORS = ("InvalidParameterError", "NotFoundError", "NoBucketError", "CollectionNotFoundError")
FAULTS_FOUND = "AuditFoundFaults"
CANARY_OUTPUT = "CanaryRecords"


@dataclass(frozen=True, slots=True)
class Machine:
    """The state machine of a kind of job, and its bucket."""

    kind: str
    arn: str
    bucket: Bucket

    @classmethod
    def find(cls, stack: str, kind: str) -> "Machine":
        """Find the state machine of a stack; `kind` is the template parameter that creates it, `Audit` or `Suite`."""
        outputs = find_stack(stack).outputs
        if f"{kind}StateMachineArn" not in outputs:
            raise InvalidParameterError(f"Stack {stack} has no {kind.lower()}: deploy it with {kind}=true")
        return cls(kind.lower(), outputs[f"{kind}StateMachineArn"], Bucket(outputs[f"{kind}BucketName"]))

    def run(self, name: str, given: dict[str, Any], note: str = "") -> str:
        """Run an execution of this name, showing its progress; return its output, or raise its failure.

        An execution that failed as incomplete, or as it found faults, has a report, no output, and raises nothing.
        """
        with translate_aws_errors("states:StartExecution"):
            started = aws_client("stepfunctions").start_execution(
                stateMachineArn=self.arn, name=name, input=json.dumps(given)
            )
        if note:
            print_note(note)
        ended = _poll(aws_client("stepfunctions"), str(started["executionArn"]))
        if ended["status"] == "SUCCEEDED" or ended.get("error") in (f"{self.kind.title()}Incomplete", FAULTS_FOUND):
            return str(ended.get("output") or "")
        why = _parse_cause(ended.get("cause"))
        if ended.get("error") in INPUT_ERRORS:
            raise InvalidParameterError(why)
        raise AwsError(f"The {self.kind} ended as {ended['status']} ({ended.get('error')}): {why}")


def audit_in_cloud(
    stack: str, manifest: str, collection: str | None, folder: Path, *, is_partial: bool = False
) -> "AuditReport":
    """Run an audit in the cloud and return its report; download its findings to `findings.jsonl` in the folder.

    A stack without a server reads the whole collection, unless the manifest is partial.
    """
    from chunkproof.audit.audit_report import AuditReport

    machine, audit_id = Machine.find(stack, "Audit"), _new_name()
    bucket, results = machine.bucket, f"audits/{audit_id}"
    if not is_s3_address(manifest):
        file = Path(manifest)
        bucket.upload(f"manifests/{audit_id}/{file.name}", file)
        manifest = bucket.address(f"manifests/{audit_id}/{file.name}")
    given = {"audit_id": audit_id, "manifest": manifest, "collection": collection or "", "partial": is_partial}
    note = f"Audit {audit_id} is under way in {stack}; its report will be in {bucket.address(f'{results}/')}"
    machine.run(audit_id, given, note)
    bucket.download(f"{results}/findings.jsonl", folder / "findings.jsonl")
    return AuditReport.model_validate_json(bucket.read(f"{results}/report.json"))


def publish_suite(stack: str, suite: "Suite") -> str:
    """Make it the suite that the stack runs on its schedule and after deployments; return its address."""
    from chunkproof.suite.suite_job import PUBLISHED

    bucket = Machine.find(stack, "Suite").bucket
    bucket.write(PUBLISHED, suite.to_json().encode())
    return bucket.address(PUBLISHED)


def run_suite_in_cloud(stack: str, suite: "Suite", source: str, collection: str | None) -> "SuiteReport":
    """Run the suite in AWS and return the report."""
    from chunkproof.suite.suite_report import read_report

    machine, run_id = Machine.find(stack, "Suite"), _new_name()
    bucket, uploaded, report = machine.bucket, f"runs/{run_id}/given.json", f"runs/{run_id}/report.json"
    bucket.write(uploaded, suite.to_json().encode())
    given = {"suite": bucket.address(uploaded), "collection": collection or "", "source": source}
    machine.run(run_id, given, f"Run {run_id} is under way in {stack}; its report will be {bucket.address(report)}")
    return read_report(bucket.read(report), bucket.address(report))


def run_canaries_in_cloud(stack: str, request: dict[str, Any]) -> "tuple[Canary, ...]":
    """Let the stack record or check its canaries, with its own keys and settings, and return what it found."""
    from chunkproof.proof.canaries import Canary

    if CANARY_OUTPUT not in find_stack(stack).outputs:
        raise InvalidParameterError(f"Stack {stack} has no canaries: deploy it with Suite=true and Canary=true")
    output = Machine.find(stack, "Suite").run(f"canary-{_new_name()}", {"canary": request})
    return tuple(Canary.model_validate_json(json.dumps(canary)) for canary in json.loads(output)["canaries"])


def _new_name() -> str:
    """Make a unique name that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def _poll(states: Any, run: str) -> dict[str, Any]:
    with translate_aws_errors("states:DescribeExecution, ListMapRuns and DescribeMapRun"), ExitStack() as bar:
        advance, done = None, 0
        while True:
            sleep(POLL_S)
            execution: dict[str, Any] = states.describe_execution(executionArn=run)
            if execution["status"] != "RUNNING":
                return execution
            counts = _count_shards(states, run)
            if advance is None and counts.get("total"):
                advance = bar.enter_context(progress_bar("Shards", counts["total"]))
            if advance is not None:
                now = sum(counts.get(state, 0) for state in ("succeeded", "failed", "timedOut", "aborted"))
                advance(now - done)
                done = now


def _count_shards(states: Any, run: str) -> dict[str, int]:
    """Count the shards by state; empty before the shards are known."""
    runs = states.list_map_runs(executionArn=run)["mapRuns"]
    if not runs:
        return {}
    counts: dict[str, int] = states.describe_map_run(mapRunArn=runs[0]["mapRunArn"])["itemCounts"]
    return counts


def _parse_cause(cause: str | None) -> str:
    """Extract the error message of a function, which Lambda wraps in JSON."""
    said = parse_json(cause)
    message = said.get("errorMessage") if isinstance(said, dict) else None
    return str(message or cause or "no reason was given")
