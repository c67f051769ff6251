"""The HTML report of an audit in a real browser."""

from pathlib import Path

import pytest

from chunkproof.audit.manifest_file import Entry
from chunkproof.collection.lookup import point_id_for
from chunkproof.stores.store_port import Point
from chunkproof_cli.reports.outputs import AUDIT

from support.audits import VECTOR, fill, run_audit, services_on
from support.chromium import Chromium
from support.commands import modules_of_suites
from support.stores import MemoryStore

LONG = "https://docs.example.com/a/very/long/path/to/one/of/many/documents/with/nearly/the/same/address/"
# For each bar: whether its label is beside or above it, and whether the row fits the page.
CLEAR = """[...document.querySelectorAll(".chart tbody tr")].map(row => {
  const range = document.createRange();
  range.selectNodeContents(row.querySelector("th"));
  const [text, bar] = [range.getBoundingClientRect(), row.querySelector(".bar").getBoundingClientRect()];
  return (text.right <= bar.left || text.bottom <= bar.top) && text.width > 0 && bar.width >= 2
    && Math.max(text.right, bar.right) <= innerWidth;
})"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A report on chunks whose sources differ only at the end."""
    store, ids = MemoryStore(), [f"chunk-{number}" for number in range(12)]
    points = [Point(point_id_for(i), {"chunk_id": i, "text": i, "url": LONG + i}, vector=VECTOR) for i in ids]
    fill(store, "c", points)
    lines = [Entry(i, "another text" if n < 5 else i).to_line() for n, i in enumerate(ids)]
    report = run_audit(lines, tmp_path / "state", services_on(store), "c")
    store.close()
    made = tmp_path / "audit.html"
    AUDIT.write(report, (made, made.with_suffix(".json")))
    return made


@pytest.mark.parametrize("width", [1200, 390])
def test_every_bar_has_a_visible_label(browser: Chromium, file: Path, width: int) -> None:
    page = browser.open(file)
    page.look(width=width)
    assert page.run(CLEAR) == [True] * (2 + 1 + 5)  # match and mismatch, different, five sources
    labels = page.run('[...document.querySelectorAll(".chart th")].map(one => one.textContent)')
    assert labels[-5:] == [f"{LONG}chunk-{number}" for number in range(5)]
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.console == []
    assert page.requests == [file.as_uri()]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_the_page_is_accessible(browser: Chromium, file: Path, scheme: str, width: int) -> None:
    page = browser.open(file)
    page.look(width=width, scheme=scheme)
    assert page.axe_violations() == []


def test_rendering_an_audit_imports_no_module_of_suites(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.html"
    assert modules_of_suites("report", file.with_suffix(".json"), "-o", again) == set()
    assert again.read_bytes() == file.read_bytes()
