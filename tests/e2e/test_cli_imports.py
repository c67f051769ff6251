"""What commands import, seen in a process of their own."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from chunkproof.stores.edge_folder import copy_folder
from chunkproof_cli.main import LazyGroup, cli

HEAVY = {"boto3", "botocore", "cohere", "httpx", "numpy", "pydantic", "qdrant_client", "rich"}
SCRIPT = """
import sys
from chunkproof_cli.main import main
try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def modules_of(*arguments: object, code: int = 0) -> set[str]:
    """Run a command and return the modules that it imported."""
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert run.stdout or code
    return set(run.stderr.split())


def test_a_request_over_http_imports_no_command_line_of_the_client() -> None:
    modules = modules_of("search", "text", "--api", "http://127.0.0.1:9", code=3)
    assert "httpx" in modules
    assert not {"pygments", "rich.syntax"} & modules


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("suite", "--help")], ids=" ".join)
def test_help_and_version_import_no_heavy_package(arguments: tuple[str, ...]) -> None:
    assert not HEAVY & modules_of(*arguments)


def test_search_imports_neither_suites_nor_audits(loaded_handbook: Path, tmp_path: Path) -> None:
    copy_folder(loaded_handbook, tmp_path / "data")
    modules = modules_of("search", "PID loops", "--collection", "handbook", "--data", tmp_path / "data")
    assert "chunkproof.search.single" in modules
    prefixes = ("chunkproof.suite", "chunkproof.audit", "chunkproof_cli.suites", "chunkproof_cli.reports")
    assert not [name for name in modules if name.startswith(prefixes)]


def groups(group: LazyGroup = cli) -> list[LazyGroup]:
    context = click.Context(group)
    inner = [group.get_command(context, name) for name in group.list_commands(context)]
    return [group, *(command for command in inner if isinstance(command, LazyGroup))]


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_each_summary_is_the_first_sentence_of_the_commands_help(group: LazyGroup) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert group.summaries[name] == command.get_short_help_str(limit=1000)


def test_what_a_command_has_imported_is_not_searched_for_garbage() -> None:
    code = """
import atexit, gc, sys
searched = []
atexit.register(lambda: print(len(gc.get_objects()), len(searched), file=sys.stderr))  # runs last
from chunkproof_cli.main import main
gc.callbacks.append(lambda phase, _info: phase == "stop" and searched.append(phase))
main()"""
    run = subprocess.run([sys.executable, "-c", code, "doctor", "--help"], capture_output=True, text=True, check=True)
    left, searches = map(int, run.stderr.split())
    assert left < 100, "all is frozen, and the interpreter takes it apart without looking through it"
    assert searches <= 3
