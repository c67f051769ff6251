"""Terminal output. Stored text cannot send control sequences to the terminal that shows it."""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
from chunkproof.models.json import cut_middle

# C0, DEL and C1 control the terminal; bidirectional marks change the order in which a line reads; the others
# end a line without being a newline.
_ACTIVE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS = re.compile(f"[{_ACTIVE}]")
_IN_A_LINE = re.compile(f"[\n\t{_ACTIVE}]")

# Only ASCII: many scripts write whole sentences without a space.
_LONG_WORD = re.compile("[!-~]{65,}")


class _StdoutConsole(Console):
    """A console that raises `BrokenPipeError`; rich's own exits with code 1, which here means a failed check."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout_console() -> Console:
    """Create the console for results: as wide as the terminal, or 100 columns when there is none."""
    return _StdoutConsole(width=None if sys.stdout.isatty() else 100, highlight=False)


def _stderr_console() -> Console:
    return Console(stderr=True, highlight=False)


def print_line(text: object = "", style: str = "") -> None:
    """Print one line of a result on standard output; the terminal wraps it, so that it can be copied whole."""
    stdout_console().print(safe_line(text, style), soft_wrap=True)


def print_note(message: str) -> None:
    """Print a line that is not a result on standard error."""
    _stderr_console().print(safe_line(message), soft_wrap=True)


def print_title(text: str) -> None:
    """Print a heading over a table; rich would fold the table's own title to the width of the table."""
    print_line(text, "bold")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on standard output, with the control characters of every cell escaped."""
    table = Table(header_style="bold", expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(safe_text, row))
    stdout_console().print(table)


def safe_text(value: object, style: str = "") -> Text:
    """Return the value as text without markup and control characters; a `Text` is returned as it is."""
    return value if isinstance(value, Text) else Text(escape_controls(str(value)), style=style)


def safe_line(value: object, style: str = "") -> Text:
    """Return the value as one line of text without markup and control characters; a `Text` as it is."""
    return value if isinstance(value, Text) else Text(escape_line(str(value)), style=style)


def escape_controls(text: str) -> str:
    """Replace each control or bidirectional character by its code, such as ‹1B›; newlines and tabs stay.

    For text of several lines on a terminal, in text and HTML.
    """
    return _CONTROLS.sub(_code, text)


def escape_line(text: str) -> str:
    """Replace newlines and tabs too: stored text in a line cannot add another line below it."""
    return _IN_A_LINE.sub(_code, text)


def escape_json(text: str) -> str:
    """Replace what a terminal would act on in JSON by its escape, which means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _code(found: re.Match[str]) -> str:
    return f"‹{ord(found[0]):02X}›"


def shorten(text: str, longest: int = 220) -> str:
    """Return the text as one line of at most `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def cut_words(text: str) -> str:
    """Cut the middle out of each over-long id or path in a text, for a cell of a table."""
    return _LONG_WORD.sub(lambda found: cut_middle(found[0]), text)


def print_json(result: Model | dict[str, Any]) -> None:
    """Print indented JSON, in which nothing acts on a terminal."""
    document = result.model_dump(mode="json") if isinstance(result, Model) else result
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(document, ensure_ascii=not is_utf8, indent=2)
    click.echo(escape_json(text))


def verdict_text(passed: bool | None) -> Text:
    """Return pass, FAIL or n/a, coloured."""
    if passed is None:
        return Text("n/a", style="dim")
    return Text("pass", style="green") if passed else Text("FAIL", style="bold red")


class _RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


class _OnceFilter(logging.Filter):
    """Drops a message about a search that was logged before."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("chunkproof.retrieval."):
            return True
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


class CountingFilter(logging.Filter):
    """Drops messages below WARNING and counts them."""

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message is a warning or worse."""
        self.count += record.levelno < logging.WARNING
        return record.levelno >= logging.WARNING


@contextmanager
def show_warnings_once() -> Iterator[None]:
    """Show each distinct warning about a search once, for commands that search a collection many times."""
    # A filter of a logger does not apply to the loggers below it.
    handlers = [*logging.getLogger().handlers, *logging.getLogger("chunkproof").handlers]
    with ExitStack() as stack:
        for handler in handlers:
            once = _OnceFilter()
            handler.addFilter(once)
            stack.callback(handler.removeFilter, once)
        yield


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Any]:
    """Show a bar on standard error; yield a function that advances it. `total` is None when unknown."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_stderr_console(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
