"""The parts of a report, whatever its format: each kind of report yields these blocks, and each format renders them."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum, Flag, StrEnum, auto
from typing import Any, TypeVar

from chunkproof.proof.near_text import RepeatedResults

_FIGURE = re.compile(r"–|[-+]?\d[\d,.]*( ?(%|ms))?")
# A word, one space, or one other character: a combining mark is one of its own.
_WORD = re.compile(r"\w+|\s|[^\w\s]")
_CUT_WORD = re.compile(r"\w*…$")
_SPACES = {" ": "‹SP›", "\n": "‹LF›", "\r": "‹CR›", "\t": "‹TAB›"}


class Medium(Flag):
    """Where a report is read."""

    TERMINAL = auto()
    PAGE = auto()
    MARKDOWN = auto()
    TEXT = auto()
    FILES = PAGE | MARKDOWN | TEXT
    NOT_PAGE = TERMINAL | MARKDOWN | TEXT
    NOT_TEXT = TERMINAL | MARKDOWN | PAGE
    EVERYWHERE = TERMINAL | FILES


class Tone(StrEnum):
    """The meaning of a text, such as good or bad; the values are classes of the stylesheet."""

    PLAIN = ""
    GOOD = "passed"
    BAD = "failed"
    UNSURE = "error"
    DIM = "dim"
    COMMAND = "command"
    HEADING = "heading"
    EXPECTED = "expected"

    @classmethod
    def of(cls, is_good: bool) -> "Tone":
        """Return the tone of a check."""
        return cls.GOOD if is_good else cls.BAD


class TableLayout(Enum):
    """How a table is laid out where it does not fit: it scrolls, or each row becomes a few lines.

    The values are classes of the stylesheet.
    """

    WIDE = ""
    STACKED = "stacked"
    RESULTS = "results"
    # In a terminal and in text too, so that the commands of a row can be copied whole.
    LINES = "stacked lines"


class Cell(str):
    """A text with a tone, for a cell of a table."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> "Cell":
        """Make a text that remembers its tone."""
        cell = super().__new__(cls, text)
        cell.tone = tone
        return cell


def tone_of(text: str) -> Tone:
    """Return the tone of a cell; other texts have none."""
    return text.tone if isinstance(text, Cell) else Tone.PLAIN


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a report; `media` are those that show it."""

    media: Medium = Medium.EVERYWHERE


BlockType = TypeVar("BlockType", bound=Block)


@dataclass(frozen=True, kw_only=True)
class PageBlock(Block):
    """A part that only a page can show."""

    media: Medium = Medium.PAGE


@dataclass(frozen=True)
class VerdictLine(Block):
    """A sentence with a verdict; `lead` is the beginning to emphasize, by default the whole sentence."""

    text: str
    tone: Tone
    lead: str = ""


@dataclass(frozen=True)
class Paragraph(Block):
    """A sentence or two, a command to copy, or a heading within a section."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class BulletList(Block):
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class FactList(Block):
    """Names and values."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table(Block):
    """Rows under headings; the first cell of a row is its heading.

    `total` is the number of all rows where `rows` has only some, and `rest` says where the rest are. A renderer without
    room for all rows shows the first ones.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    layout: TableLayout = TableLayout.WIDE
    total: int | None = None
    rest: str = ""

    def left_out(self, shown: int) -> Iterator[str]:
        """Say how many rows are not shown, if there are any."""
        if (more := (self.total or len(self.rows)) - min(shown, len(self.rows))) > 0:
            yield f"… and {more:,} more{self.rest and f'; {self.rest}'}"

    def row_lines(self, row: Sequence[str]) -> Iterator[Cell]:
        """Write a row as lines: name, cause and message, then the other cells, commands without their heading."""
        name, cause, message, *others = row
        yield Cell(f"{name}: {cause}. {message}", Tone.PLAIN)
        for heading, text in zip(self.head[3:], others, strict=True):
            if text:
                is_command = tone_of(text) is Tone.COMMAND
                yield Cell(f"  {text}" if is_command else f"  {heading}: {text}", tone_of(text))

    def figure_columns(self) -> list[bool]:
        """Tell which columns have only figures, which are aligned to the right."""
        columns = zip(*self.rows, strict=True) if self.rows else ((name,) for name in self.head)
        return [all(_FIGURE.fullmatch(value) for value in values) for values in columns]


@dataclass(frozen=True)
class Bar:
    """A labelled length and its figures; without a size there is nothing to draw."""

    label: str
    size: float | None
    figures: tuple[str, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class BarChart(Block):
    """Bars to compare with each other, and with `mark` if there is one; the second heading belongs to the bars."""

    head: Sequence[str]
    bars: Sequence[Bar]
    caption: str = ""
    mark: float | None = None
    layout: TableLayout = TableLayout.WIDE

    @property
    def longest(self) -> float:
        """The length of a full bar."""
        return max(self.mark or 0, *(bar.size or 0 for bar in self.bars))

    def as_table(self) -> Table:
        """Return the figures without the bars."""
        rows = [(Cell(bar.label, bar.tone), *bar.figures) for bar in self.bars]
        return Table((self.head[0], *self.head[2:]), rows, self.caption)


@dataclass(frozen=True)
class Drawing:
    """A Vega-Lite chart, its message in a sentence, and its figures as a table."""

    title: str
    summary: str
    spec: Mapping[str, Any]
    table: Table


@dataclass(frozen=True)
class Drawings(PageBlock):
    """Charts side by side, on a page."""

    drawings: Sequence[Drawing]


@dataclass(frozen=True)
class Tiles(PageBlock):
    """A few figures shown large on a page, each with its name."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class MarkedText(PageBlock):
    """A text to unfold on a page; the pieces that are True are marked."""

    summary: str
    pieces: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class ChangedText(PageBlock):
    """Two texts side by side on a page; the pieces that are True are only in that one."""

    heads: tuple[str, str]
    before: Sequence[tuple[str, bool]]
    now: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class CaseRow:
    """A case with the cells that follow its name and verdict, each with the value it sorts by; and its details."""

    name: str
    verdict: Tone
    state: str
    figures: Sequence[tuple[str, str]] = ()
    details: Sequence[Block] = ()


@dataclass(frozen=True)
class Entries(PageBlock):
    """A list of findings on a page, each unfolded; `are_steps` if each builds on the one before."""

    entries: Sequence[CaseRow]
    are_steps: bool = False
    left_out: str = ""


@dataclass(frozen=True)
class CaseTable(PageBlock):
    """Every case, to search, sort and unfold on a page."""

    head: Sequence[str]
    states: Sequence[str]
    cases: Sequence[CaseRow]


@dataclass(frozen=True)
class Section(Block):
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class ReportBody:
    """A whole report: the most important comes first, and last in a terminal, next to the prompt.

    The first verdict gives the whole report its tone. `summary` says what was examined; `preface` opens the text file.
    """

    title: str
    verdicts: Sequence[VerdictLine]
    sections: Sequence[Section]
    summary: Sequence[Paragraph] = ()
    footer: str = ""
    page_title: str = ""
    preface: str = ""


def visible(blocks: Iterable[BlockType], medium: Medium) -> list[BlockType]:
    """Return the blocks that this medium shows; a section without any is left out."""
    return [
        block
        for block in blocks
        if medium in block.media and (not isinstance(block, Section) or visible(block.blocks, medium))
    ]


def mark_changes(before: str, now: str, heads: tuple[str, str]) -> ChangedText:
    """Compare two texts by words; a changed character that cannot be seen has its code point."""
    are_cut = before.endswith("…") and now.endswith("…")
    old, new = (_WORD.findall(_CUT_WORD.sub("…", text) if are_cut else text) for text in (before, now))
    sides = list[tuple[str, bool]](), list[tuple[str, bool]]()
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        # Of two excerpts that go on, one may show more of what follows.
        is_same = kind == "equal" or (are_cut and kind != "replace" and max(b - len(old), d - len(new)) == -1)
        for side, words in zip(sides, (old[a:b], new[c:d]), strict=True):
            if piece := "".join(words):
                side.append((piece if is_same else _name_invisible(piece), not is_same))
    return ChangedText(heads, *sides)


def _name_invisible(piece: str) -> str:
    def name(character: str) -> str:
        kind = unicodedata.category(character)
        if character in _SPACES:
            return _SPACES[character] if piece.isspace() or character == "\r" else character
        return f"‹U+{ord(character):04X}›" if kind[0] in "CZM" else character

    return "".join(map(name, piece))


def plural(count: int, noun: str) -> str:
    """Write `1 line` or `2 lines`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def short_version(version: str) -> str:
    """Shorten the version of a published collection, as `chunkproof publish --list` shows it."""
    return version[:12]


def describe_repeated(repeated: RepeatedResults) -> str:
    """Say what repeated texts take of the results of a suite's queries."""
    return (
        f"{repeated.repeated:,} of {repeated.results:,} results ({repeated.share:.1%}) repeat the text of a better "
        f"one; {repeated.queries_affected:,} of {repeated.queries:,} queries are affected, "
        f"the worst by {repeated.worst:.0%}"
    )
