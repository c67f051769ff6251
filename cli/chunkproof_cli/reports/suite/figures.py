"""Figures and sentences that several formats of a suite report show."""

from collections.abc import Iterator, Sequence

from chunkproof.models.json import cut_middle
from chunkproof.suite.blame import Blame
from chunkproof.suite.comparison import Comparison
from chunkproof.suite.outcome import TestCaseResult
from chunkproof.suite.report import ApproximationSummary, SuiteReport
from chunkproof_cli.reports.wording import describe_repeated, short_version

Row = tuple[str, ...]
CHANGE_HEAD: Row = ("metric", "before", "now", "difference", "interval", "beyond chance")
# The pass rate has none; the other cut-offs are in the canonical report.
CHANGE_CUTOFFS = ("", "5", "10")
LISTED = 20
LATENCY_HEAD: Row = ("stage", "searches", "p50", "p95", "max")


def explain_result(result: TestCaseResult) -> str:
    """Say why a case did not pass, and which expected ids only an exact search finds."""
    missed = result.approximation.missed_by_index if result.approximation else ()
    found = f" (an exact search finds {', '.join(missed)}: the index missed it)" if missed else ""
    return (result.error_message or "not run") + found


def count_not_judged(report: SuiteReport) -> int:
    """Count the cases that neither passed nor failed."""
    return report.result.total_tests - report.result.passed - report.result.failed


def versions_line(report: SuiteReport) -> str | None:
    """Say which versions of published collections were searched; None for collections of a server."""
    known = report.suite.versions or {}
    return ", ".join(f"{name} version {short_version(version)}" for name, version in known.items()) or None


def diagnosis_rows(report: SuiteReport) -> Iterator[Row]:
    """List each cause of each failed case: case, cause, message and the command that shows more."""
    for case in report.result.test_results:
        for found in case.diagnosis:
            yield case.name, found.cause.value, found.message, found.command or ""


BLAME_HEAD = ("case", "expected", "cause", "what brings it back", "cost", "command")


def blame_rows(blame: Blame) -> Iterator[Row]:
    """List each newly lost expectation: its cause, what brings it back, what that costs and the command."""
    for one in blame.cases:
        causes = " and ".join(cause.value for cause in one.causes) or "none"
        command = "; ".join(part for part in (one.command, one.then) if part)
        yield one.name, one.expected, causes, one.line.removeprefix("Lost: "), one.cost or "", command
    for name, reason in blame.not_blamed.items():
        yield name, "", "not blamed", reason, "", ""


def blame_summary(blame: Blame) -> str:
    """Say how many questions are lost and what brings them back, and what was compared with."""
    return f"{blame.summary}." + (f" Compared with {blame.snapshot}." if blame.snapshot else "")


def change_rows(found: Comparison) -> Iterator[Row]:
    """List each metric in both runs, and whether its difference is beyond chance."""
    for one in found.changes:
        if one.name.partition("@")[2] in CHANGE_CUTOFFS:
            beyond = "worse" if one.is_regression else "better" if one.low > 0 else "no more than chance"
            interval = f"{one.low:+.3f} to {one.high:+.3f}"
            name = f"{one.name} (gate)" if one.gated else one.name
            yield name, f"{one.before:.3f}", f"{one.after:.3f}", f"{one.difference:+.3f}", interval, beyond


def comparison_lines(found: Comparison) -> Iterator[str]:
    """Say what else changed, a sentence each."""
    yield f"{found.cases} cases compared with {found.baseline} of {found.baseline_timestamp}"
    for what, names in (("Newly failing", found.newly_failing), ("Newly passing", found.newly_passing)):
        yield f"{what}: {_join_names(names) or 'none'}"
    if found.failing_unpaired:
        yield f"Failing, and new or changed since: {_join_names(found.failing_unpaired)}"
    for reason in dict.fromkeys(found.not_compared.values()):
        left_out = [name for name, given in found.not_compared.items() if given == reason]
        yield f"Not compared, {reason}: {_join_names(left_out)}"
    yield (
        f"Intervals hold at {found.confidence:.1%} (paired randomization, {found.rounds} rounds, seed {found.seed}); "
        f"the smallest fall that stands out from chance is {found.least_changes} cases, all for the worse"
        + (f" ({found.smallest_detectable:.1%})" if found.smallest_detectable is not None else "")
    )


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(map(cut_middle, names[:LISTED])) + (f" and {more} more" if more > 0 else "")


def metric_table(report: SuiteReport) -> tuple[Row, list[Row]]:
    """Make a row for each metric and a column for each cut-off, with the number of cases behind each column."""
    result = report.result
    cutoffs = sorted({int(name.partition("@")[2]) for name in result.metrics})
    names = dict.fromkeys(name.partition("@")[0] for name in result.metrics)
    rows: list[Row] = [(name, *(f"{result.metrics[f'{name}@{k}']:.4f}" for k in cutoffs)) for name in names]
    rows.append(("(cases)", *(str(result.metric_queries[f"{next(iter(names))}@{k}"]) for k in cutoffs)))
    return ("metric", *(f"@{k}" for k in cutoffs)), rows


def latency_rows(report: SuiteReport) -> Iterator[Row]:
    """List each measured stage, cold apart from warm, in milliseconds."""
    for stage in report.latency:
        for kind, found in (("warm", stage.warm), ("cold", stage.cold)):
            if found:
                times = (f"{ms:.1f}" for ms in (found.p50_ms, found.p95_ms, found.max_ms))
                yield f"{stage.stage}, {kind}", str(found.count), *times


def approximation_line(found: ApproximationSummary) -> str:
    """Say in a sentence what the approximate index misses."""
    return (
        f"ANN recall {found.ann_recall:.4f} over {found.queries} queries, lowest {found.lowest:.4f}; "
        f"in {found.missed_by_index} cases only the exact search found an expected id"
    )


def repeated_line(report: SuiteReport) -> str | None:
    """Say what repeated texts take of the results; None when they take nothing."""
    return describe_repeated(report.repeated) if report.repeated and report.repeated.repeated else None
