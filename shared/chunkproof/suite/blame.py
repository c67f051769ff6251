"""Blame: for each question that a run newly lost, the smallest change that brings its chunk back."""

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from chunkproof.models import Model
from chunkproof.why.report import Cause, Row

# Changes of the search are the same for every chunk; the others are about one chunk.
OF_THE_SEARCH = frozenset((Cause.FILTERED_OUT, Cause.BELOW_THRESHOLD, Cause.BEYOND_TOP_K, Cause.MISSED_BY_INDEX))


class BlamedCase(Model):
    """A newly failing case, an expected id that it lost, and what brings it back."""

    name: str
    expected: str
    causes: tuple[Cause, ...]
    changes: tuple[str, ...] = ()
    line: str
    cost: str | None = None
    command: str | None = None
    then: str | None = None
    rows: tuple[Row, ...] = Field((), description="Every change that was tried, with rank and score")


class Blame(Model):
    """What the newly failing cases have lost, and why."""

    summary: str
    snapshot: str | None = Field(None, description="The snapshot compared with, and its date")
    cases: tuple[BlamedCase, ...] = ()
    not_blamed: dict[str, str] = Field(default_factory=dict, description="Newly failing cases without a cause, and why")


def summarize(blamed: Sequence[BlamedCase], left_out: dict[str, str]) -> str:
    """Say in one sentence how many questions are lost, and what brings them back."""
    first = {case.name: case for case in reversed(blamed)}
    lost = len(first) + len(left_out)
    if not lost:
        return "No question is lost"
    groups = Counter(_describe(case) for case in reversed(list(first.values())))
    parts = [f"{count} {text}" for text, count in groups.most_common()]
    # "2 come back with …, 1 with …": the verb is said once.
    said = next((n for n, part in enumerate(parts) if " come back " in part), None)
    parts = [part if n == said else part.replace(" come back ", " ", 1) for n, part in enumerate(parts)]
    if said is not None and parts[said].startswith("1 "):
        parts[said] = parts[said].replace(" come back ", " comes back ", 1)
    if left_out:
        parts.append(f"{len(left_out)} not blamed")
    return f"{lost} question{'' if lost == 1 else 's'} lost: {', '.join(parts)}"


def _describe(case: BlamedCase) -> str:
    if not case.changes:
        return case.causes[0].value if case.causes else "found when asked again"
    text = " and ".join(case.changes)
    if not set(case.causes) <= OF_THE_SEARCH:
        name = case.expected
        text = re.sub(r"\bits\b", lambda _: f"{name}'s", re.sub(r"\bit\b", lambda _: name, text))
    return f"come back {text}"
