"""docs/tutorial.md, word for word: every command, and every line that the page says it prints."""

import re
from pathlib import Path

import pytest

from support.qdrant_server import QdrantServer
from support.tutorial import PAGE, run_tutorial


def normalize(line: str) -> str:
    """Replace what is another at every run: the server's address, and times."""
    line = re.sub(r"127\.0\.0\.1:\d+|localhost:6333", "SERVER", line.strip())
    line = re.sub(r"; stage-\S+ not met: .*\(ignored\)$", "", line)  # of a busy machine
    return re.sub(r"\d+\.\d s\b", "0.0 s", line)


@pytest.mark.server
def test_the_tutorial_does_what_it_says(served_qdrant: QdrantServer, tmp_path: Path) -> None:
    steps = run_tutorial(tmp_path, served_qdrant.url)
    assert len(steps) == PAGE.read_text("utf-8").count("```sh\n") == 7
    for script, shown, printed in steps:
        assert shown, script
        lines = list(map(normalize, printed.splitlines()))
        for line in map(normalize, shown.splitlines()):
            assert line == "…" or line in lines, f"{line}\n\n{printed}"
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / picture).stat().st_size < 150_000
