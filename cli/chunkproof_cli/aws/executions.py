"""Run a state machine of a deployed stack: start it, wait for it, report how it ended."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep
from typing import Any
from uuid import uuid4

from chunkproof.clients.s3 import Bucket
from chunkproof.errors import InvalidParameterError
from chunkproof_cli.aws.stack import AwsError, aws_client, find_stack, translate_aws_errors
from chunkproof_cli.output import progress_bar

POLL_S = 2.0
INPUT_ERRORS = ("InvalidParameterError", "NotFoundError", "CollectionNotFoundError")


@dataclass(frozen=True, slots=True)
class Machine:
    """A state machine that works in shards, and its bucket."""

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

    def start(self, name: str, given: dict[str, Any]) -> str:
        """Start an execution with this name, and return its ARN."""
        with translate_aws_errors("states:StartExecution"):
            run = aws_client("stepfunctions").start_execution(
                stateMachineArn=self.arn, name=name, input=json.dumps(given)
            )
        return str(run["executionArn"])

    def wait_for(self, run: str, incomplete: str | None = None) -> str:
        """Wait for the end of an execution, showing its progress; return its output, or raise its failure.

        An execution that failed as `incomplete` has a report nevertheless, no output, and raises nothing.
        """
        ended = _poll(aws_client("stepfunctions"), run)
        if ended["status"] == "SUCCEEDED" or (incomplete and ended.get("error") == incomplete):
            return str(ended.get("output") or "")
        why = _parse_cause(ended.get("cause"))
        if ended.get("error") in INPUT_ERRORS:
            raise InvalidParameterError(why)
        raise AwsError(f"The {self.kind} ended as {ended['status']} ({ended.get('error')}): {why}")


def new_name() -> str:
    """Make a unique name that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def _poll(states: Any, run: str) -> dict[str, Any]:
    with translate_aws_errors("states:DescribeExecution, ListMapRuns and DescribeMapRun"), ExitStack() as bar:
        advance, done = None, 0
        while True:
            sleep(POLL_S)
            found: dict[str, Any] = states.describe_execution(executionArn=run)
            if found["status"] != "RUNNING":
                return found
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
    try:
        said = json.loads(cause or "")
    except ValueError:
        return cause or "no reason was given"
    return str(said.get("errorMessage") or cause) if isinstance(said, dict) else str(cause)
