"""What a notebook shows of responses, validations and reports."""

from html import unescape

import pytest

from chunkproof import RetrievalResponse, SearchQuery, SuiteReport, ValidationResult
from chunkproof.contract import model
from chunkproof.contract.validation import Check
from chunkproof_cli.reports.outputs import SHOWN

EXECUTION = {"latency_ms": 12, "result_count": 1, "threshold_applied": 0.0}
RESULT = {
    "rank": 1,
    "text": "<b>ROS 2</b>",
    "similarity_score": 0.9,
    "metadata": {"chunk_id": "a", "url": "https://a.b"},
}
FOUND = RetrievalResponse(
    query="What is it?", status="success", results=[RESULT], execution=EXECUTION, notes=["A note"]
)
DOWN = RetrievalResponse(
    status="error", results=[], execution={**EXECUTION, "result_count": 0}, errors=["Qdrant service unavailable"]
)
PASSED = ValidationResult(chunk_id="a", matches=True, validation_passed=True, stored_text="x")
FAILED = ValidationResult(
    chunk_id="a",
    matches=False,
    validation_passed=False,
    stored_text="x",
    mismatch_details="stored text is cut",
    checks=[Check(name="text", passed=False, details="cut")],
)


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (FOUND, ["What is it?", "1 result in 12 ms", "0.900", "https://a.b", "&lt;b&gt;ROS 2&lt;/b&gt;", "A note"]),
        (DOWN, ["Qdrant service unavailable"]),
        (PASSED, ["Chunk a", "The stored text is the original"]),
        (FAILED, ["stored text is cut", "FAIL"]),
    ],
)
def test_a_model_is_shown_as_a_page_in_a_frame(shown: model.Model, texts: list[str]) -> None:
    html = shown._repr_html_()
    assert html is not None
    assert html.startswith('<iframe srcdoc="')
    page = unescape(html.partition('srcdoc="')[2].partition('"')[0])
    assert page.startswith("<!doctype html>")
    assert [text for text in texts if text not in page] == []


def test_a_model_that_no_report_describes_is_shown_as_text() -> None:
    assert SearchQuery(query_text="a question")._repr_html_() is None


def test_reports_of_suites_are_shown_like_their_files() -> None:
    assert SuiteReport.__name__ in SHOWN


def test_without_the_command_there_is_no_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "find_renderer", lambda: None)
    assert FOUND._repr_html_() is None


def test_a_validation_is_true_if_it_passed() -> None:
    assert (bool(PASSED), bool(FAILED)) == (True, False)
