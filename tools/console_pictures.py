"""Take the pictures of the console for README and docs (`make console-pictures`), or of every view (`--all FOLDER`)."""

import argparse
import base64
import json
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
    """Return the views; the first two are those of the docs."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every view, into this folder")
    chosen = parser.parse_args(arguments)
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
