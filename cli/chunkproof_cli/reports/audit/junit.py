"""`.xml`: a case for each kind of finding, which fails when a chunk has it."""

from chunkproof.audit.findings import Kind
from chunkproof.audit.report import AuditReport
from chunkproof_cli.reports.audit.figures import GOOD, describe_finding, facts, kind_rows
from chunkproof_cli.reports.junit import Case, Problem, render_junit
from chunkproof_cli.reports.wording import and_more

SHOWN = 50
NOT_JUDGED = (Kind.UNVERIFIABLE, Kind.UNVERIFIABLE_VECTOR)


def render_audit_junit(report: AuditReport) -> str:
    """Render the report as one `testsuite`."""
    counts = ((Kind(kind), count) for kind, count in kind_rows(report) if kind not in GOOD)
    cases = [
        Case(f"no {kind.value}", f"audit.{report.collection}", problem=_problem(report, kind, count))
        for kind, count in counts
    ]
    return render_junit(
        f"audit of {report.collection}",
        cases,
        started_at=report.run.started_at,
        seconds=report.run.seconds,
        properties=facts(report),
    )


def _problem(report: AuditReport, kind: Kind, count: int) -> Problem | None:
    if not count:
        return None
    listed = [one for one in report.findings if one.kind is kind][:SHOWN]
    lines = [f"{one.chunk_id}: {describe_finding(one)}" for one in listed]
    return Problem(
        "error" if kind in NOT_JUDGED else "failure",
        kind.value,
        f"{count:,} {kind.value}",
        "\n".join(filter(None, (*lines, and_more(count, len(listed))))),
    )
