"""Run the same cases under several configurations, and measure each.

The configurations take turns at each case, in a rotating order, so that whatever slows the machine down for a while
slows all of them down. Embeddings are not cached: each configuration embeds its queries, as in production.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from chunkproof.models import RetrievalResponse
from chunkproof.suite.case_runner import CaseRunner, OnResult, Search
from chunkproof.suite.cases import TestCase
from chunkproof.suite.latency import summarize_times
from chunkproof.suite.metrics import average
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof_cli.suites.compare import SHARE_PASSED, measure_changes
from chunkproof_cli.suites.configuration_report import (
    ConfigurationReport,
    ConfigurationResult,
    choose,
    choose_metric,
    count_status,
    pair_judged,
)
from chunkproof_cli.suites.configurations import Configuration
from chunkproof_cli.suites.prices import PRICES_OF, Prices, Usage, cost_per_thousand


@dataclass(frozen=True)
class SuiteName:
    """The suite and where it was read from."""

    name: str
    source: str


class Run:
    """One configuration and the cases as it searched them."""

    def __init__(self, configuration: Configuration, cases: Sequence[TestCase], search: Search) -> None:
        self.configuration = configuration
        self.usages: list[Usage] = []
        self.not_reranked: list[str] = []
        self._search = search
        self.runner = CaseRunner([configuration.apply(case) for case in cases], self._search_and_note)

    def _search_and_note(self, request: dict[str, Any]) -> RetrievalResponse:
        response = self._search(self.configuration.request(request))
        self.usages.append(_read_usage(response, request))
        rerank = response.execution.rerank
        if rerank is not None and rerank.status == "skipped":
            self.not_reranked.append(rerank.reason or "")
        return response

    @property
    def results(self) -> Sequence[TestCaseResult]:
        """The cases with their verdicts, in the suite's order."""
        return self.runner.results

    def summarize(self, prices: Prices, first: Sequence[TestCaseResult] | None) -> ConfigurationResult:
        """Sum up the cases; `first` has those of the first configuration."""
        judged = [one for one in self.results if one.status.is_judged]
        passed = count_status(judged, TestStatus.PASSED)
        warm = [one.timing.latency_ms for one in judged if one.timing and not one.timing.cold]
        latency = summarize_times(warm or [one.timing.latency_ms for one in judged if one.timing])
        cost, details = cost_per_thousand(self.usages, latency.p50_ms if latency else 0.0, prices)
        if self.configuration.cost_per_thousand is not None:
            cost, details = self.configuration.cost_per_thousand, "as the file states"
        error = next((one.error_message for one in self.results if one.status is TestStatus.ERROR), None)
        return ConfigurationResult(
            name=self.configuration.name,
            search=self.configuration.search,
            passed=passed,
            failed=len(judged) - passed,
            errors=len(self.results) - len(judged),
            error=error,
            metrics={
                **({SHARE_PASSED: passed / len(judged)} if judged else {}),
                **average([one.metrics for one in judged if one.metrics])[0],
            },
            latency=latency,
            cost_per_thousand=cost,
            cost_details=details,
            changes=tuple(measure_changes(pair_judged(first, self.results))) if first else (),
            not_reranked=len(self.not_reranked),
            notes=tuple(self._describe_not_reranked()),
        )

    def _describe_not_reranked(self) -> Iterator[str]:
        if self.not_reranked:
            reasons = ", ".join(dict.fromkeys(self.not_reranked))
            yield (
                f"{len(self.not_reranked)} of {len(self.usages)} searches were not reranked ({reasons}), so its "
                "figures are not those of a reranked search and it cannot be chosen"
            )


def run_configurations(
    configurations: Sequence[Configuration],
    cases: Sequence[TestCase],
    search: Search,
    on_result: OnResult | None = None,
) -> list[Run]:
    """Search every case under every configuration, one search at a time."""
    runs = [Run(configuration, cases, search) for configuration in configurations]
    for index in range(len(cases)):
        start = index % len(runs)
        for run in (*runs[start:], *runs[:start]):
            run.runner.run(index, cold=index == 0)
            if on_result:
                on_result(run.results[index])
    return runs


def compare_runs(
    runs: Sequence[Run], suite: SuiteName, prices: Prices, metric: str | None, max_latency_ms: float | None
) -> ConfigurationReport:
    """Compare the runs with the first one, and choose one."""
    first = runs[0].results
    results = tuple(run.summarize(prices, first if n else None) for n, run in enumerate(runs))
    compared_by = choose_metric(results, metric)
    return ConfigurationReport(
        suite=suite.name,
        source=suite.source,
        cases=len(first),
        timestamp=datetime.now(UTC).isoformat(),
        metric=compared_by,
        max_latency_ms=max_latency_ms,
        prices_of=PRICES_OF,
        results=results,
        choice=choose(results, [run.results for run in runs], compared_by, max_latency_ms),
    )


def _read_usage(response: RetrievalResponse, request: dict[str, Any]) -> Usage:
    execution = response.execution
    rerank = getattr(execution, "rerank", None)
    applied = rerank is not None and rerank.status == "applied"
    return Usage(
        query_chars=len(str(request["query_text"])),
        embedding_model=execution.embedding_model,
        rerank_model=rerank.model if rerank is not None and applied else None,
        candidates=rerank.candidates if rerank is not None and applied else 0,
    )
