"""What people see. Stored text is data: it never acts on the terminal that shows it."""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from chunkproof.models import Model

# C0, DEL and C1: what a terminal obeys. Bidirectional marks: what makes a line read in another order.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Results(Console):
    """A reader that has gone is for the command's end to tell: by itself, rich would exit 1, a failed check."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def out() -> Console:
    """Results; as wide as the terminal, or 100 columns when there is none."""
    return _Results(width=None if sys.stdout.isatty() else 100, highlight=False)


def err() -> Console:
    """Everything that is not a result."""
    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """A line on standard error."""
    err().print(shown(message), soft_wrap=True)


def shown(text: object, style: str = "") -> Text:
    """Any text, harmless: no markup, no control characters."""
    return Text(harmless(str(text)), style=style)


def harmless(text: str) -> str:
    """The text with each acting character as a visible stand-in."""
    return _ACTING.sub(lambda found: f"‹{ord(found[0]):02X}›", text)


def excerpt(text: str, longest: int = 220) -> str:
    """A text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def title(text: str) -> None:
    """A heading over what comes next; a table's own title would be folded to its width."""
    out().print(shown(text, "bold"), soft_wrap=True)


def table(*columns: str) -> Table:
    """An empty table in the one style used everywhere."""
    made = Table(header_style="bold", expand=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def rows(into: Table, lines: Iterable[Sequence[object]]) -> Table:
    """Fill a table with harmless cells; a `Text` keeps its style."""
    for line in lines:
        into.add_row(*(cell if isinstance(cell, Text) else shown(cell) for cell in line))
    return into


def print_json(result: Model | dict[str, Any]) -> None:
    """Indented JSON. Control characters of Latin-1 are escaped as well: JSON itself lets them through."""
    plain = result.model_dump(mode="json") if isinstance(result, Model) else result
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(plain, ensure_ascii=not is_utf8, indent=2)
    click.echo(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def verdict(passed: bool | None) -> Text:
    """Yes, no or not judged, told by word as well as colour."""
    if passed is None:
        return Text("n/a", style="dim")
    return Text("pass", style="green") if passed else Text("FAIL", style="bold red")


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


class _Once(logging.Filter):
    """Lets each message through once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in self._seen
        self._seen.add(message)
        return new


class Counted(logging.Filter):
    """Counts messages below a warning instead of showing them."""

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Only warnings and worse pass."""
        self.count += record.levelno < logging.WARNING
        return record.levelno >= logging.WARNING


@contextmanager
def each_warning_once(logger: str) -> Iterator[None]:
    """For commands that search many times: what is wrong with a collection is wrong every time."""
    log, once = logging.getLogger(logger), _Once()
    log.addFilter(once)
    try:
        yield
    finally:
        log.removeFilter(once)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Any]:
    """A bar on standard error; yields a function to call with how many more are done. A total may be unknown."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
