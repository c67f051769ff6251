"""The verdict of a run: its exit code, and the line that names what decided it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from pydantic import Field

from chunkproof.errors import (
    ChunkNotFoundError,
    ForbiddenError,
    InvalidParameterError,
    NotFoundError,
    RequestTooLargeError,
    ResponseTooLargeError,
    error_classes,
)
from chunkproof.models import Model
from chunkproof.models.json import cut_middle
from chunkproof.suite.comparison import Comparison, Gate
from chunkproof.suite.criteria import PASS_RATE, Criterion, Verdict
from chunkproof.suite.outcome import TestCaseResult, TestStatus

FAILED, WRONG_INPUT, COULD_NOT_JUDGE = 1, 2, 3
NAMED = 5


class Outcome(StrEnum):
    """How a run ended; a warning is a run that passes, with something that needs a look."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


class RunVerdict(Model):
    """The exit code of a run and what decided it."""

    exit_code: int = Field(description="0 all well, 1 failed, 2 wrong input, 3 could not be judged")
    outcome: Outcome
    counts: str = Field(description="How many cases passed, failed and could not be judged")
    line: str = Field(description="What decided the exit code: the last line on a terminal")

    @property
    def details(self) -> str:
        """What the line says after the counts."""
        return self.line.removeprefix(self.counts)


def judge_run(
    results: Sequence[TestCaseResult], criteria: Sequence[Criterion], comparison: Comparison | None
) -> RunVerdict:
    """Decide the exit code; with a baseline, the gate decides.

    A known failure outweighs a case that could not be judged, which outweighs another criterion that is not met.
    """
    counts = _count(results)
    if comparison:
        code = _gate_code(comparison.gate, results)
        warned = comparison.warnings or comparison.newly_failing or comparison.failing_unpaired
        return RunVerdict(exit_code=code, outcome=_outcome(code, bool(warned)), counts=counts, line=comparison.verdict)
    decided = [one for one in criteria if one.decides_failure]
    failed = any(result.status is TestStatus.FAILED for result in results)
    pass_rate = next((one for one in criteria if one.id == PASS_RATE), None)
    if failed and (pass_rate is None or pass_rate.verdict is not Verdict.MET):
        code = FAILED
    else:
        code = _error_code(results) or (FAILED if decided else 0)
    line = "; ".join([counts, *_explain(results, criteria, tolerated=failed and code != FAILED)])
    return RunVerdict(exit_code=code, outcome=_outcome(code, failed), counts=counts, line=line)


def name_some(names: Sequence[str]) -> str:
    """Join the first names, each cut where it is too long, and say how many are left out."""
    more = len(names) - NAMED
    return ", ".join(cut_middle(name) for name in names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(results: Sequence[TestCaseResult]) -> str:
    states = [result.status for result in results]
    passed, failed, errors = (states.count(s) for s in (TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR))
    line = f"{passed} of {len(states)} cases passed, {failed} failed"
    line += f", {errors} could not be judged" if errors else ""
    not_run = len(states) - passed - failed - errors
    return line + (f", {not_run} not judged (interrupted)" if not_run else "")


def _explain(results: Sequence[TestCaseResult], criteria: Sequence[Criterion], *, tolerated: bool) -> Iterator[str]:
    """Name the failed cases, the errors and the criteria that are not met."""
    if failed := [result.name for result in results if result.status is TestStatus.FAILED]:
        yield f"failed: {name_some(failed)}"
    if errors := [result.error_code or "INTERNAL" for result in results if result.status is TestStatus.ERROR]:
        yield f"not judged: {', '.join(dict.fromkeys(errors))}"
    for one in criteria:
        if one.verdict is Verdict.NOT_MET and (one.id != PASS_RATE or one.shown_limit != "100 %"):
            yield f"{one.explain_unmet()} (ignored)" if one.ignored else one.explain_unmet()
        elif one.id == PASS_RATE and tolerated and one.verdict is Verdict.MET:
            yield f"{one.shown_figure} passed, limit {one.shown_limit}"


def _gate_code(gate: Gate, results: Sequence[TestCaseResult]) -> int:
    if gate is Gate.FAILED:
        return FAILED
    return _error_code(results) or (COULD_NOT_JUDGE if gate is Gate.NOT_JUDGED else 0)


def _error_code(results: Sequence[TestCaseResult]) -> int:
    """Return 2 if all errors are of wrong input, 3 if some are not or a case was not run, 0 without errors."""
    wrong = InvalidParameterError, NotFoundError, ForbiddenError, RequestTooLargeError, ResponseTooLargeError
    wrong_codes = {kind.code for base in wrong for kind in error_classes(base)} - {ChunkNotFoundError.code}
    codes = {result.error_code for result in results if not result.status.is_judged}
    if not codes:
        return 0
    return WRONG_INPUT if codes <= wrong_codes else COULD_NOT_JUDGE


def _outcome(code: int, warned: bool) -> Outcome:
    if code == FAILED:
        return Outcome.FAILED
    if code:
        return Outcome.NOT_JUDGED
    return Outcome.WARNING if warned else Outcome.PASSED
