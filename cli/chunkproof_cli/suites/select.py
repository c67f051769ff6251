"""Which cases of a suite to run, and where."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from chunkproof.errors import InvalidParameterError
from chunkproof.suite.cases import Suite, TestCase
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport, fingerprint, read_report


@dataclass(frozen=True)
class Selection:
    """What a case must be to be run; nothing given selects all."""

    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    failing: Path | None = None

    def select(self, suite: Suite) -> list[TestCase]:
        """The selected cases in the suite's order, or `InvalidParameterError` when there are none."""
        again = _not_passed(self.failing) if self.failing else None
        found = [
            case
            for case in suite.cases
            if (not self.names or any(_matches(case.name, pattern) for pattern in self.names))
            and (not self.tags or set(self.tags) & set(case.tags))
            and (again is None or case.name in again)
        ]
        if not found:
            raise InvalidParameterError(f"None of the {len(suite.cases)} cases of {suite.name} is selected")
        return found


def resume(cases: Sequence[TestCase], suite: Suite, file: Path) -> list[TestCase]:
    """The cases with the verdicts that an interrupted run of the same suite has already."""
    earlier = load_report(file)
    if earlier.suite.fingerprint != fingerprint(suite):
        raise InvalidParameterError(
            f"{file} is of another suite, or its cases have changed since: run it anew"
        )
    verdicts = {result.name: result for result in earlier.result.test_results if result.status.is_judged}
    return [_continued(case, verdicts.get(case.name), file) for case in cases]


def load_report(file: Path) -> SuiteReport:
    """The canonical report in a file."""
    try:
        return read_report(file.read_bytes(), file.name)
    except OSError as error:
        raise InvalidParameterError(f"{file}: {error.strerror}") from None


def _continued(case: TestCase, earlier: TestCaseResult | None, file: Path) -> TestCase:
    if earlier is None:
        return case
    if case.collection_name not in (None, earlier.collection_name):
        raise InvalidParameterError(
            f"{file} searched {earlier.collection_name}, not {case.collection_name}: give the same --collection"
        )
    return earlier


def _not_passed(file: Path) -> set[str]:
    results = load_report(file).result.test_results
    return {result.name for result in results if result.status is not TestStatus.PASSED}


def _matches(name: str, pattern: str) -> bool:
    """By a pattern with `*` and `?`, else by any part of the name, whatever the case."""
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatchcase(name, pattern) if any(mark in pattern for mark in "*?[") else pattern in name
