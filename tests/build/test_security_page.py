"""Every protection that docs/guides/security.md claims names a test, and the test exists."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "guides" / "security.md").read_text("utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def written_in(file: str) -> frozenset[str]:
    path = TESTS / file
    return frozenset(re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.M) if path.is_file() else ())


def missing(page: str) -> list[str]:
    """List the tests that a page names but that do not exist."""
    return [f"{file}::{name}" for file, name in NAMED.findall(page) if name not in written_in(file)]


def claims(page: str) -> list[str]:
    """The rows of its tables that say by which test they are shown."""
    tables = re.findall(r"^\| .* \| shown by \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.M)
    return [row for table in tables for row in table.splitlines()]


def test_every_test_that_the_page_names_exists() -> None:
    assert missing(PAGE) == []


def test_a_missing_test_or_file_is_found() -> None:
    page = "`build/test_security_page.py::test_gone` `build/gone.py::test_gone` `build/test_audits.py::report`"
    assert missing(page) == [
        "build/test_security_page.py::test_gone",
        "build/gone.py::test_gone",
        "build/test_audits.py::report",
    ]


def test_every_claim_names_a_test() -> None:
    assert len(claims(PAGE)) > 40
    assert [row for row in claims(PAGE) if not NAMED.search(row)] == []


def test_a_claim_without_a_test_is_found() -> None:
    page = "| attempt | what stops it | shown by |\n|---|---|---|\n| a | b | later |\n"
    assert [row for row in claims(page) if not NAMED.search(row)] == ["| a | b | later |"]
