"""Reports in lines: plain text, Markdown for a comment on a pull request, and the terminal.

Plain text has the layout that docs/contract.md gives the summary of a suite. In Markdown no text acts, and the length
is limited. In the terminal, what is most important comes last, next to the prompt.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from rich.text import Text

from chunkproof_cli.output import (
    cut_words,
    escape_controls,
    escape_line,
    print_line,
    print_table,
    print_title,
    safe_text,
    shorten,
    stdout_console,
)
from chunkproof_cli.reports import blocks
from chunkproof_cli.reports.blocks import (
    BarChart,
    Block,
    Medium,
    ReportBody,
    Table,
    TableLayout,
    Tone,
    tone_of,
    visible,
)

RULE = "=" * 60
LONGEST_CELL, LONGEST_MARKDOWN_CELL, LONGEST_PARAGRAPH = 400, 300, 5_000
WIDEST_COLUMN = 40
MOST_ROWS = 50
MOST_CHARS = 65_000  # GitHub takes 65,536 in a comment
MARKS = {Tone.GOOD: "✅", Tone.BAD: "❌", Tone.UNSURE: "⚠️", Tone.DIM: "➖"}
# Parentheses act only after a bracket, which is escaped.
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#+!|~@&])")
BAR_WIDTH = 40
BAR_PARTS = (" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")
ASCII_BAR_PARTS = (" ", "#")
_STYLES = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.UNSURE: "yellow", Tone.DIM: "dim", Tone.COMMAND: "cyan"}


def render_text(body: ReportBody) -> str:
    """Render a report: its sections have a heading in capitals, and every line is one of its own."""
    opening = (*visible(body.verdicts, Medium.TEXT), *visible(body.summary, Medium.TEXT))
    parts = [escape_controls(body.preface)] if body.preface else []
    for title, content in (
        (body.title, opening),
        *((s.title.upper(), s.blocks) for s in visible(body.sections, Medium.TEXT)),
    ):
        lines = chain.from_iterable(map(_text_lines, visible(content, Medium.TEXT)))
        parts.append("\n".join([escape_line(title), RULE, *map(escape_line, lines)]))
    return "\n\n".join(parts) + "\n"


def _text_lines(block: Block) -> Iterator[str]:
    match block:
        case blocks.VerdictLine(text) | blocks.Paragraph(text):
            yield text
        case blocks.BulletList(items):
            yield from items
        case blocks.FactList(facts):
            yield from (f"{name}: {value}" for name, value in facts)
        case BarChart():
            yield from _text_lines(block.as_table())
        case Table():
            if block.caption:
                yield block.caption
            is_lines = block.layout is TableLayout.LINES
            yield from chain.from_iterable(map(block.row_lines, block.rows)) if is_lines else _align(block)
            yield from block.left_out(len(block.rows))
        case _:
            raise TypeError(f"Text cannot show {type(block).__name__}")


def _align(table: Table) -> Iterator[str]:
    """Pad the columns, aligning figures to the right; a cell wider than `WIDEST_COLUMN` moves the cells behind it."""
    lines = [[shorten(text, LONGEST_CELL) for text in row] for row in (table.head, *table.rows)]
    widths = [min(WIDEST_COLUMN, max(map(len, column))) for column in zip(*lines, strict=True)]
    columns = list(zip(table.figure_columns(), widths, strict=True))
    for line in lines:
        cells = (
            text.rjust(width) if is_figure else text.ljust(width)
            for text, (is_figure, width) in zip(line, columns, strict=True)
        )
        yield "  ".join(cells).rstrip()


def render_markdown(body: ReportBody) -> str:
    """Render a report, cut at the end of a line where a comment would be too long."""
    mark = MARKS.get(body.verdicts[0].tone)
    parts = [f"## {f'{mark} ' if mark else ''}{escape_markdown(body.title)}"]
    opening = (*visible(body.verdicts, Medium.MARKDOWN), *visible(body.summary, Medium.MARKDOWN))
    parts += chain.from_iterable(map(_markdown_parts, opening))
    for section in visible(body.sections, Medium.MARKDOWN):
        parts.append(f"### {escape_markdown(section.title)}")
        parts += chain.from_iterable(map(_markdown_parts, visible(section.blocks, Medium.MARKDOWN)))
    text = escape_controls("\n\n".join(parts)) + "\n"
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 40].rpartition("\n")[0] + "\n\n…\n"


def escape_markdown(text: str, longest: int = LONGEST_MARKDOWN_CELL) -> str:
    """Write a text as data: one line in which nothing acts as Markdown, HTML or a mention."""
    line = escape_line(" ".join(text.split()))
    line = line if len(line) <= longest else line[: longest - 1] + "…"
    return _ACTIVE.sub(r"\\\1", line).replace("\\@", "@\u200b")


def _markdown_parts(block: Block) -> Iterator[str]:
    match block:
        case blocks.VerdictLine(text, _, lead):
            bold, rest = (lead, text.removeprefix(lead)) if lead else (text, "")
            yield f"**{_sentence(bold)}**{_sentence(rest)}"
        case blocks.Paragraph(text):
            yield _sentence(text)
        case blocks.BulletList(items):
            yield "\n".join(f"- {_sentence(item)}" for item in items)
        case blocks.FactList(facts):
            yield _markdown_table(("", ""), facts)
        case BarChart():
            yield from _markdown_parts(block.as_table())
        case Table():
            if block.caption:
                yield _sentence(block.caption)
            yield _markdown_table(block.head, block.rows[:MOST_ROWS])
            yield from block.left_out(MOST_ROWS)
        case _:
            raise TypeError(f"Markdown cannot show {type(block).__name__}")


def _sentence(text: str) -> str:
    # What follows a bold start begins with a space or a comma, which stays.
    return text[: len(text) - len(text.lstrip())] + escape_markdown(text, LONGEST_PARAGRAPH)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown, with marks in place of colours."""
    marked = ([f"{MARKS.get(tone_of(t), '') if t else ''} {escape_markdown(t)}".lstrip() for t in row] for row in rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *marked))


def print_body(body: ReportBody) -> None:
    """Print what was examined, the sections from the least important one, and the verdict."""
    for paragraph in visible(body.summary, Medium.TERMINAL):
        _print_block(paragraph)
    for section in reversed(visible(body.sections, Medium.TERMINAL)):
        print_title(section.title)
        for block in visible(section.blocks, Medium.TERMINAL):
            _print_block(block)
        print_line()
    for verdict in reversed(visible(body.verdicts, Medium.TERMINAL)):
        _print_block(verdict)


def _print_block(block: Block) -> None:
    match block:
        case blocks.VerdictLine(text, tone) | blocks.Paragraph(text, tone):
            print_line(text, _STYLES.get(tone, ""))
        case blocks.BulletList(items):
            for item in items:
                print_line(f"  {item}")
        case blocks.FactList(facts):
            for name, value in facts:
                print_line(f"  {name}: {value}")
        case Table():
            _print_table(block)
        case BarChart(mark=None):
            _print_table(block.as_table())
        case BarChart():
            print_line(block.caption)
            for bar in draw_bars(block, ascii_only=stdout_console().options.ascii_only):
                print_line(bar)
        case _:
            raise TypeError(f"A terminal cannot show {type(block).__name__}")


def _print_table(table: Table) -> None:
    rows = table.rows[:MOST_ROWS]
    if table.caption:
        print_line(table.caption)
    if table.layout is TableLayout.LINES:
        for line in chain.from_iterable(map(table.row_lines, rows)):
            print_line(f"  {line}", _STYLES.get(line.tone, ""))
    else:
        cells = [[safe_text(shorten(cut_words(t)), _STYLES.get(tone_of(t), "")) for t in row] for row in rows]
        print_table(table.head, cells)
    for more in table.left_out(MOST_ROWS):
        print_line(more)


def draw_bars(chart: BarChart, *, ascii_only: bool) -> Iterator[Text]:
    """Draw each bar in a line, to a part of a cell, with the mark across it; anything above 0 is visible."""
    parts, mark = (ASCII_BAR_PARTS, "|") if ascii_only else (BAR_PARTS, "│")
    at, steps = round((chart.mark or 0) / chart.longest * BAR_WIDTH), len(parts) - 1
    for bar in chart.bars:
        share = (bar.size or 0) / chart.longest
        whole, rest = divmod(max(round(share * BAR_WIDTH * steps), 1 if share else 0), steps)
        line = (parts[-1] * whole + parts[rest]).ljust(BAR_WIDTH + 1)
        first, *others = bar.figures
        figures = "-" if bar.size is None else "  ".join((f"{first:>10}", *others))
        yield safe_text(f"{bar.label}  {line[:at]}{mark}{line[at + 1 :]} {figures}", _STYLES.get(bar.tone, ""))
