"""Success criteria (document 003) and stage limits (001, 004), each with figure and verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum

from pydantic import Field

from chunkproof.models import Model
from chunkproof.suite.latency import Spread, StageLatency
from chunkproof.suite.outcome import TestCaseResult, TestStatus

LATENCY_TARGET_MS = 2000.0
EMBEDDING_LIMIT_MS, EMBEDDING_WARNING_MS = 2000.0, 1000.0


class Verdict(StrEnum):
    """Whether a criterion holds; what could not be measured is never called met."""

    MET = "met"
    NOT_MET = "not met"
    NOT_JUDGED = "not judged"


class Criterion(Model):
    """One criterion: what is asked, what was measured, what follows."""

    id: str
    title: str
    limit: str
    limit_ms: float | None = Field(None, description="The limit as a number, of those in milliseconds")
    figure: float | None = Field(None, description="As measured; null when not judged")
    unit: str
    verdict: Verdict
    details: str | None = Field(None, description="How it was measured, or why it could not be judged")

    @property
    def is_latency(self) -> bool:
        """Whether a busier machine could change the verdict."""
        return self.unit == "ms"

    @property
    def shown_figure(self) -> str:
        """The figure as people read it."""
        return "–" if self.figure is None else f"{self.figure:.4g} {self.unit}"


@dataclass(frozen=True, slots=True)
class CriteriaInput:
    """What the criteria are judged by; a reason instead of figures where something could not be measured."""

    results: Sequence[TestCaseResult]
    latency: Sequence[StageLatency]
    lookups_ms: Sequence[float]
    lookups_reason: str
    error_classes: tuple[int, int]
    runs: int
    differing: Sequence[str]
    latency_target_ms: float = LATENCY_TARGET_MS


def judge_criteria(evidence: CriteriaInput) -> tuple[Criterion, ...]:
    """Every criterion, in the documents' order."""
    return (
        _by_id(evidence),
        _average_search(evidence),
        _relevance(evidence),
        _pass_rate(evidence),
        _error_handling(evidence),
        _repeatable(evidence),
        *_stages(evidence),
    )


def _by_id(evidence: CriteriaInput) -> Criterion:
    return _below(
        "SC-001",
        "Retrieval by id",
        100.0,
        fsum(evidence.lookups_ms) / len(evidence.lookups_ms) if evidence.lookups_ms else None,
        details=f"average of {len(evidence.lookups_ms)} lookups"
        if evidence.lookups_ms
        else evidence.lookups_reason,
    )


def _average_search(evidence: CriteriaInput) -> Criterion:
    total = _stage(evidence, "total")
    return _below(
        "SC-002",
        "Similarity search, on average",
        500.0,
        total.avg_ms if total else None,
        details=_searches(evidence, total),
    )


def _relevance(evidence: CriteriaInput) -> Criterion:
    cases = [r for r in evidence.results if r.expected_doc_ids and r.status.is_judged]
    share = sum(r.has_expected_in_top_5 for r in cases) / len(cases) if cases else None
    return Criterion(
        id="SC-003",
        title="Cases with an expected document in the top 5",
        limit="≥ 95 %",
        figure=None if share is None else share * 100,
        unit="%",
        verdict=_verdict(share, share is not None and share >= 0.95),
        details=f"{len(cases)} cases" if cases else "no case that could be judged expects documents",
    )


def _pass_rate(evidence: CriteriaInput) -> Criterion:
    states = [result.status for result in evidence.results]
    unknown = sum(not state.is_judged for state in states)
    passed = states.count(TestStatus.PASSED)
    rate = None if not states or (unknown and TestStatus.FAILED not in states) else passed / len(states)
    return Criterion(
        id="SC-004",
        title="Cases passed",
        limit="100 %",
        figure=None if rate is None else rate * 100,
        unit="%",
        verdict=_verdict(rate, rate == 1.0),
        details=f"{passed} of {len(states)}" if rate is not None else f"{unknown} cases could not be judged",
    )


def _error_handling(evidence: CriteriaInput) -> Criterion:
    handled, known = evidence.error_classes
    return Criterion(
        id="SC-005",
        title="Error classes raised and handled",
        limit="100 %",
        figure=100 * handled / known,
        unit="%",
        verdict=_verdict(handled, handled == known),
        details=f"{handled} of {known}, in this process",
    )


def _repeatable(evidence: CriteriaInput) -> Criterion:
    count = len(evidence.results)
    if evidence.runs < 2:
        figure, details = None, "one run; --repeat 2 judges it"
    elif not all(result.status.is_judged for result in evidence.results):
        figure, details = None, "some cases could not be judged"
    else:
        figure = 100 * (count - len(evidence.differing)) / count
        details = f"{evidence.runs} runs"
        if evidence.differing:
            details += f"; verdicts differ for {', '.join(evidence.differing[:5])}"
    return Criterion(
        id="SC-006",
        title="Cases with the same verdict in every run",
        limit="100 %",
        figure=figure,
        unit="%",
        verdict=_verdict(figure, figure == 100),
        details=details,
    )


def _stages(evidence: CriteriaInput) -> Iterator[Criterion]:
    embedding = _stage(evidence, "embedding")
    slow = embedding is not None and embedding.max_ms > EMBEDDING_WARNING_MS
    searches = _searches(evidence, embedding)
    yield _below(
        "stage-embedding",
        "Embedding, the longest",
        EMBEDDING_LIMIT_MS,
        embedding.max_ms if embedding else None,
        details=f"{searches}; over {EMBEDDING_WARNING_MS:g} ms is slow" if slow else searches,
    )
    for stage, title, limit in (
        ("search", "Search in Qdrant, 95th percentile", 1000.0),
        ("format", "Making the answer, 95th percentile", 50.0),
        ("total", "End to end, 95th percentile", evidence.latency_target_ms),
    ):
        measured = _stage(evidence, stage)
        yield _below(
            f"stage-{stage}",
            title,
            limit,
            measured.p95_ms if measured else None,
            details=_searches(evidence, measured),
        )


def _below(key: str, title: str, limit_ms: float, figure: float | None, *, details: str) -> Criterion:
    return Criterion(
        id=key,
        title=title,
        limit=f"< {limit_ms:g} ms",
        limit_ms=limit_ms,
        figure=figure,
        unit="ms",
        verdict=_verdict(figure, figure is not None and figure < limit_ms),
        details=details,
    )


def _verdict(figure: float | None, holds: bool) -> Verdict:
    if figure is None:
        return Verdict.NOT_JUDGED
    return Verdict.MET if holds else Verdict.NOT_MET


def _stage(evidence: CriteriaInput, name: str) -> Spread | None:
    return next((stage.usual for stage in evidence.latency if stage.stage == name), None)


def _searches(evidence: CriteriaInput, measured: Spread | None) -> str:
    if measured is None:
        return "no search was measured"
    warm = any(stage.warm is measured for stage in evidence.latency)
    return f"{measured.count} {'warm' if warm else 'cold'} searches"
