"""Search for fusion weights on half of the cases, and measure the best of them on the other half.

Weights that are chosen and measured on the same cases look better than they are. So the cases are split by a hash of
their names: the same suite always gives the same halves, whatever the order of its cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from math import fsum
from typing import Literal

from pydantic import Field, JsonValue

from chunkproof import __version__
from chunkproof.errors import InvalidParameterError
from chunkproof.models.base import Count, Model
from chunkproof.suite.case_runner import OnResult, Search
from chunkproof.suite.cases import TestCase
from chunkproof.suite.comparison import MetricChange
from chunkproof.suite.outcome import TestCaseResult
from chunkproof_cli.suites.compare import measure_changes
from chunkproof_cli.suites.configuration_report import PREFERRED, pair_judged
from chunkproof_cli.suites.configuration_run import Run, run_configurations
from chunkproof_cli.suites.configurations import Configuration

LEAST_CASES = 10
TEXT_WEIGHTS = tuple(n / 10 for n in range(1, 10))
RANK_CONSTANTS = (2, 20, 60)
DENSE = Configuration(name="dense", search={"mode": "dense"})
TEXT = Configuration(name="text", search={"mode": "text"})
EVEN = Configuration(name="hybrid", search={"mode": "hybrid"})


def _fused(text_weight: float, k: int) -> Configuration:
    weights: dict[str, JsonValue] = {"dense": round(1 - text_weight, 1), "text": text_weight}
    return Configuration(
        name=f"hybrid, text weight {text_weight:.1f}, k {k}",
        search={"mode": "hybrid", "fusion": {"method": "rrf", "weights": weights, "k": k}},
    )


class Tuned(Model):
    """A configuration with its mean on each half."""

    configuration: Configuration
    chosen_on: float = Field(description="Mean on the half that it was chosen by")
    measured_on: float | None = Field(None, description="Mean on the other half, for those measured there")


class TuningReport(Model):
    """The best fusion weights, and what they are worth on cases that did not choose them."""

    format: Literal["chunkproof-tuning-report"] = "chunkproof-tuning-report"
    format_version: str = "1.0"
    chunkproof_version: str = __version__
    suite: str
    metric: str
    cases_to_choose: Count
    cases_to_measure: Count
    tried: tuple[Tuned, ...] = Field(description="Best first")
    best: Tuned
    against: dict[str, MetricChange] = Field(
        description="On the other half: the change from each alternative to the best"
    )

    @property
    def is_proved(self) -> bool:
        """Whether the best one beats every alternative by more than chance on the other half."""
        return all(change.low > 0 for change in self.against.values())


@dataclass(frozen=True)
class Halves:
    """The cases that choose the weights, and those that measure them."""

    choosing: Sequence[TestCase]
    measuring: Sequence[TestCase]


def split_cases(cases: Sequence[TestCase], metric: str) -> Halves:
    """Split the cases that name documents into halves; `InvalidParameterError` when there are too few."""
    judged = [case for case in cases if case.grades]
    if len(judged) < LEAST_CASES:
        raise InvalidParameterError(
            f"Tuning by {metric} needs at least {LEAST_CASES} cases with expected_doc_ids; the suite has {len(judged)}"
        )
    ordered = sorted(judged, key=lambda case: sha256(case.name.encode()).digest())
    half = len(ordered) // 2
    return Halves(ordered[:half], ordered[half:])


def choose_metric(cases: Sequence[TestCase]) -> str:
    """Return ndcg@10, or ndcg at fewer results if a case asks for fewer."""
    least = min((case.top_k for case in cases if case.grades), default=10)
    return next(name for name in PREFERRED if int(name.removeprefix("ndcg@")) <= least)


def candidates() -> list[Configuration]:
    """Return every configuration to try: each leg alone, both by default, and with each weight and rank constant."""
    return [DENSE, TEXT, EVEN, *(_fused(weight, k) for k, weight in product(RANK_CONSTANTS, TEXT_WEIGHTS))]


def tune(halves: Halves, search: Search, *, suite: str, metric: str, on_result: OnResult | None = None) -> TuningReport:
    """Try every candidate on the first half, and the best one on the other half, beside the usual alternatives."""
    chosen = run_configurations(candidates(), halves.choosing, search, on_result)
    means = [(run, _mean(run, metric)) for run in chosen]
    # Of equals, the default, then the one nearest to even weights: it was not chosen by the chance of a case.
    means.sort(key=lambda pair: (-pair[1], _distance_from_even(pair[0].configuration)))
    best = means[0][0].configuration
    alternatives = [one for one in (DENSE, TEXT, EVEN) if one.name != best.name]
    measured = run_configurations([best, *alternatives], halves.measuring, search, on_result)
    on_other = {run.configuration.name: _mean(run, metric) for run in measured}
    changes = {run.configuration.name: _change(run.results, measured[0].results, metric) for run in measured[1:]}
    tried = tuple(
        Tuned(configuration=run.configuration, chosen_on=mean, measured_on=on_other.get(run.configuration.name))
        for run, mean in means
    )
    return TuningReport(
        suite=suite,
        metric=metric,
        cases_to_choose=len(halves.choosing),
        cases_to_measure=len(halves.measuring),
        tried=tried,
        best=tried[0],
        against=changes,
    )


def count_searches(halves: Halves) -> int:
    """Return how many searches tuning takes at most."""
    return len(candidates()) * len(halves.choosing) + 4 * len(halves.measuring)


def _distance_from_even(one: Configuration) -> float:
    if one == EVEN:
        return 0.0
    fusion = one.search.get("fusion")
    weights = fusion.get("weights") if isinstance(fusion, dict) else None
    text = weights.get("text") if isinstance(weights, dict) else None
    return abs(float(text) - 0.5) if isinstance(text, float) else 1.0


def _mean(run: Run, metric: str) -> float:
    """Return the metric's mean; a case that could not be judged ends the search for weights."""
    for one in run.results:
        if not one.status.is_judged:
            raise InvalidParameterError(
                f"{run.configuration.name}: case {one.name} could not be judged: {one.error_message}"
            )
    values = [one.metrics[metric] for one in run.results if metric in one.metrics]
    if not values:
        raise InvalidParameterError(f"No case is searched deep enough for {metric}: raise top_k or name another metric")
    return fsum(values) / len(values)


def _change(before: Sequence[TestCaseResult], after: Sequence[TestCaseResult], metric: str) -> MetricChange:
    return next(change for change in measure_changes(pair_judged(before, after)) if change.name == metric)
