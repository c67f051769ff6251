"""The table of cases on a page: a row for each case, and its details in a row below."""

from collections.abc import Iterator

from chunkproof.suite.outcome import EXCERPT_CHARS, RetrievedChunk, TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.html_kit import Cell, Html, element, section, table
from chunkproof_cli.reports.suite.charts import best_rank
from chunkproof_cli.reports.suite.figures import explain_result

# In a larger suite only cases that did not pass can be unfolded, so that a phone can open the page.
UNFOLDED_WHEN_PASSED = 500
_COLUMNS = (
    ("case", ""),
    ("verdict", ""),
    ("rank", "number"),
    ("score", "number wide"),
    ("ms", "number wide"),
)
_STATES = [state.value for state in (TestStatus.FAILED, TestStatus.ERROR, TestStatus.PENDING, TestStatus.PASSED)]


def case_section(report: SuiteReport) -> Html:
    """Make the search, the choice of verdict and the table; what did not pass comes first."""
    results = report.result.test_results
    ordered = sorted(enumerate(results), key=lambda one: (_STATES.index(_state(one[1])), one[0]))
    all_unfold = len(results) <= UNFOLDED_WHEN_PASSED
    bodies = [
        _case(number, case, unfolds=all_unfold or case.status is not TestStatus.PASSED) for number, case in ordered
    ]
    heads = [
        element("th", element("button", name, type="button"), scope="col", class_=kind or None)
        for name, kind in _COLUMNS
    ]
    cases = element(
        "table",
        element("caption", "Every case", element("span", "; a heading sorts, a name unfolds", class_="hint")),
        element("thead", element("tr", *heads)),
        *bodies,
        id="cases",
    )
    return section("Cases", _tools(), element("div", cases, class_="scroll"))


def _tools() -> Html:
    options = [element("option", "all", value=""), *(element("option", state) for state in _STATES)]
    return element(
        "div",
        element("div", element("label", "Search", for_="search"), element("input", type="search", id="search")),
        element("div", element("label", "Verdict", for_="state"), element("select", *options, id="state")),
        element("p", id="count", role="status", class_="dim"),
        class_="tools",
        hidden=True,
    )


def _state(case: TestCaseResult) -> str:
    return (TestStatus.PENDING if case.status is TestStatus.RUNNING else case.status).value


def _case(number: int, case: TestCaseResult, *, unfolds: bool) -> Html:
    state, rank = _state(case), best_rank(case)
    best = case.actual_results[0].similarity_score if case.actual_results else None
    ms = case.timing.latency_ms if case.timing else None
    name: object = case.name
    if unfolds:
        name = element(
            "button",
            case.name,
            type="button",
            class_="unfold",
            aria_controls=f"case-{number}",
            aria_expanded="true",
        )
    shown_rank = rank or ("–" if not case.expected_doc_ids or not case.status.is_judged else "none")
    row = element(
        "tr",
        element("th", name, scope="row", data_value=case.name),
        element("td", state, class_=state, data_value=state),
        element("td", shown_rank, class_="number", data_value=rank or ""),
        _figure(best, 3),
        _figure(ms, 0),
    )
    details = element("td", *_details(case), colspan=len(_COLUMNS)) if unfolds else None
    return element(
        "tbody",
        row,
        element("tr", details, class_="detail", id=f"case-{number}") if unfolds else None,
        data_state=state,
        class_="failing" if case.status is not TestStatus.PASSED else None,
    )


def _figure(value: float | None, digits: int) -> Html:
    """Make a cell that shows rounded figures and sorts by exact ones."""
    shown, exact = ("–", "") if value is None else (f"{value:.{digits}f}", f"{value:.6f}")
    return element("td", shown, class_="number wide", data_value=exact)


def _details(case: TestCaseResult) -> Iterator[Html]:
    yield element("p", "“", case.query_text, "”")
    if case.status is not TestStatus.PASSED:
        yield element("p", explain_result(case), class_=case.status.value)
    for found in case.diagnosis:
        yield element("h3", found.cause.value)
        yield element("p", found.message)
        if found.command:
            yield element("pre", element("code", found.command), tabindex="0", aria_label="Command that shows more")
    if case.expected_doc_ids or case.expected_keywords:
        yield _expectations(case)
    if case.actual_results:
        yield _results(case)


def _expectations(case: TestCaseResult) -> Html:
    """List what was expected, and at which rank it was found."""
    causes = {found.subject: found.cause.value for found in case.diagnosis if found.subject}
    lacking = {unmet.keyword for unmet in case.unmet}
    found = [(key, *_find(key, case, causes.get(key))) for key in case.expected_doc_ids]
    found += [(f"keyword {word}", "missing" if word in lacking else "found", "") for word in case.expected_keywords]
    rows = (
        (name, Cell(place, f"short {'failed' if place == 'missing' else 'passed'}"), difference)
        for name, place, difference in found
    )
    wanted = f"{'any' if case.expect == 'any' else 'all'} of these in the top {case.top_k}"
    least = f", with a score of at least {case.relevance_threshold:g}" if case.relevance_threshold else ""
    return table(("expected", "found", "difference"), rows, caption=f"Expected: {wanted}{least}")


def _find(key: str, case: TestCaseResult, cause: str | None) -> tuple[str, str]:
    found = next((r for r in case.actual_results or () if _is_result(r, key)), None)
    if found is None:
        return "missing", cause or ""
    short = case.relevance_threshold - found.similarity_score
    return (
        f"rank {found.rank}",
        f"{-short:+.3f} to the threshold" if case.relevance_threshold else cause or "",
    )


def _is_result(result: RetrievedChunk, key: str) -> bool:
    return key in (result.chunk_id, str(result.document_id), str(result.url), result.stands_for)


def _results(case: TestCaseResult) -> Html:
    rows = []
    for result in case.actual_results or ():
        expected = any(_is_result(result, key) for key in case.expected_doc_ids)
        rows.append(
            element(
                "tr",
                element("td", result.rank, class_="number"),
                element("td", f"{result.similarity_score:.3f}", class_="number"),
                element("td", element("strong", "✓ expected ") if expected else None, result.chunk_id),
                element("td", _excerpt(result)),
                class_="expected" if expected else None,
            )
        )
    heads = (("rank", "number"), ("score", "number"), ("chunk", ""), ("text", ""))
    head = element("tr", *(element("th", name, scope="col", class_=kind or None) for name, kind in heads))
    return element(
        "table",
        element("caption", "Results"),
        element("thead", head),
        element("tbody", *rows),
        class_="results",
    )


def _excerpt(result: RetrievedChunk) -> str:
    return result.excerpt + ("…" if len(result.excerpt) == EXCERPT_CHARS else "")
