"""No dependency writes to the user's home folder or calls a server of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EMBED = """
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model

assert local_model().embed(["a text"], InputType.QUERY, Deadline(60_000))
"""


def environment(home: Path) -> dict[str, str]:
    """The variables of a user who has set nothing."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH")}
    return {**kept, "HOME": str(home)}


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_local_model_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", EMBED], env=environment(tmp_path), capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (0, b"")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("command", [["demo", "--data"], ["doctor", "--data"]], ids=lambda command: command[0])
def test_a_command_without_a_server_opens_no_connection_and_leaves_nothing(command: list[str], tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    home, calls = tmp_path / "home", tmp_path / "calls"
    home.mkdir()
    trace = [strace, "-f", "-qq", "-e", "trace=connect,sendto,sendmmsg", "-o", str(calls)]
    chunkproof = [sys.executable, "-m", "chunkproof_cli", *command, str(tmp_path / "data")]
    run = subprocess.run([*trace, *chunkproof], env=environment(home), capture_output=True, text=True, check=False)
    if "ptrace" in run.stderr:
        pytest.skip("this machine forbids strace")
    assert files_in(home) == []
    assert [line for line in calls.read_text().splitlines() if "AF_INET" in line] == []
