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
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, NonNegativeFloat, ValidationError

from chunkproof import __version__
from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import RetrievalResponse, SearchQuery
from chunkproof.contract.model import Count, Model, describe_error, unknown_field
from chunkproof.suite.cases import Problem, TestCase
from chunkproof.suite.criteria import MetricChange, Spread, summarize_latency
from chunkproof.suite.located_document import BrokenFileError, read_document
from chunkproof.suite.outcome import TestCaseResult, TestStatus
from chunkproof.suite.runner import CaseRunner, OnResult, Search
from chunkproof.suite.suite_file import DOCUMENTS
from chunkproof.suite.suite_report import TestSuiteResult
from chunkproof_cli.suites.baseline import CHANCE, SHARE_PASSED, Pair, measure_changes

PRICES: dict[str, Any] = tomllib.loads(files("chunkproof_cli").joinpath("prices.toml").read_text("utf-8"))
PRICES_OF = f"{PRICES['date']:%Y-%m}"
DOCUMENTS_PER_SEARCH = 100
# USD for a millisecond of a thousand functions with 1 GB, and for a thousand requests.
LAMBDA_MS, LAMBDA_THOUSAND = PRICES["gigabyte_second"]["lambda_arm64"], PRICES["million"]["lambda_request"] / 1e3
CHARS_PER_TOKEN = 4  # about


class Prices(Model):
    """Prices in USD that replace or add to the list."""

    embedding: dict[str, NonNegativeFloat] = Field(default_factory=dict, description="For a million tokens, by model")
    rerank: dict[str, NonNegativeFloat] = Field(
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
    metric_queries: dict[str, int] = Field(default_factory=dict, description="How many cases each mean is over")
    not_compared: str | None = Field(None, description="Why it could not be compared with the others")
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

    def find_gap(self, metric: str, max_latency_ms: float | None = None, cases: int = 0) -> str | None:
        """Say why it cannot be chosen by this metric, which others have in so many cases; None if it can."""
        if self.errors or not self.latency:
            return f"{self.errors} of {self.passed + self.failed + self.errors} cases could not be judged"
        if self.not_reranked:
            return f"{self.not_reranked} searches were not reranked"
        if metric not in self.metrics:
            return f"it has no {metric}"
        if (measured := self.metric_queries.get(metric, cases)) < cases:
            return f"it has {metric} in {measured} cases, others in {cases}"
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
        self.results: Sequence[TestCaseResult] = self.runner.results  # of the cases, in the suite's order

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

    def summarize(self, prices: Prices, first: Sequence[TestCaseResult] | None) -> ConfigurationResult:
        """Sum up the cases; `first` has those of the first configuration."""
        whole = TestSuiteResult.of(self.results, execution_time_ms=0, timestamp="")
        latency, judged = summarize_latency(self.results), whole.passed + whole.failed
        cost, details = cost_per_thousand(self.usages, latency.p50_ms if latency else 0.0, prices)
        if self.configuration.cost_per_thousand is not None:
            cost, details = self.configuration.cost_per_thousand, "as the file states"
        reasons = ", ".join(dict.fromkeys(self.not_reranked))
        note = (
            f"{len(self.not_reranked)} of {len(self.usages)} searches were not reranked ({reasons}), so its "
            "figures are not those of a reranked search and it cannot be chosen"
        )
        return ConfigurationResult(
            name=self.configuration.name,
            search=self.configuration.search,
            passed=whole.passed,
            failed=whole.failed,
            errors=whole.errors,
            error=next((case.error_message for case in self.results if case.status is TestStatus.ERROR), None),
            metrics={**({SHARE_PASSED: whole.passed / judged} if judged else {}), **whole.metrics},
            metric_queries={SHARE_PASSED: judged, **whole.metric_queries},
            latency=latency,
            cost_per_thousand=cost,
            cost_details=details,
            changes=tuple(measure_changes(pair_judged(first, self.results))) if first else (),
            not_reranked=len(self.not_reranked),
            notes=(note,) if self.not_reranked else (),
        )


def pair_judged(before: Sequence[TestCaseResult], after: Sequence[TestCaseResult]) -> list[Pair]:
    """Return the cases that were judged both times."""
    return [pair for pair in zip(before, after, strict=True) if all(case.status.is_judged for case in pair)]


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

    They are compared by the wanted metric, else the first preferred one that all have in the same cases, else the pass
    rate. A configuration that was not judged on every case has no say.
    """
    first = runs[0].results
    results = [run.summarize(prices, first if n else None) for n, run in enumerate(runs)]
    counts = [r.metric_queries for r in results if not r.errors] or [r.metric_queries for r in results]
    common = (name for name in PREFERRED if len({cases.get(name) for cases in counts}) == 1 and name in counts[0])
    metric = metric or next(common, SHARE_PASSED)
    gaps = [result.find_gap(metric, cases=max(cases.get(metric, 0) for cases in counts)) for result in results]
    for n, gap in enumerate(gaps):
        unlike = {"changes": ()} if gap or gaps[0] else {}  # a table must not compare what the choice does not
        results[n] = results[n].model_copy(update={"not_compared": gap, **unlike})
    return ConfigurationReport(
        suite=suite,
        source=source,
        cases=len(first),
        timestamp=datetime.now(UTC).isoformat(),
        metric=metric,
        max_latency_ms=max_latency_ms,
        results=tuple(results),
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
    whole = [n for n, result in enumerate(results) if result.not_compared is None]
    unlike = "; ".join(f"{result.name}: {result.not_compared}" for result in results if result.not_compared)
    if not whole:
        none = f"no configuration could be judged on every case by {metric} ({unlike})"
        return ConfigurationChoice(name=None, reason=none)
    late = {n: f"{results[n].name}: {gap}" for n in whole if (gap := results[n].find_gap(metric, max_latency_ms))}
    left_out = f"; not compared: {unlike}" if unlike else ""
    timely = [n for n in whole if n not in late]
    if not timely:
        nearest = min((results[n] for n in whole), key=lambda result: result.p95_ms)
        limit = f"no configuration{' of those compared' if unlike else ''} is within {max_latency_ms:g} ms"
        fastest = f"the fastest is {nearest.name} with {nearest.p95_ms:.1f} ms"
        return ConfigurationChoice(name=None, reason=f"{limit} at the 95th percentile; {fastest}{left_out}")
    left_out += f"; too slow: {'; '.join(late.values())}" if late else ""
    best = max(timely, key=lambda n: (results[n].metrics[metric], -results[n].p95_ms))
    behind = {n: measure_changes(pair_judged(cases[best], cases[n])) for n in timely if n != best}
    worse = {n for n, changes in behind.items() if any(c.name == metric and c.is_regression for c in changes)}
    equal = [n for n in timely if n not in worse]
    cheapest = min(equal, key=lambda n: (results[n].cents, -results[n].metrics[metric]))
    saved, enough = results[best].cents - results[cheapest].cents, LEAST_SAVED_SHARE * results[best].cents
    saves = isfinite(saved) and saved >= max(LEAST_SAVING, enough)
    chosen, top = results[cheapest if saves else best], results[best]
    others = [results[n] for n in equal if results[n] is not chosen]
    beaten = ", ".join(results[n].name for n in sorted(worse))
    if chosen is not top:
        count = top.metric_queries[metric]
        why = f"{top.name} has {top.metrics[metric]:.3f}, which chance explains over {count} cases, and costs more"
    elif others:
        names = ", ".join(other.name for other in others)
        is_tied = all(other.metrics[metric] == top.metrics[metric] for other in others)
        is_known = all(isfinite(results[n].cents) for n in equal)
        why = f"equal to {names}" if is_tied else f"its lead over {names} is within chance"
        why += f", and none of them {'saves' if is_known else 'is known to save'} enough"
        why += f"; better than {beaten} by more than chance" if beaten else ""
    elif beaten:
        why = f"better than {beaten if left_out else 'every other'} by more than chance"
    else:
        why = "no other could be compared with it" if unlike else "no other is fast enough"
    figures = f"{metric} {chosen.metrics[metric]:.3f}, 95th percentile {chosen.p95_ms:.1f} ms"
    return ConfigurationChoice(name=chosen.name, reason=f"{figures}; {why}{left_out}")
