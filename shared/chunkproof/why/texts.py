"""Compare texts by their words: near-duplicates, and chunks that were cut from a text."""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkproof.retrieval.near_text import containment, shingles, similarity

# Share of common shingles from which on two texts are the same but for small changes.
NEAR_DUPLICATE = 0.65
# A chunk was cut from a text if so much of it is in the text. Overlapping chunkers share less with their neighbours.
CUT_FROM = 0.35
FEWEST_SHINGLES = 3
# A text is split if its parts together have so much of it.
COVERED = 0.7


def are_near_duplicates(left: set[int], right: set[int]) -> bool:
    """Whether two texts, by their shingles, are the same but for small changes."""
    return similarity(left, right) >= NEAR_DUPLICATE


@dataclass(frozen=True, slots=True)
class Cover:
    """Which of some texts were cut from a text, or contain it, and how much of it they have together."""

    parts: tuple[int, ...]
    share: float

    @property
    def is_whole(self) -> bool:
        """Whether the text is still there, in other pieces."""
        return bool(self.parts) and self.share >= COVERED


def find_cover(text: str, others: Sequence[str]) -> Cover:
    """Return which of the other texts have parts of this one."""
    wanted = shingles(text)
    covered: set[int] = set()
    parts: list[int] = []
    for index, other in enumerate(others):
        own = shingles(other)
        common = own & wanted
        is_cut = len(common) >= FEWEST_SHINGLES and containment(own, wanted) >= CUT_FROM
        if is_cut or (common and containment(wanted, own) >= COVERED):
            parts.append(index)
            covered |= common
    return Cover(tuple(parts), containment(wanted, covered))


def contains_passage(text: str, passage: str) -> bool:
    """Whether the text has the passage, whatever the spaces between words."""
    return " ".join(passage.split()) in " ".join(text.split())
