"""What several formats show alike."""

from collections.abc import Iterator, Sequence

from chunkproof.suite.comparison import Comparison
from chunkproof.suite.outcome import TestCaseResult
from chunkproof.suite.report import ApproximationSummary, SuiteReport

Row = tuple[str, ...]
CHANGE_HEAD: Row = ("metric", "before", "now", "difference", "interval", "beyond chance")
# The pass rate has none; the other cut-offs are in the canonical report.
CHANGE_CUTOFFS = ("", "5", "10")
LISTED = 20
LATENCY_HEAD: Row = ("stage", "searches", "p50", "p95", "max")


def why(case: TestCaseResult) -> str:
    """Why a case has not passed; where an exact search finds what is missing, the index is to blame."""
    missed = case.approximation.missed_by_index if case.approximation else ()
    found = f" (an exact search finds {', '.join(missed)}: the index missed it)" if missed else ""
    return (case.error_message or "not run") + found


def diagnosis_rows(report: SuiteReport) -> Iterator[Row]:
    """Each cause of each failed case: case, cause, what was found, the command that shows more."""
    for case in report.result.test_results:
        for found in case.diagnosis:
            yield case.name, found.cause.value, found.message, found.command or ""


def change_rows(found: Comparison) -> Iterator[Row]:
    """Each metric in both runs, and whether its difference is more than chance."""
    for one in found.changes:
        if one.name.partition("@")[2] in CHANGE_CUTOFFS:
            beyond = "worse" if one.is_regression else "better" if one.low > 0 else "no more than chance"
            interval = f"{one.low:+.3f} to {one.high:+.3f}"
            name = f"{one.name} (gate)" if one.gated else one.name
            yield name, f"{one.before:.3f}", f"{one.after:.3f}", f"{one.difference:+.3f}", interval, beyond


def comparison_lines(found: Comparison) -> Iterator[str]:
    """What changed beside the metrics, a sentence each."""
    yield f"{found.cases} cases compared with {found.baseline} of {found.baseline_timestamp}"
    for what, names in (("Newly failing", found.newly_failing), ("Newly passing", found.newly_passing)):
        yield f"{what}: {_listed(names) or 'none'}"
    for why in dict.fromkeys(found.not_compared.values()):
        left_out = [name for name, reason in found.not_compared.items() if reason == why]
        yield f"Not compared, {why}: {_listed(left_out)}"
    yield (
        f"Intervals hold at {found.confidence:.1%} (paired randomization, {found.rounds} rounds, seed {found.seed}); "
        f"the smallest fall that can be told from chance is {found.least_changes} cases, all for the worse"
        + (f" ({found.smallest_detectable:.1%})" if found.smallest_detectable is not None else "")
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def metric_table(report: SuiteReport) -> tuple[Row, list[Row]]:
    """A row per metric, a column per cut-off, and how many cases each column is over."""
    result = report.result
    cutoffs = sorted({int(name.partition("@")[2]) for name in result.metrics})
    names = dict.fromkeys(name.partition("@")[0] for name in result.metrics)
    rows: list[Row] = [(name, *(f"{result.metrics[f'{name}@{k}']:.4f}" for k in cutoffs)) for name in names]
    rows.append(("(cases)", *(str(result.metric_queries[f"{next(iter(names))}@{k}"]) for k in cutoffs)))
    return ("metric", *(f"@{k}" for k in cutoffs)), rows


def latency_rows(report: SuiteReport) -> Iterator[Row]:
    """Each stage that was measured, cold apart from warm, in milliseconds."""
    for stage in report.latency:
        for kind, found in (("warm", stage.warm), ("cold", stage.cold)):
            if found:
                times = (f"{ms:.1f}" for ms in (found.p50_ms, found.p95_ms, found.max_ms))
                yield f"{stage.stage}, {kind}", str(found.count), *times


def approximation_line(found: ApproximationSummary) -> str:
    """What the index misses, in a sentence."""
    return (
        f"ANN recall {found.ann_recall:.4f} over {found.queries} queries, lowest {found.lowest:.4f}; "
        f"in {found.missed_by_index} cases only the exact search found an expected id"
    )
