"""The targets that documentation and CI name exist, and `make help` lists them."""

import re
import subprocess
from pathlib import Path

import pytest

from bench.compare import PARTS
from support.template import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z0-9.-]+):", MAKEFILE, re.M))
# The changelog also names targets of the past.
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", ".ci/run")), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```.*?^```", text, re.M | re.S) if page.suffix == ".md" else [text]
    named = {
        *re.findall(r"`make ([a-z][a-z0-9.-]*)", text),
        *re.findall(r"^(?:\$ )?(?:\w+=\w+ )?make ([a-z][a-z0-9.-]*)", "\n".join(blocks), re.M),
    }
    assert named <= TARGETS


def test_help_lists_every_target_in_a_group() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^\S.*", shown, re.M) == ["Start", "Test", "Build and deploy", "Measure", "Maintain"]
    hidden = {"help", "python313", "bench-compare"}
    assert set(re.findall(r"^  ([a-z0-9.-]+) ", shown, re.M)) == TARGETS - hidden


def test_bench_accepts_every_part() -> None:
    (compared,) = re.findall(r"^COMPARED := (.+)$", MAKEFILE, re.M)
    assert compared.split(",") == list(PARTS)
