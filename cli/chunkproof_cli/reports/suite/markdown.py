"""`.md`: fits a comment on a pull request, however large the suite."""

import re
from collections.abc import Iterable, Iterator

from chunkproof.suite.comparison import Gate
from chunkproof.suite.criteria import Verdict
from chunkproof.suite.outcome import TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.figures import (
    CHANGE_HEAD,
    LATENCY_HEAD,
    approximation_line,
    change_rows,
    comparison_lines,
    diagnosis_rows,
    latency_rows,
    metric_table,
    why,
)

MOST_CHARS = 65_000  # GitHub takes 65,536 in a comment
SHOWN_CASES = 50
LONGEST_CELL = 300
_MARKS = {Verdict.MET: "✅", Verdict.NOT_MET: "❌", Verdict.NOT_JUDGED: "➖"}
_GATES = {Gate.PASSED: "✅", Gate.FAILED: "❌", Gate.CANNOT_TELL: "➖", Gate.NOT_JUDGED: "⚠️"}
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&])")


def markdown(report: SuiteReport) -> str:
    """Verdict first, then what did not pass, then figures."""
    parts = [_head(report), *_comparison(report), *_cases(report), *_diagnosis(report)]
    parts += [_criteria(report), *_metrics(report)]
    parts.append("### Latency (ms)\n\n" + table(LATENCY_HEAD, latency_rows(report)))
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 40].rpartition("\n")[0] + "\n\n…\n"


def cell(value: object) -> str:
    """A text as data: one line, nothing in it acts as Markdown, HTML or a mention."""
    line = " ".join(str(value).split())
    line = line if len(line) <= LONGEST_CELL else line[: LONGEST_CELL - 1] + "…"
    return _ACTIVE.sub(r"\\\1", line).replace("\\@", "@\u200b")


def _head(report: SuiteReport) -> str:
    result = report.result
    undecided = result.total_tests - result.passed - result.failed
    mark = "❌" if result.failed or report.unmet_criteria else "⚠️" if undecided else "✅"
    line = f"**{result.passed} of {result.total_tests} cases passed**, {result.failed} failed"
    if undecided:
        line += (
            f", {undecided} could not be judged"
            if report.complete
            else f", {undecided} not judged (interrupted)"
        )
    stats = report.validation.collection_stats
    where = (
        f" on {cell(stats.collection_name)} ({stats.vector_count:,} vectors)"
        if stats.collection_exists
        else ""
    )
    found = report.comparison
    if found:
        mark = "⚠️" if found.gate is Gate.PASSED and found.newly_failing else _GATES[found.gate]
        line = f"**{cell(found.verdict)}**\n\n{line}"
    return f"## {mark} {cell(report.suite.name)}\n\n{line}{where}."


def _comparison(report: SuiteReport) -> Iterator[str]:
    if report.comparison:
        lines = "\n".join(f"- {cell(line)}" for line in comparison_lines(report.comparison))
        yield f"### Compared with the baseline\n\n{table(CHANGE_HEAD, change_rows(report.comparison))}\n\n{lines}"


def _cases(report: SuiteReport) -> Iterator[str]:
    for title, status in (("Failed", TestStatus.FAILED), ("Could not be judged", TestStatus.ERROR)):
        found = [result for result in report.result.test_results if result.status is status]
        if found:
            more = len(found) - SHOWN_CASES
            rows = [(case.name, case.query_text, why(case)) for case in found[:SHOWN_CASES]]
            yield f"### {title}\n\n{table(('case', 'query', 'why'), rows)}" + (
                f"\n\n… and {more} more" if more > 0 else ""
            )


def _diagnosis(report: SuiteReport) -> Iterator[str]:
    if causes := list(diagnosis_rows(report)):
        more = len(causes) - SHOWN_CASES
        shown = table(("case", "cause", "found", "see more"), causes[:SHOWN_CASES])
        yield f"### Why\n\n{shown}" + (f"\n\n… and {more} more" if more > 0 else "")


def _criteria(report: SuiteReport) -> str:
    rows = [
        (
            f"{_MARKS[one.verdict]} {one.id}",
            one.title,
            one.limit,
            one.shown_figure,
            one.verdict,
            one.details or "",
        )
        for one in report.criteria
    ]
    return "### Criteria\n\n" + table(("", "criterion", "limit", "figure", "verdict", "details"), rows)


def _metrics(report: SuiteReport) -> Iterator[str]:
    if report.result.metrics:
        yield "### Metrics\n\n" + table(*metric_table(report))
    if report.approximation:
        yield approximation_line(report.approximation) + "."


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table of harmless cells."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
