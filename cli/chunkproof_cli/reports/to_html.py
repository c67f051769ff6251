"""Reports as one HTML file that needs no network.

Every text is escaped, and no script runs but the page's own, which its Content Security Policy names by hash.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from chunkproof_cli.output import escape_controls
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import Medium, Table, Tone, tone_of, visible

# The stylesheet of the console too, which is hosted as a folder.
_LOOK = files("chunkproof_cli.local") / "page" / "console" / "look.css"
# Charts are drawn as SVG when a page is made: the page needs no script for them.
WIDTH, HEIGHT = 300, 170
_TEXT = {"labelColor": "var(--ink)", "titleColor": "var(--ink)", "labelFontSize": 12, "titleFontSize": 12}
_LINES = {"gridColor": "var(--line)", "domainColor": "var(--dim)", "tickColor": "var(--dim)"}
_CONFIG = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {**_TEXT, **_LINES, "titleFontWeight": "normal"},
    "legend": {**_TEXT, "orient": "top", "title": None, "symbolStrokeColor": "var(--ink)"},
}
_VOID = {"meta", "input", "br"}
# No longer than an interval, "-0.571 to -0.143".
_SHORT = 20


class Html(str):
    """Markup made here; any other text is escaped when it is put into an element."""

    __slots__ = ()


def element(tag: str, /, *children: object, **attributes: object) -> Html:
    """Make one element; a child that is None is left out.

    An attribute that is None, False or empty is left out too; `class_` and `data_x` are `class` and `data-x`.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    content = "".join(_content(child) for child in children if child is not None)
    return Html(f"<{tag}{given}>" if tag in _VOID else f"<{tag}{given}>{content}</{tag}>")


def _content(child: object) -> str:
    return str(child) if isinstance(child, Html) else escape(escape_controls(str(child).replace("\r\n", "\n")))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False or (name == "class" and not value):
        return ""
    return f" {name}" if value is True else f' {name}="{_content(value)}"'


def render_html(body: blocks.ReportBody) -> str:
    """Render a whole file: heading and verdict, sections, footer, and the script of a table of cases."""
    sections = visible(body.sections, Medium.PAGE)
    has_cases = any(isinstance(block, blocks.CaseTable) for section in sections for block in section.blocks)
    script = _read("page.js") if has_cases else None
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
    if script:
        policy += f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", body.page_title or body.title),
        element("style", Html(_LOOK.read_text("utf-8") + _read("page.css"))),
    )
    opening = (*visible(body.verdicts, Medium.PAGE), *visible(body.summary, Medium.PAGE))
    content = element(
        "body",
        element(
            "header",
            element("h1", body.title),
            element("a", "To the cases", href="#cases", class_="skip") if has_cases else None,
            *_render_blocks(opening),
            class_=f"banner {body.verdicts[0].tone}".strip(),
        ),
        element("main", *map(_render_section, sections)),
        element("footer", body.footer),
        element("script", Html(script)) if script else None,
        class_="report",
    )
    return f"<!doctype html>\n{element('html', head, content, lang='en')}\n"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _render_section(section: blocks.Section) -> Html:
    heading = element("h2", section.title) if section.title else None
    return element("section", heading, *_render_blocks(visible(section.blocks, Medium.PAGE), section.title))


def _render_blocks(shown: Iterable[blocks.Block], title: str = "") -> Iterator[Html]:
    for block in shown:
        yield from _render_block(block, title)


def _render_block(block: blocks.Block, title: str) -> Iterator[Html]:
    match block:
        case blocks.VerdictLine(text, tone):
            yield element("p", text, class_=f"verdict {tone}".strip())
        case blocks.Paragraph(text, Tone.COMMAND):
            yield element("pre", element("code", text), tabindex="0", aria_label="Command that shows more")
        case blocks.Paragraph(text, tone):
            yield element("h3", text) if tone is Tone.HEADING else element("p", text, class_=tone)
        case blocks.BulletList(items):
            yield element("ul", *(element("li", item) for item in items))
        case blocks.FactList(facts):
            yield _table(Table(("fact", "value"), facts), "facts")
        case Table():
            yield from _render_table(block, title)
        case blocks.BarChart():
            yield _render_bars(block)
        case _:
            yield from _render_page_block(block)


def _render_page_block(block: blocks.Block) -> Iterator[Html]:
    match block:
        case blocks.Tiles(figures):
            tiles = (element("li", element("strong", figure), name) for name, figure in figures)
            yield element("ul", *tiles, class_="tiles")
        case blocks.Drawings(drawings):
            yield element("div", *map(_render_drawing, drawings), class_="charts")
        case blocks.Entries(entries, are_steps, left_out):
            listed = (element("li", *_render_entry(entry), class_="entry") for entry in entries)
            yield element("ol" if are_steps else "ul", *listed, class_="entries steps" if are_steps else "entries")
            if left_out:
                yield element("p", left_out)
        case blocks.ChangedText(heads, before, now):
            sides = zip(heads, ("del", "ins"), (before, now), strict=True)
            yield element("dl", *(_render_side(*side) for side in sides), class_="change")
        case blocks.MarkedText(summary, pieces):
            marked = (element("mark" if is_marked else "span", piece) for piece, is_marked in pieces)
            yield element("details", element("summary", summary), element("pre", *marked, class_="document"))
        case blocks.CaseTable():
            yield from _render_cases(block)
        case _:
            raise TypeError(f"A page cannot show {type(block).__name__}")


def _render_entry(entry: blocks.CaseRow) -> Iterator[Html]:
    figures = (element("span", figure, class_="dim") for figure, _ in entry.figures)
    badge = element("span", entry.state, class_=f"badge {entry.verdict}")
    yield element("h3", badge, element("span", entry.name), *figures)
    yield from _render_blocks(entry.details)


def _render_side(head: str, tag: str, pieces: Sequence[tuple[str, bool]]) -> Html:
    shown = (element(tag if is_changed else "span", piece) for piece, is_changed in pieces)
    return element("div", element("dt", head), element("dd", *shown))


def _render_table(table: Table, title: str) -> Iterator[Html]:
    """Let a wide table scroll sideways, also by keyboard."""
    if table.layout is blocks.TableLayout.WIDE:
        label = table.caption or title
        yield element("div", _table(table), class_="scroll", tabindex="0", role="group", aria_label=label)
    else:
        yield _table(table, table.layout.value)
    yield from (element("p", more) for more in table.left_out(len(table.rows)))


def _table(table: Table, classes: str = "") -> Html:
    columns = ["number" if is_figure else "" for is_figure in table.figure_columns()]
    heads = (element("th", name, scope="col", class_=column) for name, column in zip(table.head, columns, strict=True))
    return element(
        "table",
        element("caption", table.caption) if table.caption else None,
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(row, columns, table.head) for row in table.rows)),
        class_=classes,
    )


def _row(row: Sequence[str], columns: Sequence[str], heads: Sequence[str]) -> Html:
    marked = Tone.EXPECTED if any(tone_of(text) is Tone.EXPECTED for text in row) else ""
    first, *others = row
    cells = map(_cell, others, columns[1:], heads[1:])
    return element("tr", element("th", first, scope="row", class_=columns[0]), *cells, class_=marked)


def _cell(text: str, column: str, head: str) -> Html:
    """Keep a figure, or a range of them, on one line; where rows are stacked, the heading is before the cell."""
    tone = tone_of(text)
    kind = column or ("short" if len(text) <= _SHORT else "")
    classes = kind if tone is Tone.EXPECTED else f"{kind} {tone}".strip()
    return element("td", text, class_=classes, data_head=None if isinstance(text, Html) else head)


def _render_bars(chart: blocks.BarChart) -> Html:
    """Draw each bar in a cell, and the mark across it; a bar of 0 is left out where there is no mark."""
    bars = [bar for bar in chart.bars if bar.size or chart.mark]
    rows = [(bar.label, _track(bar, chart), *bar.figures) for bar in bars]
    return _table(Table(chart.head, rows, chart.caption), f"chart {chart.layout.value}".strip())


def _track(bar: blocks.Bar, chart: blocks.BarChart) -> Html:
    filled = element("div", class_=f"bar {bar.tone}".strip(), style=f"--share: {(bar.size or 0) / chart.longest:.2%}")
    mark = element("div", class_="limit", style=f"--limit: {chart.mark / chart.longest:.2%}") if chart.mark else None
    return element("div", filled, mark, class_="track")


def _render_drawing(drawing: blocks.Drawing) -> Html:
    """Show a chart with its summary, and its figures as a table to unfold."""
    label = f"{drawing.title}. {drawing.summary}"
    chart = element("p", "Drawing it takes an extra: pip install 'chunkproof[charts]'", class_="hint")
    if find_spec("vl_convert"):
        chart = element("div", Html(draw_svg(drawing.spec)), role="img", aria_label=label)
    return element(
        "figure",
        element("h3", drawing.title),
        chart,
        element("figcaption", drawing.summary),
        element("details", element("summary", "As a table"), *_render_table(drawing.table, drawing.title)),
    )


def draw_svg(spec: Mapping[str, Any]) -> str:
    """Draw a Vega-Lite chart in the colours of the page."""
    import vl_convert  # 0.1 s to load, and only pages need it

    whole = {"width": WIDTH, "height": HEIGHT, "padding": 10, "background": None, "config": _CONFIG, **spec}
    return str(vl_convert.vegalite_to_svg(whole, allowed_base_urls=[]))


def _render_cases(table: blocks.CaseTable) -> Iterator[Html]:
    """Show a search, a choice of verdict, and each case with its details in a row below, which the script folds."""
    kinds = ("", "", "number", "number wide", "number wide")
    heads = (
        element("th", element("button", name, type="button"), scope="col", class_=kind)
        for name, kind in zip(table.head, kinds, strict=True)
    )
    cases = element(
        "table",
        element("caption", "Every case", element("span", "; a heading sorts, a name unfolds", class_="hint")),
        element("thead", element("tr", *heads)),
        *(_render_case(number, case, kinds[2:]) for number, case in enumerate(table.cases)),
        id="cases",
    )
    options = (element("option", "all", value=""), *(element("option", s) for s in ("not passed", *table.states)))
    yield element(
        "div",
        element("div", element("label", "Search", for_="search"), element("input", type="search", id="search")),
        element("div", element("label", "Verdict", for_="state"), element("select", *options, id="state")),
        element("p", id="count", role="status", class_="dim"),
        class_="tools",
        hidden=True,
    )
    yield element("div", cases, class_="scroll")


def _render_case(number: int, case: blocks.CaseRow, kinds: Sequence[str]) -> Html:
    detail = f"case-{number}"
    name: object = case.name
    if case.details:
        name = element("button", case.name, type="button", class_="unfold", aria_controls=detail, aria_expanded="true")
    figures = (
        element("td", shown, class_=kind, data_value=value)
        for (shown, value), kind in zip(case.figures, kinds, strict=True)
    )
    row = element(
        "tr",
        element("th", name, scope="row", data_value=case.name),
        element("td", element("span", case.state, class_=f"badge {case.verdict}"), data_value=case.state),
        *figures,
    )
    return element(
        "tbody",
        row,
        *_details(case, detail),
        data_state=case.state,
        class_="" if case.verdict is Tone.GOOD else "failing",
    )


def _details(case: blocks.CaseRow, name: str) -> Iterator[Html]:
    if case.details:
        content = element("td", *_render_blocks(case.details), colspan=2 + len(case.figures))
        yield element("tr", content, class_="detail", id=name)
