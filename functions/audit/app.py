"""The steps of an audit in the cloud: split the manifest, audit a shard, merge the results."""

from collections.abc import Mapping
from typing import Any

from chunkproof.audit.audit_job import ShardedAudit
from chunkproof.net.s3 import Bucket
from chunkproof.service.container import flush_after, services, settings
from chunkproof.service.job_metrics import emit_audit


@flush_after
def lambda_handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Run one step of the state machine. Errors are raised, so that Step Functions retries and shows them."""
    audit = ShardedAudit(Bucket(event["bucket"]), event["audit_id"])
    if event["step"] == "split":
        collection = services().collection(event.get("collection") or None).name
        plan = audit.split(
            event["manifest"],
            collection,
            int(event["shard_entries"]),
            version=services().pin([collection]).get(collection),
            is_partial=event.get("given", {}).get("partial", False),
        )
        return plan.model_dump(mode="json")
    if event["step"] == "shard":
        return audit.run(event["shard"], services()).model_dump(mode="json")
    report = audit.merge(services().store.host)
    emit_audit(report, settings().environment, context.function_name)
    return {
        "report": audit.report_address(),
        "version": report.version,
        "coverage": report.coverage,
        "audited": report.audited,
        "findings": report.findings_total,
        "faults": report.faults,
        "kinds": report.kinds,
    }
