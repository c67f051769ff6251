"""The cases of a page: a row each, and below it what became of the case."""

from collections.abc import Iterator

from chunkproof.suite.outcome import EXCERPT_CHARS, RetrievedChunk, TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport
from chunkproof_cli.reports.suite.charts import best_rank
from chunkproof_cli.reports.suite.elements import Html, element
from chunkproof_cli.reports.suite.figures import why

# Of a larger suite, only what did not pass can be unfolded: the page stays one that a phone can open.
UNFOLDED_WHEN_PASSED = 500
_COLUMNS = (
    ("case", ""),
    ("verdict", ""),
    ("rank", "number"),
    ("score", "number wide"),
    ("ms", "number wide"),
)
_STATES = [
    state.value for state in (TestStatus.FAILED, TestStatus.ERROR, TestStatus.PENDING, TestStatus.PASSED)
]


def case_section(report: SuiteReport) -> Html:
    """Search, choice of verdict and the table; what did not pass comes first."""
    results = report.result.test_results
    ordered = sorted(enumerate(results), key=lambda one: (_STATES.index(_state(one[1])), one[0]))
    all_unfold = len(results) <= UNFOLDED_WHEN_PASSED
    bodies = [
        _case(number, case, unfolds=all_unfold or case.status is not TestStatus.PASSED)
        for number, case in ordered
    ]
    heads = [
        element("th", element("button", name, type="button"), scope="col", class_=kind or None)
        for name, kind in _COLUMNS
    ]
    table = element(
        "table",
        element("caption", "Every case", element("span", "; a heading sorts, a name unfolds", class_="hint")),
        element("thead", element("tr", *heads)),
        *bodies,
        id="cases",
    )
    return element(
        "section", element("h2", "Cases", id="cases-title"), _tools(), element("div", table, class_="scroll")
    )


def _tools() -> Html:
    options = [element("option", "all", value=""), *(element("option", state) for state in _STATES)]
    return element(
        "div",
        element(
            "div", element("label", "Search", for_="search"), element("input", type="search", id="search")
        ),
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
        element(
            "td",
            "–" if best is None else f"{best:.3f}",
            class_="number wide",
            data_value="" if best is None else f"{best:.6f}",
        ),
        element(
            "td",
            "–" if ms is None else f"{ms:.0f}",
            class_="number wide",
            data_value="" if ms is None else f"{ms:.3f}",
        ),
    )
    detail = (
        element(
            "tr", element("td", *_details(case), colspan=len(_COLUMNS)), class_="detail", id=f"case-{number}"
        )
        if unfolds
        else None
    )
    failing = "failing" if case.status is not TestStatus.PASSED else None
    return element("tbody", row, detail, data_state=state, class_=failing)


def _details(case: TestCaseResult) -> Iterator[Html]:
    yield element("p", "“", case.query_text, "”")
    if case.status is not TestStatus.PASSED:
        yield element("p", why(case), class_=case.status.value)
    for found in case.diagnosis:
        yield element("h3", found.cause.value)
        yield element("p", found.message)
        if found.command:
            yield element(
                "pre", element("code", found.command), tabindex="0", aria_label="Command that shows more"
            )
    if case.expected_doc_ids or case.expected_keywords:
        yield _expectations(case)
    if case.actual_results:
        yield _results(case)


def _expectations(case: TestCaseResult) -> Html:
    """What was expected, and where it is."""
    causes = {found.subject: found.cause.value for found in case.diagnosis if found.subject}
    rows = [_row(key, *_place(key, case, causes.get(key))) for key in case.expected_doc_ids]
    lacking = {unmet.keyword for unmet in case.unmet}
    rows += [
        _row(f"keyword {word}", *(("missing", "") if word in lacking else ("found", "")))
        for word in case.expected_keywords
    ]
    wanted = (
        f"any of these in the top {case.top_k}"
        if case.expect == "any"
        else f"all of these in the top {case.top_k}"
    )
    least = f", with a score of at least {case.relevance_threshold:g}" if case.relevance_threshold else ""
    return _table(f"Expected: {wanted}{least}", ("expected", "found", "difference"), rows)


def _place(key: str, case: TestCaseResult, cause: str | None) -> tuple[str, str]:
    found = next((r for r in case.actual_results or () if _answers_to(r, key)), None)
    if found is None:
        return "missing", cause or ""
    short = case.relevance_threshold - found.similarity_score
    return (
        f"rank {found.rank}",
        f"{-short:+.3f} to the threshold" if case.relevance_threshold else cause or "",
    )


def _answers_to(result: RetrievedChunk, key: str) -> bool:
    return key in (result.chunk_id, str(result.document_id), str(result.url), result.stands_for)


def _results(case: TestCaseResult) -> Html:
    rows = []
    for result in case.actual_results or ():
        expected = any(_answers_to(result, key) for key in case.expected_doc_ids)
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


def _table(caption: str, head: tuple[str, ...], rows: list[Html]) -> Html:
    heads = element("tr", *(element("th", name, scope="col") for name in head))
    return element("table", element("caption", caption), element("thead", heads), element("tbody", *rows))


def _row(name: str, place: str, difference: str) -> Html:
    state = "failed" if place == "missing" else "passed"
    return element(
        "tr", element("td", name), element("td", place, class_=f"short {state}"), element("td", difference)
    )
