"""Compare search configurations over the same cases, and choose one.

A configuration is a name and the fields of `POST /search` that it sets. The configurations take turns at each case, in
a rotating order, so that whatever slows the machine down for a while slows all of them down. Embeddings are not
cached: each configuration embeds its queries, as in production.

Prices are list prices; they change: `PRICES_OF` says when they were noted.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from chunkproof import __version__
from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.contract.model import Count, Model, describe_error, unknown_field
from chunkproof.suite.cases import Problem, TestCase
from chunkproof.suite.criteria import MetricChange, Spread, summarize_times
from chunkproof.suite.judge import average
from chunkproof.suite.located_document import BrokenFileError, read_document
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import CaseRunner, OnResult, Search
from chunkproof.suite.suite_file import DOCUMENTS
from chunkproof_cli.suites.baseline import CHANCE, SHARE_PASSED, measure_changes

PRICES: dict[str, Any] = tomllib.loads(files("chunkproof_cli").joinpath("prices.toml").read_text("utf-8"))
PRICES_OF = f"{PRICES['date']:%Y-%m}"
DOCUMENTS_PER_SEARCH = 100
# USD for a millisecond of a thousand functions with 1 GB, and for a thousand requests.
LAMBDA_MS, LAMBDA_THOUSAND = PRICES["gigabyte_second"]["lambda_arm64"], PRICES["million"]["lambda_request"] / 1e3
CHARS_PER_TOKEN = 4  # about


class Prices(Model):
    """Prices in USD that replace or add to the list."""

    embedding: dict[str, float] = Field(default_factory=dict, description="For a million tokens, by model")
    rerank: dict[str, float] = Field(
        default_factory=dict, description="For a thousand searches of up to 100 documents, by model"
    )


@dataclass(frozen=True)
class Usage:
    """What a search used: models by name, None where it used none."""

    query_chars: int
    embedding_model: str | None
    rerank_model: str | None
    candidates: int


def cost_per_thousand(usages: Sequence[Usage], latency_ms: float, prices: Prices) -> tuple[float | None, str]:
    """Return USD for a thousand searches that take this long, and what that is made of; None without a price."""
    if not usages:
        return None, "no search was judged"
    embedding, rerank = {**PRICES["embedding"], **prices.embedding}, {**PRICES["rerank"], **prices.rerank}
    used = {usage.embedding_model: embedding for usage in usages} | {usage.rerank_model: rerank for usage in usages}
    if unpriced := sorted(model for model, listed in used.items() if model is not None and model not in listed):
        return None, f"no price is known for {', '.join(unpriced)}: set it under prices"
    tokens = [(ceil(u.query_chars / CHARS_PER_TOKEN), u.embedding_model) for u in usages if u.embedding_model]
    units = [(ceil(u.candidates / DOCUMENTS_PER_SEARCH), u.rerank_model) for u in usages if u.rerank_model]
    parts = {
        "embedding": sum(count * embedding[model] for count, model in tokens) / 1e6,
        "rerank": sum(count * rerank[model] for count, model in units) / 1e3,
    }
    shares = {name: total / len(usages) * 1e3 for name, total in parts.items()}
    shares["Lambda"] = latency_ms * LAMBDA_MS + LAMBDA_THOUSAND
    return sum(shares.values()), ", ".join(f"{name} {share:.4f}" for name, share in shares.items() if share)


MOST = 20
# These belong to a case, or mean nothing in a comparison.
OF_A_CASE = frozenset(
    {"query_text", "text", "query_vector", "queries", "query_id", "created_at", "timestamp", "cursor"}
)
# The first of these that every configuration has is what they are compared by.
PREFERRED = ("ndcg@10", "ndcg@5", "ndcg@3", "ndcg@1")
# Less is no reason for another choice: USD for a thousand searches, and the share of what the best one costs.
LEAST_SAVING, LEAST_SAVED_SHARE = 0.001, 0.1


class Configuration(Model):
    """How to search: fields of `POST /search`, which replace those of every case."""

    name: str = Field(min_length=1, max_length=80)
    search: dict[str, JsonValue] = Field(default_factory=dict)
    cost_per_thousand: float | None = Field(None, ge=0, description="USD, where you know better than the price list")

    def apply(self, case: TestCase) -> TestCase:
        """Return the case as this configuration searches it."""
        changes: dict[str, Any] = {}
        if "top_k" in self.search:
            changes["top_k"] = self.search["top_k"]
        if collection := self.search.get("collection", self.search.get("collection_name")):
            changes["collection_name"] = collection
        return case.model_copy(update=changes) if changes else case

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a search with the fields of this configuration; filters are added to the case's own."""
        own = self.search.get("filters")
        filters = {**(request.get("filters") or {}), **(own if isinstance(own, dict) else {})}
        return {**request, **self.search, **({"filters": filters} if filters else {})}


class ConfigurationFile(Model):
    """A file of configurations, and prices that differ from the built-in list."""

    configurations: tuple[Configuration, ...] = Field(strict=False)
    prices: Prices = Field(default_factory=Prices)


def read_configurations(file: Path) -> ConfigurationFile:
    """Read the file; `InvalidParameterError` has every problem with its line."""
    if file.suffix not in DOCUMENTS:
        raise InvalidParameterError(f"{file}: configurations are in a .yaml or .json file")
    document = read_document(file)
    if not isinstance(document.value, dict) or not isinstance(document.value.get("configurations"), list):
        raise InvalidParameterError(f"{file}: it must have a list `configurations`, each with a name and `search`")
    try:
        content = ConfigurationFile.model_validate(document.value)
        problems = list(_find_problems(content.configurations))
    except ValidationError as error:
        problems = list(_describe_errors(error))
    if problems:
        raise BrokenFileError([document.locate(problem, file.name) for problem in problems])
    return content


def _describe_errors(error: ValidationError) -> Iterator[Problem]:
    for detail in error.errors():
        path, message = tuple(detail["loc"]), describe_error(detail)
        if detail["type"] == "extra_forbidden":
            model = Configuration if path[0] == "configurations" else ConfigurationFile
            message = unknown_field(str(path[-1]), list(model.model_fields))
        yield Problem(path, message)


def _find_problems(configurations: Sequence[Configuration]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    if not 2 <= len(configurations) <= MOST:
        yield Problem(("configurations",), f"a comparison takes 2 to {MOST} configurations")
    for index, configuration in enumerate(configurations):
        place, name = ("configurations", index), configuration.name
        if names.setdefault(name, index) != index:
            yield Problem((*place, "name"), f"name {name} is used by an earlier configuration")
        for field in sorted(OF_A_CASE & configuration.search.keys()):
            yield Problem((*place, "search", field), f"search.{field} cannot be set: it belongs to a case")
        own = {field: value for field, value in configuration.search.items() if field not in OF_A_CASE}
        try:
            SearchQuery.parse({"query_text": "configuration", **own})
        except InvalidParameterError as error:
            yield from (Problem((*place, "search"), f"{name}: {message}") for message in error.messages)


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

    @property
    def p95_ms(self) -> float:
        """The 95th percentile of its latency."""
        return self.latency.p95_ms if self.latency else float("inf")

    @property
    def cents(self) -> float:
        """The cost in whole cents: what is less follows from the latency, which is compared next."""
        return float("inf") if self.cost_per_thousand is None else round(self.cost_per_thousand, 2)

    def find_gap(self, metric: str, max_latency_ms: float | None = None) -> str | None:
        """Say why it cannot be chosen by this metric; None if it can."""
        if self.errors or not self.latency:
            return f"{self.errors} of {self.passed + self.failed + self.errors} cases could not be judged"
        if self.not_reranked:
            return f"{self.not_reranked} searches were not reranked"
        if metric not in self.metrics:
            return f"it has no {metric}"
        is_late = max_latency_ms is not None and self.p95_ms > max_latency_ms
        return f"95th percentile {self.p95_ms:.1f} ms" if is_late else None


class ConfigurationChoice(Model):
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
    prices_of: str = Field(PRICES_OF, description="When the list prices were noted")
    results: tuple[ConfigurationResult, ...]
    choice: ConfigurationChoice


class ConfigurationRun:
    """One configuration and the cases as it searched them."""

    def __init__(self, configuration: Configuration, cases: Sequence[TestCase], search: Search) -> None:
        self.configuration = configuration
        self.usages: list[Usage] = []
        self.not_reranked: list[str] = []
        self._search = search
        self.runner = CaseRunner([configuration.apply(case) for case in cases], self._search_and_note)

    def _search_and_note(self, request: dict[str, Any]) -> RetrievalResponse:
        response = self._search(self.configuration.request(request))
        rerank = response.execution.rerank
        if rerank is not None and rerank.status == "skipped":
            self.not_reranked.append(rerank.reason or "")
        applied = rerank if rerank is not None and rerank.status == "applied" else None
        model, candidates = (applied.model, applied.candidates) if applied else (None, 0)
        chars = len(str(request["query_text"]))
        self.usages.append(Usage(chars, response.execution.embedding_model, model, candidates))
        return response

    @property
    def results(self) -> Sequence[TestCaseResult]:
        """The cases with their verdicts, in the suite's order."""
        return self.runner.results

    def summarize(self, prices: Prices, first: Sequence[TestCaseResult] | None) -> ConfigurationResult:
        """Sum up the cases; `first` has those of the first configuration."""
        judged = [case for case in self.results if case.status.is_judged]
        passed = sum(case.status is TestStatus.PASSED for case in judged)
        warm = [case.timing.latency_ms for case in judged if case.timing and not case.timing.cold]
        latency = summarize_times(warm or [case.timing.latency_ms for case in judged if case.timing])
        cost, details = cost_per_thousand(self.usages, latency.p50_ms if latency else 0.0, prices)
        if self.configuration.cost_per_thousand is not None:
            cost, details = self.configuration.cost_per_thousand, "as the file states"
        metrics = average([case.metrics for case in judged if case.metrics])[0]
        reasons = ", ".join(dict.fromkeys(self.not_reranked))
        note = (
            f"{len(self.not_reranked)} of {len(self.usages)} searches were not reranked ({reasons}), so its "
            "figures are not those of a reranked search and it cannot be chosen"
        )
        return ConfigurationResult(
            name=self.configuration.name,
            search=self.configuration.search,
            passed=passed,
            failed=len(judged) - passed,
            errors=len(self.results) - len(judged),
            error=next((case.error_message for case in self.results if case.status is TestStatus.ERROR), None),
            metrics={**({SHARE_PASSED: passed / len(judged)} if judged else {}), **metrics},
            latency=latency,
            cost_per_thousand=cost,
            cost_details=details,
            changes=tuple(measure_changes(pair_judged(first, self.results))) if first else (),
            not_reranked=len(self.not_reranked),
            notes=(note,) if self.not_reranked else (),
        )


def pair_judged(
    before: Sequence[TestCaseResult], after: Sequence[TestCaseResult]
) -> list[tuple[TestCaseResult, TestCaseResult]]:
    """Return the cases that were judged both times."""
    pairs = zip(before, after, strict=True)
    return [(old, new) for old, new in pairs if old.status.is_judged and new.status.is_judged]


def run_configurations(
    configurations: Sequence[Configuration],
    cases: Sequence[TestCase],
    search: Search,
    on_result: OnResult | None = None,
) -> list[ConfigurationRun]:
    """Search every case under every configuration, one search at a time."""
    runs = [ConfigurationRun(configuration, cases, search) for configuration in configurations]
    for index in range(len(cases)):
        start = index % len(runs)
        for run in (*runs[start:], *runs[:start]):
            run.runner.run(index, cold=index == 0)
            if on_result:
                on_result(run.results[index])
    return runs


def compare_runs(
    runs: Sequence[ConfigurationRun],
    prices: Prices,
    *,
    suite: str,
    source: str,
    metric: str | None = None,
    max_latency_ms: float | None = None,
) -> ConfigurationReport:
    """Compare the runs with the first one, and choose one.

    They are compared by the wanted metric, else the first preferred one that all have, else the pass rate. A
    configuration of which no case could be judged has no metric, and no say.
    """
    first = runs[0].results
    results = tuple(run.summarize(prices, first if n else None) for n, run in enumerate(runs))
    measured = [result.metrics for result in results if result.metrics]
    common = (name for name in PREFERRED if measured and all(name in metrics for metrics in measured))
    metric = metric or next(common, SHARE_PASSED)
    return ConfigurationReport(
        suite=suite,
        source=source,
        cases=len(first),
        timestamp=datetime.now(UTC).isoformat(),
        metric=metric,
        max_latency_ms=max_latency_ms,
        results=results,
        choice=_choose(results, [run.results for run in runs], metric, max_latency_ms),
    )


def _choose(
    results: Sequence[ConfigurationResult],
    cases: Sequence[Sequence[TestCaseResult]],
    metric: str,
    max_latency_ms: float | None,
) -> ConfigurationChoice:
    """Pick the best configuration, or a cheaper one that chance cannot tell from it.

    Chance explains a large lead over few cases, too: it is not given up for a difference that is itself noise.
    """
    gaps = {result.name: gap for result in results if (gap := result.find_gap(metric, max_latency_ms))}
    left_out = "; ".join(f"{name}: {gap}" for name, gap in gaps.items())
    whole = [n for n, result in enumerate(results) if result.find_gap(metric) is None]
    if not whole:
        return ConfigurationChoice(
            name=None, reason=f"no configuration could be judged on every case by {metric} ({left_out})"
        )
    timely = [n for n in whole if results[n].name not in gaps]
    if not timely:
        nearest = min((results[n] for n in whole), key=lambda result: result.p95_ms)
        return ConfigurationChoice(
            name=None,
            reason=f"no configuration is within {max_latency_ms:g} ms at the 95th percentile; "
            f"the fastest is {nearest.name} with {nearest.p95_ms:.1f} ms",
        )
    best = max(timely, key=lambda n: (results[n].metrics[metric], -results[n].p95_ms))
    equal = [n for n in timely if n == best or not _is_worse(cases[best], cases[n], metric)]
    cheapest = min(equal, key=lambda n: (results[n].cents, -results[n].metrics[metric]))
    saved, enough = results[best].cents - results[cheapest].cents, LEAST_SAVED_SHARE * results[best].cents
    chosen, top = results[cheapest if saved >= max(LEAST_SAVING, enough) else best], results[best]
    others = [results[n].name for n in equal if results[n] is not chosen]
    if chosen is not top:
        count = max(result.passed + result.failed for result in results)
        why = f"{top.name} has {top.metrics[metric]:.3f}, which chance explains over {count} cases, and costs more"
    elif others:
        beaten = [results[n].name for n in timely if n not in equal]
        why = f"its lead over {', '.join(others)} is within chance, and none of them saves enough"
        why += f"; better than {', '.join(beaten)} by more than chance" if beaten else ""
    elif not gaps:
        why = "better than every other by more than chance"
    else:
        beaten = [results[n].name for n in timely if n != best]
        why = f"better than {', '.join(beaten)} by more than chance" if beaten else "no other could be compared with it"
    why += f"; not compared: {left_out}" if gaps else ""
    figures = f"{metric} {chosen.metrics[metric]:.3f}, 95th percentile {chosen.p95_ms:.1f} ms"
    return ConfigurationChoice(name=chosen.name, reason=f"{figures}; {why}")


def _is_worse(best: Sequence[TestCaseResult], other: Sequence[TestCaseResult], metric: str) -> bool:
    """Whether the second configuration falls behind the first by more than chance."""
    changes = {change.name: change for change in measure_changes(pair_judged(best, other))}
    return metric in changes and changes[metric].is_regression
