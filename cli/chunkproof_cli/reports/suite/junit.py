"""`.xml`: a case of the suite is a case of JUnit; one that was not run is skipped."""

from collections.abc import Iterator

from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.junit import Case, render_junit
from chunkproof_cli.reports.suite.figures import explain_result


def render_suite_junit(report: SuiteReport) -> str:
    """Render the report as one `testsuite`."""
    return render_junit(
        report.suite.name,
        [_case(result) for result in report.result.test_results],
        _properties(report),
        class_name=report.suite.name,
        started_at=report.validation.started_at,
        seconds=report.result.execution_time_ms / 1000,
    )


def _properties(report: SuiteReport) -> Iterator[tuple[str, str]]:
    yield "verdict", report.verdict.line
    yield "exit_code", str(report.verdict.exit_code)
    for name, value in report.result.metrics.items():
        yield name, f"{value:.6f}"
    for one in report.criteria:
        yield one.id, f"{one.shown_figure}, {one.verdict}"
    if report.comparison:
        yield "baseline", report.comparison.verdict


def _case(result: TestCaseResult) -> Case:
    name, seconds = result.name, result.timing.latency_ms / 1000 if result.timing else 0.0
    if result.status is TestStatus.PASSED:
        return Case(name, seconds)
    if result.status is TestStatus.FAILED:
        kind = result.unmet[0].kind if result.unmet else "ExpectationError"
        return Case(name, seconds, "failure", kind, explain_result(result), _details(result))
    if result.status is TestStatus.ERROR:
        code, query = result.error_code or "INTERNAL", f"query: {result.query_text}"
        return Case(name, seconds, "error", code, explain_result(result), query)
    return Case(name, seconds, "skipped")


def _details(result: TestCaseResult) -> str:
    lines = [f"query: {result.query_text}", *(f"{unmet.kind}: {unmet.message}" for unmet in result.unmet)]
    for found in result.diagnosis:
        lines += [f"{found.cause}: {found.message}", *([f"  {found.command}"] if found.command else [])]
    lines += [f"{r.rank}. {r.similarity_score:.3f} {r.chunk_id}" for r in result.actual_results or ()]
    return "\n".join(lines)
