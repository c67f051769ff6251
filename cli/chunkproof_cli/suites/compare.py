"""Two reports → a comparison, by a paired randomization test.

Under chance alone, a case's difference could as well have had the other sign. The sums over all choices of signs
(drawn at random where there are too many) show how far chance reaches; a mean difference beyond that is real. The
interval is the difference plus and minus that reach, so that it leaves out 0 exactly when the test does.
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
# Few and chosen beforehand: among two dozen metrics, one always falls by chance. They share the 5 %.
GATED = (SHARE_PASSED, "recall@5", "mrr@10")
CHANCE = 0.05 / len(GATED)
LEAST_CHANGES = ceil(-log2(CHANCE))
ROUNDS, SEED = 20_000, 20_250_101
# So many signs are tried out in full: 16,384 choices.
TRIED_OUT = 14
BLOCK = 500
# Differences are between shares of small counts; what is nearer than this is rounding.
SAME = 1e-9

Floats = NDArray[np.float64]
Pair = tuple[TestCaseResult, TestCaseResult]


def compare(report: SuiteReport, baseline: SuiteReport, file: Path) -> SuiteReport:
    """The report with its comparison, or `InvalidParameterError` when the two have no case in common."""
    earlier = {case.name: case for case in baseline.result.test_results}
    both = [(earlier[new.name], new) for new in report.result.test_results if new.name in earlier]
    if not both:
        raise InvalidParameterError(f"{file} has no case in common with suite {report.suite.name}")
    left_out = {new.name: why for old, new in both if (why := _incomparable(old, new))}
    pairs = [(old, new) for old, new in both if new.name not in left_out]
    names = {new.name for new in report.result.test_results}
    left_out |= {name: "new" for name in names if name not in earlier}
    left_out |= {name: "not run this time" for name in earlier if name not in names}
    changes = tuple(_changes(pairs))
    gate, reason = _judged(report, changes, pairs)
    comparison = Comparison(
        baseline=file.name,
        baseline_timestamp=baseline.result.timestamp,
        cases=len(pairs),
        changes=changes,
        newly_failing=tuple(_newly_failing(pairs)),
        newly_passing=tuple(new.name for old, new in pairs if _passed(old) < _passed(new)),
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
    """How far from 0 chance takes the mean of these differences, in all but `CHANCE` of the sign choices each way."""
    changed = np.array([difference for difference in differences if difference])
    sums = np.sort(np.round(_sums(changed), 9))[::-1]
    return float(sums[floor(CHANCE * len(sums))]) / len(differences)


def _sums(changed: Floats) -> Floats:
    count = len(changed)
    if count <= TRIED_OUT:
        choices = np.arange(2**count)[:, None] >> np.arange(count) & 1
        sums: Floats = (choices * 2.0 - 1.0) @ changed
        return sums
    random = np.random.default_rng(SEED)
    drawn = (random.integers(0, 2, (BLOCK, count), dtype=np.int8) for _ in range(ROUNDS // BLOCK))
    observed = np.array([abs(changed.sum())])  # one of the choices as well
    return np.concatenate([*((block * 2.0 - 1.0) @ changed for block in drawn), observed])


def _changes(pairs: Sequence[Pair]) -> Iterator[MetricChange]:
    verdicts = [(float(_passed(old)), float(_passed(new))) for old, new in pairs]
    if verdicts:
        yield _change(SHARE_PASSED, verdicts)
    for name in average([new.metrics for _, new in pairs])[0]:
        values = [
            (old.metrics[name], new.metrics[name])
            for old, new in pairs
            if name in old.metrics and name in new.metrics
        ]
        if values:
            yield _change(name, values)


def _change(name: str, values: Sequence[tuple[float, float]]) -> MetricChange:
    before, after = np.array(values).T
    difference, by_chance = float(np.mean(after - before)), chance_margin(list(after - before))
    high = difference + by_chance
    return MetricChange(
        name=name,
        cases=len(values),
        before=float(np.mean(before)),
        after=float(np.mean(after)),
        low=difference - by_chance,
        high=0.0 if abs(high) < SAME else high,
        gated=name in GATED,
    )


def _judged(report: SuiteReport, changes: Sequence[MetricChange], pairs: Sequence[Pair]) -> tuple[Gate, str]:
    """A proven regression outweighs what could not be judged."""
    if worse := [change for change in changes if change.gated and change.is_regression]:
        return Gate.FAILED, "; ".join(_fall(change) for change in worse)
    undecided = report.result.total_tests - report.result.passed - report.result.failed
    if undecided:
        return Gate.NOT_JUDGED, f"{undecided} of {report.result.total_tests} cases could not be judged"
    cases, failing = len(pairs), len(list(_newly_failing(pairs)))
    if cases < LEAST_CHANGES:
        told = f"{cases} comparable cases cannot tell a regression from chance, {LEAST_CHANGES} could"
        return Gate.CANNOT_TELL, f"{told} ({failing} newly failing); not failed"
    least = f"{LEAST_CHANGES} of {cases} cases ({LEAST_CHANGES / cases:.1%}), all for the worse"
    return (
        Gate.PASSED,
        f"no fall beyond chance ({failing} newly failing); the least that it can tell is {least}",
    )


def _newly_failing(pairs: Sequence[Pair]) -> Iterator[str]:
    return (new.name for old, new in pairs if _passed(old) > _passed(new))


def _fall(change: MetricChange) -> str:
    return (
        f"{change.name} fell from {change.before:.3f} to {change.after:.3f} "
        f"({change.difference:+.3f}, by {-change.high:.3f} at least, over {change.cases} cases)"
    )


def _incomparable(old: TestCaseResult, new: TestCaseResult) -> str | None:
    if not old.status.is_judged:
        return "not judged in the baseline"
    if not new.status.is_judged:
        return "not judged this time"
    return None if _asked(old) == _asked(new) else "changed since"


def _asked(case: TestCase) -> tuple[object, ...]:
    """What makes a case what it is; the collection may be another one, and tags do not matter."""
    return tuple(
        getattr(case, name) for name in TestCase.model_fields if name not in ("collection_name", "tags")
    )


def _passed(case: TestCaseResult) -> bool:
    return case.status is TestStatus.PASSED
