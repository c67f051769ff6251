"""The blocks of suite reports and of comparisons of configurations."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chunkproof.suite.criteria import Comparison, Criterion, MetricChange, Outcome, Verdict, find_end_to_end, name_some
from chunkproof.suite.diagnosis import Blame
from chunkproof.suite.outcome import (
    EXCERPT_CHARS,
    Diagnosis,
    RetrievedChunk,
    TestCaseResult,
    TestStatus,
    explain_failure,
    find_returned,
)
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.causes import Cause
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import Medium, TableLayout, Tone
from chunkproof_cli.reports.charts import best_rank, draw_configurations, draw_suite
from chunkproof_cli.reports.to_junit import JunitCase, JunitSuite
from chunkproof_cli.suites.configurations import ConfigurationReport, ConfigurationResult

# In a larger suite only cases that did not pass can be unfolded, so that a phone can open the page.
UNFOLDED_WHEN_PASSED = 500
# The pass rate has none; the other cut-offs are in the canonical report.
CHANGE_CUTOFFS = ("", "5", "10")
TILE_METRICS, CONFIGURATION_METRICS = ("recall@5", "mrr@10", "ndcg@10"), ("recall@5", "mrr@10")
NONE = "–"
NAMED = 20
# So many more cases with one cause are only named.
COMMON = 5
# Sections that an option asked for, or that need a look although everything passed.
ASKED_FOR = ("Approximation", "Repeated texts", "Blame", "Compared with the baseline")
_TONES = {
    Outcome.PASSED: Tone.GOOD,
    Outcome.WARNING: Tone.UNSURE,
    Outcome.FAILED: Tone.BAD,
    Outcome.NOT_JUDGED: Tone.UNSURE,
}
_CRITERION_TONES = {Verdict.MET: Tone.GOOD, Verdict.NOT_MET: Tone.BAD, Verdict.NOT_JUDGED: Tone.DIM}
_CASE_TONES = {TestStatus.PASSED: Tone.GOOD, TestStatus.FAILED: Tone.BAD}
_TITLES = {
    TestStatus.FAILED: "Failed",
    TestStatus.ERROR: "Could not be judged",
    TestStatus.PENDING: "Not run",
    TestStatus.PASSED: "Passed",
}


def describe_suite(
    report: SuiteReport, earlier: Sequence[SuiteReport] = (), baseline: SuiteReport | None = None
) -> blocks.ReportBody:
    """Describe the report; with earlier reports of the suite, a page shows the trend.

    Results of a case are shown beside its results in the baseline, else in the latest of the earlier reports.
    """
    result, shown = report.result, Medium.FILES if _is_brief(report) else Medium.EVERYWHERE
    sections = _sections(report, earlier, baseline)
    return blocks.ReportBody(
        report.suite.name,
        list(_verdicts(report)),
        [each if each.title in ASKED_FOR else replace(each, media=each.media & shown) for each in sections],
        summary=list(_summary(report)),
        footer=f"Chunkproof {report.chunkproof_version}, from {report.suite.source}",
        page_title=f"{report.suite.name}: {result.passed} of {result.total_tests} cases passed",
        preface=report.validation.to_summary(),
    )


def _is_brief(report: SuiteReport) -> bool:
    """Whether a terminal shows only what was asked for: everything passed."""
    return report.verdict.outcome is Outcome.PASSED and report.result.passed == report.result.total_tests


def _verdicts(report: SuiteReport) -> Iterator[blocks.VerdictLine]:
    """With a baseline the gate decides, and the counts have no colour."""
    verdict, stats = report.verdict, report.validation.collection_stats
    tone = _TONES[verdict.outcome]
    by = f" by {report.suite.retriever}" if report.suite.retriever else ""
    where = f" on {stats.collection_name} ({stats.vector_count:,} vectors)" if stats.collection_exists else ""
    first = verdict.counts.partition(",")[0]
    counts = f"{report.suite.name}{by}: {verdict.counts}, in {report.result.execution_time_ms / 1000:.1f} s"
    if report.comparison:
        yield blocks.VerdictLine(verdict.line, tone)
        yield blocks.VerdictLine(f"{verdict.counts}{by}{where}.", Tone.PLAIN, first, media=Medium.FILES)
        yield blocks.VerdictLine(counts, Tone.PLAIN, media=Medium.TERMINAL)
        return
    yield blocks.VerdictLine(f"{verdict.counts}{by}{where}.", tone, first, media=Medium.FILES)
    if verdict.details:
        yield blocks.VerdictLine(verdict.line, tone, media=Medium.FILES)
    yield blocks.VerdictLine(f"{counts}{verdict.details}", tone, media=Medium.TERMINAL)


def _summary(report: SuiteReport) -> Iterator[blocks.Paragraph]:
    versions = (f"{name} version {blocks.short_version(v)}" for name, v in (report.suite.versions or {}).items())
    if report.suite.versions:
        yield blocks.Paragraph(f"Searched {', '.join(versions)}.")
    if _is_brief(report):
        figures = ", ".join(f"{name} {figure}" for name, figure in _tiles(report))
        yield blocks.Paragraph(f"{figures}; -o report.html shows every case", media=Medium.TERMINAL)
    started = f"{report.validation.started_at:%Y-%m-%d %H:%M} UTC"
    seconds = report.result.execution_time_ms / 1000
    yield blocks.Paragraph(f"{started}, {seconds:.1f} s", Tone.DIM, media=Medium.PAGE)


def _sections(
    report: SuiteReport, earlier: Sequence[SuiteReport], baseline: SuiteReport | None
) -> Iterator[blocks.Section]:
    """List the sections; a page begins with the cases, unless all of them passed."""
    result = report.result
    before = baseline or max(earlier, key=lambda each: each.validation.started_at, default=None)
    cases = blocks.Section("Cases", [_cases(report, before)])
    drawings = blocks.Drawings(list(draw_suite(report, earlier)))
    figures = blocks.Section(
        "Figures", [blocks.Tiles(list(_tiles(report))), *([drawings] if drawings.drawings else [])], media=Medium.PAGE
    )
    has_failures = result.passed < result.total_tests
    yield cases if has_failures else figures
    yield blocks.Section("Test suite", [blocks.FactList(list(_counts(report)), media=Medium.TEXT)])
    if report.comparison:
        media = Medium.EVERYWHERE if any(each.difference for each in report.comparison.changes) else Medium.FILES
        changes = blocks.Table(CHANGE_HEAD, list(_change_rows(report.comparison)), media=media)
        others = blocks.BulletList(list(_comparison_lines(report.comparison)))
        yield blocks.Section("Compared with the baseline", [changes, others])
    if report.blame:
        yield blocks.Section("Blame", list(_blame(report.blame)))
    yield from _not_passed(report)
    if causes := list(_cause_rows(report)):
        table = blocks.Table(("case", "cause", "found", "see more"), causes, layout=TableLayout.LINES)
        yield blocks.Section("Why", [table], media=Medium.NOT_PAGE)
    yield figures if has_failures else cases
    yield blocks.Section("Success criteria", list(_criteria(report.criteria)))
    if result.metrics:
        yield blocks.Section("Metrics", [_metric_table(report)])
    if summary := report.approximation:
        recall = f"ANN recall {summary.ann_recall:.4f} over {summary.queries} queries, lowest {summary.lowest:.4f}"
        missed = f"in {summary.missed_by_index} cases only the exact search found an expected id"
        yield blocks.Section("Approximation", [blocks.Paragraph(f"{recall}; {missed}.")])
    if report.repeated and report.repeated.repeated:
        yield blocks.Section("Repeated texts", [blocks.Paragraph(f"{blocks.describe_repeated(report.repeated)}.")])
    if times := list(_latency_rows(report)):
        table = blocks.Table(("stage", "searches", "p50", "p95", "max"), times)
        yield blocks.Section("Latency in milliseconds", [table])


def _tiles(report: SuiteReport) -> Iterator[tuple[str, str]]:
    result = report.result
    yield "passed", f"{result.pass_rate:.1f} %"
    yield from ((name, f"{result.metrics[name]:.3f}") for name in TILE_METRICS if name in result.metrics)
    if total := find_end_to_end(report.latency):
        yield f"95th percentile of {total.count} searches", f"{total.p95_ms:.0f} ms"


def _counts(report: SuiteReport) -> Iterator[tuple[str, str]]:
    result = report.result
    yield "Suite", report.suite.name
    if report.suite.retriever:
        yield "Retriever", report.suite.retriever
    yield "Passed", f"{result.passed} of {result.total_tests} ({result.pass_rate:.1f}%)"
    yield "Failed", str(result.failed)
    yield "Not judged", str(result.total_tests - result.passed - result.failed)
    yield "Exit code", str(report.verdict.exit_code)


CHANGE_HEAD = ("metric", "before", "now", "difference", "interval", "beyond chance")


def _change_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """List each metric in both runs, and whether its difference is beyond chance."""
    for change in comparison.changes:
        if change.name.partition("@")[2] in CHANGE_CUTOFFS:
            beyond = "worse" if change.is_regression else "better" if change.low > 0 else "no more than chance"
            yield f"{change.name} (gate)" if change.gated else change.name, *list_figures(change), beyond


def list_figures(change: MetricChange) -> tuple[str, ...]:
    """Write a metric before and after, the difference, and its interval."""
    interval = f"{change.low:+.3f} to {change.high:+.3f}"
    return f"{change.before:.3f}", f"{change.after:.3f}", f"{change.difference:+.3f}", interval


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Say what else changed, a sentence each."""
    same = "" if any(each.difference for each in comparison.changes) else "; no metric differs"
    at = comparison.baseline_timestamp[:16].replace("T", " ")
    yield f"{comparison.cases} cases compared with {comparison.baseline} of {at}{same}"
    for what, names in (("Newly failing", comparison.newly_failing), ("Newly passing", comparison.newly_passing)):
        yield f"{what}: {name_some(names, NAMED) or 'none'}"
    if comparison.failing_unpaired:
        yield f"Failing, and new or changed since: {name_some(comparison.failing_unpaired, NAMED)}"
    for reason in dict.fromkeys(comparison.not_compared.values()):
        left_out = [name for name, why in comparison.not_compared.items() if why == reason]
        yield f"Not compared, {reason}: {name_some(left_out, NAMED)}"
    least = comparison.smallest_detectable
    yield (
        f"Intervals hold at {comparison.confidence:.1%} (paired randomization, {comparison.rounds} rounds, "
        f"seed {comparison.seed}); the smallest fall that stands out from chance is {comparison.least_changes} cases, "
        f"all for the worse{'' if least is None else f' ({least:.1%})'}"
    )


def _blame(blame: Blame) -> Iterator[blocks.Block]:
    """Show how many questions are lost, then for each one its cause, what brings it back, the cost and the command."""
    compared = f" Compared with {blame.snapshot}." if blame.snapshot else ""
    yield blocks.VerdictLine(f"{blame.summary}.{compared}", Tone.PLAIN)
    rows = [
        (
            case.name,
            " and ".join(cause.value for cause in case.causes) or "none",
            case.line.removeprefix("Lost: "),
            case.expected,
            case.cost or "",
            blocks.Cell("; ".join(filter(None, (case.command, case.then))), Tone.COMMAND),
        )
        for case in blame.cases
    ]
    rows += [
        (name, "not blamed", reason, "", "", blocks.Cell("", Tone.COMMAND)) for name, reason in blame.not_blamed.items()
    ]
    if rows:
        head = ("case", "cause", "what brings it back", "expected", "cost", "command")
        yield blocks.Table(head, rows, layout=TableLayout.LINES)


def _not_passed(report: SuiteReport) -> Iterator[blocks.Section]:
    """List the cases by how they ended; a terminal has no room for the queries."""
    for status in (TestStatus.FAILED, TestStatus.ERROR, TestStatus.PENDING):
        cases = [case for case in report.result.test_results if _status(case) is status]
        if rows := [(case.name, case.query_text, explain_result(case)) for case in cases]:
            narrow = blocks.Table(("case", "why"), [(name, why) for name, _, why in rows], media=Medium.TERMINAL)
            table = blocks.Table(("case", "query", "why"), rows, media=Medium.MARKDOWN)
            yield blocks.Section(_TITLES[status], [narrow, table])


def _status(case: TestCaseResult) -> TestStatus:
    return TestStatus.PENDING if case.status is TestStatus.RUNNING else case.status


def explain_result(case: TestCaseResult) -> str:
    """Say why a case did not pass, and which expected ids only an exact search finds."""
    missed = case.approximation.missed_by_index if case.approximation else ()
    exact = f" (an exact search finds {', '.join(missed)}: the index missed it)" if missed else ""
    return (case.error_message or "not run") + exact


def _cause_rows(report: SuiteReport) -> Iterator[tuple[str, ...]]:
    """List the causes of each case; one that many cases have is explained for the first of them."""
    by_cause: dict[Cause, list[tuple[str, Diagnosis]]] = {}
    for case in report.result.test_results:
        for found in case.diagnosis:
            by_cause.setdefault(found.cause, []).append((case.name, found))
    for cause, cases in by_cause.items():
        others = list(dict.fromkeys(name for name, _ in cases[1:]))
        is_common = len(others) >= COMMON
        for name, found in cases[:1] if is_common else cases:
            also = f"; the same cause in {len(others)} more: {name_some(others, NAMED)}" if is_common else ""
            yield name, cause.value, f"{found.message}{also}", blocks.Cell(found.command or "", Tone.COMMAND)


def _criteria(criteria: Sequence[Criterion]) -> Iterator[blocks.Block]:
    rows = [
        (
            criterion.id,
            criterion.title,
            criterion.limit,
            criterion.shown_figure,
            blocks.Cell(criterion.verdict, _CRITERION_TONES[criterion.verdict]),
            criterion.details or "",
        )
        for criterion in criteria
    ]
    head = ("id", "criterion", "limit", "figure", "verdict", "details")
    yield blocks.Table(head, rows, media=Medium.NOT_TEXT)
    lines = (
        f"{key} {title}: {figure} ({limit}) – {verdict}{details and f': {details}'}"
        for key, title, limit, figure, verdict, details in rows
    )
    yield blocks.BulletList(list(lines), media=Medium.TEXT)


def _metric_table(report: SuiteReport) -> blocks.Table:
    """Make a row for each metric and a column for each cut-off, with the number of cases behind each column."""
    result = report.result
    cutoffs = sorted({int(name.partition("@")[2]) for name in result.metrics})
    names = dict.fromkeys(name.partition("@")[0] for name in result.metrics)
    rows = [(name, *(f"{result.metrics[f'{name}@{k}']:.4f}" for k in cutoffs)) for name in names]
    rows.append(("(cases)", *(str(result.metric_queries[f"{next(iter(names))}@{k}"]) for k in cutoffs)))
    caption = "Mean over the cases that name relevant documents"
    return blocks.Table(("metric", *(f"@{k}" for k in cutoffs)), rows, caption)


def _latency_rows(report: SuiteReport) -> Iterator[tuple[str, ...]]:
    """List each measured stage, cold apart from warm."""
    for stage in report.latency:
        for starts, spread in (("warm", stage.warm), ("cold", stage.cold)):
            if spread:
                times = (f"{ms:.1f}" for ms in (spread.p50_ms, spread.p95_ms, spread.max_ms))
                yield f"{stage.stage}, {starts}", str(spread.count), *times


def _cases(report: SuiteReport, before: SuiteReport | None) -> blocks.CaseTable:
    """List every case; what did not pass comes first."""
    earlier = {case.name: case for case in before.result.test_results} if before else {}
    results = report.result.test_results
    order = list(_TITLES)
    all_unfold = len(results) <= UNFOLDED_WHEN_PASSED
    rows = [
        blocks.CaseRow(
            case.name,
            _CASE_TONES.get(case.status, Tone.UNSURE),
            _status(case).value,
            _case_figures(case),
            list(_details(case, earlier.get(case.name))) if all_unfold or case.status is not TestStatus.PASSED else (),
        )
        for case in sorted(results, key=lambda case: order.index(_status(case)))
    ]
    return blocks.CaseTable(("case", "verdict", "rank", "score", "ms"), [status.value for status in order], rows)


def _case_figures(case: TestCaseResult) -> Sequence[tuple[str, str]]:
    """Return rounded figures, each with the exact value that it sorts by."""
    rank = best_rank(case)
    no_rank = "–" if not case.expected_doc_ids or not case.status.is_judged else "none"
    score = case.actual_results[0].similarity_score if case.actual_results else None
    ms = case.timing.latency_ms if case.timing else None
    measured = ((score, 3), (ms, 0))
    shown = (("–", "") if value is None else (f"{value:.{digits}f}", f"{value:.6f}") for value, digits in measured)
    return (str(rank or no_rank), str(rank or "")), *shown


def _details(case: TestCaseResult, before: TestCaseResult | None) -> Iterator[blocks.Block]:
    yield blocks.Paragraph(f"“{case.query_text}”")
    if case.status is not TestStatus.PASSED:
        yield blocks.Paragraph(explain_result(case), _CASE_TONES.get(case.status, Tone.UNSURE))
    for cause in case.diagnosis:
        yield blocks.Paragraph(cause.cause.value, Tone.HEADING)
        yield blocks.Paragraph(cause.message)
        if cause.command:
            yield blocks.Paragraph(cause.command, Tone.COMMAND)
    if case.expected_doc_ids or case.expected_keywords:
        yield _expectations(case)
    results, former = case.actual_results or (), (before and before.actual_results) or ()
    if former and [result.text_sha256 for result in former] != [result.text_sha256 for result in results]:
        yield put_side_by_side(former, results)
        known = {result.chunk_id: result for result in former}
        for result in results:
            if (old := known.get(result.chunk_id)) and old.excerpt != result.excerpt:
                yield blocks.Paragraph(f"The text of {result.chunk_id} changed", Tone.HEADING)
                yield blocks.mark_changes(old.excerpt, result.excerpt, ("before", "now"))
    if results:
        rows = [_result_row(result, case) for result in results]
        yield blocks.Table(("rank", "score", "chunk", "text"), rows, "Results", TableLayout.RESULTS)


def put_side_by_side(
    old: Sequence[RetrievedChunk], new: Sequence[RetrievedChunk], before: str = "before", now: str = "now"
) -> blocks.Table:
    """Make a table of what was returned on both sides; results are the same where their ids or their texts are."""

    def find(result: RetrievedChunk, others: Sequence[RetrievedChunk]) -> RetrievedChunk | None:
        same = (o for o in others if result.chunk_id == o.chunk_id or result.text_sha256 == o.text_sha256)
        return next(same, None)

    def show(result: RetrievedChunk | None, others: Sequence[RetrievedChunk], *, is_new: bool) -> str:
        if result is None:
            return ""
        other, name = find(result, others), f"{result.chunk_id} {result.similarity_score:.3f}"
        if other is None:
            return blocks.Cell(f"{name} {'+ new' if is_new else '− gone'}", Tone.of(is_new))
        moved = other.rank - result.rank if is_new else 0
        return f"{name} {'▲' if moved > 0 else '▼'} {abs(moved)}" if moved else name

    longest = max(len(old), len(new))
    sides = ([*side, *[None] * (longest - len(side))] for side in (old, new))
    rows = [
        (str(rank), show(left, new, is_new=False), show(right, old, is_new=True))
        for rank, (left, right) in enumerate(zip(*sides, strict=True), 1)
    ]
    return blocks.Table(("rank", before, now), rows, f"What was returned {before} and {now}", TableLayout.STACKED)


def _expectations(case: TestCaseResult) -> blocks.Table:
    """List what was expected, and at which rank it was found."""
    causes = {cause.subject: cause.cause.value for cause in case.diagnosis if cause.subject}
    lacking = {unmet.keyword for unmet in case.unmet}
    places = [(key, *_find(key, case, causes.get(key, ""))) for key in case.expected_doc_ids]
    places += [(f"keyword {word}", "missing" if word in lacking else "found", "") for word in case.expected_keywords]
    rows = [(name, blocks.Cell(place, Tone.of(place != "missing")), difference) for name, place, difference in places]
    wanted = f"{'any' if case.expect == 'any' else 'all'} of these in the top {case.top_k}"
    least = f", with a score of at least {case.relevance_threshold:g}" if case.relevance_threshold else ""
    return blocks.Table(("expected", "found", "difference"), rows, f"Expected: {wanted}{least}", TableLayout.STACKED)


def _find(key: str, case: TestCaseResult, cause: str) -> tuple[str, str]:
    result = find_returned(case, key)
    if result is None:
        return "missing", cause
    over = result.similarity_score - case.relevance_threshold
    return f"rank {result.rank}", f"{over:+.3f} to the threshold" if case.relevance_threshold else cause


def _result_row(result: RetrievedChunk, case: TestCaseResult) -> tuple[str, ...]:
    is_expected = any(result.has_id(key) for key in case.expected_doc_ids)
    chunk = blocks.Cell(f"✓ expected {result.chunk_id}", Tone.EXPECTED) if is_expected else result.chunk_id
    more = "…" if len(result.excerpt) == EXCERPT_CHARS else ""
    source = f"{result.source}: " if result.source else ""
    return str(result.rank), f"{result.similarity_score:.3f}", chunk, f"{source}{result.excerpt}{more}"


def list_suite_cases(report: SuiteReport) -> JunitSuite:
    """Return the report for JUnit; a case that was not run is skipped."""
    return JunitSuite(
        report.suite.name,
        report.suite.name,
        [_junit_case(case) for case in report.result.test_results],
        list(_properties(report)),
        report.validation.started_at,
        report.result.execution_time_ms / 1000,
    )


def _properties(report: SuiteReport) -> Iterator[tuple[str, str]]:
    yield "verdict", report.verdict.line
    yield "exit_code", str(report.verdict.exit_code)
    for name, value in report.result.metrics.items():
        yield name, f"{value:.6f}"
    for criterion in report.criteria:
        yield criterion.id, f"{criterion.shown_figure}, {criterion.verdict}"
    if report.comparison:
        yield "baseline", report.comparison.verdict


def _junit_case(case: TestCaseResult) -> JunitCase:
    seconds = case.timing.latency_ms / 1000 if case.timing else 0.0
    if case.status is TestStatus.PASSED:
        return JunitCase(case.name, seconds)
    if case.status is TestStatus.FAILED:
        kind = case.unmet[0].kind if case.unmet else "ExpectationError"
        return JunitCase(case.name, seconds, "failure", kind, explain_result(case), "\n".join(explain_failure(case)))
    if case.status is TestStatus.ERROR:
        code, query = case.error_code or "INTERNAL", f"query: {case.query_text}"
        return JunitCase(case.name, seconds, "error", code, explain_result(case), query)
    return JunitCase(case.name, seconds, "skipped")


def describe_configurations(report: ConfigurationReport) -> blocks.ReportBody:
    """Describe the comparison: the choice, quality against latency, and all figures side by side."""
    name, reason = report.choice.name, report.choice.reason
    verdict = f"Choose {name}: {reason}." if name else f"No choice: {reason}."
    return blocks.ReportBody(
        f"Configurations for {report.suite}",
        [blocks.VerdictLine(verdict, Tone.of(name is not None))],
        list(_configuration_sections(report)),
        footer=f"Chunkproof {report.chunkproof_version}, from {report.source}",
    )


def _configuration_sections(report: ConfigurationReport) -> Iterator[blocks.Section]:
    if drawings := list(draw_configurations(report)):
        yield blocks.Section("Quality against latency", [blocks.Drawings(drawings)])
    wanted = dict.fromkeys((report.metric, *CONFIGURATION_METRICS))
    metrics = [name for name in wanted if any(name in result.metrics for result in report.results)]
    head = ("configuration", "passed", *metrics, "against the first", "p50 ms", "p95 ms", "USD / 1,000")
    rows = [_configuration_row(result, report, metrics) for result in report.results]
    yield blocks.Section(
        "Side by side", [blocks.Table(head, rows), blocks.BulletList(list(_configuration_notes(report)))]
    )


def _configuration_row(result: ConfigurationResult, report: ConfigurationReport, metrics: list[str]) -> tuple[str, ...]:
    latency = result.latency
    most = {name: max(each.metric_queries.get(name, 0) for each in report.results) for name in metrics}
    few = {name: f" ({count} cases)" for name, count in result.metric_queries.items() if count < most.get(name, 0)}
    return (
        result.name + (" (chosen)" if result.name == report.choice.name else ""),
        f"{result.passed} of {result.passed + result.failed + result.errors}",
        *(f"{result.metrics[name]:.3f}{few.get(name, '')}" if name in result.metrics else NONE for name in metrics),
        describe_change(result.change_of(report.metric)),
        *((f"{latency.p50_ms:.1f}", f"{latency.p95_ms:.1f}") if latency else (NONE, NONE)),
        NONE if result.cost_per_thousand is None else f"{result.cost_per_thousand:.4f}",
    )


def describe_change(change: MetricChange | None) -> str:
    """Write the difference with its interval, and whether it is beyond chance."""
    if change is None:
        return NONE
    beyond = "worse" if change.is_regression else "better" if change.low > 0 else "within chance"
    return f"{change.difference:+.3f}, {beyond} ({change.low:+.3f} to {change.high:+.3f})"


def _configuration_notes(report: ConfigurationReport) -> Iterator[str]:
    """Yield notes that the table has no room for."""
    limit = "" if report.max_latency_ms is None else f", with a limit of {report.max_latency_ms:g} ms at p95"
    yield (
        f"{report.cases} cases under each configuration, in turns, one search at a time{limit}. "
        f"Intervals hold at {report.confidence:.1%} (paired randomization)."
    )
    yield (
        f"Costs are list prices as noted in {report.prices_of}: embedding, reranking and Lambda with 1 GB for the "
        "measured time, without the vector store."
    )
    for result in report.results:
        if result.errors:
            yield f"{result.name}: {result.errors} cases could not be judged: {result.error}"
        if result.cost_per_thousand is None:
            yield f"{result.name}: {result.cost_details}"
        yield from (f"{result.name}: {note}" for note in result.notes)
