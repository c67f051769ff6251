"""Suite reports: the fields of docs/contract.md, one canonical JSON, and every other format rendered from it."""

import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema

from chunkproof.base.errors import InvalidParameterError, VectorStoreUnavailableError
from chunkproof.suite.outcome import Diagnosis
from chunkproof.suite.runner import InterruptedRun, RunPlan, run_suite
from chunkproof.suite.suite_report import CollectionStats, SuiteReport, ValidationReport, read_report
from chunkproof.why.causes import Cause
from chunkproof_cli.reports.outputs import RECOGNIZED, SUITE, find_report
from chunkproof_cli.reports.to_text import MOST_CHARS

from support.suites import Answer, Backend, answer, chunk, suite

DATA = Path(__file__).parents[1] / "data"
DOCS = Path(__file__).parents[2] / "docs"
META = {"url": "https://docs.example.com/a", "document_title": "A"}
NASTY = "a|b <script>`x` @all \x1b[31m\x00 \ufffe\n# head"


def report(answers: dict[str, Answer], **options: Any) -> SuiteReport:
    cases = [{"name": name, "query_text": f"q {name}", "expected_doc_ids": ["a"]} for name in answers]
    made = suite(*cases, defaults={"collection_name": "docs"})
    backend = Backend(lambda query: answers[query.removeprefix("q ")])
    return run_suite(RunPlan(made, "suite.yaml", made.cases, **options), backend)


def mixed(name: str = "bad") -> SuiteReport:
    """Report one case that passed, one that failed and one that could not be judged."""
    return report(
        {
            "good": answer(chunk("a", 0.8, **META), chunk("b", 0.4, url="https://docs.example.com/b")),
            name: answer(chunk("x", 0.6, **META)),
            "down": VectorStoreUnavailableError("db", "gone"),
        }
    )


def test_the_summary_has_the_layout_of_the_contract() -> None:
    example = ValidationReport(
        run_id="val-2025-12-27-001",
        total_queries=3,
        successful_queries=3,
        failed_queries=0,
        avg_similarity_score=0.687,
        avg_query_time=2.73,
        metadata_completeness=1.0,
        total_results_retrieved=15,
        connection_status="connected",
        collection_stats=CollectionStats(
            collection_name="documentation", vector_count=312, vector_dim=1024, distance="COSINE"
        ),
        errors=(),
        started_at=datetime(2025, 12, 27, 14, 30, tzinfo=UTC),
        completed_at=datetime(2025, 12, 27, 14, 30, 8, 200_000, tzinfo=UTC),
    )
    assert example.to_summary() == (DATA / "validation-report.txt").read_text("utf-8").strip()


def test_the_figures_of_the_report_follow_from_the_cases() -> None:
    found = mixed().validation
    assert (found.total_queries, found.successful_queries, found.failed_queries) == (3, 2, 1)
    assert found.avg_similarity_score == pytest.approx((0.8 + 0.4 + 0.6) / 3)
    assert found.metadata_completeness == pytest.approx(2 / 3)  # one chunk has no title
    assert found.success_rate == pytest.approx(2 / 3)
    assert found.errors == (
        "Case 'bad' not passed: Not in the top 10: a",
        "Query 'q down' failed: Qdrant service unavailable at db; gone",
    )
    assert found.collection_stats == CollectionStats(
        collection_name="docs",
        vector_count=312,
        vector_dim=1024,
        distance="COSINE",
        indexed=True,
        collection_exists=True,
    )


def test_without_results_metadata_is_complete_and_averages_are_zero() -> None:
    found = report({"none": answer()}).validation
    assert (found.metadata_completeness, found.avg_similarity_score) == (1.0, 0.0)


def test_a_failed_case_never_reads_as_all_passed() -> None:
    text = report({"bad": answer(chunk("x"))}).validation.to_summary()
    assert "All validations passed" not in text
    assert "Case 'bad' not passed" in text


def test_the_canonical_json_has_every_field_of_the_contract() -> None:
    document = json.loads(mixed().canonical_json())
    assert document["format_version"] == "1.0"
    result = document["result"]
    assert set(result) >= {
        "total_tests",
        "passed",
        "failed",
        "errors",
        "execution_time_ms",
        "test_results",
        "performance_metrics",
        "timestamp",
        "pass_rate",
        "failure_rate",
        "metrics",
    }
    assert (result["passed"], result["failed"], result["errors"]) == (1, 1, 1)
    assert result["pass_rate"] == pytest.approx(100 / 3)
    assert set(result["performance_metrics"]) >= {
        "avg_retrieval_time_ms",
        "p95_retrieval_time_ms",
        "max_retrieval_time_ms",
    }
    assert set(result["test_results"][0]) >= {
        "name",
        "query_text",
        "collection_name",
        "expected_doc_ids",
        "expected_keywords",
        "relevance_threshold",
        "top_k",
        "status",
        "actual_results",
        "error_message",
    }
    assert set(document["validation"]) == {*ValidationReport.model_fields, "duration_seconds", "success_rate"}


def test_the_canonical_json_is_valid_against_its_schema() -> None:
    schema = json.loads((DOCS / "report.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(mixed().canonical_json()), schema)


def test_a_report_survives_writing_and_reading() -> None:
    written = mixed()
    again = read_report(written.canonical_json().encode(), "report.json")
    assert again == written
    assert again.canonical_json() == written.canonical_json()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "is not a suite report: suite Field required"),
        (b"no", "is not a suite report"),
        (b"\xff", "is not a suite report"),
    ],
)
def test_a_file_that_is_not_a_report_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        read_report(content, "x.json")


def test_a_report_that_lacks_fields_is_refused_without_a_copy_for_each() -> None:
    cases = [{"x": number} for number in range(20_000)]
    content = json.dumps({"report": "audit", "format": "chunkproof-suite-report", "result": {"test_results": cases}})
    tracemalloc.start()
    assert find_report(content, (*RECOGNIZED, SUITE)) is None
    with pytest.raises(InvalidParameterError, match="suite Field required"):
        read_report(content.encode(), "x.json")
    assert tracemalloc.get_traced_memory()[1] < 15_000_000
    tracemalloc.stop()


def test_a_report_of_another_major_format_is_rejected() -> None:
    newer = mixed().model_copy(update={"format_version": "2.0"})
    with pytest.raises(InvalidParameterError, match=r"has format 2\.0, this Chunkproof reads 1\.0"):
        read_report(newer.canonical_json().encode(), "x.json")


@pytest.mark.parametrize("name", ["bad", NASTY])
def test_junit_is_valid_and_keeps_failures_apart_from_errors(name: str) -> None:
    text = SUITE.render(mixed(name), ".xml")
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(ET.fromstring(text))
    found = ET.fromstring(text).find("testsuite")
    assert found is not None
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("3", "1", "1")
    assert [[child.tag for child in case] for case in found.iter("testcase")] == [[], ["failure"], ["error"]]
    failure, error = found.find(".//failure"), found.find(".//error")
    assert failure is not None
    assert error is not None
    assert (failure.get("type"), error.get("type")) == ("MissingDocumentError", "QDRANT_UNAVAILABLE")


def test_junit_skips_cases_that_were_not_run() -> None:
    made = suite(*({"name": n, "query_text": n, "expected_doc_ids": ["a"]} for n in "ab"))

    def answers(query: str) -> Answer:
        if query == "b":
            raise KeyboardInterrupt
        return answer(chunk("a"))

    with pytest.raises(InterruptedRun) as stopped:
        run_suite(RunPlan(made, "s", made.cases), Backend(answers))
    assert (stopped.value.report.verdict.exit_code, stopped.value.report.verdict.outcome) == (3, "not judged")
    text = SUITE.render(stopped.value.report, ".xml")
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(ET.fromstring(text))
    assert len(ET.fromstring(text).findall(".//skipped")) == 1


def test_markdown_starts_with_failures_and_escapes_text() -> None:
    text = SUITE.render(mixed(NASTY), ".md")
    assert text.startswith(
        "## ❌ sample\n\n**1 of 3 cases passed**, 1 failed, 1 could not be judged on docs (312 vectors)."
    )
    row = next(line for line in text.splitlines() if "Not in the top 10" in line)
    assert row.count("|") - row.count("\\|") == 4
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "@all" not in text


def test_markdown_fits_a_comment_however_many_cases_fail() -> None:
    many = report({f"case {n} {'long ' * 100}": answer(chunk("x")) for n in range(300)})
    text = SUITE.render(many, ".md")
    assert len(text) <= MOST_CHARS
    assert "… and 250 more" in text
    assert "SC-006" in text


def test_text_starts_with_the_summary_and_adds_the_criteria() -> None:
    found = mixed()
    text = SUITE.render(found, ".txt")
    assert text.startswith(found.validation.to_summary())
    assert "SC-006 Cases with the same verdict in every run: – (100 %) – not judged: one run" in text


def test_every_format_names_the_criterion_that_decided_the_exit_code() -> None:
    made = suite(
        *({"name": f"c{n}", "query_text": "q", "expected_doc_ids": ["a"]} for n in range(5)), limits={"SC-001": 5}
    )
    found = run_suite(RunPlan(made, "suite.yaml", made.cases), Backend(lambda _: answer(chunk("a"))))
    line = "5 of 5 cases passed, 0 failed; SC-001 not met: 7 ms, limit 5 ms"
    assert (found.verdict.exit_code, found.verdict.line) == (1, line)
    for extension in (".json", ".txt", ".md", ".xml", ".html"):
        assert line in SUITE.render(found, extension), extension
    ignored = found.without_latency()
    assert (ignored.verdict.exit_code, ignored.verdict.line) == (0, f"{line} (ignored)")


def test_the_verdict_names_failed_cases_and_error_codes() -> None:
    assert mixed().verdict.line == (
        "1 of 3 cases passed, 1 failed, 1 could not be judged; failed: bad; not judged: QDRANT_UNAVAILABLE; "
        "SC-003 not met: 50 %, limit 95 %"
    )


def test_a_passing_suite_prints_a_few_lines_and_its_files_have_everything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    passing = report({f"case {n}": answer(chunk("a", 0.8, **META)) for n in range(30)})
    SUITE.print(passing)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 4
    assert "30 of 30 cases passed" in printed
    SUITE.write(passing, (tmp_path / "report.md",))
    assert "SC-003" in (tmp_path / "report.md").read_text("utf-8")


def test_one_cause_of_many_cases_is_explained_once_and_the_results_have_their_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failing = report({f"case {n}": answer(chunk("x", 0.8, **META)) for n in range(30)})
    cause = Diagnosis(cause=Cause.OTHER_MODEL, subject="a", message="the vector of a is another model's")
    results = tuple(one.model_copy(update={"diagnosis": (cause,)}) for one in failing.result.test_results)
    failing = failing.model_copy(update={"result": failing.result.model_copy(update={"test_results": results})})
    SUITE.print(failing)
    assert capsys.readouterr().out.count("another model's") == 1
    SUITE.write(failing, (tmp_path / "report.xml",))
    assert "1. 0.800 x (A, https://docs.example.com/a)" in (tmp_path / "report.xml").read_text("utf-8")


def edit(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A report of three cases after a change of its JSON."""
    document = json.loads(report({name: answer(chunk("a", 0.8)) for name in ("one", "two", "three")}).canonical_json())
    change(document)
    return json.dumps(document).encode()


def repeat(document: dict[str, Any]) -> None:
    cases = document["result"]["test_results"]
    cases.append({**cases[0], "status": "failed"})
    document["result"] |= {"total_tests": 4, "failed": 1, "pass_rate": 75.0, "failure_rate": 25.0}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (repeat, "case one is in it more than once"),
        (lambda d: d["result"]["test_results"][1]["metrics"].update({"mrr@10": 1e308}), "mrr@10 of case two is not 0"),
        (lambda d: d["result"]["test_results"][1]["metrics"].update({"mrr@10": -0.5}), "mrr@10 of case two is not 0"),
        (lambda d: d["result"]["test_results"][1]["metrics"].update({"mrr@10": float("nan")}), "a finite number"),
        (lambda d: d["result"]["test_results"][1]["metrics"].update({"mrr@10": None}), "a valid number"),
        (
            lambda d: d["result"]["test_results"][0]["actual_results"][0].update(similarity_score=float("nan")),
            "a finite number",
        ),
        (lambda d: d["validation"].update(started_at="2026-01-01T00:00:00", completed_at="2026-01-01T00:00:01"), "UTC"),
        (lambda d: d.pop("criteria"), "criteria Field required"),
        (lambda d: d.pop("suite"), "suite Field required"),
    ],
)
def test_what_no_run_writes_is_no_report_and_the_reason_names_it(
    change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    def changed(document: dict[str, Any]) -> None:
        change(document)
        for key in ("duration_seconds", "success_rate"):
            document["validation"].pop(key)

    with pytest.raises(InvalidParameterError) as refused:
        read_report(edit(changed), "old.json")
    assert str(refused.value).startswith("old.json is not a suite report: ")
    assert reason in str(refused.value)


def test_the_counts_of_a_report_are_those_of_its_cases() -> None:
    """Otherwise the line of a gate, which counts, and its table, which has the cases, say two things."""

    def claim_failures(document: dict[str, Any]) -> None:
        document["result"] |= {"passed": 0, "failed": 3, "pass_rate": 0.0, "failure_rate": 100.0}

    found = read_report(edit(claim_failures), "old.json").result
    assert (found.total_tests, found.passed, found.failed, found.pass_rate, found.failure_rate) == (3, 3, 0, 100.0, 0.0)
