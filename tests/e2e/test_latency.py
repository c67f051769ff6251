"""`chunkproof latency --logs` reads what the handlers write."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chunkproof.service import container
from chunkproof.stores.store_port import Point

from support.api import get, invoke, post
from support.chromium import Chromium
from support.chunks import fill, make_services
from support.commands import Command, modules_of_suites
from support.log_lines import capture_stdout
from support.qdrant_server import free_port
from support.serving import Serving, wait_until_ready
from support.stores import MemoryStore

PAYLOAD = {"text": "one", "url": "https://a.example", "document_title": "A"}
LINE = {
    "message": "request",
    "timestamp": "2026-01-15 09:00:00,250+0000",
    "route": "POST /search",
    "stages_ms": {"total": 5.0},
    "status": 200,
    "cold_start": False,
}


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> str:
    """The output of the handlers for two searches, a validation, a health check and three failures."""
    store = MemoryStore()
    fill(store, "docs", Point(1, PAYLOAD, vector=(1.0, 0.0)))
    with container.override(make_services(store, "docs")), capture_stdout(capsys) as written:
        for event in (
            post("/search", {"query_vector": [1, 0]}),
            post("/search", {"query_vector": [0, 1]}),
            post("/validate-chunk", {"chunk_id": "1", "original_text": "one"}),
            get("/health"),
            post("/search", {"query_text": " "}),
            post("/search", {"query_vector": [1]}),
            get("/collections/none"),
        ):
            invoke(event)
        text = written.text
    store.close()
    return text


@pytest.fixture
def log(tmp_path: Path, written: str) -> Path:
    file = tmp_path / "functions.log"
    file.write_text(written, "utf-8")
    return file


def write(folder: Path, *totals: float, **changed: Any) -> Path:
    file = folder / "made.log"
    lines = [json.dumps({**LINE, "stages_ms": {"total": total}, **changed}) for total in totals]
    file.write_text("\n".join(lines), "utf-8")
    return file


def test_the_output_of_the_handlers_is_read_back(chunkproof: Command, log: Path, written: str) -> None:
    run = chunkproof("latency", "--logs", log, "--json")
    assert (run.code, run.err) == (0, "")
    report = run.json
    assert (report["source"]["lines"], report["source"]["unreadable"]) == (len(written.splitlines()), 0)
    assert (report["requests"], report["missed"], report["left_out"]) == (7, 0, 3)
    assert report["within_target_percent"] == 100.0
    (group,) = report["groups"]
    assert group["errors"] == {"INVALID_REQUEST": 1, "DIMENSION_MISMATCH": 1, "COLLECTION_NOT_FOUND": 1}
    assert {route["route"]: route["count"] for route in group["routes"]} == {
        "POST /search": 4,
        "POST /validate-chunk": 1,
        "GET /health": 1,
        "GET /collections/none": 1,
    }
    counts = {row["stage"]: row["count"] for row in group["stages"] if row["starts"] == "all"}
    # A rejected request was validated too, a vector needs no embedding, and only results are formatted.
    assert counts == {"validate": 7, "search": 5, "format": 4, "total": 7}
    lines = [json.loads(line) for line in written.splitlines()]
    totals = sorted(line["stages_ms"]["total"] for line in lines if line.get("message") == "request")
    (total,) = (row for row in group["stages"] if (row["starts"], row["stage"]) == ("all", "total"))
    assert (total["p50"], total["max"]) == (totals[3], totals[-1])


def test_the_terminal_shows_a_table_the_share_and_a_chart(chunkproof: Command, log: Path) -> None:
    run = chunkproof("latency", "--logs", log)
    assert (run.code, run.err) == (0, "")
    assert "7 requests of " in run.out
    assert "of them requests" in run.out
    assert "100.00 % within the target of 2,000 ms (4 of 4), 3 failed requests left out" in run.out
    for word in (
        "validate",
        "search",
        "format",
        "total",
        "GET /health",
        "DIMENSION_MISMATCH",
        "p95 by 1 second",
    ):
        assert word in run.out


def test_reports_are_written_as_html_and_json(chunkproof: Command, log: Path, tmp_path: Path) -> None:
    page, data = tmp_path / "latency.html", tmp_path / "latency.json"
    run = chunkproof("latency", "--logs", log, "-o", page, "-o", data, "--json")
    assert run.code == 0
    assert json.loads(data.read_text("utf-8")) == run.json
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "DIMENSION_MISMATCH" in page.read_text("utf-8")


@pytest.mark.parametrize(("slo", "code", "word"), [("75", 0, "meets"), ("75.1", 1, "BELOW")])
def test_an_unmet_slo_exits_1(chunkproof: Command, tmp_path: Path, slo: str, code: int, word: str) -> None:
    log = write(tmp_path, 1.0, 2.0, 3.0, 2_500.0)
    run = chunkproof("latency", "--logs", log, "--slo", slo)
    assert run.code == code
    assert f"75.00 % within the target of 2,000 ms (3 of 4): {word} the SLO of {slo} %" in run.out
    as_json = chunkproof("latency", "--logs", log, "--slo", slo, "--json")
    assert (as_json.code, as_json.json["slo"]) == (code, {"percent": float(slo), "met": code == 0})


def test_the_target_for_a_log_is_a_setting(
    chunkproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(tmp_path, 100.0, 300.0)
    monkeypatch.setenv("CHUNKPROOF_LATENCY_TARGET_MS", "200")
    assert "50.00 % within the target of 200 ms (1 of 2)" in chunkproof("latency", "--logs", log).out
    monkeypatch.setenv("CHUNKPROOF_LATENCY_TARGET_MS", "soon")
    wrong = chunkproof("latency", "--logs", log)
    assert (wrong.code, "CHUNKPROOF_LATENCY_TARGET_MS must be" in wrong.err) == (2, True)


def test_since_limits_a_log_to_recent_requests(chunkproof: Command, log: Path, tmp_path: Path) -> None:
    assert chunkproof("latency", "--logs", log, "--since", "5m", "--json").json["requests"] == 7
    old = chunkproof("latency", "--logs", write(tmp_path, 1.0), "--since", "30m")
    assert old.code == 2
    assert "none of its 1 requests is within --since; the last is of 2026-01-15 09:00 UTC" in old.err


def test_latency_imports_no_module_of_suites(tmp_path: Path) -> None:
    page = tmp_path / "latency.html"
    assert modules_of_suites("latency", "--logs", "-", "-o", page, stdin=json.dumps(LINE)) == set()
    assert page.is_file()


@pytest.mark.parametrize("content", ["", "START RequestId: 1\nEND RequestId: 1\n"])
def test_a_log_without_requests_is_an_error_that_describes_a_request_line(
    chunkproof: Command, tmp_path: Path, content: str
) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text(content)
    run = chunkproof("latency", "--logs", empty)
    assert (run.code, run.out) == (2, "")
    assert '"message":"request"' in run.err
    assert "chunkproof serve > FILE" in run.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --stack NAME or --logs FILE"),
        (("--stack", "a", "--logs", "-"), "either --stack NAME or --logs FILE"),
        (("--logs", "/nonexistent"), "No such file or directory"),
        (("--logs", "/"), "Is a directory"),
        (("--logs", "-", "-o", "latency.pdf"), "the extension must be one of .html, .json"),
        (("--logs", "-", "-o", "nowhere/latency.html"), "there is no such folder to write to"),
        (("--logs", "-", "--since", "yesterday"), "is not a time such as 30m, 3h, 2d or 1w"),
        (("--logs", "-", "--since", "0h"), "is not a time such as 30m, 3h, 2d or 1w"),
        (("--logs", "-", "--since", "456d"), "CloudWatch keeps metrics for 455d"),
        (("--logs", "-", "--slo", "101"), "101"),
        (("--logs", "-", "--slo", "nan"), "nan is not a number"),
        (("--logs", "-", "--api", "https://a.example"), "times are in a stack's metrics (--stack)"),
    ],
)
def test_a_usage_error_names_the_correct_usage(chunkproof: Command, arguments: tuple[str, ...], said: str) -> None:
    run = chunkproof("latency", *arguments)
    assert (run.code, run.out) == (2, "")
    assert said in run.err


def test_logged_text_does_not_act_on_the_terminal(chunkproof: Command, tmp_path: Path) -> None:
    log = write(tmp_path, 1.0, 2.0, route="GET /\x1b[2J", code="[red]\x07", status=404)
    log.write_text(log.read_text() + "\n" + json.dumps(LINE))
    run = chunkproof("latency", "--logs", log)
    assert run.code == 0
    assert "\x1b" not in run.out + run.err
    assert "GET /‹1B›[2J" in run.out
    assert "[red]‹07›" in run.out


def test_standard_input_is_read_and_a_terminal_without_block_characters_gets_ascii(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chunkproof_cli", "latency", "--logs", "-"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    log = b"\xff is no text\n" + write(tmp_path, 1.0, 1_000.0).read_bytes()
    run = subprocess.run(command, input=log, capture_output=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    said = run.stdout.decode("ascii")
    assert said.startswith("2 requests of standard input, ")
    assert "3 lines read, 2 of them requests" in said
    assert f"{'#' * 20}{' ' * 20}|" in said
    assert "\\u" not in said


# from `chunkproof serve`


@contextmanager
def serving_into(out: Any, folder: Path, *arguments: str) -> Iterator[Serving]:
    """Run a server that writes to the given standard output."""
    port, errors = free_port(), folder / "stderr"
    command = [
        sys.executable,
        "-m",
        "chunkproof_cli",
        "serve",
        "--port",
        str(port),
        "--data",
        str(folder / "data"),
    ]
    with errors.open("wb") as stderr:
        process = subprocess.Popen([*command, *arguments], stdout=out, stderr=stderr, env=dict(os.environ))
    server = Serving(f"http://127.0.0.1:{port}", process, errors)
    try:
        wait_until_ready(server)
        yield server
    finally:
        process.kill()
        process.wait()


def test_a_log_of_serve_is_read_while_it_runs(chunkproof: Command, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with log.open("wb") as out, serving_into(out, tmp_path) as server:
        httpx.post(f"{server.url}/search", json={"query_text": "a question"})
        run = chunkproof("latency", "--logs", log, "--json")
    (group,) = run.json["groups"]
    assert {route["route"]: route["count"] for route in group["routes"]} == {
        "GET /health": 1,
        "POST /search": 1,
    }
    assert group["errors"] == {"COLLECTION_NOT_FOUND": 1}
    assert "gateway" in {row["stage"] for row in group["stages"]}
    assert "stages_ms" not in server.written


def test_serve_writes_no_log_lines_to_a_terminal(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    os.set_blocking(ours, False)
    with serving_into(terminal, tmp_path) as server:
        httpx.get(f"{server.url}/health")
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
        assert "GET /health 200" in server.written
    os.close(ours)
    os.close(terminal)


def test_serve_with_logs_writes_them_to_a_terminal_which_may_close(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    with serving_into(terminal, tmp_path, "--logs") as server:
        assert b'"message":"request"' in os.read(ours, 65_536)
        os.close(ours)
        assert [httpx.get(f"{server.url}/health").status_code for _ in range(3)] == [200, 200, 200]
        assert "Traceback" not in server.written
    os.close(terminal)


@pytest.mark.parametrize("width", [1200, 390])
def test_each_row_of_the_chart_is_one_line_high(
    chunkproof: Command, browser: Chromium, tmp_path: Path, width: int
) -> None:
    log, file = tmp_path / "days.log", tmp_path / "latency.html"
    days = ({**LINE, "timestamp": f"2026-01-{day:02d}T09:00:00+00:00"} for day in range(1, 12))
    log.write_text("\n".join(map(json.dumps, days)), "utf-8")
    assert chunkproof("latency", "--logs", log, "-o", file).code == 0
    page = browser.open(file)
    page.look(width=width)
    heights = page.run('[...document.querySelectorAll(".chart tr")].map(row => row.clientHeight)')
    assert len(heights) == 1 + 11
    assert max(heights) < 2 * 24  # a line is 1.5 times 16 pixels high
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.console == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_the_page_is_accessible(
    chunkproof: Command, browser: Chromium, log: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    file = tmp_path / "latency.html"
    chunkproof("latency", "--logs", log, "--slo", "99", "-o", file)
    page = browser.open(file)
    page.look(width=width, scheme=scheme)
    assert page.axe_violations() == []
