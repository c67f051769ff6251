"""The steps of an audit in the cloud: split the manifest, audit a shard, merge the results."""

from typing import Any

from chunkproof.audit.metrics import emit
from chunkproof.audit.shards import ShardAudit
from chunkproof.clients.s3 import Bucket
from chunkproof.connect import services, settings
from chunkproof.errors import InvalidParameterError

Answer = dict[str, Any]


def lambda_handler(event: dict[str, Any], _context: object) -> Answer:
    """What the state machine asks for. An error is raised, so that it is retried and shown."""
    bucket = settings().audit_bucket
    if bucket is None:
        raise InvalidParameterError("CHUNKPROOF_AUDIT_BUCKET is not set")
    audit = ShardAudit(Bucket(bucket), event["audit_id"])
    return STEPS[event["step"]](audit, event)


def _split(audit: ShardAudit, event: dict[str, Any]) -> Answer:
    collection = services().collection(event.get("collection") or None)
    plan = audit.split(event["manifest"], collection, settings().audit_shard_entries)
    return plan.model_dump(mode="json")


def _shard(audit: ShardAudit, event: dict[str, Any]) -> Answer:
    return audit.audit(event["shard"], services()).model_dump(mode="json")


def _merge(audit: ShardAudit, _event: dict[str, Any]) -> Answer:
    report = audit.merge(services().store.host)
    emit(report, settings().environment)
    return {
        "report": audit.report_address(),
        "coverage": report.coverage,
        "findings": report.findings_total,
        "kinds": report.kinds,
    }


STEPS = {"split": _split, "shard": _shard, "merge": _merge}
