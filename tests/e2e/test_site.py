"""The documentation's site, as `make site` builds it, in a real browser."""

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from support.chromium import Chromium, Page

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".venv-site" / "bin" / "mkdocs"

pytestmark = pytest.mark.skipif(
    not MKDOCS.is_file() and "CHUNKPROOF_REQUIRE_BROWSER" not in os.environ,
    reason="no .venv-site: `make site` creates it",
)


class Files(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built from docs/ as it is now."""
    folder = tmp_path_factory.mktemp("site")
    build = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def wait_for(page: Page, expression: str) -> None:
    """Wait until an expression holds in the page, also across a navigation."""
    last = time.monotonic() + 10
    while not _holds(page, expression):
        assert time.monotonic() < last, f"waited for {expression}"
        time.sleep(0.05)


def _holds(page: Page, expression: str) -> bool:
    """Whether it holds; while a page is being replaced by the next one, nothing can be evaluated."""
    try:
        return bool(page.run(f"Boolean({expression})"))
    except AssertionError as error:
        if "navigated or closed" not in str(error):
            raise
        return False


def test_a_word_is_found_and_its_result_leads_to_the_page(browser: Chromium, site: str) -> None:
    page = browser.open(site)
    page.look()
    page.run("document.querySelector('[data-md-component=search-query]').focus()")
    for letter in "mojibake":
        page.press(letter, letter)
    link = "document.querySelector('.md-search-result__link')"
    wait_for(page, link)
    page.run(f"{link}.click()")
    article = "document.querySelector('article')?.textContent ?? ''"
    wait_for(page, f"location.pathname.length > 1 && ({article}).includes('mojibake')")
    assert page.console == []
    assert [address for address in page.requests if not address.startswith((site, "data:", "blob:"))] == []
