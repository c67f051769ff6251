"""`.xml`: a case for each kind of finding, which fails when a chunk has it."""

from collections.abc import Iterator
from typing import Literal

from chunkproof.audit.findings import Kind
from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit import coverage, figures
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
        [
            *(_case(report, Kind(kind), n) for kind, n in figures.kind_rows(report) if kind not in figures.GOOD),
            *_coverage_cases(report),
        ],
        figures.facts(report),
        class_name=f"audit.{report.collection}",
        started_at=report.run.started_at,
        seconds=report.run.seconds,
    )


def _coverage_cases(report: AuditReport) -> Iterator[Case]:
    if found := report.source_coverage:
        rows = [*coverage.passage_rows(found, SHOWN), *coverage.chunk_rows(found, SHOWN)]
        details = "\n".join(" ".join(row) for row in rows)
        message = coverage.coverage_line(found)
        name = f"sources are covered to {found.least:.0%}, and no chunk is stale"
        yield Case(name) if found.is_enough else Case(name, 0.0, "failure", "source_coverage", message, details)


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
