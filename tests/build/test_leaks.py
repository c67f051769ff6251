"""The check that no test prints a secret can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.leaks import MARK

TESTS = Path(__file__).resolve().parents[1]
PRINTS = {
    "print": "def test_it():\n    print({text!r})\n",
    "log": "import logging\ndef test_it():\n    logging.getLogger('chunkproof').warning({text!r})\n",
    "read back": "def test_it(capsys):\n    print({text!r})\n    capsys.readouterr()\n",
}


@pytest.mark.parametrize("way", PRINTS)
@pytest.mark.parametrize(("text", "code"), [(f"key-{MARK}-1", 1), ("key-secret-1", 0)])
def test_a_test_that_prints_a_secret_fails_the_run(tmp_path: Path, way: str, text: str, code: int) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(PRINTS[way].format(text=text))
    command = [sys.executable, "-m", "pytest", "-p", "support.leaks", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == code, run.stdout
