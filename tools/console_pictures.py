"""Take the pictures of the console for README and docs (`make console-pictures`), or of every view (`--all FOLDER`).

`--figures` measures it instead (`make console-figures`): from `demo --open` to the first judged question, from the
API's answer to the first result on the screen, judgments by keyboard, and the weight of the page.
"""

import argparse
import base64
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx

from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.corpus import sample_chunks
from chunkproof_cli.main import cli

from support.chromium import Chromium, Page, chromium
from support.serving import serving

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MAX_BYTES = 150_000
SECONDS = 60.0
QUESTION = "Why does an arm that holds up a load always sag a little?"
CHUNK = "robotics-control-06"


@dataclass(frozen=True)
class Shot:
    """A view to take: its address, when it is ready, and what to do there before."""

    name: str
    address: str
    ready: str
    script: str = ""
    size: tuple[int, int] = (1100, 600)
    scheme: str = "light"


def proof_script(original: str) -> str:
    return (
        f"document.getElementById('original').value = {json.dumps(original)};"
        "document.querySelector('.prove').requestSubmit()"
    )


def list_shots() -> list[Shot]:
    """Return the views; the first two are in the docs."""
    stored = next(chunk["text"] for chunk in sample_chunks() if chunk["chunk_id"] == CHUNK)
    original = stored.replace("torque in advance", "force in\u00a0advance").replace("PID", "P\u200bID")
    asked = f"q={quote(QUESTION)}"
    explained = (
        "document.querySelector('.results mark') && document.querySelector('.details').innerText.includes('random')"
    )
    search = Shot("console-search", f"#/search?{asked}", explained)
    proof = Shot(
        "console-proof",
        f"#/proof?id={CHUNK}",
        "document.querySelector('.diff')",
        proof_script(original),
        size=(1100, 640),
        scheme="dark",
    )
    joined = "document.querySelectorAll('.joins path').length"
    return [
        search,
        proof,
        Shot("compare", f"#/search?{asked}&split=1", joined),
        Shot("judge", f"#/judge?{asked}", "document.querySelector('.results mark')"),
        Shot(
            "collection",
            "#/collection",
            "document.querySelector('.findings')",
            "[...document.querySelectorAll('button')].find(one => one.innerText.startsWith('Check')).click()",
            size=(1240, 1400),
        ),
        Shot("latency", f"#/search?{asked}", "document.querySelector('.histogram')", "location.hash = '#/latency'"),
        Shot("empty", "#/search", "document.querySelector('.empty')"),
        Shot("why", f"#/search?{asked}&k=3&why=robotics-safety-04", "document.querySelector('.verdict table')"),
        Shot("phone", f"#/search?{asked}&sel={CHUNK}", explained, size=(390, 1600)),
        Shot("phone-judge", f"#/judge?{asked}", "document.querySelector('.results mark')", size=(390, 1000)),
        Shot(
            "phone-proof",
            f"#/proof?id={CHUNK}",
            "document.querySelector('.diff')",
            proof_script(original),
            size=(390, 1600),
        ),
    ]


def wait(page: Page, condition: str) -> None:
    give_up = time.monotonic() + SECONDS
    while not page.run(f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"):
        if time.monotonic() > give_up:
            raise SystemExit(f"not within {SECONDS:.0f} s: {condition}")
        time.sleep(0.1)


def take(browser: Chromium, url: str, shot: Shot) -> bytes:
    """Open the view, wait until it is complete, and return the picture of the window."""
    page = browser.open("about:blank")
    page.look(width=shot.size[0], height=shot.size[1], scheme=shot.scheme)
    page.send("Emulation.setScrollbarsHidden", hidden=True)
    page.send("Page.navigate", url=f"{url}/{shot.address}")
    wait(page, "document.querySelector('#view:not([aria-busy]) > :not(noscript)')")
    if shot.script:
        page.run(shot.script)
    wait(page, f"!document.querySelector('#view[aria-busy]') && ({shot.ready})")
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    page.run("new Promise(done => setTimeout(done, 500))")
    return base64.b64decode(page.send("Page.captureScreenshot", format="png")["data"])


# Times the end of each answer of POST /search, and the first frame that has a result.
STOPWATCH = """
{ const real = fetch; window.fetch = async (...given) => { const answer = await real(...given);
  if (!given[0].endsWith('/search')) return answer;
  const text = await answer.text(); window.answered ??= performance.now();
  return new Response(text, {status: answer.status, headers: answer.headers}) };
  new MutationObserver(() => { if (window.answered && !window.shown && document.querySelector('.results > li'))
    requestAnimationFrame(() => { window.shown ??= performance.now() }) })
    .observe(document.getElementById('view'), {childList: true, subtree: true}) }
"""
JUDGMENTS = 100


def ask(page: Page, question: str) -> None:
    page.press("/", "/")
    wait(page, "document.activeElement.id === 'query'")
    page.send("Input.insertText", text=question)
    page.press("Enter", "\r")
    wait(page, "document.querySelector('.results .chosen') && document.querySelector('.grades')")


def print_figures() -> None:
    """Run `chunkproof demo --open` with a browser that is driven by its keys, and print what it took."""
    page_folder = ROOT / "cli" / "chunkproof_cli" / "local" / "page"
    files = [file for file in page_folder.rglob("*") if file.is_file()]
    packed = sum(len(gzip.compress(file.read_bytes())) for file in files)
    print(f"page weight: {packed / 1000:.0f} kB gzipped in {len(files)} files (at most 200)")
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        opener, address = folder / "browser", folder / "address"
        opener.write_text(f'#!/bin/sh\necho "$1" > {address}.part && mv {address}.part {address}\n')
        opener.chmod(0o755)
        command = [
            sys.executable,
            "-m",
            "chunkproof_cli",
            "demo",
            "--open",
            "--port",
            "0",
            "--data",
            str(folder / "data"),
        ]
        environment = {**os.environ, "BROWSER": f"{opener} %s"}
        started = time.monotonic()
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as server:
            try:
                while not address.exists():
                    if server.poll() is not None or time.monotonic() - started > 10 * SECONDS:
                        raise SystemExit("chunkproof demo --open did not open the console")
                    time.sleep(0.05)
                page = browser.open(f"{address.read_text().strip()}/#/judge?k=25")
                wait(page, "document.querySelector('.suite')")
                page.run(STOPWATCH)
                ask(page, QUESTION)
                page.press("3", "3")
                wait(page, "document.querySelector('.grades [aria-pressed=true]')")
                first = time.monotonic() - started
                print(f"from demo --open to the first judged question: {first:.1f} s (at most 60)")
                print(f"from the API's answer to the first result: {page.run('shown - answered'):.0f} ms (at most 100)")
                began, judged = time.monotonic(), 1
                for question in (
                    "What drains a battery?",
                    "How is a map made?",
                    "What is a snapshot?",
                    "PID",
                    "backup",
                ):
                    while judged % 25:
                        page.press("0", "0")
                        judged += 1
                    if judged == JUDGMENTS:
                        break
                    wait(page, "document.querySelector('.ring text').textContent === '25/25'")
                    ask(page, question)
                    wait(page, "document.querySelector('.ring text').textContent === '0/25'")
                    page.press("3", "3")
                    judged += 1
                took = time.monotonic() - began
                print(f"{judged} judgments by keys alone: {took:.1f} s of waiting (at most 600 with thinking)")
            finally:
                server.kill()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every view, into this folder")
    parser.add_argument("--figures", action="store_true", help="measure instead")
    chosen = parser.parse_args(arguments)
    if chosen.figures:
        print_figures()
        return
    shots = list_shots() if chosen.all else list_shots()[:2]
    target = chosen.all or DOCS
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chunks(folder / "chunks.jsonl", sample_chunks())
        load = ["load", str(folder / "chunks.jsonl"), "--collection", "handbook", "--data", str(folder / "loaded")]
        cli.main(load, standalone_mode=False)
        with serving(folder / "loaded", folder, "--suite", folder / "judged.yaml") as server, chromium() as browser:
            # The first search loads the model; the pictures show the usual times.
            httpx.post(f"{server.url}/search", json={"query_text": QUESTION}, timeout=SECONDS)
            for shot in shots:
                picture = take(browser, server.url, shot)
                if not chosen.all and len(picture) > MAX_BYTES:
                    raise SystemExit(f"{shot.name}.png has {len(picture):,} bytes; {MAX_BYTES:,} are the most")
                (target / f"{shot.name}.png").write_bytes(picture)
                print(f"{shot.name}.png: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
