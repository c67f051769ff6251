"""The result of running a command."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Run]


def modules_of_suites(*arguments: object, stdin: str = "") -> set[str]:
    """Run `chunkproof` in a new process, and return the modules of suites that it imported."""
    names = ("chunkproof.suite", "chunkproof_cli.suites", "chunkproof_cli.reports.suite")
    code = f"""import atexit, sys
atexit.register(lambda: print(*(name for name in sys.modules if name.startswith({names})), file=sys.stderr))
from chunkproof_cli.main import main
main()"""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return set(run.stderr.splitlines()[-1].split())


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond this many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def readme_commands() -> list[str]:
    """The commands of the README that run the functions in containers, in their order."""
    blocks = (ROOT / "README.md").read_text("utf-8").split("```")[1::2]
    (block,) = (block for block in blocks if "chunkproof sandbox" in block)
    return [line.split("  #")[0].strip() for line in block.strip().splitlines()]
