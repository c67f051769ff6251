"""The HTML kit of every report: elements, tables, bar charts and the page around them.

A page is one file that needs no network. Every text is escaped, and no script runs but the page's own, which its
Content Security Policy names by hash.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import NamedTuple

from chunkproof_cli.output import escape_controls

_VOID = {"meta", "input", "br"}
_FIGURE = re.compile(r"–|[-+]?\d[\d,.]*( ?(%|ms))?")
# No longer than an interval, "-0.571 to -0.143".
_SHORT = 20


class Html(str):
    """Markup made by this kit; any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(tag: str, /, *children: object, **attributes: object) -> Html:
    """Make one element; a child that is None is left out.

    An attribute that is None or False is left out too; `class_` and `data_x` are `class` and `data-x`.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    content = "".join(_content(child) for child in children if child is not None)
    return Html(f"<{tag}{given}>" if tag in _VOID else f"<{tag}{given}>{content}</{tag}>")


def _content(child: object) -> str:
    return str(child) if isinstance(child, Html) else escape(escape_controls(str(child).replace("\r\n", "\n")))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_content(value)}"'


def section(title: str, *content: Html | None) -> Html:
    """Put a heading over its content."""
    return element("section", element("h2", title), *content)


def verdict(text: str, state: str) -> Html:
    """Show a verdict in the colour of its state: `passed`, `failed`, `error`."""
    return element("p", text, class_=f"verdict {state}")


def tiles(figures: Iterable[tuple[str, str]]) -> Html:
    """Show a few figures large, each over its name."""
    shown = (element("li", element("strong", figure), name) for name, figure in figures)
    return element("ul", *shown, class_="tiles")


class Cell(NamedTuple):
    """A cell of a table with classes of its own."""

    text: str
    classes: str


def table(
    head: Iterable[str],
    rows: Iterable[Sequence[object]],
    *,
    caption: str | None = None,
    classes: str | None = None,
) -> Html:
    """Make a table; the first cell of a row is its heading, and columns of figures are aligned to the right."""
    names, lines = tuple(head), tuple(rows)
    columns = ["number" if all(map(_is_figure, values)) else None for values in zip(*lines, strict=True)]
    columns = columns or [None] * len(names)
    heads = (element("th", name, scope="col", class_=column) for name, column in zip(names, columns, strict=True))
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(line, columns) for line in lines)),
        class_=classes,
    )


def _row(values: Sequence[object], columns: Sequence[str | None]) -> Html:
    cells = map(_cell, values[1:], columns[1:])
    return element("tr", element("th", values[0], scope="row", class_=columns[0]), *cells)


def _cell(value: object, column: str | None) -> Html:
    """Keep a figure, or a range of them, on one line."""
    if isinstance(value, Cell):
        return element("td", value.text, class_=value.classes)
    return element("td", value, class_=column or ("short" if len(str(value)) <= _SHORT else None))


def _is_figure(value: object) -> bool:
    return _FIGURE.fullmatch(str(value)) is not None


def scrolling(label: str, content: Html) -> Html:
    """Let a wide table scroll sideways, also by keyboard."""
    return element("div", content, class_="scroll", tabindex="0", role="group", aria_label=label)


def bar(share: float, state: str, mark: float | None = None) -> Html:
    """Draw a bar over this share of a cell; `mark` is where a line crosses it."""
    filled = element("div", class_=f"bar {state}", style=f"width: {share:.2%}")
    line = None if mark is None else element("div", class_="mark", style=f"left: {mark:.2%}")
    return element("div", filled, line, class_="track")


def render_page(
    heading: str,
    header: Iterable[Html],
    sections: Iterable[Html],
    *,
    footer: str,
    title: str | None = None,
    script: str | None = None,
) -> str:
    """Render a whole file: heading and header, sections, footer and at most one script."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
    if script:
        policy += f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title or heading),
        element("style", Html(files(__package__).joinpath("page.css").read_text("utf-8"))),
    )
    body = element(
        "body",
        element("header", element("h1", heading), *header),
        element("main", *sections),
        element("footer", footer),
        element("script", Html(script)) if script else None,
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
