"""Take the pictures of docs/tutorial.md (`make tutorial-pictures`): its commands are run, and their reports opened."""

import base64
import tempfile
from pathlib import Path

from support.chromium import chromium
from support.qdrant_server import qdrant_server
from support.tutorial import run_tutorial

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = {"tutorial-gate.png": "failed.html", "tutorial-why.png": "why.html"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, qdrant_server() as server, chromium() as browser:
        run_tutorial(Path(folder), server.url)
        for name, report in PICTURES.items():
            page = browser.open((Path(folder) / "work" / report).as_uri())
            page.look(width=1000, height=560)
            shot = page.send("Page.captureScreenshot", format="png", captureBeyondViewport=False)
            (DOCS / name).write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
