"""`pytest --chunkproof suite.yaml` as a person runs it, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from support.stub_api import StubApi, stub_api

CASES = [
    {"name": "found", "query_text": "one", "expected_doc_ids": ["a"], "tags": ["smoke"]},
    {"name": "missing", "query_text": "two", "expected_doc_ids": ["b"]},
]
PLUGIN = "chunkproof_cli.pytest_plugin"


@pytest.fixture(scope="module")
def api() -> Iterator[StubApi]:
    with stub_api() as running:
        yield running


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({"name": "try", "collection": "docs", "cases": CASES}), "utf-8")
    return file


def run_pytest(*arguments: object) -> tuple[int, str]:
    """Without the other plugins of this environment, which take seconds to load."""
    folder = Path(str(arguments[1])).parent
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGIN}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        folder,
        *map(str, arguments),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    return done.returncode, done.stdout + done.stderr


def test_pytest_finds_the_plugin_by_itself() -> None:
    found = entry_points(group="pytest11", name="chunkproof")
    assert [point.value for point in found] == [PLUGIN]


def test_each_case_is_a_test(api: StubApi, suite: Path) -> None:
    code, out = run_pytest("--chunkproof", suite, "--chunkproof-api", api.url, "-v")
    assert code == 1
    assert "collected 2 items" in out
    assert "suite.json::found PASSED" in out
    assert "suite.json::missing FAILED" in out
    assert "MissingDocumentError: Not in the top 10: b" in out
    assert "1. 0.900 a" in out
    assert "Traceback" not in out


def test_cases_are_selected_by_tag_and_run_with_other_tests(api: StubApi, suite: Path) -> None:
    (suite.parent / "test_own.py").write_text("def test_smoke(): pass\n")
    code, out = run_pytest("--chunkproof", suite, "--chunkproof-api", api.url, "-k", "smoke")
    assert code == 0
    assert "2 passed, 1 deselected" in out


def test_a_service_that_is_down_is_an_error_and_not_a_failure(suite: Path) -> None:
    code, out = run_pytest("--chunkproof", suite, "--chunkproof-api", "http://127.0.0.1:9")
    assert code == 1
    assert "2 errors" in out
    assert "failed" not in out.splitlines()[-1]
    assert "Could not be judged: http://127.0.0.1:9 could not be reached (Connection refused); check --api" in out


def test_a_retriever_is_tested_instead_of_a_store(suite: Path) -> None:
    (suite.parent / "own_rag.py").write_text("def search(query):\n    return {'one': ['a']}[query]\n")
    code, out = run_pytest("--chunkproof", suite, "--chunkproof-retriever", "own_rag:search", "-v")
    assert code == 1
    assert "suite.json::found PASSED" in out
    assert "suite.json::missing ERROR" in out
    assert "Could not be judged: KeyError: 'two' (own_rag.py, line 2)" in out


def test_a_broken_suite_stops_the_run_with_its_lines(suite: Path) -> None:
    suite.write_text('{"name": "x",\n"cases": [{"name": "a",\n"query": "q"}]}')
    code, out = run_pytest("--chunkproof", suite)
    assert code == 2
    assert "suite.json:3: query is not a known field; did you mean query_text?" in out
