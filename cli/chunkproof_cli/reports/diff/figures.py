"""Figures that every format of a diff report shows."""

from collections.abc import Iterator

from chunkproof.audit.findings import Finding, Kind
from chunkproof_cli.diffs.report import NAMES, DiffReport
from chunkproof_cli.output import shorten
from chunkproof_cli.reports.audit.figures import describe_finding

SIDE_HEAD = ("", "A", "B")
CHANGE_HEAD = ("metric", "A", "B", "difference", "interval")
ROW_HEAD = ("query", "overlap", "same first result", "largest move", "A", "B")
FINDING_HEAD = ("chunk", "difference", "details")


def side_rows(report: DiffReport) -> Iterator[tuple[str, str, str]]:
    """Describe both collections."""
    for name, field in (
        ("collection", "collection"),
        ("at", "host"),
        ("points", "points"),
        ("vector size", "vector_size"),
        ("distance", "distance"),
        ("quantization", "quantization"),
        ("model of queries", "model"),
    ):
        yield name, _show(getattr(report.a, field)), _show(getattr(report.b, field))


def _show(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or "–")


def kind_rows(report: DiffReport) -> Iterator[tuple[str, str]]:
    """Count the chunks by what differs."""
    for kind, count in report.texts.kinds.items():
        yield NAMES[Kind(kind)], f"{count:,}"
    for cause, count in report.texts.mismatch_kinds.items():
        yield f"text changed: {cause}", f"{count:,}"


def facts(report: DiffReport) -> Iterator[tuple[str, str]]:
    """List what was compared."""
    if found := report.texts.matching:
        yield "matched", f"{found.by_id:,} by id, {found.by_text:,} by text, {found.by_nearest_text:,} by nearest text"
    vectors = report.vectors
    cosines = f"; cosine {vectors.lowest:.4f} to median {vectors.median:.4f}" if vectors.median is not None else ""
    nearest = f"; {vectors.nearest:.1%} nearest to their own text" if vectors.nearest is not None else ""
    details = f": {vectors.details}" if vectors.details else ""
    yield "vectors", f"{vectors.space.value}{details}, {vectors.pairs:,} pairs of the same text{cosines}{nearest}"
    if queries := report.queries:
        yield (
            "results",
            f"overlap@{queries.top_k} {queries.overlap:.1%} (95 %: {queries.overlap_low:.1%} to "
            f"{queries.overlap_high:.1%}); the same first result for {queries.same_first:,} of {queries.queries:,} "
            f"queries, the same order for {queries.same_order:,}",
        )
        yield (
            "intervals",
            f"of metrics with {queries.confidence:.1%} confidence, by a randomization test over the queries",
        )
        if queries.newly_failing:
            yield "newly failing", ", ".join(queries.newly_failing[:20])
        if queries.newly_passing:
            yield "newly passing", ", ".join(queries.newly_passing[:20])
        if queries.not_judged:
            yield "not judged", ", ".join(queries.not_judged[:20])
    yield "may differ", ", ".join(report.allowed) or "nothing"
    yield "time", f"{report.seconds:,.1f} s"


def change_rows(report: DiffReport) -> Iterator[tuple[str, ...]]:
    """List the metrics of the suite on both sides, with paired intervals."""
    for one in report.queries.changes if report.queries else ():
        interval = f"{one.low:+.3f} to {one.high:+.3f}"
        yield one.name, f"{one.before:.3f}", f"{one.after:.3f}", f"{one.difference:+.3f}", interval


def query_rows(report: DiffReport, listed: int) -> Iterator[tuple[str, ...]]:
    """List the queries with the least overlap."""
    for one in report.queries.rows[:listed] if report.queries else ():
        first = "yes" if one.same_first else "no"
        yield one.name, f"{one.overlap:.0%}", first, str(one.largest_move), one.status_a, one.status_b


def finding_rows(report: DiffReport, listed: int) -> Iterator[tuple[str, str, str]]:
    """List what differs, chunk by chunk."""
    for one in report.texts.findings[:listed]:
        yield one.chunk_id, NAMES[one.kind], shorten(_describe(one), 300)


def _describe(finding: Finding) -> str:
    text = describe_finding(finding)
    return {
        "Stored, but not in the manifest": "Not in A",
        "No point has this id, and none has this text": "Neither its id nor its text is in B",
    }.get(text, text.replace("the manifest", "A"))
