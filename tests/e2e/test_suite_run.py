"""`chunkproof suite run` and `report` as a person runs them."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from chunkproof.suite.runner import InterruptedRun
from chunkproof.suite.suite_report import read_report
from chunkproof_cli.api_client import ApiClient, ApiUnavailableError
from chunkproof_cli.reports.outputs import ReportKind
from chunkproof_cli.suites import suite_runs

from support.cohere_server import KEY
from support.commands import Command
from support.handbook import loaded_handbook
from support.qdrant_server import NoServerError, qdrant_server
from support.stub_api import stub_api

GOOD = {
    "name": "accents",
    "query_text": "two ways to write an accented letter",
    "expected_doc_ids": ["vectordb-text-hygiene"],
}
BAD = {
    "name": "wrong",
    "query_text": "two ways to write an accented letter",
    "expected_doc_ids": ["languages-99"],
}
NEGATIVE = {
    "name": "cake",
    "query_text": "recipe of a strawberry cake",
    "expect_no_results": True,
    "relevance_threshold": 0.6,
}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a suite of these cases."""

    def written(*cases: dict[str, Any], **fields: Any) -> Path:
        file = tmp_path / "suite.json"
        file.write_text(json.dumps({"name": "try", "collection": "handbook", **fields, "cases": cases}), "utf-8")
        return file

    return written


def test_a_good_suite_ends_with_0_and_writes_every_format(handbook: Command, write: Any, tmp_path: Path) -> None:
    files = [tmp_path / f"report{extension}" for extension in (".json", ".txt", ".md", ".xml")]
    outputs = [part for file in files for part in ("-o", file)]
    run = handbook("suite", "run", write(GOOD, NEGATIVE), "--repeat", 2, "--ignore-latency", *outputs)
    assert run.code == 0, run.out + run.err
    assert "try: 2 of 2 cases passed, 0 failed" in run.out
    assert all(file.stat().st_size > 500 for file in files)
    found = json.loads(files[0].read_text("utf-8"))
    ids = [f"SC-00{n}" for n in range(1, 7)]
    ids += ["stage-embedding", "stage-search", "stage-format", "stage-total"]
    assert [one["id"] for one in found["criteria"]] == ids
    verdicts = {one["id"]: one["verdict"] for one in found["criteria"]}
    assert verdicts.pop("SC-005") == "not judged"  # no error occurred
    assert {verdicts.pop(key) for key in ("SC-003", "SC-004", "SC-006")} == {"met"}
    assert set(verdicts.values()) == {"not judged"}  # latency, of an embedded store


def test_the_latency_of_an_embedded_store_is_judged_on_request(handbook: Command, write: Any, tmp_path: Path) -> None:
    suite, report = write(GOOD, NEGATIVE, limits={"stage-total": 0.001}), tmp_path / "r.json"  # nothing is that fast
    assert handbook("suite", "run", suite).code == 0
    asked = handbook("suite", "run", suite, "--judge-latency", "-o", report)
    assert asked.code == 1
    last = asked.out.strip().splitlines()[-1]
    assert re.fullmatch(
        r"try: 2 of 2 cases passed, 0 failed, in [\d.]+ s; .*stage-total not met: [\d.]+ ms, limit 0.001 ms", last
    )
    assert last.split("; ", 1)[1] in json.loads(report.read_text("utf-8"))["verdict"]["line"]
    ignored = handbook("suite", "run", suite, "--limit", "stage-total=0.001", "--ignore-latency")
    assert ignored.code == 0
    assert ignored.out.strip().endswith("limit 0.001 ms (ignored)")
    both = handbook("suite", "run", suite, "--judge-latency", "--ignore-latency")
    assert (both.code, "contradict each other" in both.err) == (2, True)


def test_limits_are_set_in_the_suite_and_replaced_by_flags(handbook: Command, write: Any) -> None:
    half = handbook("suite", "run", write(GOOD, BAD, limits={"SC-004": 50, "SC-003": 50}))
    assert half.code == 0, half.out
    assert "try: 1 of 2 cases passed, 1 failed" in half.out
    assert half.out.strip().endswith("; failed: wrong; 50 % passed, limit 50 %")
    whole = handbook("suite", "run", write(GOOD, BAD, limits={"SC-004": 50}), "--limit", "SC-004=90")
    assert whole.code == 1
    assert whole.out.strip().endswith("SC-003 not met: 50 %, limit 95 %; SC-004 not met: 50 %, limit 90 %")
    for wrong, message in (
        ("SC-1=5", "SC-1 is not a criterion: name one of SC-001, SC-002"),
        ("SC-001=0", "SC-001 takes milliseconds above 0, such as 250"),
        ("SC-004=101", "SC-004 takes a percentage, such as 90"),
        ("SC-004=nan", "SC-004 takes a percentage, such as 90"),
        ("SC-001", "SC-001 takes milliseconds above 0"),
    ):
        refused = handbook("suite", "run", write(GOOD), "--limit", wrong)
        assert refused.code == 2
        assert message in " ".join(refused.err.split())


def test_a_broken_expectation_ends_with_1(handbook: Command, write: Any) -> None:
    run = handbook("suite", "run", write(GOOD, BAD), "--json")
    assert run.code == 1
    assert [case["status"] for case in run.json["result"]["test_results"]] == ["passed", "failed"]
    assert run.json["result"]["test_results"][1]["error_message"] == "Not in the top 10: languages-99"
    assert run.json["suite"]["collection"] == "handbook"


CONFIGURATIONS = """
configurations:
  - name: as it is
  - name: strict
    search: {similarity_threshold: 0.99}
"""


def test_configurations_are_compared_and_one_is_chosen(handbook: Command, write: Any, tmp_path: Path) -> None:
    (tmp_path / "configs.yaml").write_text(CONFIGURATIONS, "utf-8")
    page, markdown = tmp_path / "compared.html", tmp_path / "compared.md"
    suite = write(*(GOOD | {"name": f"accents-{n}"} for n in range(8)))
    run = handbook("suite", "run", suite, "--compare", tmp_path / "configs.yaml", "-o", page, "-o", markdown)
    assert run.code == 0, run.err
    last = run.out.strip().splitlines()[-1]
    assert re.fullmatch(r"Choose as it is: ndcg@10 1\.000, .* better than every other by more than chance\.", last)
    assert "<svg" in page.read_text("utf-8")
    assert "| strict | 0 of 8 |" in markdown.read_text("utf-8")
    slow = handbook("suite", "run", suite, "--compare", tmp_path / "configs.yaml", "--max-latency", "0.001", "--json")
    assert (slow.code, slow.json["choice"]["name"]) == (1, None)
    for options, message in (
        (["--baseline", "x.json", "--repeat", "2"], "With --compare, --repeat, --baseline cannot be given"),
        (["--metric", "ndcg@11"], "ndcg@11 is not a metric"),
        (["-o", "x.xml"], "the extension must be one of .json, .md, .html"),
    ):
        refused = handbook("suite", "run", suite, "--compare", tmp_path / "configs.yaml", *options)
        assert refused.code == 2
        assert message in " ".join(refused.err.split())
    alone = handbook("suite", "run", suite, "--max-latency", "5")
    assert (alone.code, "need --compare" in alone.err) == (2, True)


@pytest.mark.parametrize(
    ("search", "options", "code"),
    [
        ("{similarity_threshold: 0.5}", ["--max-latency", "0.001"], 1),  # all too slow
        ("{mode: hybrid, fusion: {method: dbsf}}", ["--metric", "recall@100"], 2),  # no case is searched so deep
        ("{with_vectors: true, top_k: 1000}", ["--filter", "long"], 2),  # as a run of the suite ends
    ],
)
def test_no_choice_ends_as_its_reason_says(
    handbook: Command, write: Any, tmp_path: Path, search: str, options: list[str], code: int
) -> None:
    (tmp_path / "configs.yaml").write_text(
        f"configurations:\n  - name: a\n  - {{name: b, search: {search}}}\n", "utf-8"
    )
    suite = write(*(GOOD | {"name": f"c{n}"} for n in range(3)), GOOD | {"name": "long", "query_text": "robot " * 300})
    chosen = options if "--filter" in options else ["--filter", "c*", *options]
    run = handbook("suite", "run", suite, "--compare", tmp_path / "configs.yaml", *chosen)
    assert run.code == code, run.out + run.err
    assert "No choice: no configuration" in run.out


def test_configurations_that_a_service_kept_from_being_judged_end_with_3(
    chunkproof: Command, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs.yaml").write_text(CONFIGURATIONS, "utf-8")
    with stub_api() as api:
        monkeypatch.setattr(ApiClient, "search", lambda *_: (_ for _ in ()).throw(ApiUnavailableError("gone")))
        arguments = ("--compare", tmp_path / "configs.yaml", "--api", api.url)
        run = chunkproof("suite", "run", write(GOOD), *arguments)
    assert (run.code, "No choice: no configuration could be judged" in run.out) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "report.pdf"], "the extension must be one of .json, .txt, .md, .xml"),
        (["-o", "/nowhere/report.json"], "no such folder"),
        (["--collection", "handbok"], "Collection handbok not found"),
        (["--tag", "none"], "None of the 1 cases of try is selected"),
        (["--failing", "none.json"], "none.json: No such file"),
        (["--qrels", "none.txt"], "none.txt: No such file"),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_run(
    handbook: Command, write: Any, arguments: list[str], message: str
) -> None:
    run = handbook("suite", "run", write(GOOD), *arguments)
    assert run.code == 2
    assert message in " ".join(run.err.split())


def test_several_searches_at_a_time_have_the_results_of_one_at_a_time(
    handbook: Command, write: Any, tmp_path: Path
) -> None:
    suite = write(*({**case, "name": f"{case['name']} {n}"} for n in range(20) for case in (GOOD, BAD, NEGATIVE)))
    found = []
    for jobs in (1, 4):
        run = handbook("suite", "run", suite, "--jobs", jobs, "-o", tmp_path / "r.json")
        assert run.code == 1
        cases = json.loads((tmp_path / "r.json").read_text("utf-8"))["result"]["test_results"]
        found.append([(case["name"], case["status"], case["actual_results"]) for case in cases])
    assert len(found[0]) == 60
    assert found[0] == found[1]


def test_a_warning_that_many_cases_cause_is_shown_once(write: Any, loaded_handbook: Path) -> None:
    suite = write(*({**GOOD, "name": f"case {n}", "query_text": f"accented letters {n}"} for n in range(5)))
    command = [sys.executable, "-m", "chunkproof_cli", "suite", "run", suite, "--data", loaded_handbook]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stderr.count("Some results score under 0.3") == 1


def test_a_broken_suite_ends_with_2_and_names_every_line(handbook: Command, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("name: x\ncases:\n  - name: a\n    query: x\n    top_k: 0\n")
    run = handbook("suite", "run", tmp_path / "s.yaml")
    assert run.code == 2
    assert run.err.splitlines() == [
        "s.yaml:3: query_text is required",
        "s.yaml:4: query is not a known field; did you mean query_text?",
        "s.yaml:5: top_k must be between 1 and 1000",
    ]


def test_a_query_that_cannot_be_searched_is_wrong_input_and_not_a_failed_case(handbook: Command, write: Any) -> None:
    run = handbook("suite", "run", write({**GOOD, "query_text": "robot " * 300}), "--json")
    assert run.code == 2
    assert run.json["result"]["test_results"][0]["status"] == "error"


def test_cases_are_selected_by_name_tag_and_earlier_report(handbook: Command, write: Any, tmp_path: Path) -> None:
    file = write({**GOOD, "tags": ["smoke"]}, BAD, NEGATIVE)

    def names(*arguments: object) -> list[str]:
        found = handbook("suite", "run", file, "--json", *arguments).json
        return [case["name"] for case in found["result"]["test_results"]]

    assert names("--filter", "CA") == ["cake"]
    assert names("--filter", "c*", "--filter", "acc") == ["accents", "cake"]
    assert names("--tag", "smoke") == ["accents"]
    handbook("suite", "run", file, "-o", tmp_path / "r.json")
    assert names("--failing", tmp_path / "r.json") == ["wrong"]


def test_failing_with_nothing_failing_runs_nothing_and_ends_with_0(
    handbook: Command, write: Any, tmp_path: Path
) -> None:
    report = tmp_path / "r.json"
    assert handbook("suite", "run", write(GOOD, NEGATIVE), "-o", report).code == 0
    run = handbook("suite", "run", write(GOOD, NEGATIVE), "--failing", report)
    assert (run.code, run.out) == (0, f"Nothing to run: none of the cases of try failed in {report}\n")
    as_json = handbook("suite", "run", write(GOOD, NEGATIVE), "--failing", report, "--json")
    assert as_json.json == {"message": f"Nothing to run: none of the cases of try failed in {report}"}
    other = handbook("suite", "run", write(BAD), "--failing", report)
    assert (other.code, "has no case in common with suite try" in other.err) == (2, True)


def test_an_over_long_name_or_id_is_cut_in_tables_and_in_the_last_line(
    handbook: Command, write: Any, tmp_path: Path
) -> None:
    path, name = f"/srv/{'deep/' * 60}end.md", f"begin-{'n' * 300}-end"
    run = handbook("suite", "run", write({**BAD, "name": name, "expected_doc_ids": [path]}), "-o", tmp_path / "r.json")
    assert run.code == 1
    table = run.out.partition("\nFailed\n")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100
    assert len(table.splitlines()) < 15  # one row, which is not folded over a page
    assert "end.md" in table.replace("\n", "")
    last = run.out.strip().splitlines()[-1]
    assert "failed: begin-nnn" in last
    assert last.count("n" * 30) <= 2
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["result"]["test_results"][0]["name"] == name


def test_a_report_is_rendered_later_from_its_json(handbook: Command, write: Any, tmp_path: Path) -> None:
    handbook("suite", "run", write(GOOD, BAD), "-o", tmp_path / "r.json", "-o", tmp_path / "r.md")
    run = handbook("report", tmp_path / "r.json", "-o", tmp_path / "again.md", "-o", tmp_path / "again.json")
    assert run.code == 0
    assert (tmp_path / "again.md").read_bytes() == (tmp_path / "r.md").read_bytes()
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    assert "1 of 2 cases passed" in handbook("report", tmp_path / "r.json").out


def test_a_newly_failing_case_fails_the_gate_and_a_known_one_does_not(
    handbook: Command, write: Any, tmp_path: Path
) -> None:
    good = [{**GOOD, "name": f"g{n}"} for n in range(8)]
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    assert handbook("suite", "run", write(*good, BAD), "-o", before).code == 1
    equal = handbook("suite", "run", write(*good, BAD), "--baseline", before)
    assert equal.code == 0
    last = equal.out.strip().splitlines()[-1]
    assert last == (
        "Gate passed: no case newly fails (9 compared); the baseline itself failed 1 of 9 cases, 1 of them still fail"
    )
    assert "Success criteria" in equal.out
    assert handbook("suite", "run", write(*good), "-o", tmp_path / "good.json").code == 0
    passing = handbook("suite", "run", write(*good), "--baseline", tmp_path / "good.json")
    assert "Compared with the baseline" in passing.out
    assert "; no metric differs" in passing.out
    assert len(passing.out.splitlines()) < 12, "no table in which nothing differs"
    assert not [title for title in ("Success criteria", "Latency in", "Metrics") if title in passing.out]
    expected = json.loads(before.read_text("utf-8"))
    for case in expected["result"]["test_results"][:2]:  # what this run fails with passed then
        case |= {"status": "passed", "expected_doc_ids": ["languages-99"]}
    before.write_text(json.dumps(expected), "utf-8")
    lost = write(*({**case, "expected_doc_ids": ["languages-99"]} for case in good[:2]), *good[2:], BAD)
    worse = handbook("suite", "run", lost, "--baseline", before, "-o", after)
    assert worse.code == 1
    last = worse.out.strip().splitlines()[-1]
    assert last.startswith("Gate FAILED: 2 newly failing: g0 (not in collection), g1 (not in collection);")
    assert json.loads(after.read_text("utf-8"))["comparison"]["newly_failing"] == ["g0", "g1"]
    assert handbook("suite", "run", lost, "--baseline", before, "--tolerate", "2").code == 0
    assert handbook("suite", "run", lost, "--baseline", before, "--tolerate", "chance").code == 0
    alone = handbook("suite", "run", lost, "--baseline", before, "--tolerate", "chance", "--filter", "g1")
    assert alone.code == 1
    assert alone.out.strip().splitlines()[-1].startswith("Gate FAILED: no case passes: 1 of 1 fail")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--baseline", "none.json"], "none.json: No such file"),
        (["--tolerate", "2"], "--tolerate needs --baseline"),
        (["--baseline", "none.json", "--tolerate", "some"], "some is neither a number of cases nor the word chance"),
        (["--baseline", "none.json", "--tolerate", "-1"], "-1 is neither a number of cases nor the word chance"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_refused(
    handbook: Command, write: Any, options: list[str], message: str
) -> None:
    run = handbook("suite", "run", write(GOOD), *options)
    assert (run.code, message in " ".join(run.err.split())) == (2, True)


def test_a_baseline_of_another_suite_is_refused_before_anything_is_run(
    handbook: Command, write: Any, tmp_path: Path
) -> None:
    assert handbook("suite", "run", write(GOOD), "-o", tmp_path / "r.json").code == 0
    run = handbook("suite", "run", write(NEGATIVE, name="other"), "--baseline", tmp_path / "r.json")
    assert run.code == 2
    assert run.out == ""
    assert "r.json has no case in common with suite other: it is a report of suite try" in run.err


def test_a_service_that_is_down_ends_with_3_and_no_failed_case(
    chunkproof: Command, write: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QDRANT_URL", "http://127.0.0.1:9")
    run = chunkproof("suite", "run", write(GOOD, BAD), "--json", "-o", tmp_path / "r.xml")
    assert run.code == 3
    assert [case["status"] for case in run.json["result"]["test_results"]] == ["error", "error"]
    assert run.json["validation"]["connection_status"] == "failed"
    assert run.json["result"]["failed"] == 0
    assert "2 failed calls were retried by the transport, each once" in run.err
    assert 'failures="0" errors="2"' in (tmp_path / "r.xml").read_text()


@pytest.mark.server
def test_a_server_that_stops_ends_with_3_and_no_failed_case(
    chunkproof: Command, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        running = qdrant_server()
        with running as server, loaded_handbook(server.url) as api:
            if server.process is None:
                pytest.skip("the tests did not start this server")
            monkeypatch.setenv("QDRANT_URL", server.url)
            monkeypatch.setenv("COHERE_BASE_URL", api.url)
            monkeypatch.setenv("COHERE_API_KEY", KEY)
            suite = write(GOOD, NEGATIVE, *({**GOOD, "name": f"n{n}"} for n in range(6)))
            up = chunkproof("suite", "run", suite, "--json", "--exact", "--ignore-latency")
            server.stop()
            down = chunkproof("suite", "run", suite, "--json")
            server.start()
    except NoServerError as reason:
        pytest.skip(f"no Qdrant server: {reason}")
    assert up.code == 0, up.err
    assert up.json["approximation"]["ann_recall"] == 1.0
    latency = [one for one in up.json["criteria"] if one["unit"] == "ms"]
    assert {one["verdict"] for one in latency} <= {"met", "not met"}  # a served store is judged, here without a say
    assert all(one["ignored"] for one in latency)
    assert down.code == 3
    assert {case["status"] for case in down.json["result"]["test_results"]} == {"error"}


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_a_file_that_resume_continues_from(
    chunkproof: Command, write: Any, tmp_path: Path, request_to_end: signal.Signals
) -> None:
    suite = write(*({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["a"]} for n in range(5)))
    with stub_api() as api:
        api.waits_at = "q2"
        # A run in the background inherits that Ctrl-C is ignored.
        main = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        main += "from chunkproof_cli.main import main; main()"
        command = [
            sys.executable,
            "-c",
            main,
            "suite",
            "run",
            suite,
            "--api",
            api.url,
            "--jobs",
            "1",
        ]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        assert api.reached.wait(30)
        process.send_signal(request_to_end)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Interrupted after 2 of 5 cases" in said
        assert "Traceback" not in said
        left = json.loads((tmp_path / "try.partial.json").read_text("utf-8"))
        assert [case["status"] for case in left["result"]["test_results"]] == ["passed"] * 2 + ["pending"] * 3
        api.let_go.set()
        api.queries.clear()
        resume = ["--resume", tmp_path / "try.partial.json"]
        run = chunkproof("suite", "run", suite, "--api", api.url, "--json", "--ignore-latency", *resume)
        assert run.code == 0
        assert sorted(api.queries) == ["q2", "q3", "q4"]
        assert [case["status"] for case in run.json["result"]["test_results"]] == ["passed"] * 5
        other = chunkproof("suite", "run", write(GOOD), "--api", api.url, *resume)
        assert other.code == 2
        assert "is a report of another suite, or the cases have changed" in other.err


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_last_case_does_not_lose_the_report(
    chunkproof: Command, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_to_end: signal.Signals
) -> None:
    suite = write({"name": "c", "query_text": "q", "expected_doc_ids": ["a"]})
    run_suite, write_report = suite_runs.run_suite, ReportKind.write

    def run_and_signal(*given: Any, **options: Any) -> Any:
        report = run_suite(*given, **options)
        os.kill(os.getpid(), request_to_end)
        return report

    def signal_and_write(*given: Any) -> None:
        os.kill(os.getpid(), request_to_end)
        write_report(*given)

    monkeypatch.setattr(suite_runs, "run_suite", run_and_signal)
    monkeypatch.setattr(ReportKind, "write", signal_and_write)
    with stub_api() as api:
        run = chunkproof("suite", "run", suite, "--api", api.url, "--ignore-latency", "-o", tmp_path / "report.json")

    assert run.code == 0
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["complete"] is True


def test_a_second_signal_does_not_lose_what_an_interrupted_run_leaves(
    chunkproof: Command, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = write(*({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["a"]} for n in range(3)))
    write_report = ReportKind.write

    def signal_and_write(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write_report(*given)

    def interrupt(_result: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ReportKind, "write", signal_and_write)
    monkeypatch.setattr(suite_runs, "progress_bar", lambda *_: nullcontext(interrupt))
    with stub_api() as api:
        run = chunkproof("suite", "run", suite, "--api", api.url, "--jobs", "1", "-o", tmp_path / "report.json")

    assert run.code == 130
    assert "Interrupted after 1 of 3 cases" in run.err
    statuses = json.loads((tmp_path / "report.json").read_text("utf-8"))["result"]["test_results"]
    assert [case["status"] for case in statuses] == ["passed", "pending", "pending"]


def test_two_interrupted_runs_of_one_suite_leave_a_file_each(
    chunkproof: Command, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = write(*({"name": f"c{n}", "query_text": f"q{n}", "expected_doc_ids": ["a"]} for n in range(3)))
    with stub_api() as api:
        report = read_report(chunkproof("suite", "run", suite, "--api", api.url, "--json").out.encode(), "report")

    def interrupt(*_: object, **__: object) -> None:
        raise InterruptedRun(report)

    monkeypatch.setattr(suite_runs, "_execute", interrupt)
    first, second = (chunkproof("suite", "run", suite, "--api", api.url) for _ in range(2))
    assert "--resume try.partial.json" in first.err
    assert "--resume try.partial-2.json" in second.err
    again = chunkproof("suite", "run", suite, "--api", api.url, "--resume", "try.partial-2.json")
    assert "--resume try.partial-2.json" in again.err
    assert sorted(file.name for file in tmp_path.glob("*.partial*.json")) == ["try.partial-2.json", "try.partial.json"]


def test_exact_search_needs_the_store_itself(chunkproof: Command, write: Any) -> None:
    with stub_api() as api:
        run = chunkproof("suite", "run", write(GOOD), "--api", api.url, "--exact")
    assert run.code == 2
    assert "--exact needs the store itself" in run.err
