"""Choose the cases of a suite to run, and keep the verdicts of an earlier run."""

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
    """Conditions that a case must meet to be run; without any, all cases are."""

    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    failing: Path | None = None

    def select(self, suite: Suite) -> list[TestCase]:
        """Return the selected cases in the suite's order; `InvalidParameterError` when there are none."""
        not_passed = _read_not_passed(self.failing) if self.failing else None
        found = [
            case
            for case in suite.cases
            if (not self.names or any(_matches(case.name, pattern) for pattern in self.names))
            and (not self.tags or set(self.tags) & set(case.tags))
            and (not_passed is None or case.name in not_passed)
        ]
        if not found:
            raise InvalidParameterError(f"None of the {len(suite.cases)} cases of {suite.name} is selected")
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


def _read_not_passed(file: Path) -> set[str]:
    results = load_report(file).result.test_results
    return {result.name for result in results if result.status is not TestStatus.PASSED}


def _matches(name: str, pattern: str) -> bool:
    """Match a pattern with `*` and `?`, or else any part of the name; case is ignored."""
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatchcase(name, pattern) if any(mark in pattern for mark in "*?[") else pattern in name
