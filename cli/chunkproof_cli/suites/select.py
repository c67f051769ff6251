"""Choose the cases of a suite to run, and keep the verdicts of an earlier run."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from chunkproof.errors import InvalidParameterError
from chunkproof.suite.cases import Suite, TestCase
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport, fingerprint, read_report


class NothingFailingError(InvalidParameterError):
    """`--failing` selects no case, since all selected cases passed: there is nothing to do, and nothing is wrong."""


@dataclass(frozen=True)
class Selection:
    """Conditions that a case must meet to be run; without any, all cases are."""

    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    failing: Path | None = None

    def select(self, suite: Suite) -> list[TestCase]:
        """Return the selected cases in the suite's order; `InvalidParameterError` when there are none."""
        found = [
            case
            for case in suite.cases
            if (not self.names or any(_matches(case.name, pattern) for pattern in self.names))
            and (not self.tags or set(self.tags) & set(case.tags))
        ]
        if not found:
            raise InvalidParameterError(f"None of the {len(suite.cases)} cases of {suite.name} is selected")
        return self._select_failing(found, suite) if self.failing else found

    def _select_failing(self, cases: list[TestCase], suite: Suite) -> list[TestCase]:
        report = load_report(self.failing) if self.failing else None
        results = report.result.test_results if report else ()
        if not {result.name for result in results} & {case.name for case in suite.cases}:
            raise InvalidParameterError(f"{self.failing} has no case in common with suite {suite.name}")
        not_passed = {result.name for result in results if result.status is not TestStatus.PASSED}
        found = [case for case in cases if case.name in not_passed]
        if not found:
            selected = "the selected cases" if self.names or self.tags else f"the cases of {suite.name}"
            raise NothingFailingError(f"Nothing to run: none of {selected} failed in {self.failing}")
        return found


def resume(cases: Sequence[TestCase], suite: Suite, file: Path) -> list[TestCase]:
    """Return the cases with the verdicts that an interrupted run of the same suite already has."""
    earlier = load_report(file)
    if earlier.suite.fingerprint != fingerprint(suite):
        raise InvalidParameterError(
            f"{file} is a report of another suite, or the cases have changed since: run it without --resume"
        )
    verdicts = {result.name: result for result in earlier.result.test_results if result.status.is_judged}
    return [_keep_verdict(case, verdicts.get(case.name), file) for case in cases]


def load_report(file: Path) -> SuiteReport:
    """Read the canonical report in a file."""
    try:
        return read_report(file.read_bytes(), file.name)
    except OSError as error:
        raise InvalidParameterError(f"{file}: {error.strerror}") from None


def _keep_verdict(case: TestCase, earlier: TestCaseResult | None, file: Path) -> TestCase:
    if earlier is None:
        return case
    if case.collection_name not in (None, earlier.collection_name):
        raise InvalidParameterError(
            f"{file} searched {earlier.collection_name}, not {case.collection_name}: give the same --collection"
        )
    return earlier


def _matches(name: str, pattern: str) -> bool:
    """Match a pattern with `*` and `?`, or else any part of the name; case is ignored."""
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatchcase(name, pattern) if any(mark in pattern for mark in "*?[") else pattern in name
