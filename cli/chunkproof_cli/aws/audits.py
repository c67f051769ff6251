"""Audit with a deployed stack: start the audit, wait for it, download its report."""

from pathlib import Path

from chunkproof.audit.report import AuditReport
from chunkproof.clients.s3 import Bucket, is_s3_address
from chunkproof_cli.aws.executions import Machine, new_name
from chunkproof_cli.output import print_note

INCOMPLETE = "AuditIncomplete"


def audit_in_cloud(
    stack: str, manifest: str, collection: str | None, folder: Path, *, is_partial: bool = False
) -> AuditReport:
    """Run an audit in the cloud and return its report; download its findings to `findings.jsonl` in the folder.

    A stack without a server reads the whole collection, unless the manifest is partial. Ctrl-C stops waiting for the
    audit, not the audit itself.
    """
    machine, audit_id = Machine.find(stack, "Audit"), new_name()
    bucket = machine.bucket
    address = manifest if is_s3_address(manifest) else _upload(bucket, Path(manifest), audit_id)
    given = {"audit_id": audit_id, "manifest": address, "collection": collection or "", "partial": is_partial}
    run = machine.start(audit_id, given)
    print_note(
        f"Audit {audit_id} is under way in {stack}; its report will be in {bucket.address(f'audits/{audit_id}/')}"
    )
    machine.wait_for(run, INCOMPLETE)
    bucket.download(f"audits/{audit_id}/findings.jsonl", folder / "findings.jsonl")
    return AuditReport.model_validate_json(bucket.read(f"audits/{audit_id}/report.json"))


def _upload(bucket: Bucket, manifest: Path, audit_id: str) -> str:
    key = f"manifests/{audit_id}/{manifest.name}"
    bucket.upload(key, manifest)
    return bucket.address(key)
