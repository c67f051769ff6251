"""The notebook runs as it is, and the guide to the Python API describes what there is."""

import json
import re
from pathlib import Path

import pytest

import chunkproof

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "python.md").read_text("utf-8")


def cells() -> list[str]:
    notebook = json.loads((DOCS / "python.ipynb").read_text("utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for number, cell in enumerate(cells(), start=1):
        exec(compile(cell, f"cell {number}", "exec"), names)  # as Jupyter does
    shown = capsys.readouterr().out

    assert "keys-1 API keys expire after 90 days" in shown
    assert "truncated" in shown
    assert "Success Rate: 100.0%" in shown
    assert "query_text cannot be empty; top_k must be between 1 and 1000" in shown


def test_the_notebook_has_no_output_of_an_earlier_run() -> None:
    notebook = json.loads((DOCS / "python.ipynb").read_text("utf-8"))
    assert not [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]


def test_the_guides_code_is_valid_python() -> None:
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.S):
        compile(block, "python.md", "exec")


def test_every_class_in_the_guide_is_public() -> None:
    named = {name for row in re.findall(r"^\| (`[A-Z].*?) \|", GUIDE, re.M) for name in re.findall(r"`(\w+)`", row)}
    named -= {"ValueError", "ConnectionError", "TimeoutError"}
    assert named
    assert named <= set(chunkproof.__all__)
