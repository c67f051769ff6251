"""The product stays within the limits of `make house`, and nothing stray lies in the root of the repository."""

import importlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from support.qdrant_server import NoServerError
from tools import house, instructions

ROOT_FILES = {
    ".ci",
    ".devcontainer",
    ".editorconfig",
    ".gitattributes",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "action.yml",
    "bench",
    "cli",
    "docs",
    "env.json",
    "events",
    "functions",
    "mkdocs.yml",
    "pyproject.toml",
    "samconfig.toml",
    "shared",
    "template.yaml",
    "tests",
    "tools",
}
ROWS = house.measure()


@pytest.mark.parametrize("row", ROWS)
def test_no_row_of_the_house_is_past_its_limit(row: str) -> None:
    assert ROWS[row] <= house.LIMITS[row]


@pytest.mark.server
def test_no_request_crosses_more_files_and_functions_than_its_limit() -> None:
    try:
        rows = house.measure_walks()
    except NoServerError as reason:
        pytest.skip(f"no Qdrant server: {reason}")
    assert set(house.LIMITS) == set(ROWS) | set(rows)
    assert {row: figure for row, figure in rows.items() if figure > house.LIMITS[row]} == {}


@pytest.mark.server
def test_no_request_takes_more_instructions_than_its_limit() -> None:
    try:
        thousands = instructions.count_instructions()
    except (NoServerError, instructions.NoValgrindError) as reason:
        if os.environ.get("CHUNKPROOF_REQUIRE_VALGRIND"):
            raise
        pytest.skip(str(reason))
    ratios = {title: thousands[title] / thousands[instructions.FLOOR] for title in instructions.LIMITS}
    assert {title: ratio for title, ratio in ratios.items() if ratio > instructions.LIMITS[title]} == {}


def test_the_root_holds_only_what_belongs_there() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=house.ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of the repository")
    names = {line.split("/")[0] for line in listed.stdout.splitlines() if (house.ROOT / line).exists()}
    assert names == ROOT_FILES


def possessive_bodies(tokens: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield what is repeated possessively, wherever it is in a parsed pattern."""
    for token in tokens:
        if isinstance(token, (tuple, list, _parser.SubPattern)):
            yield from possessive_bodies(token)
            if isinstance(token, tuple) and token[0] is _constants.POSSESSIVE_REPEAT:
                yield list(token[1][2])


def test_every_pattern_means_the_same_on_python_3_11_2() -> None:
    """Until 3.11.5, a possessive group with a lookahead took what its last, failing repetition had read."""
    patterns = [
        value
        for name in house.modules()
        if not name.endswith("__main__")
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, re.Pattern)
    ]
    assert len(patterns) > 50
    for pattern in patterns:
        for body in possessive_bodies(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)):
            assert not re.search(r"\bASSERT", str(body)), pattern
