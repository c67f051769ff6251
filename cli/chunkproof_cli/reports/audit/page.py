"""`.html`: the verdict, charts by kind, cause and source, and every finding of the canonical report."""

from collections.abc import Iterator, Sequence

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.report import AuditReport
from chunkproof_cli.output import shorten
from chunkproof_cli.reports import html_kit as kit
from chunkproof_cli.reports.audit import figures
from chunkproof_cli.reports.audit.coverage import coverage_sections

SHOWN_SOURCES = 20


def render_audit_page(report: AuditReport) -> str:
    """Render the report as one file."""
    state = "failed" if figures.has_failed(report) else "passed"
    header = (
        kit.verdict(figures.headline(report), state),
        kit.element("p", f"{report.run.started_at:%Y-%m-%d %H:%M} UTC", class_="dim"),
    )
    footer = f"Manifest {report.manifest.name}, SHA-256 {report.manifest.sha256}"
    return kit.render_page(f"Audit of {report.collection}", header, _sections(report), footer=footer)


def _sections(report: AuditReport) -> Iterator[kit.Html]:
    yield kit.tiles(
        (
            ("chunks audited", f"{report.audited:,}"),
            ("stored as they should be", f"{report.kinds[Kind.MATCH]:,}"),
            ("findings", f"{report.findings_total:,}"),
            ("coverage", figures.describe_coverage(report)),
        )
    )
    yield kit.section("Audit", kit.table(("fact", "value"), figures.facts(report), classes="facts"))
    kinds = [(kind, count, kind in figures.GOOD) for kind, count in figures.kind_rows(report) if count]
    yield from _chart("Chunks by kind", ("kind", "relative to the largest", "chunks"), kinds)
    causes = [(kind, count, False) for kind, count in report.mismatch_kinds.items()]
    yield from _chart("Mismatches by cause", ("cause", "relative to the largest", "chunks"), causes)
    sources = [(shorten(one.source), one.findings, False) for one in report.sources[:SHOWN_SOURCES]]
    title = f"Findings by source ({report.sources_total:,})"
    yield from _chart(title, ("source", "relative to the largest", "findings"), sources)
    if report.source_coverage:
        yield from coverage_sections(report.source_coverage)
    if report.findings:
        yield kit.section("Findings", *_findings(report))


def _chart(title: str, head: Sequence[str], counts: Sequence[tuple[str, int, bool]]) -> Iterator[kit.Html]:
    if counts:
        most = max(count for _, count, _ in counts)
        rows = (
            (name, kit.bar(count / most, "passed" if good else "failed"), f"{count:,}") for name, count, good in counts
        )
        yield kit.section(title, kit.table(head, rows, classes="chart stacked"))


def _findings(report: AuditReport) -> Iterator[kit.Html]:
    rows = [
        (
            one.chunk_id,
            kit.Cell(one.kind.value, "short failed"),
            figures.describe_finding(one),
            one.source or "",
            _excerpts(one),
        )
        for one in report.findings
    ]
    yield kit.table(("chunk", "kind", "what is wrong", "source", "stored / original"), rows, classes="stacked")
    if more := figures.findings_left_out(report, len(report.findings)):
        yield kit.element("p", more)


def _excerpts(finding: Finding) -> str:
    mismatch = finding.mismatch
    if mismatch is None:
        return ""
    original = "" if mismatch.original_excerpt is None else f" / {mismatch.original_excerpt!a}"
    return f"{mismatch.stored_excerpt!a}{original}"
