"""How long the searches of a run took, by stage; cold and warm ones apart."""

from collections.abc import Iterable, Sequence
from math import ceil, fsum

from chunkproof.models import Model
from chunkproof.suite.outcome import CaseTiming, TestCaseResult

STAGES = ("total", "embedding", "search", "format")


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


def summarize_stages(results: Iterable[TestCaseResult], stages: Sequence[str] = STAGES) -> tuple[StageLatency, ...]:
    """Summarize these stages of the searches; cached embeddings are left out."""
    timings = [result.timing for result in results if result.timing]
    return tuple(
        StageLatency(
            stage=stage,
            warm=summarize_times([_time_of(stage, t) for t in timings if not t.cold and _is_counted(stage, t)]),
            cold=summarize_times([_time_of(stage, t) for t in timings if t.cold and _is_counted(stage, t)]),
        )
        for stage in stages
    )


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


def _time_of(stage: str, timing: CaseTiming) -> float:
    by_stage = {
        "total": timing.latency_ms,
        "embedding": timing.embedding_ms,
        "search": timing.search_ms,
        "format": timing.format_ms,
    }
    return by_stage[stage]


def _is_counted(stage: str, timing: CaseTiming) -> bool:
    return stage != "embedding" or not timing.embedding_cached
