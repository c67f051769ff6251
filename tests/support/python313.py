"""The Python that Lambda runs, where this machine has it."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path


@cache
def python313() -> str | None:
    """A python3.13 that starts; None when there is none."""
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    candidates = [
        shutil.which("python3.13"),
        *map(str, sorted(Path(root).glob("versions/3.13.*/bin/python3.13"))),
    ]
    for candidate in filter(None, [os.environ.get("PYTHON313"), *candidates]):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None
