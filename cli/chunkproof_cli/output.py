"""Terminal output. Stored text cannot send control sequences to the terminal that shows it."""

import json
import logging
import os
import re
import sys
from base64 import b32encode, b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from html import unescape
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chunkproof.base.errors import ChunkproofError
from chunkproof.contract import Model
from chunkproof.contract.model import cut_middle

Result = TypeVar("Result", bound=Model | dict[str, Any])
# C0, DEL and C1 control the terminal; bidirectional marks change the order in which a line reads; the others
# end a line without being a newline.
_ACTIVE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS = re.compile(f"[{_ACTIVE}]")
_IN_A_LINE = re.compile(f"[\n\t{_ACTIVE}]")

# A word of so many columns is not cut if a table has room for it.
LONGEST_WORD = 40
# Where such words of the columns do not fit side by side, a row becomes lines.
_SHORT_WORD = re.compile(r"(?<!\S)\S{1,16}(?!\S)")
# Only ASCII: many scripts write whole sentences without a space.
_LONG_WORD = re.compile("[!-~]{65,}")

MASK = "***"
SECRET_LENGTH = 6  # a shorter value would also hide words of a text
PART_LENGTH = 10
# How often a key may be encoded, such as JSON in JSON.
ENCODED = 2
_CUT = "[.*#x•●█?]{3}"  # what stands for the rest of a key
# A key has digits, and is no path.
_RANDOM = re.compile(r"(?![/.~])(?=\D*\d)")
_SECRET_NAME = re.compile(
    "(?i)^(?!(?-i:(?:OLD)?PWD)$).*(?:key|token|secret|pass|passwd|password|pwd|auth|authorization|cookie|login|code|sig|signature|dsn"
    "|credentials?|headers?)$"
)
_SCHEME = re.compile(r"[\w-]+:|bearer|basic|token|digest|apikey", re.I)  # what stands beside a key
_KEY_IN_PATH = re.compile(r"(?<=[/#])(?=[^/#]*\d)(?=[^/#]*[A-Za-z])[\w.~%=+-]{16,}")
_NO_PORT = re.compile(r"^[^/@:]+:(?!\d+$)([\w.~%=+-]+)$")
# What is before the host of a URL, what follows the name of a scheme, and the keys of well-known services.
_SECRET = re.compile(
    r"(?<=://)[^/@\s]+(?=@)|(?<=\w:)[^\s:/@]{6,}(?=@[\w\[])|(?<=\b[Bb]earer )(?=\S*\d)\S{6,}|\bsk-[\w-]{8,}"
)
# How a character may be written: \u0041, \u{41}, \x41, \101, \/, %41, &#65; and &amp;; what may stand between two.
_CODED = re.compile(
    r"((?<=[0-9a-f]{2})(?:[:-]|[,\s]*0x)(?=[0-9a-f]{2})|\s+|\\+[nrt]|[\xad\u200b-\u200d\u2060\ufeff]+)"
    r"|\\+(?:u([0-9a-f]{4})|u\{([0-9a-f]{1,5})\}|x([0-9a-f]{2}))|\\+([0-3][0-7]{2})|\\+([^\\])|%[0-9a-f]{2}|&#?\w{1,9};",
    re.I,
)
_FOLDED = str.maketrans(ascii_uppercase + "-_", ascii_lowercase + "+/")
_secrets: set[str] = set()


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
    stdout_console().print(safe_text(text, style, escape_line), soft_wrap=True)


def print_note(message: str) -> None:
    """Print a line that is not a result on standard error."""
    _stderr_console().print(safe_text(mask_secrets(message), escape=escape_line), soft_wrap=True)


def print_title(text: str) -> None:
    """Print a heading over a table; rich would fold the table's own title to the width of the table."""
    print_line(text, "bold")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on standard output, with the control characters of every cell escaped.

    Where it has to be narrower than its content, lines break between words; only the longest words are cut. Where even
    the short ones would be, each row is printed as lines.
    """
    cells, console = [list(map(safe_text, row)) for row in rows], stdout_console()
    texts = [list(map(str, column)) for column in zip(columns, *cells, strict=True)]
    room, words = console.width - 3 * len(columns) - 1, map(_SHORT_WORD.findall, map("\n".join, texts))
    widths = [max(map(cell_len, column), default=1) for column in words]
    if sum(widths) > room:
        for row in cells:
            named = [Text.assemble(name and f"{name}: ", cell) for name, cell in zip(columns, row, strict=True)]
            print_line(Text("\n").join([*named, Text()]))
        return
    for split, most in ((str.split, LONGEST_WORD), (str.splitlines, room)):  # first whole words, then whole lines
        wanted = [max((cell_len(part) for text in column for part in split(text)), default=1) for column in texts]
        while sum(widths) < room and (narrow := [n for n, width in enumerate(widths) if width < min(most, wanted[n])]):
            widths[min(narrow, key=widths.__getitem__)] += 1
    table = Table(header_style="bold", expand=False)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def escape_controls(text: str, active: re.Pattern[str] = _CONTROLS) -> str:
    """Replace each control or bidirectional character by its code, such as ‹1B›; newlines and tabs stay.

    For text of several lines on a terminal, in text and HTML.
    """
    return active.sub(lambda found: f"‹{ord(found[0]):02X}›", text)


def escape_line(text: str) -> str:
    """Replace newlines and tabs too: stored text in a line cannot add another line below it."""
    return escape_controls(text, _IN_A_LINE)


def safe_text(value: object, style: str = "", escape: Callable[[str], str] = escape_controls) -> Text:
    """Return the value as text without markup and control characters; a `Text` is returned as it is."""
    return value if isinstance(value, Text) else Text(escape(str(value)), style=style)


def escape_json(text: str) -> str:
    """Replace what a terminal would act on in JSON by its escape, which means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def add_secrets(named: Iterable[tuple[str, str]]) -> None:
    """Let `mask_secrets` hide values whose name says that they are secret, and the passwords and keys of URLs."""
    for name, value in named:
        words = [*value.split(), *re.split("[,;\\s]", value)] if _SECRET_NAME.search(name) else []
        for url in re.findall(r"\w://\S+", value):
            address, _, query = url.partition("://")[2].partition("?")
            login = address.rpartition("@")[0]
            # Some services have the key in the path; and a URL may lack its host.
            words += [login, login.partition(":")[2], *_KEY_IN_PATH.findall(address), *_NO_PORT.findall(address)]
            add_secrets(parse_qsl(query))
        for word in (*words, *(word.partition("=")[2] for word in words)):
            _secrets.update(_list_forms(word))


@cache
def _list_forms(word: str) -> frozenset[str]:
    """Return what `_fold` makes of a secret: as it is, and encoded up to twice."""
    if len(word) < SECRET_LENGTH or _SCHEME.fullmatch(word.rpartition("=")[2]):
        return frozenset()
    forms = {word, unquote(word)}
    with suppress(ValueError):  # of Basic authorization
        forms.add(b64decode(word, validate=True).decode("ascii").partition(":")[2])
    for _ in range(ENCODED):
        forms |= {code for form in forms for code in _encode(form)}
    folded = {write(form) for form in forms for write in (_fold, lambda text: text.translate(_FOLDED))}
    return frozenset(form for form in folded if len(form) >= SECRET_LENGTH)


def _encode(text: str) -> Iterator[str]:
    """Yield a text backwards, in hexadecimal, in base32, and in base64 with anything before and behind it."""
    octets = text.encode("utf-8", "replace")
    yield from (text[::-1], octets.hex(), b32encode(octets).decode().rstrip("="))
    for n in range(3):
        yield b64encode(bytes(n) + octets).decode()[n and n + 1 : (n + len(octets)) * 4 // 3]


def _fold(text: str) -> str:
    """Return the text without spaces and escapes, and in one case."""
    return _CODED.sub(_decode, text).translate(_FOLDED)


def _decode(found: re.Match[str]) -> str:
    gap, *hexadecimal, octal, other = found.groups()
    if code := next(filter(None, hexadecimal), None) or octal:
        return chr(int(code, 8 if octal else 16))
    return "" if gap else other or unescape(unquote(found[0], "latin-1"))


def mask_secrets(text: str, *, every: bool = True) -> str:
    """Replace keys that another process echoes: those of this process, of its environment, and what looks like one.

    A key is found in either case, encoded, across lines, and in parts; without `every`, only if it is no word.
    """
    add_secrets(os.environ.items())
    quick, rounds = _fold("".join(text.split())), 1
    while rounds < ENCODED and quick != (again := _fold(quick)):
        quick, rounds = again, rounds + 1
    here = {quick[at : at + SECRET_LENGTH] for at in range(len(quick))}
    present = [k for k in _secrets if (every or _RANDOM.match(k)) and not here.isdisjoint(_list_pieces(k))]
    places = [(char, at, at + 1) for at, char in enumerate(text)] if present else []
    for _ in range(rounds):
        parts = re.finditer(f"{_CODED.pattern}|.", "".join(char for char, _, _ in places), re.I | re.S)
        spans = [(_decode(part), places[part.start()][1], places[part.end() - 1][2]) for part in parts]
        places = [(char, start, end) for written, start, end in spans for char in written.translate(_FOLDED)]
    folded, hidden = "".join(char for char, _, _ in places), bytearray(len(places))
    for key in present:
        head, tail, rest = key[:SECRET_LENGTH], key[-SECRET_LENGTH:], f".{{0,{len(key)}}}?"
        cut = f"{re.escape(head)}{rest}(?=…|{_CUT}|$)|(?:^|(?<=…)|(?<={_CUT})){rest}{re.escape(tail)}"
        found = [part.span() for part in re.finditer(f"{re.escape(key)}|{cut}", folded)]
        for start, end in (*found, *_find_parts(key, folded)):
            hidden[start:end] = b"x" * (end - start)
    for part in reversed([*re.finditer(b"x+", hidden)]):
        text = text[: places[part.start()][1]] + MASK + text[places[part.end() - 1][2] :]
    return _SECRET.sub(MASK, text)


@cache
def _list_pieces(key: str) -> dict[str, int]:
    """Return the pieces of a key of which every long part of it has one, and where they begin."""
    places = (*range(0, len(key) - SECRET_LENGTH, SECRET_LENGTH), len(key) - SECRET_LENGTH)
    return {key[at : at + SECRET_LENGTH]: at for at in places}


def _find_parts(key: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where the text has a long part of a key; a name or a path is no key that has parts."""
    if not _RANDOM.match(key):
        return
    for piece, at in _list_pieces(key).items():
        for found in re.finditer(re.escape(piece), text):
            start, end = found.span()
            while start and (before := at - found.start() + start - 1) >= 0 and text[start - 1] == key[before]:
                start -= 1
            while end < len(text) and (after := at - found.start() + end) < len(key) and text[end] == key[after]:
                end += 1
            start += len(part := text[start:end]) - len(part.lstrip(":=,;"))
            if end - start >= PART_LENGTH:
                yield start, end


@contextmanager
def masked_errors() -> Iterator[None]:
    """Mask the messages of an error that quotes what another process sent."""
    try:
        yield
    except ChunkproofError as error:
        error.messages = tuple(map(mask_secrets, error.messages))
        raise


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


def print_result(result: Result, show: Callable[[Result], object], *, as_json: bool) -> None:
    """Print a result as JSON, or as `show` does."""
    if as_json:
        print_json(result)
    else:
        show(result)


class _OnceFilter(logging.Filter):
    """Holds messages about searches back, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, tuple[logging.LogRecord, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(("chunkproof.search.", "chunkproof.collection.")):
            return True
        message = record.getMessage()
        self.held[message] = record, self.held.get(message, (record, 0))[1] + 1
        return False


@contextmanager
def show_warnings_once() -> Iterator[None]:
    """Show each distinct warning about a search once, with its count at the end, for commands that search often."""
    # A filter of a logger does not apply to the loggers below it.
    handlers = [*logging.getLogger().handlers, *logging.getLogger("chunkproof").handlers]
    with ExitStack() as stack:
        for handler in handlers:
            once = _OnceFilter()
            handler.addFilter(once)
            stack.callback(_show_held, handler, once)
        yield


def _show_held(handler: logging.Handler, once: _OnceFilter) -> None:
    handler.removeFilter(once)
    for message, (record, count) in once.held.items():
        record.msg, record.args = message if count == 1 else f"{message} ({count} times)", ()
        handler.handle(record)


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Any]:
    """Show a bar on standard error; yield a function that advances it. `total` is None when unknown."""
    from rich import progress  # most commands show no bar

    class RateColumn(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        RateColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=_stderr_console(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
