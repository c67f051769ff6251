"""The HTML report of a suite in a real browser: it opens offline, sorts, searches, unfolds and escapes stored text."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkproof.base.errors import VectorStoreUnavailableError
from chunkproof.suite.outcome import Diagnosis
from chunkproof.suite.runner import RunPlan, run_suite
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.causes import Cause
from chunkproof_cli.reports.outputs import SUITE
from chunkproof_cli.reports.suite_blocks import UNFOLDED_WHEN_PASSED
from chunkproof_cli.suites.baseline import compare

from support.chromium import Chromium, Page
from support.commands import Command
from support.suites import Answer, Backend, answer, chunk, suite

NASTY = "<script>window.acted=1</script><img src=x onerror='window.acted=1'></td>\x00\x1b[31m \"quoted' &amp; <!--"
META = {"url": "https://docs.example.com/a", "document_title": "A"}
ANSWERS: dict[str, Answer] = {
    "second": answer(chunk("x", 0.9, **META), chunk("a", 0.8, **META)),
    "first": answer(chunk("a", 0.85, text=NASTY, **META)),
    f"lost {NASTY}": answer(chunk(NASTY, 0.6, text=NASTY, url="javascript:window.acted=1")),
    "down": VectorStoreUnavailableError("db", NASTY),
    "tenth": answer(*(chunk(f"x{n}", 0.5) for n in range(9)), chunk("a", 0.4)),
}


def report(answers: dict[str, Answer] = ANSWERS) -> SuiteReport:
    cases = [{"name": name, "query_text": f"q {name}", "expected_doc_ids": ["a"]} for name in answers]
    made = suite(*cases, name=f"pages {NASTY}")
    found = run_suite(RunPlan(made, "s.yaml", made.cases), Backend(lambda query: answers[query.removeprefix("q ")]))
    cause = Diagnosis(cause=Cause.NOT_IN_COLLECTION, subject="a", message=f"a {NASTY}", command="chunkproof validate a")
    results = [
        case.model_copy(update={"diagnosis": (cause,)}) if case.name.startswith("lost") else case
        for case in found.result.test_results
    ]
    return found.model_copy(update={"result": found.result.model_copy(update={"test_results": tuple(results)})})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with an earlier run and a baseline."""
    made = tmp_path_factory.mktemp("page") / "report.html"
    lost = next(name for name in ANSWERS if name.startswith("lost"))
    earlier = report({**ANSWERS, lost: answer(chunk("a", 0.9), chunk("b", 0.4))})
    SUITE.write(compare(report(), earlier, Path("main.json")), (made,), [earlier], earlier)
    return made


@pytest.fixture
def page(browser: Chromium, file: Path) -> Iterator[Page]:
    opened = browser.open(file)
    opened.look()
    yield opened
    assert opened.console == []
    assert opened.requests == [file.as_uri()]


def names(page: Page) -> list[str]:
    """Return the first word of each visible case, in order."""
    shown = "[...document.getElementById('cases').tBodies].filter(one => !one.hidden)"
    found: list[str] = page.run(f"{shown}.map(one => one.querySelector('.unfold').textContent.split(' ')[0])")
    return found


def test_what_failed_is_before_any_figure_with_what_was_returned_before(page: Page) -> None:
    assert page.run("[...document.querySelectorAll('h2')].slice(0, 3).map(one => one.textContent)") == [
        "Cases",
        "Compared with the baseline",
        "Figures",
    ]
    before = "[...document.querySelectorAll('caption')].find(one => one.textContent.startsWith('What was returned'))"
    rows = page.run(f"[...{before}.parentElement.tBodies[0].rows].map(row => row.innerText)")
    assert len(rows) == 2
    assert "a 0.900 − gone" in rows[0]
    assert "+ new" in rows[0]


def test_cases_that_did_not_pass_come_first_and_every_chart_is_drawn(page: Page) -> None:
    assert names(page) == ["lost", "down", "second", "first", "tenth"]
    titles = page.run("[...document.querySelectorAll('figure h3')].map(one => one.textContent)")
    assert titles == [
        "Scores",
        "Latency by stage",
        "Rank of the expected document",
        "Quality over time",
        "Latency over time",
    ]
    assert page.run("[...document.querySelectorAll('figure svg')].every(one => one.getBBox().width > 200)")
    assert page.run("document.querySelectorAll('figure [role=img]')[2].getAttribute('aria-label')") == (
        "Rank of the expected document. First in 1 of 4 cases, in the first five in 2, nowhere in 1."
    )


def test_a_heading_sorts_both_ways_and_cases_without_a_value_come_last(page: Page) -> None:
    rank = "document.querySelectorAll('#cases thead button')[2]"
    page.run(f"{rank}.click()")
    assert names(page)[:3] == ["first", "second", "tenth"]
    assert page.run(f"{rank}.parentElement.getAttribute('aria-sort')") == "ascending"
    page.run(f"{rank}.click()")
    assert names(page)[:3] == ["tenth", "second", "first"]
    assert page.run("document.querySelectorAll('[aria-sort]').length") == 1


def test_cases_are_found_by_any_word_and_by_verdict(page: Page) -> None:
    page.run("document.getElementById('search').focus()")
    page.send("Input.insertText", text="TENTH")
    assert names(page) == ["tenth"]
    assert page.run("document.getElementById('count').textContent") == "1 of 5 cases shown"
    page.run("search.value = ''; state.value = 'failed'; state.dispatchEvent(new Event('change'))")
    assert names(page) == ["lost"]


def test_a_case_unfolds_by_keyboard(page: Page) -> None:
    page.run("document.querySelector('#cases thead tr th:last-child button').focus()")
    page.press("Tab")
    detail = "document.querySelector('#cases .detail')"
    # What did not pass is unfolded from the beginning.
    assert page.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    text = page.run(f"{detail}.innerText")
    assert "not in collection" in text
    assert "chunkproof validate a" in text
    assert "missing" in text
    page.press("Enter", "\r")
    assert page.run(f"{detail}.getBoundingClientRect().height") == 0


def test_an_expected_result_is_marked_by_a_word_and_a_colour(page: Page) -> None:
    marked = page.run("[...document.querySelectorAll('tr.expected')].map(one => one.cells[2].textContent)")
    assert marked == ["✓ expected a"] * 3


def test_stored_text_is_escaped(page: Page) -> None:
    shown = NASTY.replace("\x00", "‹00›").replace("\x1b", "‹1B›")
    assert page.run("window.acted === undefined")
    assert page.run("[document.scripts.length, document.images.length]") == [1, 0]
    assert page.run("document.querySelectorAll('main a').length") == 0
    assert page.run("document.querySelector('h1').textContent") == f"pages {shown}"
    assert page.run("document.querySelector('.unfold').textContent") == f"lost {shown}"
    # The policy of the page names its one script, so that an injected one does not run.
    page.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.acted = 1'}))")
    assert page.run("window.acted === undefined")
    assert "Content Security Policy" in page.console.pop()


def test_the_page_fits_a_phone(page: Page) -> None:
    page.look(width=360, height=740)
    page.run("document.querySelectorAll('.unfold[aria-expanded=false]').forEach(one => one.click())")
    assert page.run("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    # The stored text has the whole width, and is not left out.
    text = page.run("document.querySelector('.results td:last-child').getBoundingClientRect().toJSON()")
    assert text["width"] > 300
    assert text["height"] > 10


def test_print_shows_failures_and_no_controls(page: Page) -> None:
    page.look(scheme="dark", media="print")
    heights = page.run("[...document.querySelectorAll('.detail')].map(one => one.getBoundingClientRect().height > 0)")
    assert heights == [True, True, False, False, False]
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in (".tools", ".hint"):
        assert page.run(f"getComputedStyle(document.querySelector('{control}')).display") == "none"
    size = "one => parseFloat(getComputedStyle(document.querySelector(one)).fontSize)"
    assert max(page.run(f"['.detail p', '.detail h3', 'figcaption', 'pre'].map({size})")) <= 11


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360)])
def test_the_page_is_accessible(page: Page, scheme: str, width: int) -> None:
    page.look(width=width, scheme=scheme)
    page.run("document.querySelectorAll('.unfold[aria-expanded=false], summary').forEach(one => one.click())")
    assert page.axe_violations() == []


def test_in_a_large_suite_only_cases_that_did_not_pass_unfold() -> None:
    many = {f"c{n}": ANSWERS["first"] for n in range(UNFOLDED_WHEN_PASSED)} | {"lost": answer(chunk("x"))}
    made = report(many)
    assert SUITE.render(made, ".html").count('class="unfold"') == 1


def test_the_report_command_renders_several_reports_as_one_page(chunkproof: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        SUITE.write(report(), (tmp_path / f"{name}.json",))
    run = chunkproof("report", tmp_path / "two.json", tmp_path / "one.json", "-o", tmp_path / "x.html")
    assert run.code == 0
    assert "Quality over time" in (tmp_path / "x.html").read_text("utf-8")
    gate = chunkproof("report", tmp_path / "two.json", "--baseline", tmp_path / "one.json", "-o", tmp_path / "y.html")
    assert gate.code == 3
    assert "Gate not judged: 1 of 5 cases could not be judged" in gate.err
