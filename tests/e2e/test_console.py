"""The browser console of `chunkproof serve` in a real browser, on the real handlers and an embedded store."""

import ast
import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

from chunkproof.base.settings import Settings
from chunkproof.service import container
from chunkproof.service.terminal import open_connection
from chunkproof.stores.edge_folder import copy_folder
from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.console import MARKER, build_console
from chunkproof_cli.local.gateway import LambdaContext, build_event
from chunkproof_cli.main import cli

from support.chromium import Chromium, Page
from support.commands import Command
from support.serving import Serving, serving

NASTY = "<script>window.acted=1</script><img src=x onerror='window.acted=1'>\u202e \"quoted' &amp; <!--"
QUESTION = "Why does a robot arm get longer while it warms up?"
SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests" / "data" / "golden" / "inputs"
PAGE = ROOT / "cli" / "chunkproof_cli" / "local" / "page"


def hostile_chunks() -> list[dict[str, Any]]:
    return [
        {
            "chunk_id": f"{NASTY}-{number}",
            "text": f"{number} {NASTY} backups are made at night",
            "url": "javascript:window.acted=1",
            "document_title": NASTY,
            "section_heading": f"{NASTY} {number}",
            "breadcrumb": NASTY,
            "document_id": NASTY,
            "position": (0, 1, 3)[number],
        }
        for number in range(3)
    ]


@pytest.fixture(scope="module")
def server(loaded_handbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("console")
    loaded = folder / "loaded"
    copy_folder(loaded_handbook, loaded)
    write_chunks(folder / "nasty.jsonl", iter(hostile_chunks()))
    seals, reports = folder / "seals", folder / "reports"
    shutil.copytree(INPUTS, reports)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHUNKPROOF_SEALS", str(seals))
        patch.chdir(folder)
        for command in (
            ["load", "nasty.jsonl", "--collection", "nasty", "--data", str(loaded)],
            ["key", "example.com/console"],
            ["seal", "handbook", "--key", "seal.key", "--data", str(loaded)],
        ):
            cli.main(command, standalone_mode=False)
        with serving(loaded, folder, "--suite", folder / "judged.yaml", "--reports", reports) as running:
            httpx.post(f"{running.url}/search", json={"query_text": QUESTION}, timeout=60)  # loads the model
            yield running


@pytest.fixture(scope="module")
def opened(browser: Chromium, server: Serving) -> "Console":
    return Console(browser, server)


@pytest.fixture
def console(opened: "Console") -> Iterator["Console"]:
    """The one page of this file; each address is a new load of it."""
    opened.page.console.clear()
    opened.page.requests.clear()
    yield opened
    assert opened.page.console == []
    others = [url for url in opened.page.requests if not url.startswith((opened.server.url, "data:", "about:"))]
    assert others == [], "the console requested another host"


class Console:
    """A page of the console, and what a user does there."""

    def __init__(self, browser: Chromium, server: Serving) -> None:
        self.page: Page = browser.open("about:blank")
        self.server = server
        self._loads = 0

    def open(self, address: str, wait: str = "true", *, width: int = 1440, scheme: str = "light") -> None:
        """Open an address such as `#/search?q=…` and wait until it is shown and the condition holds."""
        self.page.look(width=width, scheme=scheme)
        self._loads += 1  # another query is another document
        self.page.send("Page.navigate", url=f"{self.server.url}/?{self._loads}{address}")
        self.wait(f"document.querySelector('#view:not([aria-busy]) > :not(noscript)') && ({wait})")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        give_up = time.monotonic() + SECONDS
        while time.monotonic() < give_up:
            if self.page.run(f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"):
                return
            time.sleep(0.03)
        raise AssertionError(f"not within {SECONDS:.0f} s: {condition}\n{self.text()}\n{self.page.console}")

    def text(self, selector: str = "#view") -> str:
        found: str = self.page.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    def all(self, selector: str) -> list[str]:
        # What the browser has not laid out yet, because it may be off the screen, has no `innerText`.
        found: list[str] = self.page.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText || one.textContent)"
        )
        return found

    def type(self, text: str) -> None:
        self.page.send("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.press(key, "\r" if key == "Enter" else key if len(key) == 1 else "")

    def ask(self, question: str) -> None:
        """Ask as a user does: slash, the question, Enter."""
        self.press("/")
        self.wait("document.activeElement.id === 'query'")
        self.type(question)
        self.press("Enter")
        self.wait(f"document.querySelectorAll('.results > li').length && location.hash.includes({quoted(question)})")


def quoted(text: str) -> str:
    return json.dumps(quote(text, safe="*-._").replace("%20", "+"))


def search_address(question: str, **params: str) -> str:
    more = "".join(f"&{name}={quote(value)}" for name, value in params.items())
    return f"#/search?q={quote(question)}{more}"


# the page


def test_the_demo_leads_to_the_console_with_the_handbook_loaded(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    command = [
        sys.executable,
        "-m",
        "chunkproof_cli",
        "demo",
        "--open",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
    ]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        give_up = time.monotonic() + 300  # the handbook is embedded first
        while not opened.exists() and time.monotonic() < give_up and process.poll() is None:
            time.sleep(0.1)
        assert opened.exists(), f"no browser was opened; exit code {process.poll()}"
        url = opened.read_text().strip()
        about = httpx.get(f"{url}/console/about", timeout=SECONDS).json()
        assert about["collections"] == [about["collection"]] == ["handbook"]
        assert about["suite_file"] == str(tmp_path / "data" / "judged.yaml")
        assert httpx.get(f"{url}/collections/handbook", timeout=SECONDS).json()["points_count"] == 227
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)


def test_the_page_is_small_and_allows_nothing_from_elsewhere(server: Serving) -> None:
    with httpx.Client(base_url=server.url) as http:
        page = http.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        names = {*re.findall(r'"console/([\w.]+)"', page.text)}
        for name in list(names):
            names |= {*re.findall(r'from "\./([\w.]+)"', http.get(f"/console/{name}").text)}
        assert {"look.css", "console.css", "proof.js", "reports.js"} <= names
        assets = [http.get(f"/console/{name}") for name in names]
        assert {asset.status_code for asset in assets} == {200}
        assert sum(len(asset.content) for asset in (page, *assets)) < 200_000
        for path in ("/console/none.js", "/console/../index.html", "/console/%2e%2e/index.html", "/console/page/x.js"):
            assert http.get(path).status_code == 404


def test_a_page_of_another_site_cannot_use_the_consoles_routes(server: Serving) -> None:
    there = {"origin": "https://evil.example"}
    assert httpx.post(f"{server.url}/console/suite", json={"yaml": "x"}, headers=there).status_code == 403
    assert httpx.get(f"{server.url}/console/about", headers=there).status_code == 403
    own = httpx.get(f"{server.url}/console/about", headers={"origin": server.url})
    assert (own.status_code, own.json()["collection"]) == (200, "handbook")


def test_the_consoles_own_requests_are_not_in_the_log(
    loaded_handbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_folder(loaded_handbook, tmp_path / "data")
    scope = {"method": "GET", "http_version": "1.1", "headers": [], "query_string": b""}
    with (
        open_connection(Settings.from_env({}), tmp_path / "data") as connection,
        container.override(connection.services),
    ):
        event = build_event({**scope, "path": "/console/about", "raw_path": b"/console/about"}, b"")
        response = build_console().handler(event, LambdaContext())
    assert (response["statusCode"], json.loads(response["body"])["collections"]) == (200, ["handbook"])
    assert capsys.readouterr().out == ""


def test_the_consoles_routes_have_an_openapi_document_of_their_own(server: Serving) -> None:
    document = httpx.get(f"{server.url}/console/openapi.json").json()
    assert set(document["paths"]) == {
        "/console/about",
        "/console/doctor",
        "/console/documents",
        "/console/map",
        "/console/report",
        "/console/reports",
        "/console/suite",
        "/console/why",
    }


def test_a_request_of_the_console_is_refused_by_its_number_of_reports_or_values(server: Serving) -> None:
    many = httpx.post(f"{server.url}/console/report", json={"files": ["a.json"] * 101})
    assert (many.status_code, many.json()["errors"]) == (400, ["files must have at most 100 items"])
    flood = MARKER + "a: [" + "1," * 60_000 + "1]"
    suite = httpx.post(f"{server.url}/console/suite", json={"yaml": flood})
    assert (suite.status_code, suite.json()["errors"]) == (400, ["suite:2: more than 50,000 values"])


# search


def test_a_question_is_asked_and_its_results_are_walked_by_keyboard_alone(console: Console) -> None:
    console.open("")
    console.page.run("document.activeElement.blur()")
    console.ask(QUESTION)
    assert console.all(".results > li:first-child h2") == ["Thermal growth of arms and frames"]
    assert console.page.run("document.querySelector('.results .chosen').dataset.id") == "robotics-calibration-07"
    console.press("j")
    console.wait("document.querySelector('.results > li:nth-child(2)').className === 'chosen'")
    console.press("k", "?")
    console.wait("document.getElementById('keys').open")
    assert "Write a question" in console.text("#keys")


def test_results_are_those_of_the_api_with_time_highlights_and_details(console: Console) -> None:
    console.open(search_address(QUESTION, k="3"), "document.querySelector('.results mark .term')")
    body = {"query_text": QUESTION, "top_k": 3, "collection": "handbook"}
    answer = httpx.post(f"{console.server.url}/search", json=body).json()
    ids = console.page.run("[...document.querySelectorAll('.results > li')].map(one => one.dataset.id)")
    assert ids == [result["metadata"]["chunk_id"] for result in answer["results"]]
    assert console.all(".score") == [f"{result['similarity_score']:.3f}" for result in answer["results"]]
    assert re.search(r"search [\d.]+ ms\s+format [\d.]+ ms\s+[\d.]+ ms in all\s+target 2 s", console.text(".stages"))
    assert "% of the 2 s target" in console.text("#status")
    console.wait("document.querySelector('.details').innerText.includes('random chunk')")
    assert "Neighbours in the document" in console.text(".details")
    link = console.page.run("document.querySelector('.results a.source').href")
    assert link == answer["results"][0]["metadata"]["url"]


def test_an_address_brings_back_mode_filters_and_selection(console: Console) -> None:
    address = search_address(
        "robots", k="4", mode="hybrid", f='{"position": {"lte": 3}}', sel="robotics-calibration-03"
    )
    console.open(address, "document.querySelector('.chip')")
    assert console.page.run("document.querySelector('.modes input:checked').value") == "hybrid"
    assert console.page.run("document.querySelector('.chip input').value") == "3"
    request = console.page.run("document.querySelector('.request pre').textContent")
    assert '"filters":{"position":{"lte":3}}' in request
    assert '"mode":"hybrid"' in request


def test_filters_are_offered_for_the_fields_that_the_collection_has(console: Console) -> None:
    console.open(search_address(QUESTION), "document.querySelector('#add-filter')")
    assert "document_id" in console.text("#add-filter")
    console.page.run(
        "{ const add = document.getElementById('add-filter'); add.value = 'document_id'; "
        "add.dispatchEvent(new Event('change')) }"
    )
    console.wait("document.querySelector('.chip input').value === 'robotics-calibration'")
    rows = "[...document.querySelectorAll('.results > li')]"
    console.wait(f"{rows}.every(one => one.dataset.id.startsWith('robotics-calibration'))")


def test_the_request_as_a_command_returns_the_same_results(console: Console, chunkproof: Command) -> None:
    console.open(
        search_address('it\'s "quoted" $HOME', k="3", mode="hybrid", f='{"document_id": "robotics-calibration"}')
    )
    shown = console.page.run("[...document.querySelectorAll('.request pre')].map(one => one.textContent)")
    words = shlex.split(shown[1])
    assert words[:2] == ["chunkproof", "search"]
    run = chunkproof(*words[1:], "--json")
    ids = console.page.run("[...document.querySelectorAll('.results > li')].map(one => one.dataset.id)")
    assert [result["metadata"]["chunk_id"] for result in run.json["results"]] == ids
    assert json.loads(shlex.split(shown[0])[-1])["query_text"] == 'it\'s "quoted" $HOME'
    compile(shown[2], "snippet", "exec")


def test_why_a_chunk_is_not_among_the_results_is_said_with_what_was_tried(console: Console) -> None:
    address = search_address(
        QUESTION, k="2", f='{"document_id": "vectordb-text-hygiene"}', why="robotics-calibration-07"
    )
    console.open(address, "document.querySelector('.verdict table')")
    assert "Not among the first 2" in console.text(".verdict")
    assert "filter" in console.text(".verdict")


def test_an_error_is_shown_as_the_api_words_it(console: Console) -> None:
    console.open(search_address("x" * 10_001), "document.querySelector('.problem')")
    assert "query_text" in console.text(".problem")
    assert [line for line in console.page.console if "400" not in line] == []
    console.page.console.clear()


def test_stored_text_titles_and_names_stay_text(console: Console) -> None:
    console.open("#/search?in=nasty&q=backups&mode=hybrid", "document.querySelectorAll('.results > li').length === 3")
    console.wait("document.querySelector('.details').innerText.includes('Neighbours')")
    assert "<script>window.acted=1</script>" in console.text(".results h2")
    assert "RLO" in console.text(".results h2")
    assert console.page.run("[window.acted === undefined, document.images.length, document.scripts.length]") == [
        True,
        0,
        1,
    ]
    assert console.page.run("[...document.links].filter(one => one.protocol === 'javascript:').length") == 0


def test_two_configurations_are_compared_with_the_moves_drawn(console: Console) -> None:
    console.open(search_address(QUESTION, k="5"))
    console.press("c")
    console.wait("document.querySelectorAll('.split .results').length === 2")
    ids = console.page.run(
        "[...document.querySelectorAll('.split .results')].map(list => [...list.children].map(one => one.dataset.id))"
    )
    shared = set(ids[0]) & set(ids[1])
    assert len(console.page.run("[...document.querySelectorAll('.joins path')].map(one => one.className.baseVal)")) == (
        len(shared)
    )
    moves = console.page.run(
        "[...document.querySelectorAll('.split section:nth-child(2) .move')].map(m => m.innerText)"
    )
    expected = [
        "only here" if one not in ids[0] else _move(ids[0].index(one) - rank) for rank, one in enumerate(ids[1])
    ]
    assert [move.replace("\n", " ") for move in moves] == expected


def _move(by: int) -> str:
    return f"▲ {by}" if by > 0 else f"▼ {-by}" if by < 0 else "="


# proof


def validate(console: Console, chunk: str) -> str:
    answer = httpx.post(f"{console.server.url}/validate-chunk", json={"chunk_id": chunk}).json()
    stored: str = answer["stored_text"]
    return stored


def prove(console: Console, original: str) -> None:
    """Paste an original and submit the form."""
    console.page.run("document.getElementById('original').focus(); document.getElementById('original').select()")
    console.type(original)
    console.page.run("document.querySelector('.prove').requestSubmit()")
    console.wait("document.querySelector('.banner')")


def test_a_chunk_that_is_stored_as_written_is_proved(console: Console) -> None:
    stored = validate(console, "robotics-calibration-07")
    console.open("#/proof?id=robotics-calibration-07", "document.querySelector('.banner')")
    prove(console, stored)
    console.wait("document.querySelector('.banner').innerText.includes('byte for byte')")
    assert "✓ Stored exactly as the original" in console.text(".banner")
    assert console.all("del, ins") == []


def test_a_difference_is_marked_down_to_invisible_characters(console: Console) -> None:
    stored = validate(console, "robotics-calibration-07")
    assert "steel about" in stored
    console.open("#/proof?id=robotics-calibration-07", "document.querySelector('.banner')")
    prove(console, stored.replace("steel about", "iron\u200b about"))
    console.wait("document.querySelectorAll('.diff del').length > 0")
    assert console.all("td del") == ["ironZWSP"]
    assert console.all("td ins") == ["steel"]
    title = console.page.run("document.querySelector('td del .ch').title")
    assert title == "U+200B ZERO WIDTH SPACE · UTF-8 E2 80 8B"
    assert "First difference: line 3, column" in console.text(".banner")
    assert "✓ this browser computed the same hash" in console.text(".hashes")
    assert "✗ failed" in console.text("#view table:not(.diff)")


def test_the_receipt_is_drawn_as_a_path_to_the_root_of_the_seal(console: Console) -> None:
    console.open("#/proof?id=robotics-calibration-07", "document.querySelector('.tree')")
    body = {"query_text": validate(console, "robotics-calibration-07"), "top_k": 5, "receipt": True}
    receipt = httpx.post(f"{console.server.url}/search", json=body).json()["receipt"]
    _, size, root = receipt["checkpoint"].split("\n")[:3]
    label = console.page.run("document.querySelector('.tree').getAttribute('aria-label')")
    assert label.startswith(f"Leaf {receipt['results'][0][0] + 1} of {size}, ")
    assert label.endswith("proved")
    assert f"✓ root {base64.b64decode(root)[:4].hex()}" in console.page.run(
        "document.querySelector('.tree').textContent"
    )
    assert "✓ The stored text is the sealed one" in console.text(".seal")
    console.page.run("window.search = window.fetch")
    # An answer whose entry was changed on its way does not lead to the root.
    console.page.run(
        "window.fetch = async (...given) => { const answer = await search(...given); "
        "if (!given[0].endsWith('/search')) return answer; const data = await answer.json(); "
        "data.receipt.results[0][3] = 'x'; "
        "return new Response(JSON.stringify(data), {headers: answer.headers}) }"
    )
    console.page.run("document.querySelector('.prove').requestSubmit()")
    console.wait("document.querySelector('.tree.bad')")
    assert "✗ The path does not lead to the root" in console.text(".seal")
    console.open("#/proof?in=nasty&id=" + quote(f"{NASTY}-0"), "document.querySelector('.seal .code')")
    assert "not sealed" in console.text(".seal")


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (("µm", "μm"), "different|unicode normalization"),
        (("\n", "\r\n"), "line endings"),
        (("metre", "METRE"), "case"),
    ],
)
def test_the_cause_of_a_difference_is_said_in_words(console: Console, damage: tuple[str, str], cause: str) -> None:
    original = validate(console, "robotics-calibration-07").replace(*damage)
    console.open("#/proof?id=robotics-calibration-07", "document.querySelector('.banner')")
    # A file keeps its line ends; a text area would change them.
    drop_file(console, "original <b>.txt", original)
    console.wait("document.querySelectorAll('.diff del, .diff ins').length > 0")
    assert re.search(cause, console.text(".banner").lower())


def test_an_unknown_chunk_is_reported_as_the_api_words_it(console: Console) -> None:
    console.open("#/proof?id=nobody", "document.querySelector('.problem')")
    assert "Chunk nobody not found" in console.text(".problem")
    assert len(console.page.console) == 1
    console.page.console.clear()


# judge


def test_questions_are_judged_by_keyboard_and_the_saved_suite_passes(console: Console, chunkproof: Command) -> None:
    file = console.server.log.parent / "judged.yaml"
    console.open("#/judge?k=3")
    console.ask(QUESTION)
    console.press("3")
    console.wait("document.querySelectorAll('.grades [aria-pressed=true]').length === 1")
    console.press("0", "1")
    console.wait("document.querySelectorAll('.grades [aria-pressed=true]').length === 3")
    console.press("u")
    console.wait("document.querySelectorAll('.grades [aria-pressed=true]').length === 2")
    console.press("0", "n")
    console.wait("document.activeElement.id === 'query'")
    odd = '- yes: #composed \u2028 and "decomposed" accents?'
    console.type(odd)
    console.press("Enter")
    console.wait(
        "document.querySelector('.ring text')?.textContent === '0/3' && document.querySelectorAll('.chosen').length"
    )
    console.press("2")
    console.wait("document.querySelector('.suite pre').textContent.includes('decomposed')")
    console.wait("document.querySelector('.suite .good')?.innerText.includes('Saved')")
    text = console.page.run("document.querySelector('.suite pre').textContent")
    give_up = time.monotonic() + SECONDS
    while "decomposed" not in file.read_text("utf-8") and time.monotonic() < give_up:
        time.sleep(0.05)
    written = file.read_text("utf-8")
    assert written.replace("\u2028", "") == text.replace("LS", "")
    run = chunkproof("suite", "run", file, "--api", console.server.url, "--json")
    assert run.code == 0, run.err
    results = run.json["result"]["test_results"]
    assert [case["query_text"] for case in results] == [QUESTION, odd]
    assert [case["status"] for case in results] == ["passed", "passed"]
    # A new page goes on with what the file has.
    console.open("#/judge", "document.querySelector('.suite')")
    assert "4 judgments" in console.text(".suite")


def test_a_hundred_judgments_take_only_keys_and_make_a_suite_that_passes(console: Console, chunkproof: Command) -> None:
    file = console.server.log.parent / "judged.yaml"
    file.unlink(missing_ok=True)
    console.open("#/judge?k=25")
    questions = [QUESTION, "What is a PID controller?", "composed accents", "zero width space"]
    for number, question in enumerate(questions, 1):
        console.ask(question)
        console.wait("document.querySelectorAll('.results > li').length === 25")
        console.wait("document.querySelector('.ring text').textContent === '0/25'")
        for place in range(25):
            console.press("3" if place == 0 else "1" if place < 3 else "0")
        console.wait("document.querySelector('.ring text').textContent === '25/25'")
        console.wait(f"document.querySelector('.suite').innerText.includes('{number * 25} judgments')")
    give_up = time.monotonic() + SECONDS
    while len(re.findall(": [0-3]$", file.read_text("utf-8"), re.M)) < 100 and time.monotonic() < give_up:
        time.sleep(0.05)
    cases = yaml.safe_load(file.read_text("utf-8"))["cases"]
    assert [sum(case["judgments"].values()) for case in cases] == [5] * 4
    assert sum(len(case["judgments"]) for case in cases) == 100
    run = chunkproof("suite", "run", file, "--api", console.server.url, "--json")
    assert run.code == 0, run.err


def test_any_id_and_question_is_written_as_yaml_that_reads_back_the_same(console: Console) -> None:
    file = console.server.log.parent / "judged.yaml"
    console.open("#/judge?in=nasty&mode=hybrid", "document.querySelector('.suite')")
    question = f"backups {NASTY} '\u0085' 🦉: - [yes]"
    console.ask(question)
    console.press("3")
    console.wait("document.querySelector('.suite .good')?.innerText.includes('Saved')")
    give_up = time.monotonic() + SECONDS
    while "nasty" not in (file.read_text("utf-8") if file.exists() else "") and time.monotonic() < give_up:
        time.sleep(0.05)
    case = yaml.safe_load(file.read_text("utf-8"))["cases"][-1]
    assert case["query_text"] == question
    (chunk,) = case["judgments"]
    assert chunk in {one["chunk_id"] for one in hostile_chunks()}
    assert console.page.run("window.acted === undefined")


def test_a_suite_that_could_not_be_run_is_not_written(server: Serving) -> None:
    marker = "# Written by the console of `chunkproof serve`, which rewrites the whole file.\n"
    for text, reason in (("name: x\ncases: []", "first line"), (f"{marker}name: x\ncases: []", "cases is empty")):
        answer = httpx.post(f"{server.url}/console/suite", json={"yaml": text})
        assert answer.status_code == 400
        assert reason in answer.json()["errors"][0]


def test_a_suite_file_of_somebody_else_is_not_overwritten(handbook: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ncases: []\n")
    run = handbook("serve", "--suite", file, "--port", 0)
    assert run.code == 2
    assert "was not written by the console; name a new file" in run.err


# collection, latency, reports


def test_the_collection_is_described_with_a_map_and_doctors_findings(console: Console) -> None:
    console.open("#/collection", "document.querySelectorAll('.map circle').length")
    info = httpx.get(f"{console.server.url}/collections/handbook").json()
    assert console.page.run("document.querySelectorAll('.map circle').length") == info["points_count"]
    assert f"{info['points_count']}\nchunks" in console.text(".tiles")
    rows = console.page.run("[...document.querySelectorAll('tbody th')].map(one => one.innerText)")
    assert rows == [field["name"] for field in info["payload_fields"]]
    assert "No position is without a chunk" in console.text()


def test_the_health_of_a_collection_has_its_parts_and_documents_their_holes(console: Console) -> None:
    console.open("#/collection?in=nasty", "document.querySelector('.strips')")
    assert "✗ 1 missing: 2" in console.text(".strips")
    assert console.page.run("[...document.querySelectorAll('.strip rect')].map(one => one.className.baseVal)") == (
        ["", "", "hole", ""]
    )
    console.page.run("[...document.querySelectorAll('button')].find(one => one.innerText.startsWith('Check')).click()")
    console.wait("document.querySelector('.health')")
    report = httpx.get(f"{console.server.url}/console/doctor", params={"collection": "nasty"}, timeout=60).json()[
        "report"
    ]
    assert report["verdict"] in console.text(".banner")
    assert console.page.run("document.querySelector('.health .ring').getAttribute('aria-label')") == (
        f"Health: {report['score']} of 100"
    )
    parts = {part["name"]: part for part in report["health"]}
    assert list(parts) == ["readable texts", "vectors that belong", "no duplicates", "indexes", "coverage"]
    assert (parts["coverage"]["share"], parts["no duplicates"]["share"], parts["indexes"]["share"]) == (0.75, 1.0, None)
    assert "chunkproof audit chunks.jsonl" in parts["coverage"]["remedy"]
    assert "! 75.0 %" in console.text(".health")
    assert console.page.run("window.acted === undefined")


def test_latency_is_that_of_the_requests_of_this_page(console: Console) -> None:
    console.open(search_address(QUESTION), "document.querySelector('.results')")
    console.press("g", "l")
    console.wait("document.querySelector('.histogram')")
    assert re.search(r"100 %\s+within 2 s", console.text(".tiles")) or "within 2 s" in console.text(".tiles")
    assert "1\nrequest" in console.text(".tiles")
    assert console.all("tbody th")[-1] == "total"


def test_a_log_file_is_read_line_by_line(console: Console) -> None:
    console.open("#/latency")
    lines = [
        json.dumps(
            {"message": "request", "route": "POST /search", "status": 200, "stages_ms": {"search": ms, "total": ms}}
        )
        for ms in (10, 20, 30, 4000)
    ]
    drop_file(console, "requests <i>.jsonl", "\n".join([*lines, "not JSON", "{}"]))
    console.wait("document.querySelector('.histogram')")
    assert re.search(r"75.0 %\s+within 2 s\s+20 ms\s+median\s+4,000 ms\s+95th percentile", console.text(".tiles"))
    assert "requests <i>.jsonl" in console.text("#view h2")


def drop_file(console: Console, name: str, text: str) -> None:
    console.page.run(
        "{ const list = new DataTransfer(); "
        f"list.items.add(new File([{json.dumps(text)}], {json.dumps(name)})); "
        "document.querySelector('.drop').dispatchEvent(new DragEvent('drop', {dataTransfer: list, bubbles: true})) }"
    )


def test_a_suite_report_opens_on_what_failed(console: Console, chunkproof: Command, tmp_path: Path) -> None:
    cases = [
        {"name": "found", "query_text": QUESTION, "expected_doc_ids": ["robotics-calibration-07"]},
        {"name": f"lost {NASTY}", "query_text": QUESTION, "expected_doc_ids": ["nowhere"]},
    ]
    suite, report = tmp_path / "suite.json", tmp_path / "report.json"
    suite.write_text(json.dumps({"name": f"pages {NASTY}", "collection": "handbook", "cases": cases}))
    chunkproof("suite", "run", suite, "--api", console.server.url, "-o", report)
    console.open("#/reports")
    drop_file(console, f"{NASTY}.json", report.read_text("utf-8"))
    console.wait("document.querySelectorAll('.case').length === 2")
    assert console.page.run("[...document.querySelectorAll('.case')].map(one => one.open)") == [True, False]
    assert "lost <script>" in console.text(".case")
    assert console.page.run("[window.acted === undefined, document.images.length]") == [True, 0]


def test_a_report_has_an_address_and_findings_come_first_with_the_changed_words(console: Console) -> None:
    console.open("#/reports", "document.querySelector('.shelf')")
    assert "audit.json" in console.text(".shelf")
    console.open("#/reports?file=audit.json", "document.querySelector('.report')")
    assert console.all(".report h3.part")[0] == "Findings"
    changed = console.page.run("[...document.querySelectorAll('.change')].map(one => one.innerText)")
    assert any("&lt;b&gt;" in text for text in changed)
    assert len(console.all(".change del")) > 5
    assert len(console.all(".change ins")) > 5
    console.open("#/reports?file=suite.json/suite-broken.json", "document.querySelector('.case')")
    # The trend of both, as pictures; and what was returned before and now.
    assert len(console.page.run("[...document.querySelectorAll('.drawing image')].map(one => 1)")) == 5
    assert re.search(r"− gone\s+\S+ 0\.\d+ ▲ 1", console.text(".case"))
    console.open("#/reports?file=" + quote("../judged.yaml"), "document.querySelector('.problem')")
    assert "There is no report" in console.text(".problem")
    console.page.console.clear()


def test_a_why_report_is_stepped_through_by_keyboard(console: Console) -> None:
    rows = [
        {"change": "as it is", "rank": 4, "score": 0.31, "found": False},
        {"change": f"without {NASTY}", "cause": "filtered out", "found": False, "detail": "still left out"},
        {"change": "with a larger top_k", "cause": "beyond top_k", "rank": 4, "score": 0.31, "found": True},
    ]
    verdict = {"found": False, "causes": ["beyond top_k"], "line": f"Lost: {NASTY}"}
    asked = {"query_text": QUESTION, "expected": "x", "collection": "handbook", "top_k": 3, "similarity_threshold": 0.0}
    report = {"format": "chunkproof-why-report", **asked, "rows": rows, "verdict": verdict, "tried": 3}
    console.open("#/reports")
    drop_file(console, "why.json", json.dumps(report))
    console.wait("document.querySelector('.steps')")
    assert console.all(".steps .badge") == ["rank 4", "not among the results", "rank 4"]
    current = "document.querySelector('.steps [aria-current]').innerText"
    assert "as it is" in console.page.run(current)
    console.press("j")
    console.wait("document.querySelector('.report [role=status]').innerText.startsWith('Step 2 of')")
    assert "without <script>" in console.page.run(current)
    assert "Undoes: filtered out" in console.page.run(current)
    assert "step=2" in console.page.run("location.hash")


def test_a_file_that_is_no_report_is_refused_with_what_would_be_one(console: Console) -> None:
    console.open("#/reports")
    drop_file(console, "x.json", "{}")
    console.wait("document.querySelector('.problem')")
    assert "is not a canonical report" in console.text(".problem")
    console.page.console.clear()


# every view, on a phone and on a wide screen, light and dark

VIEWS = {
    "empty": ("#/search", "document.querySelector('.empty')"),
    "search": (search_address(QUESTION, k="3"), "document.querySelector('.results mark')"),
    "split": (search_address(QUESTION, k="3", split="1"), "document.querySelectorAll('.split .results').length === 2"),
    "nasty": ("#/search?in=nasty&q=backups&mode=hybrid", "document.querySelectorAll('.results > li').length === 3"),
    "proof": ("#/proof?id=robotics-calibration-07", "document.querySelector('.tree')"),
    "judge": (search_address(QUESTION, k="3").replace("search", "judge"), "document.querySelector('.suite')"),
    "collection": ("#/collection?in=nasty", "document.querySelector('.map') && document.querySelector('.strips')"),
    "latency": (
        search_address(QUESTION, k="3"),
        "document.querySelector('.histogram')"
        " || (document.querySelector('.results') && (location.hash = '#/latency', 0))",
    ),
    "reports": ("#/reports", "document.querySelector('.shelf')"),
    "suite": ("#/reports?file=suite-broken.json", "document.querySelector('.case')"),
    "audit": ("#/reports?file=audit.json", "document.querySelector('.change')"),
    "diff": ("#/reports?file=diff.json", "document.querySelector('.entry')"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_and_is_accessible(console: Console, view: str) -> None:
    address, ready = VIEWS[view]
    console.open(address, ready, width=390)
    for width, scheme in ((390, "light"), (1440, "dark")):
        console.page.look(width=width, scheme=scheme)
        console.wait(f"innerWidth === {width} && !document.querySelector('#view[aria-busy]') && ({ready})")
        assert console.page.run("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} px"
        assert console.page.axe_violations() == []


# hostile texts, wherever a text can be

HOSTILE = (
    "</script><script>window.acted=1</script>",
    "<img src=x onerror=window.acted=1>",
    "<svg onload=window.acted=1><animate onbegin=window.acted=1 attributeName=x dur=1s>",
    "javascript:window.acted=1//",
    "data:text/html,<script>window.acted=1</script>",
    '" onmouseover="window.acted=1" style="background:url(//evil.example/a)',
    "x; background: url(https://evil.example/b); --y: expression(window.acted=1)",
    "@import url(//evil.example/c); } * { display: none }",
    "${window.acted=1} `${window.acted=1}` {{window.acted=1}} <%= 1 %> #{1}",
    "a\u2028window.acted=1\u2029b\u202ec\x00d\x1b[31m",
    "__proto__",
    "constructor",
    "' --api //evil.example; $(touch x) `touch x` %0a\n- name: !!python/object:x",
    "<a href=//evil.example target=x><base href=//evil.example><link rel=stylesheet href=//evil.example/d>",
    "]]>--><!--<![CDATA[ &lt;script&gt; &#x3c;",
)
# Values that the page compares with its own words, or computes with. Every other string of an answer is hostile, and
# so are names of a payload's fields.
OWN_WORDS = ["point_id", "chunk_id", "integrity", "status", "type", "kind", "tone", "verdict", "level", "layout", "svg"]
OWN_WORDS += ["receipt", "stored_sha256"]
LACE = """
{
  const hostile = %s, kept = new Set(%s);
  let turn = 0;
  const next = () => hostile[turn++ %% hostile.length];
  const lace = (value, name) => {
    if (kept.has(name) || value === 'handbook') return value;  // the collection goes on being asked for
    if (typeof value === 'string') return name === 'url' ? next() : value + ' ' + next();
    if (Array.isArray(value)) return value.map((one) => lace(one, name));
    if (!value || typeof value !== 'object') return value;
    const entries = Object.entries(value).map(([key, of]) => [key, lace(of, key)]);
    if (name === 'payload') hostile.forEach((text) => entries.push([text, { [text]: text }]));
    return Object.fromEntries(entries);
  };
  const real = fetch;
  window.fetch = async (...given) => {
    const answer = await real(...given);
    const data = await answer.json();
    // The collections keep their names, which the requests need; hostile ones are added.
    const laced = data.collections ? { ...data, collections: [...data.collections, ...hostile] } : lace(data);
    return new Response(JSON.stringify(laced), { status: answer.status, headers: answer.headers });
  };
}
"""
# What the page must not have: a handler, a link that runs or loads, an element that a text made.
PLANTED = r"""
[...document.querySelectorAll('*')].flatMap((one) => [
  ...(/^(script|img|iframe|object|embed|base|animate|foreignobject)$/i.test(one.tagName) && one.closest('body')
    ? [one.outerHTML] : []),
  ...[...one.attributes].filter(({ name, value }) => /^on/i.test(name)
    || (name === 'style' && /url|expression|import/i.test(value))
    || (/^(href|src|xlink:href|action|formaction)$/i.test(name)
      && !/^(#|https?:|data:image|console\/|docs$)/.test(value))
  ).map(({ name, value }) => name + '=' + value)])
"""


@pytest.fixture
def laced(console: Console) -> Iterator[Console]:
    """The page, to which every answer is full of hostile texts."""
    script = LACE % (json.dumps(HOSTILE), json.dumps(OWN_WORDS))
    added = console.page.send("Page.addScriptToEvaluateOnNewDocument", source=script)
    yield console
    console.page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    # A browser says that a request failed; some of these must.
    console.page.console[:] = [line for line in console.page.console if "Failed to load resource" not in line]


def test_commands_with_hostile_texts_have_them_as_one_word(console: Console) -> None:
    console.open("#/latency")
    texts = [text for text in (*HOSTILE, "-k", "--api=//evil.example", "!!") if "\0" not in text]
    asked = [{"query_text": text, "collection": text, "top_k": 1, "filters": {text: text}} for text in texts]
    commands = console.page.run(
        "import('/console/api.js').then(api => "
        f"JSON.parse({json.dumps(json.dumps(asked))}).map(one => Object.values(api.snippets(one))))"
    )
    for text, request, (curl, command, snippet) in zip(texts, asked, commands, strict=True):
        assert json.loads(shlex.split(curl)[-1]) == request
        words = shlex.split(command)
        assert words[-1] == text
        assert words[-2].startswith("http") or words[-2] == "--"
        assert f"{text}={json.dumps(text, ensure_ascii=False)}" in words or not text.isprintable()
        assert repr(text) in ast.unparse(ast.parse(snippet))
        assert shlex.split(command.split("--collection ")[1])[0] == text


def test_hostile_texts_stay_texts_in_every_view(laced: Console) -> None:
    everything = "".join(HOSTILE)
    shown = ""
    for address, ready in (
        (search_address(QUESTION, k="20", f=json.dumps({everything: 1})), "document.querySelector('.problem')"),
        (search_address(QUESTION, k="20"), "document.querySelector('.results mark, .details table')"),
        (search_address(HOSTILE[0], split="1"), "document.querySelectorAll('.split .results').length === 2"),
        (search_address(QUESTION, k="2", why=everything), "document.querySelector('.verdict > :not(.dim)')"),
        (search_address(HOSTILE[5]).replace("search", "judge"), "document.querySelector('.grades')"),
        ("#/proof?id=robotics-calibration-07", "document.querySelector('.banner')"),
        (f"#/proof?id={quote(everything)}", "document.querySelector('.problem')"),
        ("#/collection", "document.querySelector('.map') && document.querySelector('.strips, .problem')"),
        (f"#/collection?in={quote(everything)}", "document.querySelector('.problem')"),
        ("#/reports", "document.querySelector('.shelf')"),
        ("#/reports?file=suite.json/suite-broken.json", "document.querySelector('.case')"),
        ("#/reports?file=audit.json", "document.querySelector('.change')"),
        ("#/reports?file=diff.json&step=" + quote(everything), "document.querySelector('.entry')"),
        (f"#/reports?file={quote(everything)}", "document.querySelector('.problem')"),
        (f"#/latency?route={quote(everything)}", "document.querySelector('.empty')"),
    ):
        laced.open(address, ready)
        planted = laced.page.run(PLANTED)
        assert planted == [], f"{address}: {planted[:3]}"
        assert laced.page.run("[typeof window.acted, document.scripts.length]") == ["undefined", 1], address
        shown += laced.page.run("document.body.textContent")
    laced.open("#/latency")
    line = {"message": "request", "status": 200, "route": everything, "stages_ms": {everything: 1, "total": 1}}
    drop_file(laced, everything, json.dumps({**line, "query_text": everything}))
    laced.wait("document.querySelector('.histogram')")
    assert laced.page.run(PLANTED) == []
    for text in map(quote, HOSTILE):
        laced.page.run(f"location.hash = '#/{text}?q=x&k={text}&t={text}&mode={text}&f={text}&sel={text}&in={text}'")
        laced.wait("document.querySelector('#view:not([aria-busy]) .problem, #view:not([aria-busy]) .results')")
        assert laced.page.run(PLANTED) == [], text
    plain = [text for text in HOSTILE if text.isprintable()]
    assert [text for text in plain if text not in shown] == [], "these were not shown, so nothing was tested"


# the page on a host of its own


class Hosts:
    """The page's files on one origin, and on another the API, which wants a token and allows the page's origin."""

    def __init__(self, api: str) -> None:
        hosts = self

        class Files(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                text = (PAGE / (path[1:] or "index.html")).read_text("utf-8")
                text = text.replace('name="chunkproof-api" content=""', f'name="chunkproof-api" content="{hosts.api}"')
                kind = "text/css" if path.endswith("css") else "text/javascript" if path.endswith("js") else "text/html"
                policy = (
                    f"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src {hosts.api}"
                )
                hosts.answer(self, 200, text.encode(), {"content-type": kind, "content-security-policy": policy})

        class Proxy(BaseHTTPRequestHandler):
            def do_OPTIONS(self) -> None:
                methods = {"access-control-allow-methods": "GET, POST"}
                hosts.allow(self, 204, b"", {**methods, "access-control-allow-headers": "authorization, content-type"})

            def do_GET(self) -> None:
                if self.headers["authorization"] != "Bearer secret":
                    hosts.allow(self, 401, b'{"message": "Unauthorized"}', {})
                    return
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                answer = httpx.request(self.command, f"{api}{self.path}", content=body, timeout=SECONDS)
                hosts.allow(
                    self, answer.status_code, answer.content, {"server-timing": answer.headers["server-timing"]}
                )

            do_POST = do_GET  # noqa: N815

        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Files, Proxy)]
        self.page, self.api = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)
        for server in self._servers:
            Thread(target=server.serve_forever, daemon=True).start()

    def allow(self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        allowed = {"access-control-allow-origin": self.page, "access-control-expose-headers": "server-timing"}
        self.answer(request, status, body, {**allowed, **headers})

    @staticmethod
    def answer(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        request.log_request = lambda *_: None  # type: ignore[method-assign]
        request.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


def test_the_page_on_another_origin_asks_for_a_token_and_searches_the_api(browser: Chromium, server: Serving) -> None:
    hosts = Hosts(server.url)
    hosted = Console(browser, server)
    try:
        hosted.page.send("Page.navigate", url=f"{hosts.page}/{search_address(QUESTION, k='3')}&in=handbook")
        hosted.wait("document.getElementById('token')")
        hosted.page.run("document.getElementById('token').focus()")
        hosted.type("secret")
        hosted.press("Enter")
        hosted.wait(
            "document.querySelectorAll('.results > li').length === 3 && document.querySelector('.results mark')"
        )
        assert "in all" in hosted.text(".stages")  # the header with the times is exposed
        assert "search" in hosted.text(".stages")
        assert {url.split("/")[2] for url in hosted.page.requests if url.startswith("http")} == {
            hosts.page[7:],
            hosts.api[7:],
        }
        assert [line for line in hosted.page.console if "401" not in line and "403" not in line] == []
    finally:
        hosts.close()
