"""Output that cannot be written: a full disk, a closed pipe; with and without Python's buffer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chunkproof.stores.edge_folder import copy_folder

from support.commands import FULL, needs_full


@needs_full
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [(["audit", "nothing.jsonl", "--json"], ["nothing.jsonl: no such file"]), (["--help"], [])],
    ids=["an error", "a success"],
)
def test_a_failed_write_causes_no_traceback(
    monkeypatch: pytest.MonkeyPatch, unbuffered: str, arguments: list[str], messages: list[str]
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "chunkproof_cli", *arguments]
    with FULL.open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 3
    assert run.stderr.splitlines() == [*messages, "The system: No space left on device"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_closed_pipe_is_not_a_failed_check(
    monkeypatch: pytest.MonkeyPatch, unbuffered: str, loaded_handbook: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    copy_folder(loaded_handbook, tmp_path / "data")
    reading, writing = os.pipe()
    os.close(reading)
    collection = ["collection", "handbook", "--json", "--data", str(tmp_path / "data")]
    with os.fdopen(writing, "w") as gone:
        for arguments in (collection, ["--help"], ["search", "--help"], ["--version"]):
            command = [sys.executable, "-m", "chunkproof_cli", *arguments]
            run = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
            assert (run.returncode, run.stderr) == (141, "")


@pytest.mark.parametrize(
    "raised", ["KeyboardInterrupt", "RuntimeError('Error building \"model\" validator:\\n  KeyboardInterrupt: ')"]
)
def test_an_interrupted_import_is_an_interrupt_and_not_a_missing_model(
    monkeypatch: pytest.MonkeyPatch, loaded_handbook: Path, tmp_path: Path, raised: str
) -> None:
    copy_folder(loaded_handbook, tmp_path / "data")
    (tmp_path / "numpy.py").write_text(f"raise {raised}", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    command = [sys.executable, "-m", "chunkproof_cli", "why", "backup", "--expect", "vectordb-operations-01"]
    command += ["--collection", "handbook", "--data", str(tmp_path / "data")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.strip()) == (130, "Interrupted")


def test_ctrl_c_during_the_start_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    run = subprocess.run(
        [sys.executable, "-m", "chunkproof_cli", "--help"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "", "")
