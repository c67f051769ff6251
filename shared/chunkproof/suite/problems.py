"""A problem of a suite and its place."""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix; a suite with a `fatal` problem cannot be run, others are warnings."""

    path: Path
    message: str
    fatal: bool = True


class BrokenSuiteError(InvalidParameterError):
    """The suite cannot be run; `problems` have paths, for callers that can map a path to a line number."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(*InvalidParameterError.listing([problem.message for problem in problems]).messages)
        self.problems = tuple(problems)
