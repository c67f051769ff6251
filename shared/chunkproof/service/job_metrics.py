"""CloudWatch metrics and log lines of audits, suite runs and canaries."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chunkproof.service.telemetry import COUNT, MS, NO_UNIT, PERCENT, Figure, emit_metrics, logger

if TYPE_CHECKING:
    from chunkproof.audit.audit_report import AuditReport
    from chunkproof.proof.canaries import Canary
    from chunkproof.suite.suite_report import SuiteReport


def emit_audit(report: "AuditReport", environment: str, function: str) -> None:
    """Log a line, which is a warning after faults, and emit metrics, zeros included.

    By `environment` and `function`, for graphs and alarms: `AuditFindings`, all faults of the audit, and
    `AuditFindings.KIND` for each kind, such as `AuditFindings.mismatch`. By `environment` and `collection`:
    `ChunksAudited`, `AuditCoverage` and, for each `kind`, `ChunkMismatch`.
    """
    facts = {"collection": report.collection, "version": report.version, "findings": report.findings_total}
    if report.faults:
        logger.warning("audit", extra=facts)
    else:
        logger.info("audit", extra=facts)
    found = {kind: count for kind, count in report.kinds.items() if kind != "match"}
    figures = [("AuditFindings", COUNT, report.faults)]
    figures += [(f"AuditFindings.{kind}", COUNT, count) for kind, count in found.items()]
    emit_metrics(figures, {"environment": environment, "function": function})
    dimensions = {"environment": environment, "collection": report.collection}
    audited = ("ChunksAudited", COUNT, report.audited)
    emit_metrics([audited, ("AuditCoverage", PERCENT, 100 * report.coverage)], dimensions)
    for kind, count in found.items():
        emit_metrics([("ChunkMismatch", COUNT, count)], {**dimensions, "kind": kind})


def emit_suite(report: "SuiteReport", environment: str, function: str) -> None:
    """Log a line, and emit the metrics of a run; a metric that no case has is left out."""
    facts = {"collection": report.suite.collection, "versions": report.suite.versions, "passed": report.result.passed}
    logger.info("suite", extra={**facts, "cases": report.result.total_tests})
    emit_metrics(_suite_figures(report), {"environment": environment, "function": function})


def _suite_figures(report: "SuiteReport") -> Iterator[Figure]:
    result = report.result
    # As in the report, a case that could not be judged counts as not passed.
    yield "PassRate", PERCENT, result.pass_rate
    for name, metric in (("RecallAt5", "recall@5"), ("MrrAt10", "mrr@10")):
        if metric in result.metrics:
            yield name, NO_UNIT, result.metrics[metric]
    if any(case.timing for case in result.test_results):
        yield "SuiteP95Latency", MS, result.performance_metrics.p95_retrieval_time_ms


def emit_canaries(canaries: "Sequence[Canary]", environment: str, function: str) -> None:
    """Log a line for each embedder; emit the largest drift, and how many embedders changed.

    A new record counts as unchanged, so that the alarm is over. Nothing is emitted where nothing was recorded.
    """
    for canary in canaries:
        if canary.state == "changed":
            logger.warning("canary", extra=canary.model_dump(mode="json"))
        else:
            logger.info("canary", extra=canary.model_dump(mode="json"))
    recorded = [canary for canary in canaries if canary.state != "not recorded"]
    if recorded:
        drift = max(canary.drift or 0.0 for canary in recorded)
        changed = float(sum(canary.state == "changed" for canary in recorded))
        figures = [("CanaryDrift", NO_UNIT, drift), ("CanaryChanged", COUNT, changed)]
        emit_metrics(figures, {"environment": environment, "function": function})
