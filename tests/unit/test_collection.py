"""No test is left out of a run without anyone noticing."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_a_run_goes_into_every_folder_that_has_tests(pytestconfig: pytest.Config) -> None:
    passed_over = pytestconfig.getini("norecursedirs")
    folders = {part for file in TESTS.rglob("test_*.py") for part in file.relative_to(TESTS).parent.parts}
    assert {"build", "e2e", "integration", "unit"} <= folders
    assert [name for name in folders if any(fnmatch(name, pattern) for pattern in passed_over)] == []
