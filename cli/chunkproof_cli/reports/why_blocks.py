"""What the report of `why` shows."""

from collections.abc import Iterator

from chunkproof.why.causes import Row, WhyReport
from chunkproof_cli.output import shorten
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import Medium, Tone


def describe_why(report: WhyReport) -> blocks.ReportBody:
    """Describe the report: the verdict with its cause and command, then each change that was tried."""
    title = shorten(f"{report.query_text} → {report.expected}")
    snapshot = f", {report.snapshot}" if report.snapshot else ""
    return blocks.ReportBody(
        title,
        [blocks.VerdictLine(report.verdict.line, Tone.of(report.verdict.found))],
        list(_sections(report)),
        summary=[blocks.Paragraph(title, media=Medium.TERMINAL)],
        footer=f"{report.collection}, top_k {report.top_k}{snapshot}",
    )


def _sections(report: WhyReport) -> Iterator[blocks.Section]:
    verdict = report.verdict
    causes = " and ".join(cause.value for cause in verdict.causes)
    facts = (("Cause", causes), ("Cost", verdict.cost), ("Command", verdict.command), ("Then", verdict.then))
    if known := [(name, value) for name, value in facts if value]:
        yield blocks.Section("Verdict", [blocks.FactList(known)])
    table = blocks.Table(("change", "rank", "score", "in top_k", "because"), list(map(_cells, report.rows)))
    yield blocks.Section("What was tried", [table, blocks.BulletList(report.notes)] if report.notes else [table])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.change,
        "–" if row.rank is None else f"{row.rank:,}",
        "–" if row.score is None else f"{row.score:.3f}",
        blocks.Cell("yes", Tone.GOOD) if row.found else blocks.Cell("no", Tone.DIM),
        row.detail or "",
    )
