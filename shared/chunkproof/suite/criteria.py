"""Success criteria (docs/contract.md#success-criteria), latency by stage, and the verdict of a run: its exit code,
the line that names what decided it, and the comparison with a baseline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, fsum

from pydantic import Field

from chunkproof.base import errors
from chunkproof.contract import Model
from chunkproof.contract.model import cut_middle
from chunkproof.suite.cases import CriteriaLimits
from chunkproof.suite.outcome import TestCaseResult, TestStatus, list_whole

LATENCY_TARGET_MS = 2000.0
STAGES = ("total", "embedding", "search", "format")
PASS_RATE, IN_TOP_5 = "SC-004", "SC-003"
TITLES = {
    "SC-001": "Retrieval by id",
    "SC-002": "Similarity search, on average",
    IN_TOP_5: "Cases with an expected document in the top 5",
    PASS_RATE: "Cases passed",
    "SC-005": "Errors with a typed code",
    "SC-006": "Cases with the same verdict in every run",
    "stage-embedding": "Embedding, the longest",
    "stage-search": "Search in Qdrant, 95th percentile",
    "stage-format": "Formatting the response, 95th percentile",
    "stage-total": "End to end, 95th percentile",
}
NOT_SERVED = "embedded store: --judge-latency judges it"


class Spread(Model):
    """Milliseconds of several searches; percentiles are by nearest rank."""

    count: int
    avg_ms: float
    p50_ms: float
    p95_ms: float
    max_ms: float


class StageLatency(Model):
    """One stage; null where no such search was measured."""

    stage: str
    warm: Spread | None
    cold: Spread | None

    @property
    def usual(self) -> Spread | None:
        """The warm searches, or the cold ones where there are no others."""
        return self.warm or self.cold


def summarize_stages(results: Sequence[TestCaseResult], stages: Sequence[str] = STAGES) -> tuple[StageLatency, ...]:
    """Summarize these stages of the searches; cached embeddings are left out."""
    timings = [result.timing for result in results if result.timing]
    of_stage = {"total": list_whole(results), "embedding": [each for each in timings if not each.embedding_cached]}

    def summarize(stage: str, *, cold: bool) -> Spread | None:
        name = "latency_ms" if stage == "total" else f"{stage}_ms"
        return summarize_times([float(getattr(t, name)) for t in of_stage.get(stage, timings) if t.cold is cold])

    return tuple(
        StageLatency(stage=stage, warm=summarize(stage, cold=False), cold=summarize(stage, cold=True))
        for stage in stages
    )


def summarize_latency(results: Sequence[TestCaseResult]) -> Spread | None:
    """Summarize the latency, end to end, of warm searches, or of all where none is warm."""
    return find_end_to_end(summarize_stages(results, STAGES[:1]))


def find_end_to_end(latency: Sequence[StageLatency]) -> Spread | None:
    """Return the latency of whole searches; None where none was measured."""
    return next((stage.usual for stage in latency if stage.stage == STAGES[0]), None)


def summarize_times(values: Sequence[float]) -> Spread | None:
    """Summarize these milliseconds; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        avg_ms=round(fsum(ordered) / len(ordered), 3),
        p50_ms=percentile(ordered, 50),
        p95_ms=percentile(ordered, 95),
        max_ms=ordered[-1],
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the percentile by nearest rank."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


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
        _judge_stage(given, "SC-002", "total", "avg_ms"),
        _judge_relevance(given),
        _judge_pass_rate(given),
        _judge_errors(given),
        _judge_repeatability(given),
        _judge_stage(given, "stage-embedding", "embedding", "max_ms"),
        *(_judge_stage(given, f"stage-{stage}", stage, "p95_ms") for stage in ("search", "format", "total")),
    )


def _judge_lookups(given: CriteriaInput) -> Criterion:
    times = given.lookups_ms
    details = f"average of {len(times)} lookups" if times else given.lookups_reason
    return _judge_latency(given, "SC-001", fsum(times) / len(times) if times else None, details)


def _judge_stage(given: CriteriaInput, key: str, name: str, figure: str) -> Criterion:
    """Judge a figure of a stage: its warm searches, or the cold ones where there are no others."""
    stage = next((stage for stage in given.latency if stage.stage == name), None)
    if stage is None or (measured := stage.usual) is None:
        return _judge_latency(given, key, None, "no search was measured")
    details = f"{measured.count} {'warm' if stage.warm else 'cold'} searches"
    slow = given.limits.slow_embedding
    if key == "stage-embedding" and measured.max_ms > slow:
        details += f"; over {slow:g} ms is slow"
    return _judge_latency(given, key, getattr(measured, figure), details)


def _judge_relevance(given: CriteriaInput) -> Criterion:
    cases = [r for r in given.results if r.expected_doc_ids and r.status.is_judged]
    details = f"{len(cases)} cases" if cases else "no case that could be judged expects documents"
    return _judge_share(given, IN_TOP_5, sum(r.has_expected_in_top_5 for r in cases), len(cases), details)


def _judge_pass_rate(given: CriteriaInput) -> Criterion:
    """Judge the pass rate; it stays open where the cases without a verdict could decide it."""
    states = [result.status for result in given.results]
    unknown = sum(not state.is_judged for state in states)
    passed, needed = states.count(TestStatus.PASSED), given.limits.passed * len(states) / 100
    if not states or passed < needed <= passed + unknown:
        return _judge_share(given, PASS_RATE, passed, 0, f"{unknown} cases could not be judged")
    return _judge_share(given, PASS_RATE, passed, len(states), f"{passed} of {len(states)}")


def _judge_errors(given: CriteriaInput) -> Criterion:
    """Judge whether errors had a typed code; `INTERNAL`, the code of unexpected failures, is not one."""
    count = len(given.error_codes)
    typed = sum(code != errors.InternalError.code for code in given.error_codes)
    return _judge_share(given, "SC-005", typed, count, f"{typed} of {count} errors" if count else "no error occurred")


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
    return _judge_share(given, "SC-006", count - len(given.differing), count, details)


def _judge_latency(given: CriteriaInput, key: str, figure: float | None, details: str) -> Criterion:
    if figure is not None and not given.judge_latency:
        figure, details = None, NOT_SERVED
    limit_ms = given.limits.by_id[key] or given.latency_target_ms
    return Criterion(
        id=key,
        title=TITLES[key],
        limit=f"< {limit_ms:g} ms",
        limit_ms=limit_ms,
        figure=figure,
        unit="ms",
        verdict=_decide(figure, figure is not None and figure < limit_ms),
        details=details,
    )


def _judge_share(given: CriteriaInput, key: str, count: int, total: int, details: str) -> Criterion:
    figure, least = 100 * count / total if total else None, given.limits.by_id[key]
    return Criterion(
        id=key,
        title=TITLES[key],
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


FAILED, WRONG_INPUT, COULD_NOT_JUDGE = 1, 2, 3
NAMED = 5


class Gate(StrEnum):
    """The outcome of a comparison; `cannot tell` is for `--tolerate chance` and a suite that is too small for it."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot tell"
    NOT_JUDGED = "not judged"


class MetricChange(Model):
    """A metric's mean in both runs, over the cases that have it in both."""

    name: str
    cases: int
    before: float
    after: float
    low: float = Field(description="Lower end of the interval of the difference")
    high: float = Field(description="Upper end; below 0, the fall is more than chance")
    gated: bool = Field(description="Whether the gate depends on it")

    @property
    def difference(self) -> float:
        """After minus before: negative is worse."""
        return self.after - self.before

    @property
    def is_regression(self) -> bool:
        """Whether it fell by more than chance explains."""
        return self.high < 0


class Comparison(Model):
    """The paired comparison of a run with its baseline."""

    baseline: str = Field(description="The report compared with")
    baseline_timestamp: str
    tolerance: str = Field(
        "chance", description="What the gate lets pass: `none`, `chance`, or the number of cases that may newly fail"
    )
    cases: int = Field(description="Cases with a verdict in both runs")
    changes: tuple[MetricChange, ...]
    newly_failing: tuple[str, ...]
    newly_passing: tuple[str, ...]
    failing_unpaired: tuple[str, ...] = Field(
        (), description="Failed cases that the baseline has no verdict on: they are new, or changed since"
    )
    not_compared: dict[str, str] = Field(description="Cases left out, and why")
    confidence: float = Field(description="Of each interval, between 0 and 1")
    rounds: int
    seed: int
    least_changes: int = Field(description="Fewer changed cases than this, all for the worse, could be chance")
    smallest_detectable: float | None = Field(
        None, description="`least_changes` as a share of the cases; null when there are fewer cases than that"
    )
    gate: Gate
    reason: str
    warnings: tuple[str, ...] = Field((), description="What else the verdict warns about")

    @property
    def verdict(self) -> str:
        """The line that explains the exit code."""
        name = "FAILED" if self.gate is Gate.FAILED else self.gate.value
        return "; ".join([f"Gate {name}: {self.reason}", *self.warnings])


class Outcome(StrEnum):
    """How a run ended; a warning is a run that passes, with something that needs a look."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


class RunVerdict(Model):
    """The exit code of a run and what decided it."""

    exit_code: int = Field(description="0 all well, 1 failed, 2 wrong input, 3 could not be judged")
    outcome: Outcome
    counts: str = Field(description="How many cases passed, failed and could not be judged")
    line: str = Field(description="What decided the exit code: the last line on a terminal")

    @property
    def details(self) -> str:
        """What the line says after the counts."""
        return self.line.removeprefix(self.counts)


def judge_run(
    results: Sequence[TestCaseResult], criteria: Sequence[Criterion], comparison: Comparison | None
) -> RunVerdict:
    """Decide the exit code; with a baseline, the gate decides.

    A known failure outweighs a case that could not be judged, which outweighs another criterion that is not met.
    """
    counts = _count(results)
    if comparison:
        code = judge_errors(results) or (COULD_NOT_JUDGE if comparison.gate is Gate.NOT_JUDGED else 0)
        code = FAILED if comparison.gate is Gate.FAILED else code
        warned = comparison.warnings or comparison.newly_failing or comparison.failing_unpaired
        return RunVerdict(exit_code=code, outcome=_outcome(code, bool(warned)), counts=counts, line=comparison.verdict)
    decided = [one for one in criteria if one.decides_failure]
    failed = any(result.status is TestStatus.FAILED for result in results)
    pass_rate = next((one for one in criteria if one.id == PASS_RATE), None)
    is_known = failed and (pass_rate is None or pass_rate.verdict is not Verdict.MET)
    code = FAILED if is_known else judge_errors(results) or (FAILED if decided else 0)
    line = "; ".join([counts, *_explain(results, criteria, tolerated=failed and code != FAILED)])
    return RunVerdict(exit_code=code, outcome=_outcome(code, failed), counts=counts, line=line)


def name_some(names: Sequence[str], most: int = NAMED) -> str:
    """Join the first names, each cut where it is too long, and say how many are left out."""
    more = len(names) - most
    return ", ".join(map(cut_middle, names[:most])) + (f" and {more} more" if more > 0 else "")


def _count(results: Sequence[TestCaseResult]) -> str:
    states = [result.status for result in results]
    passed, failed, unjudged = (states.count(s) for s in (TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR))
    line = f"{passed} of {len(states)} cases passed, {failed} failed"
    line += f", {unjudged} could not be judged" if unjudged else ""
    not_run = len(states) - passed - failed - unjudged
    return line + (f", {not_run} not judged (interrupted)" if not_run else "")


def _explain(results: Sequence[TestCaseResult], criteria: Sequence[Criterion], *, tolerated: bool) -> Iterator[str]:
    """Name the failed cases, the errors and the criteria that are not met."""
    if failed := [result.name for result in results if result.status is TestStatus.FAILED]:
        yield f"failed: {name_some(failed)}"
    if codes := [result.error_code or "INTERNAL" for result in results if result.status is TestStatus.ERROR]:
        yield f"not judged: {', '.join(dict.fromkeys(codes))}"
    for one in criteria:
        if one.verdict is Verdict.NOT_MET and (one.id != PASS_RATE or one.shown_limit != "100 %"):
            yield f"{one.explain_unmet()} (ignored)" if one.ignored else one.explain_unmet()
        elif one.id == PASS_RATE and tolerated and one.verdict is Verdict.MET:
            yield f"{one.shown_figure} passed, limit {one.shown_limit}"


def judge_errors(results: Sequence[TestCaseResult]) -> int:
    """Return 2 if all errors are of wrong input, 3 if some are not or a case was not run, 0 without errors."""
    wrong = (
        errors.InvalidParameterError,
        errors.NotFoundError,
        errors.ForbiddenError,
        errors.RequestTooLargeError,
        errors.ResponseTooLargeError,
    )
    wrong_codes = {kind.code for base in wrong for kind in errors.error_classes(base)} - {
        errors.ChunkNotFoundError.code
    }
    codes = {result.error_code for result in results if not result.status.is_judged}
    if not codes:
        return 0
    return WRONG_INPUT if codes <= wrong_codes else COULD_NOT_JUDGE


def _outcome(code: int, warned: bool) -> Outcome:
    if code:
        return Outcome.FAILED if code == FAILED else Outcome.NOT_JUDGED
    return Outcome.WARNING if warned else Outcome.PASSED
