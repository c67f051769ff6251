"""docs/guides/scale.md has the figures that tools/checks/scale.py computes."""

import pytest

from support.template import ROOT
from tools.checks import scale


def test_the_page_has_the_computed_figures() -> None:
    page = (ROOT / "docs/guides/scale.md").read_text("utf-8")
    for line in (*scale.laptop(), *scale.table()):
        assert line in page, "run tools/checks/scale.py and put its tables into docs/guides/scale.md"


def test_the_arithmetic_adds_up() -> None:
    # 1,000,000 chunks, 10,000 reads a second: 0.6 s + 43.5 s of splitting + 100 s of reading + 1.3 s of merging.
    one = scale.Estimate(1_000_000, 10_000)
    assert (one.concurrency, one.shards, one.executions) == (2, 200, 1)
    assert one.seconds == pytest.approx(0.6 + 43.478 + 100 + 1.333, abs=0.01)
