"""The figures as a person reads them."""

from collections.abc import Iterable, Iterator

from bench.contestants import TITLES
from bench.goals import Goal
from bench.results import Part
from bench.spread import Spread

UNITS = {"ms": "ms", "mb": "MB", "s": "s", "rps": "requests/s"}


def part_lines(part: Part) -> Iterator[str]:
    """A title, and a line for each row: medians with the least and the greatest in brackets."""
    yield part.title
    width = max(len(_title(row)) for row in part.rows) + 2
    for row, columns in part.rows.items():
        cells = "  ".join(_cell(name, spread) for name, spread in columns.items())
        yield f"  {_title(row):<{width}}{cells}"


def goal_lines(goals: Iterable[Goal]) -> Iterator[str]:
    """What is to be reached, a line each; in brackets the middle half of the rounds' own ratios."""
    rows = [("figure", "ratio", "", "by CPU", "at least", "aim for", "")]
    for goal in goals:
        middle = "({:.2f}..{:.2f})".format(*goal.spread.middle_half) if goal.spread else ""
        against = f" = {goal.against}" if "best" in goal.figure else ""
        rows.append(
            (
                goal.figure + against,
                f"{goal.ratio:.3f}",
                middle,
                "" if goal.by_cpu is None else f"{goal.by_cpu:.3f}",
                f"≤ {goal.limit:.2f}",
                f"≤ {goal.aim_for:.2f}",
                goal.verdict.value,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _title(row: str) -> str:
    name, separator, rest = row.partition(", ")
    return TITLES.get(name, name) + separator + rest


def _cell(name: str, spread: Spread) -> str:
    kind, _, unit = name.rpartition("_")
    label, unit = kind.replace("_", " "), UNITS.get(unit, unit)
    digits = 0 if spread.median >= 100 else 1 if spread.median >= 10 else 2
    text = f"{label} {spread.median:8,.{digits}f} {unit}"
    if len(spread.values) == 1:
        return text
    text += f" ({spread.low:,.{digits}f}..{spread.high:,.{digits}f}"
    return text + (f", p95 {spread.p95:,.{digits}f})" if len(spread.values) >= 20 else ")")
