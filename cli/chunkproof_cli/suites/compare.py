"""Compare two reports by a paired randomization test.

Under chance alone, each case's difference could just as well have the opposite sign. The sums over all choices of
signs (drawn at random where there are too many) show what chance can do; a mean difference beyond that is real. The
interval is the difference plus and minus that margin, so that it excludes 0 exactly when the test is significant.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log2
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chunkproof.errors import InvalidParameterError
from chunkproof.suite.cases import TestCase
from chunkproof.suite.comparison import Comparison, Gate, MetricChange
from chunkproof.suite.metrics import average
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.report import SuiteReport

SHARE_PASSED = "pass rate"
# Few and chosen in advance: among two dozen metrics, one always falls by chance. They share the 5 %.
GATED = (SHARE_PASSED, "recall@5", "mrr@10")
CHANCE = 0.05 / len(GATED)
LEAST_CHANGES = ceil(-log2(CHANCE))
ROUNDS, SEED = 20_000, 20_250_101
# Up to so many changed cases, all choices of signs are tried: 16,384.
MAX_ENUMERATED = 14
BLOCK = 500
# Differences are between shares of small counts; anything smaller than this is rounding.
SAME = 1e-9

Floats = NDArray[np.float64]
Pair = tuple[TestCaseResult, TestCaseResult]


def compare(report: SuiteReport, baseline: SuiteReport, file: Path) -> SuiteReport:
    """Return the report with its comparison; `InvalidParameterError` when they have no case in common."""
    earlier = {case.name: case for case in baseline.result.test_results}
    both = [(earlier[new.name], new) for new in report.result.test_results if new.name in earlier]
    if not both:
        raise InvalidParameterError(f"{file} has no case in common with suite {report.suite.name}")
    left_out = {new.name: why for old, new in both if (why := _reason_not_compared(old, new))}
    pairs = [(old, new) for old, new in both if new.name not in left_out]
    names = {new.name for new in report.result.test_results}
    left_out |= {name: "new" for name in names if name not in earlier}
    left_out |= {name: "not run this time" for name in earlier if name not in names}
    changes = tuple(_measure_changes(pairs))
    gate, reason = _judge_gate(report, changes, pairs)
    comparison = Comparison(
        baseline=file.name,
        baseline_timestamp=baseline.result.timestamp,
        cases=len(pairs),
        changes=changes,
        newly_failing=tuple(_find_newly_failing(pairs)),
        newly_passing=tuple(new.name for old, new in pairs if _is_passed(old) < _is_passed(new)),
        not_compared=dict(sorted(left_out.items())),
        confidence=1 - 2 * CHANCE,
        rounds=ROUNDS,
        seed=SEED,
        least_changes=LEAST_CHANGES,
        smallest_detectable=LEAST_CHANGES / len(pairs) if len(pairs) >= LEAST_CHANGES else None,
        gate=gate,
        reason=reason,
    )
    return report.model_copy(update={"comparison": comparison})


def chance_margin(differences: Sequence[float]) -> float:
    """Return how far from 0 chance moves the mean of these differences, in all but `CHANCE` of the choices each way."""
    changed = np.array([difference for difference in differences if difference])
    sums = np.sort(np.round(_sum_by_signs(changed), 9))[::-1]
    return float(sums[floor(CHANCE * len(sums))]) / len(differences)


def _sum_by_signs(changed: Floats) -> Floats:
    count = len(changed)
    if count <= MAX_ENUMERATED:
        choices = np.arange(2**count)[:, None] >> np.arange(count) & 1
        sums: Floats = (choices * 2.0 - 1.0) @ changed
        return sums
    random = np.random.default_rng(SEED)
    drawn = (random.integers(0, 2, (BLOCK, count), dtype=np.int8) for _ in range(ROUNDS // BLOCK))
    observed = np.array([abs(changed.sum())])  # the observed signs are one of the choices
    return np.concatenate([*((block * 2.0 - 1.0) @ changed for block in drawn), observed])


def _measure_changes(pairs: Sequence[Pair]) -> Iterator[MetricChange]:
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
    before, after = np.array(values).T
    difference, margin = float(np.mean(after - before)), chance_margin(list(after - before))
    high = difference + margin
    return MetricChange(
        name=name,
        cases=len(values),
        before=float(np.mean(before)),
        after=float(np.mean(after)),
        low=difference - margin,
        high=0.0 if abs(high) < SAME else high,
        gated=name in GATED,
    )


def _judge_gate(report: SuiteReport, changes: Sequence[MetricChange], pairs: Sequence[Pair]) -> tuple[Gate, str]:
    """Decide the gate; a proven regression outweighs cases that could not be judged."""
    if worse := [change for change in changes if change.gated and change.is_regression]:
        return Gate.FAILED, "; ".join(_describe_fall(change) for change in worse)
    undecided = report.result.total_tests - report.result.passed - report.result.failed
    if undecided:
        return Gate.NOT_JUDGED, f"{undecided} of {report.result.total_tests} cases could not be judged"
    cases, failing = len(pairs), len(list(_find_newly_failing(pairs)))
    if cases < LEAST_CHANGES:
        too_few = f"{cases} comparable cases are too few to tell a regression from chance, which takes {LEAST_CHANGES}"
        return Gate.CANNOT_TELL, f"{too_few} ({failing} newly failing); not failed"
    least = f"{LEAST_CHANGES} of {cases} cases ({LEAST_CHANGES / cases:.1%}), all for the worse"
    return (
        Gate.PASSED,
        f"no fall beyond chance ({failing} newly failing); the smallest fall it can detect is {least}",
    )


def _find_newly_failing(pairs: Sequence[Pair]) -> Iterator[str]:
    return (new.name for old, new in pairs if _is_passed(old) > _is_passed(new))


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
    return None if _comparable_fields(old) == _comparable_fields(new) else "changed since"


def _comparable_fields(case: TestCase) -> tuple[object, ...]:
    """Return the fields that must be equal in both runs: all but the collection and the tags."""
    return tuple(getattr(case, name) for name in TestCase.model_fields if name not in ("collection_name", "tags"))


def _is_passed(case: TestCaseResult) -> bool:
    return case.status is TestStatus.PASSED
