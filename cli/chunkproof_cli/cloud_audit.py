"""An audit by a deployed stack: start it, watch it, fetch its report."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

from chunkproof.audit.summary import AuditReport
from chunkproof.clients.s3 import Bucket
from chunkproof.errors import InvalidParameterError
from chunkproof_cli.cloud import AwsError, asking, client, deployed_stack
from chunkproof_cli.output import progress, say

POLL_S = 2.0
INCOMPLETE = "AuditIncomplete"
WRONG_INPUT = ("InvalidParameterError", "NotFoundError", "CollectionNotFoundError")


def audit_in_cloud(stack: str, manifest: str, collection: str | None, folder: Path) -> AuditReport:
    """The report of an audit in the cloud; its findings are in `findings.jsonl` of the folder.

    Whoever stops watching does not stop the audit.
    """
    outputs = deployed_stack(stack).outputs
    if "AuditStateMachineArn" not in outputs:
        raise InvalidParameterError(f"Stack {stack} cannot audit: deploy it with Audit=true")
    bucket = Bucket(outputs["AuditBucketName"])
    audit_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    address = manifest if manifest.startswith("s3://") else _uploaded(bucket, Path(manifest), audit_id)
    given = {"audit_id": audit_id, "manifest": address, "collection": collection or ""}
    states = client("stepfunctions")
    with asking("states:StartExecution"):
        run = states.start_execution(
            stateMachineArn=outputs["AuditStateMachineArn"], name=audit_id, input=json.dumps(given)
        )["executionArn"]
    say(
        f"Audit {audit_id} is under way in {stack}; its report will be in s3://{bucket.name}/audits/{audit_id}/"
    )
    _judge(_ended(states, run))
    bucket.download(f"audits/{audit_id}/findings.jsonl", folder / "findings.jsonl")
    return AuditReport.model_validate_json(bucket.read(f"audits/{audit_id}/report.json"))


def _uploaded(bucket: Bucket, manifest: Path, audit_id: str) -> str:
    key = f"manifests/{audit_id}/{manifest.name}"
    bucket.upload(key, manifest)
    return f"s3://{bucket.name}/{key}"


def _ended(states: Any, run: str) -> dict[str, Any]:
    with asking("states:DescribeExecution, ListMapRuns and DescribeMapRun"), ExitStack() as bar:
        advance, done = None, 0
        while True:
            sleep(POLL_S)
            found: dict[str, Any] = states.describe_execution(executionArn=run)
            if found["status"] != "RUNNING":
                return found
            counts = _shards(states, run)
            if advance is None and counts.get("total"):
                advance = bar.enter_context(progress("Shards", counts["total"]))
            if advance is not None:
                now = sum(counts.get(state, 0) for state in ("succeeded", "failed", "timedOut", "aborted"))
                advance(now - done)
                done = now


def _shards(states: Any, run: str) -> dict[str, int]:
    """How many shards are in which state; nothing before they are known."""
    runs = states.list_map_runs(executionArn=run)["mapRuns"]
    if not runs:
        return {}
    counts: dict[str, int] = states.describe_map_run(mapRunArn=runs[0]["mapRunArn"])["itemCounts"]
    return counts


def _judge(ended: dict[str, Any]) -> None:
    """An audit that did not cover everything has a report all the same; one that broke off has none."""
    if ended["status"] == "SUCCEEDED" or ended.get("error") == INCOMPLETE:
        return
    why = _message(ended.get("cause"))
    if ended.get("error") in WRONG_INPUT:
        raise InvalidParameterError(why)
    raise AwsError(f"The audit ended as {ended['status']} ({ended.get('error')}): {why}")


def _message(cause: str | None) -> str:
    """What a function said when it failed; Lambda wraps it in JSON."""
    try:
        said = json.loads(cause or "")
    except ValueError:
        return cause or "no reason was given"
    return str(said.get("errorMessage") or cause) if isinstance(said, dict) else str(cause)
