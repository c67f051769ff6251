"""Success criteria and stage limits (docs/contract.md#success-criteria), each with figure and verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum

from pydantic import Field

from chunkproof.errors import InternalError
from chunkproof.models import Model
from chunkproof.suite.latency import Spread, StageLatency
from chunkproof.suite.limits import CriteriaLimits
from chunkproof.suite.outcome import TestCaseResult, TestStatus

LATENCY_TARGET_MS = 2000.0
PASS_RATE, IN_TOP_5 = "SC-004", "SC-003"
NOT_SERVED = "measured only on a served or deployed store; --judge-latency judges the embedded one"


class Verdict(StrEnum):
    """Whether a criterion holds; one that could not be measured is never met."""

    MET = "met"
    NOT_MET = "not met"
    NOT_JUDGED = "not judged"


class Criterion(Model):
    """One criterion: its limit, the measured figure and the verdict."""

    id: str
    title: str
    limit: str
    limit_ms: float | None = Field(None, description="The limit as a number, of those in milliseconds")
    figure: float | None = Field(None, description="As measured; null when not judged")
    unit: str
    verdict: Verdict
    details: str | None = Field(None, description="How it was measured, or why it could not be judged")
    ignored: bool = Field(False, description="Whether it is reported without a say in the exit code")

    @property
    def is_latency(self) -> bool:
        """Whether a busier machine could change the verdict."""
        return self.unit == "ms"

    @property
    def shown_figure(self) -> str:
        """The figure with its unit, rounded for display."""
        return "–" if self.figure is None else f"{self.figure:.4g} {self.unit}"

    @property
    def shown_limit(self) -> str:
        """The limit as a figure."""
        return self.limit.lstrip("<≥ ")

    @property
    def decides_failure(self) -> bool:
        """Whether it is not met and counts."""
        return self.verdict is Verdict.NOT_MET and not self.ignored

    def explain_unmet(self) -> str:
        """Say by how much it is not met."""
        return f"{self.id} not met: {self.shown_figure}, limit {self.shown_limit}"


@dataclass(frozen=True, slots=True)
class CriteriaInput:
    """The measurements that the criteria are judged by.

    `lookups_reason` says why there are no `lookups_ms`; `error_codes` has the code of each error of the run.
    `judge_latency` is false for an embedded store, which says nothing about the latency of a served one.
    """

    results: Sequence[TestCaseResult]
    latency: Sequence[StageLatency]
    lookups_ms: Sequence[float]
    lookups_reason: str
    error_codes: Sequence[str]
    runs: int
    differing: Sequence[str]
    latency_target_ms: float = LATENCY_TARGET_MS
    limits: CriteriaLimits = field(default_factory=CriteriaLimits)
    judge_latency: bool = True


def judge_criteria(given: CriteriaInput) -> tuple[Criterion, ...]:
    """Judge every criterion, in the order of docs/contract.md."""
    return (
        _judge_lookups(given),
        _judge_average_latency(given),
        _judge_relevance(given),
        _judge_pass_rate(given),
        _judge_errors(given),
        _judge_repeatability(given),
        *_judge_stages(given),
    )


def _judge_lookups(given: CriteriaInput) -> Criterion:
    return _judge_latency(
        given,
        "SC-001",
        "Retrieval by id",
        given.limits.lookup,
        fsum(given.lookups_ms) / len(given.lookups_ms) if given.lookups_ms else None,
        details=f"average of {len(given.lookups_ms)} lookups" if given.lookups_ms else given.lookups_reason,
    )


def _judge_average_latency(given: CriteriaInput) -> Criterion:
    total = _find_stage(given, "total")
    return _judge_latency(
        given,
        "SC-002",
        "Similarity search, on average",
        given.limits.search,
        total.avg_ms if total else None,
        details=_describe_searches(given, total),
    )


def _judge_relevance(given: CriteriaInput) -> Criterion:
    cases = [r for r in given.results if r.expected_doc_ids and r.status.is_judged]
    return _judge_share(
        IN_TOP_5,
        "Cases with an expected document in the top 5",
        sum(r.has_expected_in_top_5 for r in cases),
        len(cases),
        least=given.limits.in_top_5,
        details=f"{len(cases)} cases" if cases else "no case that could be judged expects documents",
    )


def _judge_pass_rate(given: CriteriaInput) -> Criterion:
    """Judge the pass rate; it stays open where the cases without a verdict could decide it."""
    states = [result.status for result in given.results]
    unknown = sum(not state.is_judged for state in states)
    passed, needed = states.count(TestStatus.PASSED), given.limits.passed * len(states) / 100
    is_open = not states or passed < needed <= passed + unknown
    return _judge_share(
        PASS_RATE,
        "Cases passed",
        passed,
        0 if is_open else len(states),
        least=given.limits.passed,
        details=f"{unknown} cases could not be judged" if is_open else f"{passed} of {len(states)}",
    )


def _judge_errors(given: CriteriaInput) -> Criterion:
    """Judge whether errors were typed. `INTERNAL` is the code of an unexpected failure, so it is not."""
    count = len(given.error_codes)
    typed = sum(code != InternalError.code for code in given.error_codes)
    return _judge_share(
        "SC-005",
        "Errors with a typed code",
        typed,
        count,
        least=given.limits.typed_errors,
        details=f"{typed} of {count} errors" if count else "no error occurred",
    )


def _judge_repeatability(given: CriteriaInput) -> Criterion:
    count, details = 0, f"{given.runs} runs"
    if given.runs < 2:
        details = "one run; --repeat 2 judges it"
    elif not all(result.status.is_judged for result in given.results):
        details = "some cases could not be judged"
    else:
        count = len(given.results)
        if given.differing:
            details += f"; verdicts differ for {', '.join(given.differing[:5])}"
    same = count - len(given.differing)
    return _judge_share(
        "SC-006",
        "Cases with the same verdict in every run",
        same,
        count,
        least=given.limits.same_verdict,
        details=details,
    )


def _judge_stages(given: CriteriaInput) -> Iterator[Criterion]:
    limits = given.limits
    embedding = _find_stage(given, "embedding")
    slow = embedding is not None and embedding.max_ms > limits.slow_embedding
    searches = _describe_searches(given, embedding)
    yield _judge_latency(
        given,
        "stage-embedding",
        "Embedding, the longest",
        limits.stage_embedding,
        embedding.max_ms if embedding else None,
        details=f"{searches}; over {limits.slow_embedding:g} ms is slow" if slow else searches,
    )
    for stage, title, limit in (
        ("search", "Search in Qdrant, 95th percentile", limits.stage_search),
        ("format", "Formatting the response, 95th percentile", limits.stage_format),
        ("total", "End to end, 95th percentile", limits.stage_total or given.latency_target_ms),
    ):
        measured = _find_stage(given, stage)
        yield _judge_latency(
            given,
            f"stage-{stage}",
            title,
            limit,
            measured.p95_ms if measured else None,
            details=_describe_searches(given, measured),
        )


def _judge_latency(
    given: CriteriaInput, key: str, title: str, limit_ms: float, figure: float | None, *, details: str
) -> Criterion:
    if figure is not None and not given.judge_latency:
        figure, details = None, NOT_SERVED
    return Criterion(
        id=key,
        title=title,
        limit=f"< {limit_ms:g} ms",
        limit_ms=limit_ms,
        figure=figure,
        unit="ms",
        verdict=_decide(figure, figure is not None and figure < limit_ms),
        details=details,
    )


def _judge_share(key: str, title: str, count: int, total: int, *, least: float, details: str) -> Criterion:
    figure = 100 * count / total if total else None
    return Criterion(
        id=key,
        title=title,
        limit=f"{'≥ ' if least < 100 else ''}{least:g} %",
        figure=figure,
        unit="%",
        verdict=_decide(figure, figure is not None and figure >= least),
        details=details,
    )


def _decide(figure: float | None, holds: bool) -> Verdict:
    if figure is None:
        return Verdict.NOT_JUDGED
    return Verdict.MET if holds else Verdict.NOT_MET


def _find_stage(given: CriteriaInput, name: str) -> Spread | None:
    return next((stage.usual for stage in given.latency if stage.stage == name), None)


def _describe_searches(given: CriteriaInput, measured: Spread | None) -> str:
    if measured is None:
        return "no search was measured"
    warm = any(stage.warm is measured for stage in given.latency)
    return f"{measured.count} {'warm' if warm else 'cold'} searches"
