"""`.xml`: a case for each kind of finding, which fails when a chunk has it."""

from typing import Literal

from chunkproof.audit.findings import Kind
from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit import figures
from chunkproof_cli.reports.junit import Case, render_junit
from chunkproof_cli.reports.wording import and_more

SHOWN = 50
# Listed, but no reason to fail.
NOTED = (Kind.NEAR_DUPLICATE,)
NOT_JUDGED = (Kind.UNVERIFIABLE, Kind.UNVERIFIABLE_VECTOR)


def render_audit_junit(report: AuditReport) -> str:
    """Render the report as one `testsuite`."""
    return render_junit(
        f"audit of {report.collection}",
        [_case(report, Kind(kind), n) for kind, n in figures.kind_rows(report) if kind not in figures.GOOD],
        figures.facts(report),
        class_name=f"audit.{report.collection}",
        started_at=report.run.started_at,
        seconds=report.run.seconds,
    )


def _case(report: AuditReport, kind: Kind, count: int) -> Case:
    name = f"no {kind.value}"
    if not count:
        return Case(name)
    listed = [one for one in report.findings if one.kind is kind][:SHOWN]
    lines = [f"{one.chunk_id}: {figures.describe_finding(one)}" for one in listed]
    details = "\n".join(filter(None, (*lines, and_more(count, len(listed)))))
    message = f"{count:,} {kind.value}"
    problem: Literal["skipped", "error", "failure"] = (
        "skipped" if kind in NOTED else "error" if kind in NOT_JUDGED else "failure"
    )
    return Case(name, 0.0, problem, kind.value, message, details)
