"""Markdown for comments on pull requests: cells in which no text acts, tables, and a limit on the length."""

import re
from collections.abc import Iterable, Sequence

from chunkproof_cli.output import escape_controls, escape_line
from chunkproof_cli.reports.wording import and_more

MOST_CHARS = 65_000  # GitHub takes 65,536 in a comment
LONGEST_CELL = 300
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&])")


def escape_text(value: object, longest: int = LONGEST_CELL) -> str:
    """Write a text as data: one line in which nothing acts as Markdown, HTML or a mention."""
    line = escape_line(" ".join(str(value).split()))
    line = line if len(line) <= longest else line[: longest - 1] + "…"
    return _ACTIVE.sub(r"\\\1", line).replace("\\@", "@\u200b")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Make a table of escaped cells."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([escape_text(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of_first(most: int, head: Iterable[str], rows: Sequence[Iterable[object]]) -> str:
    """Make a table of the first rows, and say how many are left out."""
    return "\n\n".join(filter(None, (table(head, rows[:most]), and_more(len(rows), most))))


def join_parts(parts: Iterable[str]) -> str:
    """Join paragraphs, cut at the end of a line where a comment would be too long."""
    text = escape_controls("\n\n".join(parts)) + "\n"
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 40].rpartition("\n")[0] + "\n\n…\n"
