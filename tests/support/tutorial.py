"""The commands of docs/tutorial.md, run in one shell as they stand there, each with what the page says it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.template import ROOT

PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"```sh\n(?P<script>.*?)```\n(?:\n```\n(?P<shown>.*?)```\n)?", re.S)
CUT = "----8<----"


def run_tutorial(folder: Path, server: str) -> list[tuple[str, str, str]]:
    """Run every block in this folder; return each with what the page shows and what it really printed."""
    blocks = [(found["script"], found["shown"] or "") for found in BLOCK.finditer(PAGE.read_text("utf-8"))]
    programs = folder / "programs"
    programs.mkdir(parents=True)
    (programs / "chunkproof").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chunkproof_cli "$@"\n')
    (programs / "chunkproof").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CHUNKPROOF_", "COHERE"))}
    environment = inherited | {"QDRANT_URL": server, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"}
    (folder / "work").mkdir()
    run = subprocess.run(
        ["sh", "-e", "-c", f"\necho '{CUT}'\n".join(script for script, _ in blocks)],
        cwd=folder / "work",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    printed = run.stdout.split(f"{CUT}\n")
    return [(script, shown, out) for (script, shown), out in zip(blocks, printed, strict=True)]
