"""The blocks of diff and `why` reports."""

from collections.abc import Iterator

from chunkproof.audit.findings import Finding, Kind
from chunkproof.why.causes import Row, WhyReport
from chunkproof_cli.diff_report import NAMES, DiffReport, QueryDiff
from chunkproof_cli.exits import FAILED
from chunkproof_cli.output import shorten
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.audit_blocks import describe_finding, list_entries
from chunkproof_cli.reports.blocks import Medium, TableLayout, Tone
from chunkproof_cli.reports.suite_blocks import list_figures, put_side_by_side
from chunkproof_cli.reports.to_junit import JunitCase, JunitSuite

SIDE_FIELDS = {
    "collection": "collection",
    "at": "host",
    "points": "points",
    "vector size": "vector_size",
    "distance": "distance",
    "quantization": "quantization",
    "model of queries": "model",
}
JUNIT_CHECKS = {
    "texts are the same": "texts differ",
    "metadata is the same": "metadata differs",
    "vectors are the same": "vectors",
    "no query newly fails": "newly failing",
    "results overlap enough": "overlap",
}
MOST_NAMES = 20


def describe_diff(report: DiffReport) -> blocks.ReportBody:
    """Describe the report: each difference, the results of queries, then figures and both collections."""
    tone = Tone.GOOD if not report.exit_code else Tone.BAD if report.exit_code == FAILED else Tone.UNSURE
    return blocks.ReportBody(
        _title(report),
        [blocks.VerdictLine(report.verdict, tone)],
        list(_sections(report)),
        summary=[blocks.Paragraph(f"{report.started_at:%Y-%m-%d %H:%M} UTC", Tone.DIM, media=Medium.PAGE)],
        footer=f"A: {report.a.collection} at {report.a.host}; B: {report.b.collection} at {report.b.host}",
    )


def _title(report: DiffReport) -> str:
    return f"Diff of {report.a.collection} and {report.b.collection}"


def _sections(report: DiffReport) -> Iterator[blocks.Section]:
    if findings := report.texts.findings:
        rows = [(each.chunk_id, NAMES[each.kind], shorten(_describe(each), 300)) for each in findings]
        head, total = ("chunk", "difference", "details"), report.texts.findings_total
        table = blocks.Table(head, rows, layout=TableLayout.STACKED, total=total, media=Medium.NOT_PAGE)
        more = "".join(table.left_out(len(rows)))
        yield blocks.Section("Differences", [table, list_entries(findings, more, ("A", "B"), NAMES, _describe)])
    if report.queries:
        yield blocks.Section("Results", list(_query_tables(report.queries)))
    kinds = [(NAMES[Kind(kind)], f"{count:,}") for kind, count in report.texts.kinds.items()]
    kinds += [(f"text changed: {cause}", f"{count:,}") for cause, count in report.texts.mismatch_kinds.items()]
    yield blocks.Section("Chunks", [blocks.Table(("chunks", "count"), kinds)])
    yield blocks.Section("Figures", [blocks.FactList(list(_facts(report)))])
    sides = [
        (name, _show(getattr(report.a, field)), _show(getattr(report.b, field))) for name, field in SIDE_FIELDS.items()
    ]
    yield blocks.Section("Collections", [blocks.Table(("property", "A", "B"), sides)])


def _show(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or "–")


def _facts(report: DiffReport) -> Iterator[tuple[str, str]]:
    if matching := report.texts.matching:
        by_id, by_text = f"{matching.by_id:,} by id", f"{matching.by_text:,} by text"
        yield "matched", f"{by_id}, {by_text}, {matching.by_nearest_text:,} by nearest text"
    vectors = report.vectors
    cosines = f"; cosine {vectors.lowest:.4f} to median {vectors.median:.4f}" if vectors.median is not None else ""
    nearest = f"; {vectors.nearest:.1%} nearest to their own text" if vectors.nearest is not None else ""
    details = f": {vectors.details}" if vectors.details else ""
    yield "vectors", f"{vectors.space.value}{details}, {vectors.pairs:,} pairs of the same text{cosines}{nearest}"
    for other in report.others:
        yield "vectors", other.details
    if queries := report.queries:
        yield (
            "results",
            f"overlap@{queries.top_k} {queries.overlap:.1%} (95 %: {queries.overlap_low:.1%} to "
            f"{queries.overlap_high:.1%}); the same first result for {queries.same_first:,} of {queries.queries:,} "
            f"queries, the same order for {queries.same_order:,}",
        )
        confidence = f"{queries.confidence:.1%} confidence"
        yield "intervals", f"of metrics with {confidence}, by a randomization test over the queries"
        for name in ("newly_failing", "newly_passing", "not_judged"):
            if cases := getattr(queries, name):
                yield name.replace("_", " "), ", ".join(cases[:MOST_NAMES])
    yield "may differ", ", ".join(report.allowed) or "nothing"
    yield "time", f"{report.seconds:,.1f} s"


def _query_tables(queries: QueryDiff) -> Iterator[blocks.Block]:
    """Show what newly fails with both results, the metrics with paired intervals, then queries by their overlap."""
    failing = [
        blocks.CaseRow(
            query.name,
            Tone.BAD,
            "newly failing",
            details=[
                blocks.Paragraph(f"“{query.query}”"),
                put_side_by_side(query.results_a, query.results_b, "A", "B"),
            ],
        )
        for query in queries.rows
        if query.name in queries.newly_failing
    ]
    if failing:
        yield blocks.Entries(failing)
    changes = [(change.name, *list_figures(change)) for change in queries.changes]
    yield blocks.Table(("metric", "A", "B", "difference", "interval"), changes)
    rows = [
        (
            query.name,
            f"{query.overlap:.0%}",
            "yes" if query.same_first else "no",
            str(query.largest_move),
            query.status_a,
            query.status_b,
        )
        for query in queries.rows
    ]
    head = ("query", "overlap", "same first result", "largest move", "A", "B")
    yield blocks.Table(head, rows, "Queries, those with the least in common first")


def _describe(finding: Finding) -> str:
    """Say what differs: an audit speaks of a manifest where a diff has collection A."""
    text = describe_finding(finding)
    return {
        "Stored, but not in the manifest": "Not in A",
        "No point has this id, and none has this text": "Neither its id nor its text is in B",
    }.get(text, text.replace("the manifest", "A"))


def list_diff_cases(report: DiffReport) -> JunitSuite:
    """Return a case for JUnit for each thing that must not differ."""
    cases = []
    for name, word in JUNIT_CHECKS.items():
        failures = [failure for failure in report.failures if word in failure]
        failed = JunitCase(name, 0.0, "failure", "diff", "".join(failures[:1]), report.verdict)
        cases.append(failed if failures else JunitCase(name))
    if report.unjudged:
        cases.append(JunitCase("everything could be judged", 0.0, "error", "diff", ", ".join(report.unjudged)))
    return JunitSuite(_title(report), "diff", cases, list(_facts(report)), report.started_at, report.seconds)


def describe_why(report: WhyReport) -> blocks.ReportBody:
    """Describe the report: the verdict with its cause and command, then each change that was tried."""
    title = shorten(f"{report.query_text} → {report.expected}")
    snapshot = f", {report.snapshot}" if report.snapshot else ""
    return blocks.ReportBody(
        title,
        [blocks.VerdictLine(report.verdict.line, Tone.of(report.verdict.found))],
        list(_why_sections(report)),
        summary=[blocks.Paragraph(title, media=Medium.TERMINAL)],
        footer=f"{report.collection}, top_k {report.top_k}{snapshot}",
    )


def _why_sections(report: WhyReport) -> Iterator[blocks.Section]:
    verdict = report.verdict
    causes = " and ".join(cause.value for cause in verdict.causes)
    facts = (("Cause", causes), ("Cost", verdict.cost), ("Command", verdict.command), ("Then", verdict.then))
    if known := [(name, value) for name, value in facts if value]:
        yield blocks.Section("Verdict", [blocks.FactList(known)])
    head = ("change", "rank", "score", "in top_k", "because")
    table = blocks.Table(head, list(map(_why_cells, report.rows)), media=Medium.NOT_PAGE)
    shown: list[blocks.Block] = [blocks.Entries(list(map(_why_step, report.rows)), are_steps=True), table]
    yield blocks.Section("What was tried", [*shown, blocks.BulletList(report.notes)] if report.notes else shown)


def _why_step(row: Row) -> blocks.CaseRow:
    """Describe one repetition of the search for a page."""
    change, rank, score, _, because = _why_cells(row)
    state = f"rank {rank}" if row.rank else "not among the results"
    details = [blocks.Paragraph(text) for text in (row.cause and f"Undoes: {row.cause.value}", because) if text]
    return blocks.CaseRow(change, Tone.of(row.found), state, [(score, score)] if row.score else (), details)


def _why_cells(row: Row) -> tuple[str, ...]:
    return (
        row.change,
        "–" if row.rank is None else f"{row.rank:,}",
        "–" if row.score is None else f"{row.score:.3f}",
        blocks.Cell("yes", Tone.GOOD) if row.found else blocks.Cell("no", Tone.DIM),
        row.detail or "",
    )
