"""The report of a comparison of configurations, and the choice among them."""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, JsonValue

from chunkproof import __version__
from chunkproof.models.base import Count, Model
from chunkproof.suite.comparison import MetricChange
from chunkproof.suite.latency import Spread
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof_cli.suites.compare import CHANCE, SHARE_PASSED, measure_changes

# The first of these that every configuration has is what they are compared by.
PREFERRED = ("ndcg@10", "ndcg@5", "ndcg@3", "ndcg@1")
# Less is no reason for another choice: USD for a thousand searches, and the share of what the best one costs.
LEAST_SAVING, LEAST_SAVED_SHARE = 0.001, 0.1


class ConfigurationResult(Model):
    """How the cases went under one configuration, and what changed against the first one."""

    name: str
    search: dict[str, JsonValue]
    passed: Count
    failed: Count
    errors: Count = Field(description="Cases that could not be judged")
    error: str | None = Field(None, description="Why the first of them could not be judged")
    metrics: dict[str, float] = Field(description="Mean over the cases that have it; `pass rate` is over all judged")
    latency: Spread | None = Field(description="Milliseconds of the warm searches, end to end")
    cost_per_thousand: float | None = Field(description="USD for a thousand searches by list price")
    cost_details: str
    changes: tuple[MetricChange, ...] = Field(
        (), description="Against the first configuration, over the cases judged in both"
    )
    not_reranked: Count = Field(0, description="Searches whose reranking was skipped, although it was asked for")
    notes: tuple[str, ...] = ()

    def change_of(self, metric: str) -> MetricChange | None:
        """Return the change of one metric; None for the first configuration."""
        return next((change for change in self.changes if change.name == metric), None)


class Choice(Model):
    """The configuration to pick; none when all are too slow or could not be judged."""

    name: str | None
    reason: str


class ConfigurationReport(Model):
    """Several configurations side by side, over the same cases."""

    format: Literal["chunkproof-configuration-report"] = "chunkproof-configuration-report"
    format_version: str = "1.0"
    chunkproof_version: str = __version__
    suite: str
    source: str
    cases: Count
    timestamp: str
    metric: str = Field(description="What the configurations are compared by")
    max_latency_ms: float | None = Field(description="The 95th percentile that is allowed")
    confidence: float = Field(1 - 2 * CHANCE, description="Of each interval, between 0 and 1")
    prices_of: str = Field(description="When the list prices were noted")
    results: tuple[ConfigurationResult, ...]
    choice: Choice

    def canonical_json(self) -> str:
        """Return the report as it is written to a file, indented by two spaces."""
        return self.model_dump_json(indent=2) + "\n"


def choose_metric(results: Sequence[ConfigurationResult], wanted: str | None) -> str:
    """Return what to compare by: the wanted metric, else the first preferred one that all have, else the pass rate.

    A configuration of which no case could be judged has no metric, and no say.
    """
    known = [one.metrics for one in results if one.metrics]
    return wanted or next((name for name in PREFERRED if known and all(name in has for has in known)), SHARE_PASSED)


def choose(
    results: Sequence[ConfigurationResult],
    judged: Sequence[Sequence[TestCaseResult]],
    metric: str,
    max_latency_ms: float | None,
) -> Choice:
    """Pick the best configuration, or a cheaper one that chance cannot tell from it."""
    whole = [
        n
        for n, one in enumerate(results)
        if not one.errors and not one.not_reranked and one.latency and metric in one.metrics
    ]
    if not whole:
        return Choice(name=None, reason="no configuration could be judged on every case")
    timely = [n for n in whole if max_latency_ms is None or _p95(results[n]) <= max_latency_ms]
    if not timely:
        nearest = min((results[n] for n in whole), key=_p95)
        return Choice(
            name=None,
            reason=f"no configuration is within {max_latency_ms:g} ms at the 95th percentile; "
            f"the fastest is {nearest.name} with {_p95(nearest):.1f} ms",
        )
    best = max(timely, key=lambda n: (results[n].metrics[metric], -_p95(results[n])))
    equal = [n for n in timely if n == best or not _is_worse(judged[best], judged[n], metric)]
    chosen = _save(results, best, equal, metric)
    return Choice(name=results[chosen].name, reason="; ".join(_explain(results, chosen, best, equal, metric)))


def _save(results: Sequence[ConfigurationResult], best: int, equal: Sequence[int], metric: str) -> int:
    """Return the cheapest of these configurations if it saves enough, else the best one.

    Chance explains a large lead over few cases, too: it is not given up for a difference that is itself noise.
    """
    cheapest = min(equal, key=lambda n: (_cost(results[n]), -results[n].metrics[metric]))
    enough = max(LEAST_SAVING, LEAST_SAVED_SHARE * _cost(results[best]))
    return cheapest if _cost(results[best]) - _cost(results[cheapest]) >= enough else best


def _explain(
    results: Sequence[ConfigurationResult], chosen: int, best: int, equal: Sequence[int], metric: str
) -> Iterator[str]:
    one = results[chosen]
    yield f"{metric} {one.metrics[metric]:.3f}, 95th percentile {_p95(one):.1f} ms"
    others = [results[n].name for n in equal if n != chosen]
    if chosen != best:
        top = results[best]
        yield (
            f"{top.name} has {top.metrics[metric]:.3f}, which chance explains over {_cases(results)} cases, "
            "and costs more"
        )
    elif others:
        yield f"chance explains its lead over {', '.join(others)}, of which none saves enough"
    else:
        yield "better than every other within the limit by more than chance"


def _cases(results: Sequence[ConfigurationResult]) -> int:
    return max(one.passed + one.failed for one in results)


def _is_worse(best: Sequence[TestCaseResult], other: Sequence[TestCaseResult], metric: str) -> bool:
    """Whether the second configuration falls behind the first by more than chance."""
    changes = {change.name: change for change in measure_changes(pair_judged(best, other))}
    return metric in changes and changes[metric].is_regression


def pair_judged(
    before: Sequence[TestCaseResult], after: Sequence[TestCaseResult]
) -> list[tuple[TestCaseResult, TestCaseResult]]:
    """Return the cases that were judged both times."""
    pairs = zip(before, after, strict=True)
    return [(old, new) for old, new in pairs if old.status.is_judged and new.status.is_judged]


def count_status(results: Sequence[TestCaseResult], status: TestStatus) -> int:
    """Count the cases in this state."""
    return sum(one.status is status for one in results)


def _p95(one: ConfigurationResult) -> float:
    return one.latency.p95_ms if one.latency else float("inf")


def _cost(one: ConfigurationResult) -> float:
    """Return the cost in whole cents: what is less follows from the latency, which is compared next."""
    return float("inf") if one.cost_per_thousand is None else round(one.cost_per_thousand, 2)
