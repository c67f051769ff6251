"""Tables of the pages in docs/, which tests compare with the code."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def read_table(page: str, head: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of the table with this head, such as `| kind | meaning |`."""
    text = (DOCS / page).read_text("utf-8")
    _, rows = text.split(f"\n{head}\n")
    for row in rows.split("\n\n")[0].splitlines()[1:]:
        yield tuple(cell.strip() for cell in row.strip("|").split("|"))


def names_in(cell: str) -> list[str]:
    """Return what is written as code in a cell."""
    return re.findall("`(.+?)`", cell)
