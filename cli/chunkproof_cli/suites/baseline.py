"""Compare two reports, case by case, and decide the gate.

By default every newly failing case fails the gate: retrieval is deterministic. `--tolerate chance` asks for a paired
randomization test instead. Under chance alone, each case's difference could just as well have the opposite sign. The
sums over all choices of signs (drawn at random where there are too many) show what chance can do; a mean difference
beyond that is real. The interval is the difference plus and minus that margin, so that it excludes 0 exactly when the
test is significant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import read_file
from chunkproof.contract.model import cut_middle
from chunkproof.suite.cases import TestCase
from chunkproof.suite.criteria import IN_TOP_5, PASS_RATE, Comparison, Gate, MetricChange, Verdict, name_some
from chunkproof.suite.judge import average
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.suite_report import SuiteReport, read_report

SHARE_PASSED = "pass rate"
# Few and chosen in advance: among two dozen metrics, one always falls by chance. They share the 5 %.
GATED = (SHARE_PASSED, "recall@5", "mrr@10")
CHANCE = 0.05 / len(GATED)
LEAST_CHANGES = ceil(-log2(CHANCE))
ROUNDS, SEED = 20_000, 20_250_101
# With up to this many changed cases, every choice of signs is tried: 16,384.
MAX_ENUMERATED = 14
# Differences are between shares of small counts; anything smaller than this is rounding.
SAME = 1e-9

Pair = tuple[TestCaseResult, TestCaseResult]
# How many cases may newly fail, or `chance`: as many as the randomization test explains.
Tolerance = int | Literal["chance"]
NAMED = 5
NOT_RUN = "not run this time"


def load_report(file: Path) -> SuiteReport:
    """Read the canonical report in a file."""
    return read_report(read_file(file), file.name)


def compare(report: SuiteReport, baseline: SuiteReport, file: Path, tolerate: Tolerance = 0) -> SuiteReport:
    """Return the report with its comparison; `InvalidParameterError` when they have no case in common."""
    results = report.result.test_results
    check_baseline(report.suite.name, results, baseline, file)
    earlier = {case.name: case for case in baseline.result.test_results}
    both = [(earlier[new.name], new) for new in results if new.name in earlier]
    left_out = {new.name: why for old, new in both if (why := _reason_not_compared(old, new))}
    pairs = [(old, new) for old, new in both if new.name not in left_out]
    names = {new.name for new in results}
    left_out |= {name: "new" for name in names if name not in earlier}
    left_out |= {name: NOT_RUN for name in earlier if name not in names}
    found = Comparison(
        baseline=file.name,
        baseline_timestamp=baseline.result.timestamp,
        tolerance=str(tolerate or "none"),
        cases=len(pairs),
        changes=tuple(measure_changes(pairs)),
        newly_failing=tuple(new.name for old, new in pairs if _is_passed(old) > _is_passed(new)),
        newly_passing=tuple(new.name for old, new in pairs if _is_passed(old) < _is_passed(new)),
        failing_unpaired=tuple(r.name for r in results if r.name in left_out and r.status is TestStatus.FAILED),
        not_compared=dict(sorted(left_out.items())),
        confidence=1 - 2 * CHANCE,
        rounds=ROUNDS,
        seed=SEED,
        least_changes=LEAST_CHANGES,
        smallest_detectable=LEAST_CHANGES / len(pairs) if len(pairs) >= LEAST_CHANGES else None,
        gate=Gate.NOT_JUDGED,
        reason="",
    )
    gate, reason = _Judgment(report, baseline, found, tolerate).decide()
    warnings = tuple(_list_warnings(report, baseline, found, pairs))
    judged = found.model_copy(update={"gate": gate, "reason": reason, "warnings": warnings})
    return report.model_copy(update={"comparison": judged})


def check_baseline(suite: str, cases: Sequence[TestCase], baseline: SuiteReport, file: Path) -> None:
    """Raise `InvalidParameterError` when the baseline is of another suite."""
    if not {case.name for case in cases} & {case.name for case in baseline.result.test_results}:
        raise InvalidParameterError(
            f"{file} has no case in common with suite {suite}: it is a report of suite {baseline.suite.name}"
        )


def chance_margin(differences: Sequence[float]) -> float:
    """Return how far from 0 chance moves the mean of these differences, in all but `CHANCE` of the choices each way."""
    sums = sorted((round(total, 9) for total in _sum_by_signs([one for one in differences if one])), reverse=True)
    return sums[floor(CHANCE * len(sums))] / len(differences)


def _sum_by_signs(changed: Sequence[float]) -> list[float]:
    groups = []
    for start in range(0, max(1, len(changed)), MAX_ENUMERATED):
        sums = [0.0]
        for value in changed[start : start + MAX_ENUMERATED]:
            sums = [total + signed for signed in (value, -value) for total in sums]
        groups.append(sorted(sums))  # in one order for a change and its reverse: tables have one, sentences the other
    if len(groups) == 1:
        return groups[0]
    # A choice of signs is one of each group's: all of them are known, so that a round only draws one for each group.
    random = Random(SEED)  # noqa: S311 - not a secret
    drawn = map(sum, zip(*(random.choices(sums, k=ROUNDS) for sums in groups), strict=True))
    return [*drawn, abs(sum(changed))]  # the observed signs are one of the choices


def measure_changes(pairs: Sequence[Pair]) -> Iterator[MetricChange]:
    """Compare the pass rate and each metric over the cases that have it in both results."""
    verdicts = [(float(_is_passed(old)), float(_is_passed(new))) for old, new in pairs]
    if verdicts:
        yield _measure_change(SHARE_PASSED, verdicts)
    for name in average([new.metrics for _, new in pairs])[0]:
        values = [
            (old.metrics[name], new.metrics[name]) for old, new in pairs if name in old.metrics and name in new.metrics
        ]
        if values:
            yield _measure_change(name, values)


def _measure_change(name: str, values: Sequence[tuple[float, float]]) -> MetricChange:
    differences = [after - before for before, after in values]
    difference, margin = fmean(differences), chance_margin(differences)
    low, high = difference - margin, difference + margin
    return MetricChange(
        name=name,
        cases=len(values),
        before=fmean(before for before, _ in values),
        after=fmean(after for _, after in values),
        low=0.0 if abs(low) < SAME else low,
        high=0.0 if abs(high) < SAME else high,
        gated=name in GATED,
    )


@dataclass(frozen=True)
class _Judgment:
    """Decides the gate. A known failure outweighs a case that could not be judged, which outweighs a criterion."""

    report: SuiteReport
    baseline: SuiteReport
    found: Comparison
    tolerate: Tolerance

    def decide(self) -> tuple[Gate, str]:
        result = self.report.result
        if failures := list(self._find_failures()):
            return Gate.FAILED, "; ".join(failures)
        if undecided := result.total_tests - result.passed - result.failed:
            codes = dict.fromkeys(case.error_code for case in result.test_results if case.error_code)
            why = f" ({', '.join(codes)})" if codes else ""
            return Gate.NOT_JUDGED, f"{undecided} of {result.total_tests} cases could not be judged{why}"
        if not self.found.cases:
            reasons = ", ".join(dict.fromkeys(self.found.not_compared.values()))
            return Gate.FAILED, f"no case could be compared with the baseline ({reasons})"
        if unmet := list(self._find_newly_unmet()):
            return Gate.FAILED, "; ".join(unmet)
        return self._pass()

    def _find_failures(self) -> Iterator[str]:
        """Say what fails the gate, whatever the other cases are."""
        failing = list(self._describe_failing())
        worse = [_describe_fall(change) for change in self.found.changes if change.gated and change.is_regression]
        if self.report.result.failed and not self.report.result.passed:
            yield f"no case passes: {self.report.result.failed} of {self.report.result.total_tests} fail"
            yield from failing
        elif self.tolerate == "chance":
            yield from [*worse, *failing] if worse else ()
        elif (len(self.found.newly_failing) + len(self.found.failing_unpaired)) > self.tolerate:
            yield from failing
        elif self.tolerate == 0:
            yield from worse

    def _find_newly_unmet(self) -> Iterator[str]:
        """Name the criteria that were not as bad before. What depends on the cases is compared case by case."""
        before = {one.id: one.verdict for one in self.baseline.criteria}
        compared = {PASS_RATE} if self.tolerate == 0 else {PASS_RATE, IN_TOP_5}
        for one in self.report.unmet_criteria:
            was = before.get(one.id, Verdict.NOT_JUDGED)
            if one.id not in compared and was is not Verdict.NOT_MET:
                yield f"{one.explain_unmet()} ({was.value} in the baseline)"

    def _pass(self) -> tuple[Gate, str]:
        cases, failing = self.found.cases, "; ".join(self._describe_failing())
        if self.tolerate != "chance":
            within = f"{failing}, within --tolerate {self.tolerate}" if failing else "no case newly fails"
            return Gate.PASSED, f"{within} ({cases} compared)"
        said, enough = failing or "0 newly failing", cases >= LEAST_CHANGES
        if not enough and (failing or any(change.difference < 0 for change in self.found.changes)):
            too_few = f"{cases} comparable cases are too few to tell a regression from chance"
            return Gate.CANNOT_TELL, f"{too_few}, which takes {LEAST_CHANGES} ({said}); not failed"
        least = f"; the smallest fall it can detect is {LEAST_CHANGES} of {cases} cases" if enough else ""
        least += f" ({LEAST_CHANGES / cases:.1%}), all for the worse" if enough else ""
        return Gate.PASSED, f"no fall beyond chance ({said}){least}"

    def _describe_failing(self) -> Iterator[str]:
        """Name the failing cases that the baseline does not excuse, each with its cause."""
        by_name = {case.name: case for case in self.report.result.test_results}
        for what, names in (
            ("newly failing", self.found.newly_failing),
            ("failing and new, or changed since the baseline", self.found.failing_unpaired),
        ):
            if names:
                shown = ", ".join(f"{cut_middle(name)} ({_find_cause(by_name[name])})" for name in names[:NAMED])
                more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
                yield f"{len(names)} {what}: {shown}{more}"


def _find_cause(case: TestCaseResult) -> str:
    """Return the cause that the diagnosis found, else the unmet expectation."""
    causes = dict.fromkeys(found.cause.value for found in case.diagnosis)
    return ", ".join(causes) or cut_middle(case.error_message or "failed", 80)


def _list_warnings(
    report: SuiteReport, baseline: SuiteReport, found: Comparison, pairs: Sequence[Pair]
) -> Iterator[str]:
    """Yield the weaknesses of the baseline."""
    before, own = baseline.result, baseline.comparison
    if before.failed:
        still = report.result.failed - len(found.newly_failing) - len(found.failing_unpaired)
        yield f"the baseline itself failed {before.failed} of {before.total_tests} cases, {still} of them still fail"
    if own and (own.gate is Gate.FAILED or own.newly_failing):
        lost = f": newly failing there were {name_some(own.newly_failing)}" if own.newly_failing else f": {own.reason}"
        yield f"the baseline is worse than its own baseline{lost}"
    if unknown := before.total_tests - before.passed - before.failed:
        yield f"the baseline could not judge {unknown} of {before.total_tests} cases"
    if not_met := [one.id for one in baseline.unmet_criteria if one.id not in (PASS_RATE, IN_TOP_5)]:
        yield f"the baseline itself did not meet {', '.join(not_met)}"
    if missing := [name for name, why in found.not_compared.items() if why == NOT_RUN]:
        yield f"{len(missing)} of {before.total_tests} cases of the baseline were not run ({name_some(missing)})"
    for name in GATED:
        if lacking := sum(name in new.metrics and name not in old.metrics for old, new in pairs):
            yield f"{name} could not be compared in {lacking} of {len(pairs)} cases: the baseline lacks it there"


def _describe_fall(change: MetricChange) -> str:
    return (
        f"{change.name} fell from {change.before:.3f} to {change.after:.3f} "
        f"({change.difference:+.3f}, by {-change.high:.3f} at least, over {change.cases} cases)"
    )


def _reason_not_compared(old: TestCaseResult, new: TestCaseResult) -> str | None:
    if not old.status.is_judged:
        return "not judged in the baseline"
    if not new.status.is_judged:
        return "not judged this time"
    compared = TestCase.model_fields.keys() - {"collection_name", "tags"}
    return None if all(getattr(old, name) == getattr(new, name) for name in compared) else "changed since"


def _is_passed(case: TestCaseResult) -> bool:
    return case.status is TestStatus.PASSED
