"""What is wrong with a suite, and where."""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkproof.errors import InvalidParameterError
from chunkproof.models.json import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend; a suite with a `fatal` one cannot be run, others are only worth knowing."""

    path: Path
    message: str
    fatal: bool = True


class BrokenSuiteError(InvalidParameterError):
    """The suite cannot be run; `problems` says where, for a door that knows lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(*InvalidParameterError.listing([problem.message for problem in problems]).messages)
        self.problems = tuple(problems)
