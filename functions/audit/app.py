"""The steps of an audit in the cloud: split the manifest, audit a shard, merge the results."""

from collections.abc import Callable, Mapping
from typing import Any

from chunkproof.audit.shards import ShardAudit
from chunkproof.clients.s3 import Bucket
from chunkproof.runtime.audit_metrics import emit
from chunkproof.runtime.container import services, settings

Event = Mapping[str, Any]
Output = dict[str, Any]


def lambda_handler(event: Event, _context: object) -> Output:
    """Run one step of the state machine. Errors are raised, so that Step Functions retries and shows them."""
    return STEPS[event["step"]](ShardAudit(Bucket(event["bucket"]), event["audit_id"]), event)


def _split(audit: ShardAudit, event: Event) -> Output:
    collection = services().resolve_collection(event.get("collection") or None)
    versions = services().pin([collection])
    plan = audit.split(
        event["manifest"],
        collection,
        int(event["shard_entries"]),
        version=versions.get(collection),
        is_partial=event.get("given", {}).get("partial", False),
    )
    return plan.model_dump(mode="json")


def _shard(audit: ShardAudit, event: Event) -> Output:
    return audit.audit(event["shard"], services()).model_dump(mode="json")


def _merge(audit: ShardAudit, _event: Event) -> Output:
    report = audit.merge(services().store.host)
    emit(report, settings().environment)
    return {
        "report": audit.report_address(),
        "version": report.version,
        "coverage": report.coverage,
        "audited": report.audited,
        "findings": report.findings_total,
        "kinds": report.kinds,
    }


STEPS: Mapping[str, Callable[[ShardAudit, Event], Output]] = {
    "split": _split,
    "shard": _shard,
    "merge": _merge,
}
